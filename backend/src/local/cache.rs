//! Blocks in memory: those read lately, and those that the data file does not have yet.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

use super::record::{BLOCK_BYTES, BLOCK_BYTES_U64, BlockRef};

/// Blocks by number, in shards. What is pinned stays; the rest goes first in, first out, with a
/// second chance.
#[derive(Debug)]
pub(super) struct BlockCache {
    shards: Vec<Mutex<Shard>>,
    /// In one shard, unless more are pinned.
    blocks_max: usize,
    pinned: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shard {
    blocks: HashMap<u64, Cached>,
    /// Those that are not pinned, and perhaps some that are gone.
    order: VecDeque<u64>,
}

#[derive(Debug)]
struct Cached {
    content: Bytes,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The data file does not have it.
    Pinned,
    Fresh,
    /// Read since it last was the oldest.
    Used,
}

impl BlockCache {
    pub(super) fn new(bytes: u64) -> Self {
        let blocks = bytes / BLOCK_BYTES_U64 / SHARDS;
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            blocks_max: usize::try_from(blocks).unwrap_or(usize::MAX).max(1),
            pinned: AtomicUsize::new(0),
        }
    }

    fn shard(&self, block: u64) -> MutexGuard<'_, Shard> {
        let index = usize::try_from(block % SHARDS).expect("few shards");
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what the data file has too.
    pub(super) fn insert(&self, block: u64, content: Bytes) {
        let mut shard = self.shard(block);
        let state = State::Fresh;
        match shard.blocks.get_mut(&block) {
            Some(cached) if cached.state == State::Pinned => return,
            Some(cached) => *cached = Cached { content, state },
            None => {
                shard.blocks.insert(block, Cached { content, state });
                shard.order.push_back(block);
            }
        }
        shard.shrink_to(self.blocks_max);
    }

    /// Keeps what the data file does not have, until it is unpinned or removed.
    pub(super) fn pin(&self, block: u64, content: Bytes) {
        let state = State::Pinned;
        let mut shard = self.shard(block);
        let before = shard.blocks.insert(block, Cached { content, state });
        assert!(before.is_none(), "a block that was just taken");
        self.pinned.fetch_add(1, Ordering::Release);
        shard.shrink_to(self.blocks_max);
    }

    /// The data file has it now.
    pub(super) fn unpin(&self, block: u64) {
        let mut shard = self.shard(block);
        let Some(cached) = shard.blocks.get_mut(&block) else {
            return;
        };
        if cached.state == State::Pinned {
            cached.state = State::Fresh;
            self.pinned.fetch_sub(1, Ordering::Release);
            shard.order.push_back(block);
            shard.shrink_to(self.blocks_max);
        }
    }

    pub(super) fn remove(&self, block: u64) {
        let removed = self.shard(block).blocks.remove(&block);
        if removed.is_some_and(|cached| cached.state == State::Pinned) {
            self.pinned.fetch_sub(1, Ordering::Release);
        }
    }

    /// The content of a block that the data file does not have.
    pub(super) fn pinned(&self, block: u64) -> Option<Bytes> {
        let shard = self.shard(block);
        let cached = shard.blocks.get(&block);
        let pinned = cached.filter(|cached| cached.state == State::Pinned)?;
        Some(pinned.content.clone())
    }

    /// Whether any block is pinned.
    pub(super) fn has_pinned(&self) -> bool {
        self.pinned.load(Ordering::Acquire) > 0
    }

    /// The contents of a run, if all of it is here.
    pub(super) fn run(&self, run: &[BlockRef]) -> Option<Bytes> {
        let piece = |block: &BlockRef| {
            let mut shard = self.shard(block.block);
            let cached = shard.blocks.get_mut(&block.block)?;
            if cached.state == State::Fresh {
                cached.state = State::Used;
            }
            Some(cached.content.clone())
        };
        match run {
            [one] => piece(one),
            several if several.len() <= CACHED_RUN_BLOCKS_MAX => {
                let mut bytes = BytesMut::with_capacity(several.len() * BLOCK_BYTES);
                for block in several {
                    bytes.extend_from_slice(&piece(block)?);
                }
                Some(bytes.freeze())
            }
            _ => None,
        }
    }
}

impl Shard {
    fn shrink_to(&mut self, blocks_max: usize) {
        while self.blocks.len() > blocks_max || self.order.len() > 2 * blocks_max {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            match self.blocks.get_mut(&oldest) {
                Some(cached) if cached.state == State::Used => {
                    cached.state = State::Fresh;
                    self.order.push_back(oldest);
                }
                Some(cached) if cached.state == State::Fresh => {
                    self.blocks.remove(&oldest);
                }
                Some(_) | None => {}
            }
        }
    }
}

const SHARDS: u64 = 16;
/// Longer runs are streams: caching them would only push out what is read again.
pub(super) const CACHED_RUN_BLOCKS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn content(byte: u8) -> Bytes {
        Bytes::from(vec![byte; BLOCK_BYTES])
    }

    #[test]
    fn what_is_pinned_stays_and_the_rest_makes_room() {
        // Two blocks in each shard.
        let cache = BlockCache::new(2 * SHARDS * BLOCK_BYTES_U64);
        let block = |number: u64| number * SHARDS;
        for number in 0..3 {
            cache.pin(block(number), content(1));
        }
        cache.insert(block(3), content(2));
        let is_cached = |number: u64| {
            let sum = 0;
            let block = block(number);
            cache.run(&[BlockRef { block, sum }]).is_some()
        };
        assert!(!is_cached(3) && (0..3).all(is_cached));
        cache.unpin(block(0));
        assert!(!is_cached(0) && cache.has_pinned());
        cache.remove(block(1));
        cache.unpin(block(2));
        assert!(is_cached(2) && cache.pinned(block(2)).is_none() && !cache.has_pinned());
    }
}
