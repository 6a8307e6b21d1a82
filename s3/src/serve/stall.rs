//! A stream that fails when its other end takes nothing, or next to nothing, for too long: a client
//! that stops reading in the middle of a reply holds bytes in flight that others wait for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::patience::Patience;
use crate::limits::WRITE_TIMEOUT;

/// Passes everything through and watches writes.
#[derive(Debug)]
pub(super) struct StallGuard<S> {
    inner: S,
    patience: Patience,
    /// Since when a write waits, and when that is too long.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<S> StallGuard<S> {
    pub(super) fn new(inner: S, bytes_per_second_min: u64) -> Self {
        Self {
            inner,
            patience: Patience::new(WRITE_TIMEOUT, bytes_per_second_min),
            waiting: None,
        }
    }

    pub(super) fn into_inner(self) -> S {
        self.inner
    }

    /// What a write says, or that it has waited too long. `count` tells the bytes written.
    fn watched<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
        count: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(outcome) = &written {
            let waited = self.waiting.take().map(|(since, _)| since.elapsed());
            let bytes = outcome.as_ref().map_or(0, count);
            self.patience
                .moved(waited.unwrap_or_default(), bytes as u64);
            return written;
        }
        let left = self.patience.left();
        let (_, timer) = self.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(sleep_until(now + left)))
        });
        if timer.as_mut().poll(cx).is_ready() {
            self.waiting = None;
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client takes nothing any more",
            )));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, data);
        self.watched(cx, written, |count| *count)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, data);
        self.watched(cx, written, |count| *count)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.watched(cx, flushed, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
