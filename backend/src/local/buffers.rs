//! Memory for long reads, used again: new memory costs the system a page fault and zeros for each
//! page, which is more than reading the data into it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers that nobody uses now.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

/// A buffer on loan. As bytes it is what was asked for; it goes back when it is dropped.
#[derive(Debug)]
pub(super) struct Buffer {
    /// At least `length`; what is in it is of earlier uses.
    pub(super) bytes: Vec<u8>,
    length: usize,
    home: Arc<Buffers>,
}

impl Buffers {
    pub(super) fn take(self: &Arc<Self>, length: usize) -> Buffer {
        // A short read that waits for its client must not hold much more than its own bytes.
        let fits = length > BUFFER_BYTES / 2 && length <= BUFFER_BYTES;
        let kept = fits.then(|| self.kept().pop()).flatten();
        let size = if fits { BUFFER_BYTES } else { length };
        Buffer {
            bytes: kept.unwrap_or_else(|| vec![0; size]),
            length,
            home: Arc::clone(self),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut kept = self.home.kept();
        if self.bytes.len() == BUFFER_BYTES && kept.len() < KEPT_MAX {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// The pieces that objects are read in.
const BUFFER_BYTES: usize = 1024 * 1024;
const KEPT_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_shows_what_was_asked_for_and_is_used_again() {
        let home = Arc::<Buffers>::default();
        let length = BUFFER_BYTES - 10;
        let mut first = home.take(length);
        first.bytes[..=length].fill(7);
        assert_eq!(first.as_ref(), vec![7; length]);
        drop(first);
        let again = home.take(length + 2);
        assert_eq!(again.as_ref()[length - 1..], [7, 7, 0]);
        let other = home.take(BUFFER_BYTES);
        assert_eq!(other.as_ref(), vec![0; BUFFER_BYTES]);
        drop((again, other));
        assert_eq!(home.kept().len(), 2);
        let many: Vec<_> = (0..KEPT_MAX + 3).map(|_| home.take(length)).collect();
        drop(many);
        drop((home.take(BUFFER_BYTES + 1), home.take(1)));
        assert_eq!(home.take(1).bytes.len(), 1);
        assert_eq!(home.kept().len(), KEPT_MAX);
    }
}
