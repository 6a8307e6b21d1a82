//! A reply on its way out: a status, headers, and a body that is whole or streams from an object.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use portico_backend::budget::Permit;
use portico_backend::gate::Gate;
use portico_backend::tenure::Lasts;

use super::turn::Turn;

/// Data of an object in the order of its bytes. An error ends the connection: a reply whose
/// length was announced is never filled up.
pub(crate) type DataStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// What a verb answers.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: ReplyBody,
}

impl Reply {
    /// A reply without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            body: ReplyBody::whole(Bytes::new()),
        }
    }

    /// A document with the status 200.
    pub(crate) fn xml(document: impl Into<Bytes>) -> Self {
        let mut reply = Self::empty(StatusCode::OK);
        reply.body = ReplyBody::whole(document.into());
        reply
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        reply
    }

    /// Sets a header. A value that no header can hold is left out: what a client stored may hold
    /// bytes that are no text of a header.
    pub(crate) fn set(&mut self, name: HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            self.headers.insert(name, value);
        }
    }

    /// As [`Reply::set`], for names that are not constants.
    pub(crate) fn set_named(&mut self, name: &str, value: &str) {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            self.set(name, value);
        }
    }
}

/// The body of a reply.
pub(crate) struct ReplyBody {
    source: Source,
    /// Bytes still to come.
    length: u64,
    gate: Option<Gate>,
    /// Of the tenure that the body comes from.
    lasts: Option<Lasts>,
    /// The request is in work until the body is gone.
    turn: Option<Turn>,
    /// Bytes in flight, given back when the body is written or dropped.
    permit: Option<Permit>,
}

enum Source {
    Whole(Bytes),
    Stream(DataStream),
}

impl ReplyBody {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self {
            length: bytes.len() as u64,
            source: Source::Whole(bytes),
            gate: None,
            lasts: None,
            turn: None,
            permit: None,
        }
    }

    /// Exactly `length` bytes out of `stream`; fewer or more are an error.
    pub(crate) fn stream(length: u64, stream: DataStream) -> Self {
        Self {
            source: Source::Stream(stream),
            length,
            gate: None,
            lasts: None,
            turn: None,
            permit: None,
        }
    }

    /// Bytes that the body announces.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Makes every further piece ask `gate` before it leaves, and ends `turn` with the body.
    pub(super) fn guard(&mut self, gate: Gate, turn: Turn) {
        self.gate = Some(gate);
        self.turn = Some(turn);
    }

    /// Cuts the body off when the tenure that it comes from ends.
    pub(super) fn end_with(&mut self, lasts: Lasts) {
        self.lasts = Some(lasts);
    }

    /// Keeps `permit` until the body is gone.
    pub(crate) fn hold(&mut self, permit: Option<Permit>) {
        self.permit = permit;
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let piece = match &mut self.source {
            Source::Whole(bytes) => Some(Ok(std::mem::take(bytes))).filter(|_| self.length > 0),
            Source::Stream(stream) if self.length > 0 => {
                match ready!(stream.as_mut().poll_next(cx)) {
                    Some(piece) => Some(piece),
                    None => Some(Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the object's data ended early",
                    ))),
                }
            }
            Source::Stream(_) => None,
        };
        Poll::Ready(piece)
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(piece) = ready!(self.poll_piece(cx)) else {
            return Poll::Ready(None);
        };
        let piece = piece?;
        if self.gate.as_ref().is_some_and(|gate| !gate.is_open()) {
            return Poll::Ready(Some(Err(io::Error::other("the serving gate is closed"))));
        }
        if self.lasts.as_ref().is_some_and(|lasts| !lasts.holds()) {
            return Poll::Ready(Some(Err(io::Error::other("the session was fenced"))));
        }
        let Some(left) = self.length.checked_sub(piece.len() as u64) else {
            return Poll::Ready(Some(Err(io::Error::other("the object's data is too long"))));
        };
        self.length = left;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.length == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

impl fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyBody")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use portico_backend::budget::Budget;
    use portico_backend::gate::gate;
    use portico_backend::memory::{MemoryCluster, MemoryOptions};
    use portico_backend::tenure::watched;

    use super::*;
    use crate::serve::turn::Turns;
    use std::sync::Arc;

    fn pieces(pieces: Vec<io::Result<&'static str>>) -> DataStream {
        let pieces = pieces.into_iter().map(|piece| piece.map(Bytes::from));
        Box::pin(futures_util::stream::iter(pieces))
    }

    async fn outcome(body: ReplyBody) -> io::Result<Bytes> {
        body.collect()
            .await
            .map(http_body_util::Collected::to_bytes)
    }

    #[tokio::test]
    async fn a_body_has_the_length_that_was_announced_or_fails() {
        let whole = pieces(vec![Ok("ab"), Ok("cd")]);
        assert_eq!(outcome(ReplyBody::stream(4, whole)).await.unwrap(), "abcd");
        for (stream, length) in [
            (vec![Ok("ab")], 4),
            (vec![Ok("ab"), Ok("cd")], 3),
            (vec![Ok("ab"), Err(io::Error::other("lost"))], 4),
        ] {
            let body = ReplyBody::stream(length, pieces(stream));
            assert!(outcome(body).await.is_err(), "{length}");
        }
        assert_eq!(outcome(ReplyBody::whole(Bytes::new())).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_gate_that_closes_cuts_the_body_off() {
        let (control, gate) = gate(true);
        let mut body = ReplyBody::stream(4, pieces(vec![Ok("ab"), Ok("cd")]));
        body.guard(gate, Arc::new(Turns::default()).begin());
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "ab");
        control.set_open(false);
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_tenure_that_ends_cuts_the_body_off() {
        let cluster = MemoryCluster::new(MemoryOptions::default());
        let (store, lasts) = watched(cluster.session("test"));
        let mut body = ReplyBody::stream(4, pieces(vec![Ok("ab"), Ok("cd")]));
        body.end_with(lasts);
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "ab");
        let other = cluster.session("other");
        other.fence(&store.session()).await.unwrap();
        store.flush().await.unwrap_err();
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn bytes_in_flight_come_back_with_the_end_of_the_body() {
        let budget = Budget::new(1 << 20);
        let mut body = ReplyBody::whole(Bytes::from_static(b"x"));
        body.hold(budget.try_take(512 << 10));
        assert_eq!(budget.free_bytes(), 512 << 10);
        drop(body);
        assert_eq!(budget.free_bytes(), 1 << 20);
    }
}
