//! What waits to be written: the parts of replies in order, and what each of them occupies until then.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Bytes that wait for the stream.
#[derive(Debug)]
pub(super) struct Output<H> {
    parts: VecDeque<Bytes>,
    bytes: usize,
    /// All bytes that were ever put in.
    end: u64,
    /// What is released once so many bytes are written.
    holds: VecDeque<(u64, H)>,
}

impl<H> Output<H> {
    pub(super) fn new() -> Self {
        Self {
            parts: VecDeque::new(),
            bytes: 0,
            end: 0,
            holds: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, parts: Vec<Bytes>, hold: H) {
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            self.bytes += part.len();
            self.end += part.len() as u64;
            self.parts.push_back(part);
        }
        self.holds.push_back((self.end, hold));
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next bytes to write. Returns how many slices there are.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            *slice = IoSlice::new(part);
        }
        slices.len().min(self.parts.len())
    }

    /// # Panics
    /// If more was written than there was.
    pub(super) fn advance(&mut self, mut written: usize) {
        assert!(written <= self.bytes, "{written} bytes of {}", self.bytes);
        self.bytes -= written;
        while let Some(first) = self.parts.front_mut() {
            if first.len() > written {
                first.advance(written);
                break;
            }
            written -= first.len();
            self.parts.pop_front();
        }
        let done = self.end - self.bytes as u64;
        while self.holds.front().is_some_and(|(end, _)| *end <= done) {
            self.holds.pop_front();
        }
    }
}
