//! What waits to be written: pieces of PDUs in order, and what their data occupies until then.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::limits::{OUTPUT_BYTES_MAX, OUTPUT_LOOSE_BYTES_MAX, OUTPUT_PDUS_MAX};
use crate::session::Hold;
use crate::wire::deframe::{Digests, Frame};

/// Pieces of one write.
const SLICES_MAX: usize = 64;

/// Bytes that wait for the stream.
#[derive(Debug, Default)]
pub(super) struct Output {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// All bytes that were ever put in.
    end: u64,
    /// What is released once so many bytes are written.
    holds: VecDeque<(u64, Hold)>,
    /// PDUs that nobody reserved bytes for: where each ends, and its length.
    loose: VecDeque<(u64, usize)>,
    loose_bytes: usize,
    needs_flush: bool,
}

impl Output {
    /// `is_reserved` says whether its bytes are part of what a command reserved.
    pub(super) fn push(&mut self, frame: &Frame, digests: Digests, hold: Hold, is_reserved: bool) {
        let mut bytes = 0;
        for piece in frame.encode(digests) {
            if !piece.is_empty() {
                bytes += piece.len();
                self.pieces.push_back(piece);
            }
        }
        self.bytes += bytes;
        self.end += bytes as u64;
        if !is_reserved {
            self.loose_bytes += bytes;
            self.loose.push_back((self.end, bytes));
        }
        if !hold.is_empty() {
            self.holds.push_back((self.end, hold));
        }
    }

    /// Whether a client is so far behind that nothing more is read from it.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > OUTPUT_BYTES_MAX
            || self.loose_bytes > OUTPUT_LOOSE_BYTES_MAX
            || self.pieces.len() > OUTPUT_PDUS_MAX
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0 && !self.needs_flush
    }

    /// Whether bytes wait that the stream has not taken.
    pub(super) fn has_bytes(&self) -> bool {
        self.bytes > 0
    }

    /// Writes what the stream takes. Returns how much that was.
    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut written = 0;
        while self.bytes > 0 {
            let count = self.pieces.len().min(SLICES_MAX);
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece);
            }
            let stream = Pin::new(&mut *stream);
            match stream.poll_write_vectored(cx, &slices[..count]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(bytes)) => {
                    self.advance(bytes);
                    self.needs_flush = true;
                    written += bytes;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if written > 0 => return Poll::Ready(Ok(written)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.needs_flush {
            ready!(pin!(stream.flush()).poll(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, mut bytes: usize) {
        self.bytes -= bytes;
        while let Some(first) = self.pieces.front_mut() {
            if first.len() > bytes {
                first.advance(bytes);
                break;
            }
            bytes -= first.len();
            self.pieces.pop_front();
        }
        let written = self.end - self.bytes as u64;
        while self.holds.front().is_some_and(|(end, _)| *end <= written) {
            self.holds.pop_front();
        }
        while let Some((_, bytes)) = self.loose.pop_front_if(|(end, _)| *end <= written) {
            self.loose_bytes -= bytes;
        }
    }
}
