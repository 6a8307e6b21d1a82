//! The data file: blocks of 4 KiB, never overwritten in place while anybody can see them.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

use crate::codec::crc32c;
use crate::error::Error;

use super::allocator::{Allocator, ReadToken, full};
use super::buffers::Buffers;
use super::cache::{BlockCache, CACHED_RUN_BLOCKS_MAX};
use super::failure::{Poison, corrupt, io_error};
use super::media::{FileName, Medium, read_anywhere};
use super::options::{LocalOptions, LocalStats, PlantedBug};
use super::record::{BLOCK_BYTES, BLOCK_BYTES_U64, BlockRef};

#[derive(Debug)]
pub(super) struct Blocks {
    medium: Arc<dyn Medium>,
    allocator: Mutex<Allocator>,
    cache: BlockCache,
    buffers: Arc<Buffers>,
    /// Whether large data was written that no sync has covered.
    dirty: AtomicBool,
    /// One sync at a time: the kernel tells only one of two callers that a write was lost.
    sync: Mutex<()>,
    capacity_bytes: Option<u64>,
    /// Bytes that records take, as the last checkpoint knew, and of the memtables.
    record_bytes: AtomicU64,
    /// What the base may still need on the same disk.
    base_demand: AtomicU64,
    planted_bug: Option<PlantedBug>,
}

impl Blocks {
    pub(super) fn new(
        medium: &Arc<dyn Medium>,
        options: &LocalOptions,
        allocator: Allocator,
    ) -> Self {
        Self {
            medium: Arc::clone(medium),
            allocator: Mutex::new(allocator),
            cache: BlockCache::new(options.cache_bytes / 2),
            buffers: Arc::default(),
            dirty: AtomicBool::new(false),
            sync: Mutex::new(()),
            capacity_bytes: options.capacity_bytes,
            record_bytes: AtomicU64::new(0),
            base_demand: AtomicU64::new(0),
            planted_bug: options.planted_bug,
        }
    }

    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_record_bytes(&self, bytes: u64) {
        self.record_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn set_base_demand(&self, bytes: u64) {
        self.base_demand.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let blocks = self.allocator().used_blocks();
        blocks * BLOCK_BYTES_U64 + self.record_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.allocator().used_blocks() * BLOCK_BYTES_U64
    }

    /// Whether records of `bytes` more still fit the capacity.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.capacity_bytes
            .is_none_or(|capacity| self.used_bytes() + bytes <= capacity)
    }

    /// Takes `count` blocks whose space is certain.
    ///
    /// # Errors
    /// `NoSpace`, and nothing is taken.
    pub(super) fn allocate(&self, count: u64) -> Result<Vec<(u64, u64)>, Error> {
        let mut allocator = self.allocator();
        if let Some(capacity) = self.capacity_bytes {
            let used = allocator.used_blocks() * BLOCK_BYTES_U64;
            let records = self.record_bytes.load(Ordering::Relaxed);
            if used + records + count * BLOCK_BYTES_U64 > capacity {
                return Err(full());
            }
        }
        if let Some(runs) = allocator.allocate(count) {
            return Ok(runs);
        }
        let missing = count - allocator.free_blocks();
        let step = (allocator.end() / 8).clamp(GROWTH_BLOCKS_MIN, GROWTH_BLOCKS_MAX);
        let mut grown = Err(full());
        for more in [missing.max(step), missing] {
            let end = allocator.end() + more;
            let demand = self.base_demand.load(Ordering::Relaxed);
            let free = self.medium.free_bytes().unwrap_or(u64::MAX);
            if free < demand.saturating_add(more * BLOCK_BYTES_U64) {
                continue;
            }
            match self.medium.allocate(FileName::Data, end * BLOCK_BYTES_U64) {
                Ok(()) => {
                    allocator.extend(end);
                    grown = Ok(());
                    break;
                }
                Err(e) => grown = Err(io_error("extending the data file", e)),
            }
        }
        grown?;
        allocator.allocate(count).ok_or_else(full)
    }

    /// Gives free space at the end of the file back to the disk.
    pub(super) fn trim(&self) -> Result<(), Error> {
        let mut allocator = self.allocator();
        let Some(end) = allocator.trim() else {
            return Ok(());
        };
        self.medium
            .set_len(FileName::Data, end * BLOCK_BYTES_U64)
            .map_err(|e| io_error("shortening the data file", e))
    }

    /// Gives back blocks that no record ever named.
    pub(super) fn release(&self, blocks: impl IntoIterator<Item = u64>) {
        let mut allocator = self.allocator();
        for block in blocks {
            self.cache.remove(block);
            allocator.release(block, 1);
        }
    }

    /// Gives back blocks when no read of `token`'s time is left; see the allocator.
    pub(super) fn release_after(&self, token: Arc<ReadToken>, blocks: Vec<u64>) {
        for block in &blocks {
            self.cache.remove(*block);
        }
        self.allocator().release_after(token, blocks);
    }

    /// Takes space for whole blocks that the log carries, and keeps them in memory until `store`.
    pub(super) fn keep(&self, contents: &[Bytes]) -> Result<Vec<BlockRef>, Error> {
        let runs = self.allocate(contents.len() as u64)?;
        let blocks = runs.iter().flat_map(|(start, count)| *start..start + count);
        let kept = blocks.zip(contents).map(|(block, content)| {
            self.cache.pin(block, content.clone());
            let sum = crc32c(content);
            BlockRef { block, sum }
        });
        Ok(kept.collect())
    }

    /// Writes blocks that were kept in memory to the data file. `sync` is still owed.
    pub(super) fn store(&self, mut blocks: Vec<u64>, stats: &LocalStats) -> Result<(), Error> {
        blocks.sort_unstable();
        let mut bytes = Vec::with_capacity(STORE_BYTES.min(blocks.len() * BLOCK_BYTES));
        let mut rest = blocks.as_slice();
        while let Some(first) = rest.first() {
            bytes.clear();
            let mut count = 0;
            for (block, wanted) in rest.iter().zip(*first..).take(STORE_BYTES / BLOCK_BYTES) {
                let Some(content) = self.cache.pinned(*block).filter(|_| *block == wanted) else {
                    break;
                };
                bytes.extend_from_slice(&content);
                count += 1;
            }
            if count == 0 {
                // It was given back meanwhile: no record names it.
                rest = &rest[1..];
                continue;
            }
            self.medium
                .write_at(FileName::Data, first * BLOCK_BYTES_U64, &bytes)
                .map_err(|e| io_error("writing the data file", e))?;
            stats.data_bytes_written.add(bytes.len() as u64);
            let (stored, later) = rest.split_at(count);
            for block in stored {
                self.cache.unpin(*block);
            }
            rest = later;
        }
        Ok(())
    }

    /// Writes whole blocks to newly taken space. A sync is owed.
    pub(super) fn write(&self, data: &[u8], stats: &LocalStats) -> Result<Vec<BlockRef>, Error> {
        assert!(data.len().is_multiple_of(BLOCK_BYTES), "whole blocks");
        let runs = self.allocate((data.len() / BLOCK_BYTES) as u64)?;
        let mut refs = Vec::with_capacity(data.len() / BLOCK_BYTES);
        let mut rest = data;
        for (start, count) in &runs {
            let bytes = usize::try_from(*count).expect("less than the data") * BLOCK_BYTES;
            let (now, later) = rest.split_at(bytes);
            rest = later;
            let written = self
                .medium
                .write_at(FileName::Data, start * BLOCK_BYTES_U64, now);
            if let Err(e) = written {
                let blocks = runs.iter().flat_map(|(start, count)| *start..start + count);
                self.release(blocks);
                return Err(io_error("writing the data file", e));
            }
            for (block, content) in (*start..).zip(now.chunks_exact(BLOCK_BYTES)) {
                refs.push(BlockRef {
                    block,
                    sum: crc32c(content),
                });
            }
        }
        self.dirty.store(true, Ordering::SeqCst);
        stats.data_bytes_written.add(data.len() as u64);
        Ok(refs)
    }

    /// Puts a small block from the log where it belongs.
    pub(super) fn replay(medium: &dyn Medium, block: u64, data: &[u8]) -> Result<(), Error> {
        medium
            .write_at(FileName::Data, block * BLOCK_BYTES_U64, data)
            .map_err(|e| io_error("writing the data file", e))
    }

    /// Whether `sync_if_dirty` would wait for the device.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::SeqCst)
    }

    /// Makes large data stable if there is any that is not.
    pub(super) fn sync_if_dirty(&self, poison: &Poison, stats: &LocalStats) -> Result<(), Error> {
        // Asked under the lock: a sync under way may cover what is dirty, or may not.
        let one = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.dirty.load(Ordering::SeqCst)
            || self.planted_bug == Some(PlantedBug::DataSyncSkipped)
        {
            return poison.check();
        }
        self.sync_locked(&one, poison, stats)
    }

    /// Makes all blocks stable.
    pub(super) fn sync(&self, poison: &Poison, stats: &LocalStats) -> Result<(), Error> {
        let one = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
        self.sync_locked(&one, poison, stats)
    }

    fn sync_locked(
        &self,
        _one: &MutexGuard<'_, ()>,
        poison: &Poison,
        stats: &LocalStats,
    ) -> Result<(), Error> {
        poison.check()?;
        // Before the sync: what is written meanwhile is not covered by it.
        self.dirty.store(false, Ordering::SeqCst);
        stats.data_flushes.add(1);
        self.medium.sync(FileName::Data).map_err(|e| {
            let error = io_error("syncing the data file", e);
            poison.set(&error);
            error
        })
    }

    /// Reads consecutive blocks and looks at their checksums. `None` if `cached_only` and one of
    /// them is not in memory, the system's included.
    pub(super) fn read_run(
        &self,
        run: &[BlockRef],
        cached_only: bool,
        stats: &LocalStats,
    ) -> Result<Option<Bytes>, Error> {
        if let Some(found) = self.cache.run(run) {
            return Ok(Some(found));
        }
        let first = run.first().map_or(0, |first| first.block);
        // Before the file is read: what is no longer in memory afterwards was written before.
        let pinned = self.pinned_of(run);
        let read = self.read_file(first, run.len() * BLOCK_BYTES, cached_only);
        let read =
            read.map_err(|e| io_error(format!("reading block {first} of the data file"), e))?;
        let Some(mut bytes) = read else {
            return Ok(None);
        };
        if !pinned.is_empty() {
            let mut mixed = BytesMut::from(bytes);
            for (index, content) in pinned {
                let at = index * BLOCK_BYTES;
                mixed[at..at + BLOCK_BYTES].copy_from_slice(&content);
            }
            bytes = mixed.freeze();
        }
        stats.data_bytes_read.add(bytes.len() as u64);
        for (content, expected) in bytes.chunks_exact(BLOCK_BYTES).zip(run) {
            if crc32c(content) != expected.sum
                && self.planted_bug != Some(PlantedBug::BlockChecksumIgnored)
            {
                stats.corruptions.add(1);
                return Err(corrupt(format!(
                    "data: block {} does not match its checksum",
                    expected.block
                )));
            }
        }
        match run {
            [one] => self.cache.insert(one.block, bytes.clone()),
            several if several.len() <= CACHED_RUN_BLOCKS_MAX => {
                for (content, block) in bytes.chunks_exact(BLOCK_BYTES).zip(several) {
                    let content = Bytes::copy_from_slice(content);
                    self.cache.insert(block.block, content);
                }
            }
            _ => {}
        }
        Ok(Some(bytes))
    }

    /// Blocks of a run that only memory has, by their place in it.
    fn pinned_of(&self, run: &[BlockRef]) -> Vec<(usize, Bytes)> {
        if !self.cache.has_pinned() {
            return Vec::new();
        }
        let pinned = |(index, block): (usize, &BlockRef)| {
            let content = self.cache.pinned(block.block)?;
            Some((index, content))
        };
        run.iter().enumerate().filter_map(pinned).collect()
    }
}

impl Blocks {
    /// Bytes of the file; `None` if `at_once` and they are many, or the device would be waited for.
    fn read_file(&self, first: u64, length: usize, at_once: bool) -> io::Result<Option<Bytes>> {
        let at = first * BLOCK_BYTES_U64;
        let is_small = length <= CACHED_RUN_BLOCKS_MAX * BLOCK_BYTES;
        if !is_small {
            if at_once {
                return Ok(None);
            }
            let mut buffer = self.buffers.take(length);
            self.medium
                .read_at(FileName::Data, at, &mut buffer.bytes[..length])?;
            return Ok(Some(Bytes::from_owner(buffer)));
        }
        let mut bytes = BytesMut::zeroed(length);
        if at_once {
            let done = self.medium.read_at_once(FileName::Data, at, &mut bytes)?;
            return Ok(done.then(|| bytes.freeze()));
        }
        read_anywhere(&*self.medium, FileName::Data, at, &mut bytes)?;
        Ok(Some(bytes.freeze()))
    }
}

/// Bytes of one write of blocks that come from memory.
const STORE_BYTES: usize = 1024 * 1024;
const GROWTH_BLOCKS_MIN: u64 = 64;
const GROWTH_BLOCKS_MAX: u64 = 16 * 1024;
