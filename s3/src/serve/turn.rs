//! Replies that hyper makes by itself: to a head that is no HTTP, or too long, it answers with a bare
//! status and asks nobody. A client of S3 expects the API's document there, so such a reply is held
//! back and [`super::serve`] writes one of its own.
//!
//! A reply is hyper's own if it comes while no request is in work and everything before it has left.
//! What cannot be told apart for sure goes out as hyper wrote it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of hyper's own reply that are looked at: its status line.
const LOOK_BYTES: usize = 64;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Turns {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// One request until its reply is with hyper as a whole.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Turns>);

impl Turns {
    pub(super) fn begin(self: &Arc<Self>) -> Turn {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Turn(Arc::clone(self))
    }

    /// How many there were, if none is in work.
    fn all_ended(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::SeqCst);
        (ended == self.begun.load(Ordering::SeqCst)).then_some(ended)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// A stream that lets replies to requests pass and holds back hyper's own.
#[derive(Debug)]
pub(super) struct HoldBack<S> {
    inner: S,
    turns: Arc<Turns>,
    /// The requests whose replies have left.
    flushed: u64,
    /// The beginning of what was held back.
    held: Vec<u8>,
}

impl<S> HoldBack<S> {
    pub(super) fn new(inner: S, turns: Arc<Turns>) -> Self {
        Self {
            inner,
            turns,
            flushed: 0,
            held: Vec::new(),
        }
    }

    /// The stream, and the status of the reply that was held back.
    pub(super) fn into_parts(self) -> (S, Option<u16>) {
        let line = std::str::from_utf8(&self.held).unwrap_or_default();
        let status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
        (self.inner, status)
    }

    fn is_own(&self) -> bool {
        self.turns.all_ended() == Some(self.flushed)
    }

    fn hold(&mut self, data: &[u8]) {
        let room = LOOK_BYTES - self.held.len();
        self.held.extend_from_slice(&data[..data.len().min(room)]);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HoldBack<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HoldBack<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_own() {
            self.hold(data);
            return Poll::Ready(Ok(data.len()));
        }
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_own() {
            data.iter().for_each(|piece| self.hold(piece));
            return Poll::Ready(Ok(data.iter().map(|piece| piece.len()).sum()));
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// hyper flushes once it has written all that it had.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        if let Some(ended) = self.turns.all_ended() {
            self.flushed = ended;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
