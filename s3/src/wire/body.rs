//! The body of a request that stores data: decoded, counted and checked while it streams.

use bytes::Bytes;
use http::HeaderMap;
use portico_backend::bucket::record::{Checksum, ChecksumAlgorithm};

use crate::auth::Payload;
use crate::error::S3Error;

/// Takes a body as it arrives and gives the data of the object: undoes `aws-chunked`, checks
/// lengths, signatures of chunks, `x-amz-content-sha256`, `Content-MD5` and `x-amz-checksum-*`, in
/// headers and trailers. What came out of [`BodyDecoder::push`] counts only once
/// [`BodyDecoder::finish`] has said so.
#[derive(Debug)]
pub struct BodyDecoder {}

/// What a whole and correct body was.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BodySummary {
    pub size: u64,
    pub md5: [u8; 16],
    /// As asked by `algorithm` of [`BodyDecoder::new`] or by the client; `None` if neither did.
    pub checksum: Option<Checksum>,
}

impl BodyDecoder {
    /// `payload` is what the signature says about the body; `algorithm` is a checksum to compute
    /// in any case.
    ///
    /// # Errors
    /// `MissingContentLength`, `InvalidDigest`, `InvalidRequest`, `InvalidArgument` for headers
    /// that cannot be right.
    pub fn new(
        headers: &HeaderMap,
        payload: Payload,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> Result<Self, S3Error> {
        let _unused = (headers, payload, algorithm);
        todo!()
    }

    /// Bytes of data to come if the client said so.
    #[must_use]
    pub fn size_hint(&self) -> Option<u64> {
        todo!()
    }

    /// Takes bytes of the body and appends the data in them to `data`.
    ///
    /// # Errors
    /// Whatever is wrong with the body; it is lost then.
    pub fn push(&mut self, bytes: &Bytes, data: &mut Vec<Bytes>) -> Result<(), S3Error> {
        let _unused = (bytes, data);
        todo!()
    }

    /// Ends the body.
    ///
    /// # Errors
    /// `IncompleteBody`, `BadDigest`, `XAmzContentSHA256Mismatch`, `SignatureDoesNotMatch`, ...
    pub fn finish(self) -> Result<BodySummary, S3Error> {
        todo!()
    }
}
