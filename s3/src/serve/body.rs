//! The body of a request on its way in: read piece by piece, decoded, checked.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, EXPECT, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use portico_backend::bucket::ChecksumAlgorithm;
use tokio::time::Instant;

use super::patience::Patience;
use crate::auth::Payload;
use crate::error::{Code, S3Error};
use crate::limits::{BODY_TIMEOUT, DRAIN_BYTES_MAX, DRAIN_TIMEOUT};
use crate::wire::{BodyDecoder, BodySummary};

/// A body that nobody has started to read. A client that waits for `100 Continue` gets it when the
/// first piece is asked for.
#[derive(Debug)]
pub(crate) struct RequestBody<'a> {
    incoming: &'a mut Incoming,
    headers: &'a HeaderMap,
    payload: Payload,
    received: &'a AtomicU64,
    bytes_per_second_min: u64,
}

/// Data out of a body.
#[derive(Debug)]
pub(crate) struct DataIn<'a> {
    source: RawBody<'a>,
    decoder: BodyDecoder,
    ready: VecDeque<Bytes>,
    scratch: Vec<Bytes>,
    ended: bool,
}

/// A body as it came over the wire.
#[derive(Debug)]
pub(crate) struct RawBody<'a> {
    incoming: &'a mut Incoming,
    received: &'a AtomicU64,
    patience: Patience,
}

impl<'a> RequestBody<'a> {
    /// `payload` is what the signature says about the body; bytes that arrive are added to
    /// `received`. A client that keeps us waiting has to send so many bytes a second.
    pub(super) fn new(
        incoming: &'a mut Incoming,
        headers: &'a HeaderMap,
        payload: Payload,
        received: &'a AtomicU64,
        bytes_per_second_min: u64,
    ) -> Self {
        Self {
            incoming,
            headers,
            payload,
            received,
            bytes_per_second_min,
        }
    }

    /// Starts to decode. `algorithm` is a checksum to compute in any case.
    ///
    /// # Errors
    /// Those of [`BodyDecoder::new`].
    pub(crate) fn decode(
        self,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> Result<DataIn<'a>, S3Error> {
        let decoder = BodyDecoder::new(self.headers, self.payload.clone(), algorithm)?;
        Ok(self.with(decoder))
    }

    fn with(self, decoder: BodyDecoder) -> DataIn<'a> {
        DataIn {
            source: self.raw(),
            decoder,
            ready: VecDeque::new(),
            scratch: Vec::new(),
            ended: false,
        }
    }

    /// The bytes as they come, for bodies with a form of their own.
    pub(crate) fn raw(self) -> RawBody<'a> {
        RawBody {
            incoming: self.incoming,
            received: self.received,
            patience: Patience::new(BODY_TIMEOUT, self.bytes_per_second_min),
        }
    }

    /// The whole body, checked like any other: a document. Where no length is stated there is no
    /// body, and a document that is left out is an empty one.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded` beyond `size_max` bytes, and whatever is wrong with the body.
    pub(crate) async fn document(self, size_max: usize) -> Result<Bytes, S3Error> {
        self.read_document(size_max, |headers, payload| {
            BodyDecoder::new(headers, payload, None)
        })
        .await
    }

    /// As [`RequestBody::document`] where headers with checksums speak of an object.
    ///
    /// # Errors
    /// As [`RequestBody::document`].
    pub(crate) async fn document_about_object(self, size_max: usize) -> Result<Bytes, S3Error> {
        self.read_document(size_max, BodyDecoder::without_checksums)
            .await
    }

    async fn read_document(
        self,
        size_max: usize,
        decoder: fn(&HeaderMap, Payload) -> Result<BodyDecoder, S3Error>,
    ) -> Result<Bytes, S3Error> {
        let mut headers = self.headers.clone();
        if !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        let decoder = decoder(&headers, self.payload.clone())?;
        let mut data = self.with(decoder);
        let mut document = BytesMut::new();
        while let Some(piece) = data.next().await? {
            if document.len() + piece.len() > size_max {
                return Err(Code::MaxMessageLengthExceeded.into());
            }
            document.extend_from_slice(&piece);
        }
        data.finish()?;
        Ok(document.freeze())
    }
}

impl DataIn<'_> {
    /// The algorithm of the checksum that the client states.
    pub(crate) fn stated_algorithm(&self) -> Option<ChecksumAlgorithm> {
        self.decoder.stated_algorithm()
    }

    /// Bytes of data to come if the client said so.
    pub(crate) fn size_hint(&self) -> Option<u64> {
        self.decoder.size_hint()
    }

    /// The next piece; `None` when the body has ended. It counts only once [`DataIn::finish`] has
    /// said so.
    ///
    /// # Errors
    /// `RequestTimeout`, `IncompleteBody`, and those of [`BodyDecoder::push`].
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            let Some(bytes) = self.source.next().await? else {
                self.ended = true;
                return Ok(None);
            };
            self.decoder.push(&bytes, &mut self.scratch)?;
            self.ready
                .extend(self.scratch.drain(..).filter(|piece| !piece.is_empty()));
        }
    }

    /// Says whether the body was whole and correct.
    ///
    /// # Errors
    /// Those of [`BodyDecoder::finish`].
    ///
    /// # Panics
    /// If the body was not read to its end.
    pub(crate) fn finish(self) -> Result<BodySummary, S3Error> {
        assert!(self.ended, "a body is judged at its end");
        self.decoder.finish()
    }
}

impl RawBody<'_> {
    /// The next piece; `None` when the body has ended.
    ///
    /// # Errors
    /// `RequestTimeout` if none comes in time or they come too slowly, `IncompleteBody` if the connection ends early.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        loop {
            let asked = Instant::now();
            let frame = tokio::time::timeout(self.patience.left(), self.incoming.frame())
                .await
                .map_err(|_| S3Error::new(Code::RequestTimeout))?;
            let frame = match frame {
                None => return Ok(None),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Err(S3Error::new(Code::IncompleteBody).with_cause(error.to_string()));
                }
            };
            // Trailers of HTTP itself mean nothing here: those of S3 lie inside aws-chunked.
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.patience.moved(asked.elapsed(), bytes);
            if let Ok(data) = frame.into_data() {
                self.received.fetch_add(bytes, Ordering::Relaxed);
                return Ok(Some(data));
            }
        }
    }
}

/// Reads to the end what is left of a body that nobody wants, so that its connection can carry the
/// next request. `false` if the body is too long or too slow for that, or its client waits for a
/// `100 Continue` and may leave it out.
pub(super) async fn drain(incoming: &mut Incoming, headers: &HeaderMap, received: u64) -> bool {
    if incoming.is_end_stream() {
        return true;
    }
    let is_withheld = headers.contains_key(EXPECT) && received == 0;
    if is_withheld || incoming.size_hint().lower() > DRAIN_BYTES_MAX {
        return false;
    }
    let drained = async {
        let mut left = DRAIN_BYTES_MAX;
        while let Some(frame) = incoming.frame().await {
            let Ok(frame) = frame else { return false };
            let count = frame.data_ref().map_or(0, Bytes::len) as u64;
            match left.checked_sub(count) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
        true
    };
    tokio::time::timeout(DRAIN_TIMEOUT, drained)
        .await
        .unwrap_or(false)
}
