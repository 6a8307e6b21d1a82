//! Free space of the data file.
//!
//! A freed block goes three steps before it is used again: its removal reaches the base (so no
//! replay can write to it or read it), then every read that may have seen it ends, then it is free.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

use super::failure::corrupt;

/// Held by every read; blocks wait for the reads of their time.
#[derive(Debug, Default)]
pub(super) struct ReadToken;

/// Which blocks are free. Blocks are numbered from the start of the data file.
#[derive(Debug, Default)]
pub(super) struct Allocator {
    /// Start to length; neighbours are merged.
    free: BTreeMap<u64, u64>,
    free_blocks: u64,
    /// Blocks of the file.
    end: u64,
    /// Freed and in the base, but perhaps being read.
    limbo: VecDeque<(Arc<ReadToken>, Vec<u64>)>,
    limbo_blocks: u64,
}

impl Allocator {
    /// An allocator for a file of which some blocks are taken.
    pub(super) fn rebuild(used: &UsedBlocks) -> Self {
        let mut allocator = Self {
            end: used.end,
            ..Self::default()
        };
        let mut free_from = None;
        for block in 0..used.end {
            match (used.contains(block), free_from) {
                (false, None) => free_from = Some(block),
                (true, Some(from)) => {
                    allocator.add(from, block - from);
                    free_from = None;
                }
                (false, Some(_)) | (true, None) => {}
            }
        }
        if let Some(from) = free_from {
            allocator.add(from, used.end - from);
        }
        allocator
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Blocks that hold something or wait.
    pub(super) fn used_blocks(&self) -> u64 {
        self.end - self.free_blocks
    }

    /// The file has grown to `end` blocks.
    pub(super) fn extend(&mut self, end: u64) {
        if end > self.end {
            let from = self.end;
            self.end = end;
            self.release(from, end - from);
        }
    }

    /// Cuts off the free blocks at the end; gives the new end if there were any.
    pub(super) fn trim(&mut self) -> Option<u64> {
        self.drain_limbo();
        let (start, length) = self.free.last_key_value()?;
        let (start, length) = (*start, *length);
        if start + length != self.end {
            return None;
        }
        self.free.remove(&start);
        self.free_blocks -= length;
        self.end = start;
        Some(start)
    }

    /// `count` blocks, in as few runs as the first free extents give.
    pub(super) fn allocate(&mut self, count: u64) -> Option<Vec<(u64, u64)>> {
        self.drain_limbo();
        if count > self.free_blocks {
            return None;
        }
        let mut runs = Vec::new();
        let fits = self
            .free
            .iter()
            .take(EXTENTS_LOOKED_AT)
            .find(|(_, length)| **length >= count)
            .map(|(start, _)| *start);
        let mut missing = count;
        while missing > 0 {
            let start = match fits.filter(|_| runs.is_empty()) {
                Some(start) => start,
                None => *self.free.first_key_value().expect("enough are free").0,
            };
            let length = self.free.remove(&start).expect("just seen");
            let taken = length.min(missing);
            if taken < length {
                self.free.insert(start + taken, length - taken);
            }
            runs.push((start, taken));
            missing -= taken;
        }
        self.free_blocks -= count;
        Some(runs)
    }

    /// Gives back blocks that nobody ever could see.
    pub(super) fn release(&mut self, start: u64, length: u64) {
        self.add(start, length);
    }

    /// Blocks whose removal is in the base; they become free when `token` is held by nobody else.
    pub(super) fn release_after(&mut self, token: Arc<ReadToken>, blocks: Vec<u64>) {
        self.limbo_blocks += blocks.len() as u64;
        self.limbo.push_back((token, blocks));
        self.drain_limbo();
    }

    fn drain_limbo(&mut self) {
        while let Some((token, _)) = self.limbo.front() {
            if Arc::strong_count(token) > 1 {
                break;
            }
            let (_, blocks) = self.limbo.pop_front().expect("just seen");
            self.limbo_blocks -= blocks.len() as u64;
            for block in blocks {
                self.add(block, 1);
            }
        }
    }

    fn add(&mut self, mut start: u64, mut length: u64) {
        if length == 0 {
            return;
        }
        self.free_blocks += length;
        if let Some((before, before_length)) = self.free.range(..=start).next_back() {
            let (before, before_length) = (*before, *before_length);
            assert!(before + before_length <= start, "freed twice");
            if before + before_length == start {
                self.free.remove(&before);
                start = before;
                length += before_length;
            }
        }
        if let Some((after, after_length)) = self.free.range(start + 1..).next() {
            let (after, after_length) = (*after, *after_length);
            assert!(start + length <= after, "freed twice");
            if start + length == after {
                self.free.remove(&after);
                length += after_length;
            }
        }
        self.free.insert(start, length);
    }
}

/// One bit for each block of a file: who is named by a chunk.
#[derive(Debug)]
pub(super) struct UsedBlocks {
    bits: Vec<u64>,
    end: u64,
}

impl UsedBlocks {
    pub(super) fn new(end: u64) -> Self {
        let words = usize::try_from(end.div_ceil(64)).expect("a bit for each block fits memory");
        Self {
            bits: vec![0; words],
            end,
        }
    }

    /// # Errors
    /// `Corrupt` if the block is not in the file, or was named before.
    pub(super) fn insert(&mut self, block: u64) -> Result<(), Error> {
        if block >= self.end {
            return Err(corrupt(format!("data: block {block} is beyond the file")));
        }
        let word = &mut self.bits[usize::try_from(block / 64).expect("within the file")];
        let bit = 1 << (block % 64);
        if *word & bit != 0 {
            return Err(corrupt(format!(
                "data: block {block} belongs to two chunks"
            )));
        }
        *word |= bit;
        Ok(())
    }

    fn contains(&self, block: u64) -> bool {
        let word = self.bits[usize::try_from(block / 64).expect("within the file")];
        word & (1 << (block % 64)) != 0
    }
}

pub(super) fn full() -> Error {
    Error::new(ErrorKind::NoSpace, "the store is full")
}

/// A look at more would make a fragmented store slow.
const EXTENTS_LOOKED_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn allocator(used: &[u64], end: u64) -> Allocator {
        let mut blocks = UsedBlocks::new(end);
        for block in used {
            blocks.insert(*block).unwrap();
        }
        Allocator::rebuild(&blocks)
    }

    #[test]
    fn what_is_given_back_can_be_had_again_in_one_run() {
        let mut allocator = allocator(&[3], 8);
        assert_eq!(allocator.free_blocks(), 7);
        let runs = allocator.allocate(7).unwrap();
        assert_eq!(runs, [(0, 3), (4, 4)]);
        assert!(allocator.allocate(1).is_none());
        for block in [5, 4, 7, 6] {
            allocator.release(block, 1);
        }
        assert_eq!(allocator.allocate(4).unwrap(), [(4, 4)]);
    }

    #[test]
    fn a_block_that_is_being_read_is_not_given_out() {
        let mut allocator = allocator(&[0, 1], 2);
        let token = Arc::new(ReadToken);
        let reader = Arc::clone(&token);
        allocator.release_after(token, vec![0]);
        assert!(allocator.allocate(1).is_none());
        drop(reader);
        assert_eq!(allocator.allocate(1).unwrap(), [(0, 1)]);
    }

    #[test]
    fn a_block_with_two_owners_is_corrupt() {
        let mut blocks = UsedBlocks::new(4);
        blocks.insert(1).unwrap();
        assert_eq!(blocks.insert(1).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(blocks.insert(4).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
