//! What one operation changes: guards and steps over the records that the committer sees.
//!
//! Nothing here is visible to anybody before the committer publishes it; a change that fails gives
//! its blocks back and leaves no trace.

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::error::{Error, ErrorKind};
use crate::limits::OBJECT_BYTES_MAX;
use crate::object::{Guard, ObjectId, Payload, WriteOp, WriteStep};

use super::blocks::Blocks;
use super::extent::{Miss, ObjectReader, Prepared, slot, whole_blocks};
use super::log::Delta;
use super::memtable::{Layers, View};
use super::options::LocalStats;
use super::record::{
    BLOCK_BYTES, BLOCK_BYTES_U64, BlockRef, CHUNK_BLOCKS, Chunk, Header, Kind, ObjectKeys, seal,
    successor, unseal,
};

/// Where a change is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground<'a> {
    pub(super) blocks: &'a Blocks,
    pub(super) stats: &'a LocalStats,
    pub(super) view: &'a View,
    /// What earlier operations of the batch changed.
    pub(super) batch: &'a Delta,
    pub(super) inline_bytes_max: u64,
}

/// A change of one object.
#[derive(Debug)]
pub(super) struct Change<'a> {
    ground: Ground<'a>,
    keys: &'a ObjectKeys,
    pub(super) header: Option<Header>,
    pub(super) existed: bool,
    pub(super) delta: Delta,
    /// Blocks that no record names any more.
    pub(super) freed: Vec<u64>,
    /// Blocks taken by this change.
    pub(super) taken: Vec<u64>,
    /// Small blocks that the log carries.
    pub(super) inline: Vec<(u64, Bytes)>,
}

impl<'a> Change<'a> {
    pub(super) fn begin(ground: Ground<'a>, keys: &'a ObjectKeys) -> Result<Self, Error> {
        let mut change = Self {
            ground,
            keys,
            header: None,
            existed: false,
            delta: Delta::new(),
            freed: Vec::new(),
            taken: Vec::new(),
            inline: Vec::new(),
        };
        let key = keys.header();
        if let Some(value) = change.value(&key)? {
            change.header = Some(Header::decode(&key, &value)?);
            change.existed = true;
        }
        Ok(change)
    }

    /// Checks all guards and does all steps.
    pub(super) fn run(
        &mut self,
        op: &WriteOp,
        prepared: &[Prepared],
        version: u64,
    ) -> Result<(), Error> {
        for guard in &op.guards {
            check_guard(&self.reader(), self.header, guard).map_err(Miss::into_error)?;
        }
        for (index, step) in op.steps.iter().enumerate() {
            let prepared = prepared.iter().find(|prepared| prepared.step == index);
            self.step(step, prepared)?;
            if self.size() > OBJECT_BYTES_MAX {
                return Err(Error::new(ErrorKind::TooLarge, "growing an object"));
            }
        }
        self.finish(version);
        Ok(())
    }

    /// Whether the change is allowed although the store is full: it gives space back, keeps books in
    /// the room of what it takes away, or is forced. `op` has been done.
    pub(super) fn fits_a_full_store(&self, op: &WriteOp) -> Result<bool, Error> {
        if op.steps.iter().all(is_shrinking) || op.is_forced() {
            return Ok(true);
        }
        if !op.steps.iter().all(may_fit_a_full_store) {
            return Ok(false);
        }
        let slack_bytes = match op.steps.iter().any(is_shrinking) {
            true => BOOK_KEEPING_BYTES,
            false => 0,
        };
        let before = Layers {
            deltas: smallvec![self.ground.batch],
            view: self.ground.view,
        };
        let mut removed_bytes = 0;
        for key in self.delta.keys() {
            let value = before.value(key)?;
            removed_bytes += value.map_or(0, |value| (key.len() + value.len()) as u64);
        }
        let kept = self.delta.iter();
        let kept = kept.filter_map(|(key, value)| Some(key.len() + value.as_ref()?.len()));
        Ok(kept.sum::<usize>() as u64 <= removed_bytes + slack_bytes)
    }

    /// Whether the capacity leaves room for the records of this change.
    pub(super) fn is_within_capacity(&self) -> bool {
        self.ground.blocks.has_room(self.delta_bytes())
    }

    /// What the base may need on the disk for this change.
    pub(super) fn demand(&self) -> u64 {
        super::core::demand(self.delta.len() as u64, self.delta_bytes())
    }

    fn delta_bytes(&self) -> u64 {
        let bytes = self.delta.iter();
        let bytes = bytes.map(|(key, value)| key.len() + value.as_ref().map_or(0, Bytes::len));
        bytes.sum::<usize>() as u64
    }

    /// Puts the new header in place.
    pub(super) fn finish(&mut self, version: u64) {
        if let Some(header) = &mut self.header {
            header.version = version;
            let key = self.keys.header();
            let value = header.encode(&key);
            self.delta.insert(key, Some(value));
        } else if self.existed {
            self.delta.insert(self.keys.header(), None);
        }
    }

    /// Gives back what a failed change took.
    pub(super) fn undo(self) {
        self.ground.blocks.release(self.taken);
    }

    fn reader(&self) -> ObjectReader<'_> {
        ObjectReader {
            layers: self.layers(),
            blocks: self.ground.blocks,
            stats: self.ground.stats,
            keys: self.keys,
            cached_only: false,
        }
    }

    fn layers(&self) -> Layers<'_> {
        Layers {
            deltas: smallvec![&self.delta, self.ground.batch],
            view: self.ground.view,
        }
    }

    pub(super) fn value(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.layers().value(key)
    }

    fn size(&self) -> u64 {
        self.header.map_or(0, |header| header.size)
    }

    fn need(&self, what: &str) -> Result<(), Error> {
        match self.header {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::NotFound, what)),
        }
    }

    fn create(&mut self) -> &mut Header {
        self.header.get_or_insert(Header {
            version: 0,
            size: 0,
        })
    }

    fn step(&mut self, step: &WriteStep, prepared: Option<&Prepared>) -> Result<(), Error> {
        match step {
            WriteStep::Append { data } => self.write(self.size(), data, None)?,
            WriteStep::CloneRange {
                source,
                source_offset,
                offset,
                length,
            } => self.clone_range(source, *source_offset, *offset, *length)?,
            WriteStep::Create => {
                self.create();
            }
            WriteStep::OmapRemove { keys } => {
                self.need("removing keys")?;
                for key in keys {
                    self.delta.insert(self.keys.omap(key), None);
                }
            }
            WriteStep::OmapRemoveRange { start, end } => {
                self.need("removing a range of keys")?;
                self.remove_range(&self.keys.omap(start), &self.keys.omap(end))?;
            }
            WriteStep::OmapSet { entries } => {
                self.create();
                for (key, value) in entries {
                    self.set(self.keys.omap(key), value);
                }
            }
            WriteStep::Remove => self.remove()?,
            WriteStep::Replace { data } => {
                self.cut(0)?;
                self.create().size = 0;
                self.write(0, data, prepared)?;
            }
            WriteStep::Rollback { .. } => {
                return Err(Error::new(ErrorKind::Unsupported, "snapshots"));
            }
            WriteStep::Truncate { size } => self.truncate(*size)?,
            WriteStep::Write { offset, data } => self.write(*offset, data, prepared)?,
            WriteStep::XattrRemove { name } => {
                self.need("removing an attribute")?;
                self.delta.insert(self.keys.xattr(name.as_str()), None);
            }
            WriteStep::XattrSet { name, value } => {
                self.create();
                self.set(self.keys.xattr(name.as_str()), value);
            }
            WriteStep::Zero { offset, length } => {
                let end = offset.saturating_add(*length).min(self.size());
                self.zero(*offset, end)?;
            }
        }
        Ok(())
    }

    fn set(&mut self, key: Bytes, payload: &[u8]) {
        let value = seal(&key, payload);
        self.delta.insert(key, Some(value));
    }

    fn write(
        &mut self,
        offset: u64,
        data: &Payload,
        prepared: Option<&Prepared>,
    ) -> Result<(), Error> {
        self.create();
        let length = data.len();
        if length == 0 {
            return Ok(());
        }
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= OBJECT_BYTES_MAX)
            .ok_or_else(|| Error::new(ErrorKind::TooLarge, "growing an object"))?;
        let data = data.to_bytes();
        match prepared {
            None => {
                let small = length <= self.ground.inline_bytes_max;
                self.put(offset, &data, small)?;
            }
            Some(prepared) => {
                let start = prepared.first * BLOCK_BYTES_U64;
                let stop = start + prepared.blocks.len() as u64 * BLOCK_BYTES_U64;
                let head = data.slice(..index(start.saturating_sub(offset)));
                self.put(offset, &head, true)?;
                let refs = prepared.blocks.iter().map(|block| Some(*block));
                self.set_refs(prepared.first, &refs.collect::<Vec<_>>())?;
                if stop < end {
                    let tail = data.slice(index(stop - offset)..);
                    self.put(stop, &tail, true)?;
                }
            }
        }
        let header = self.create();
        header.size = header.size.max(end);
        Ok(())
    }

    /// Bytes into new blocks; what the first and last block held beside them is kept.
    fn put(&mut self, offset: u64, data: &[u8], small: bool) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset + data.len() as u64;
        let first = offset / BLOCK_BYTES_U64;
        let last = (end - 1) / BLOCK_BYTES_U64;
        if offset.is_multiple_of(BLOCK_BYTES_U64) && end.is_multiple_of(BLOCK_BYTES_U64) {
            return self.put_blocks(first, data.to_vec(), small);
        }
        let mut content = vec![0; index((last - first + 1) * BLOCK_BYTES_U64)];
        let covers_first = offset.is_multiple_of(BLOCK_BYTES_U64)
            && (first < last || end.is_multiple_of(BLOCK_BYTES_U64));
        if !covers_first && let Some(old) = self.block(first)? {
            content[..BLOCK_BYTES].copy_from_slice(&old);
        }
        if last > first
            && !end.is_multiple_of(BLOCK_BYTES_U64)
            && let Some(old) = self.block(last)?
        {
            let at = content.len() - BLOCK_BYTES;
            content[at..].copy_from_slice(&old);
        }
        let at = index(offset - first * BLOCK_BYTES_U64);
        content[at..at + data.len()].copy_from_slice(data);
        self.put_blocks(first, content, small)
    }

    /// Whole blocks from `first` on into new ones.
    fn put_blocks(&mut self, first: u64, content: Vec<u8>, small: bool) -> Result<(), Error> {
        let blocks = self.ground.blocks;
        let refs = if small {
            let contents = pieces(content);
            let refs = blocks.keep(&contents)?;
            let kept = refs.iter().map(|block| block.block).zip(contents);
            self.inline.extend(kept);
            refs
        } else {
            blocks.write(&content, self.ground.stats)?
        };
        self.taken.extend(refs.iter().map(|block| block.block));
        let refs: Vec<_> = refs.into_iter().map(Some).collect();
        self.set_refs(first, &refs)
    }

    fn block(&self, number: u64) -> Result<Option<Bytes>, Error> {
        self.reader().block(number).map_err(Miss::into_error)
    }

    /// Points blocks from `first` on to new places, or to none.
    fn set_refs(&mut self, first: u64, refs: &[Option<BlockRef>]) -> Result<(), Error> {
        let mut number = first;
        let mut rest = refs;
        while !rest.is_empty() {
            let chunk_index = number / CHUNK_BLOCKS;
            let count = index(CHUNK_BLOCKS - number % CHUNK_BLOCKS).min(rest.len());
            let (now, later) = rest.split_at(count);
            self.change_chunk(chunk_index, |chunk| {
                chunk.0[slot(number)..slot(number) + count].copy_from_slice(now);
            })?;
            number += count as u64;
            rest = later;
        }
        Ok(())
    }

    fn change_chunk(&mut self, chunk: u64, change: impl FnOnce(&mut Chunk)) -> Result<(), Error> {
        let before = self.reader().chunk(chunk).map_err(Miss::into_error)?;
        let mut after = before.clone();
        change(&mut after);
        let pairs = before.0.iter().zip(&after.0);
        let gone = pairs.filter(|(old, new)| old != new);
        self.freed
            .extend(gone.filter_map(|(old, _)| old.map(|block| block.block)));
        if before != after {
            let key = self.keys.chunk(chunk);
            let value = (!after.is_empty()).then(|| after.encode(&key));
            self.delta.insert(key, value);
        }
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> Result<(), Error> {
        let Some(header) = self.header else {
            return Ok(());
        };
        if size < header.size {
            self.zero(size, header.size)?;
        }
        self.create().size = size;
        Ok(())
    }

    /// Makes `offset..end` read as zeros. `end` is at most the size.
    fn zero(&mut self, offset: u64, end: u64) -> Result<(), Error> {
        if offset >= end {
            return Ok(());
        }
        // Behind the size there are only zeros, so the last block counts as whole.
        let whole_end = if end == self.size() {
            end.next_multiple_of(BLOCK_BYTES_U64)
        } else {
            end
        };
        let (start, stop) = whole_blocks(offset, whole_end - offset);
        if start > stop || start * BLOCK_BYTES_U64 >= whole_end {
            return self.zero_within(offset, whole_end);
        }
        self.zero_within(offset, start * BLOCK_BYTES_U64)?;
        self.zero_within((stop * BLOCK_BYTES_U64).max(offset), whole_end)?;
        self.drop_blocks(start, stop)
    }

    /// The same within one block.
    fn zero_within(&mut self, offset: u64, end: u64) -> Result<(), Error> {
        if offset >= end || self.block(offset / BLOCK_BYTES_U64)?.is_none() {
            return Ok(());
        }
        self.put(offset, &vec![0; index(end - offset)], true)
    }

    /// All blocks from `first` on become holes.
    fn cut(&mut self, first: u64) -> Result<(), Error> {
        self.drop_blocks(first, u64::MAX)
    }

    fn drop_blocks(&mut self, start: u64, stop: u64) -> Result<(), Error> {
        if start >= stop {
            return Ok(());
        }
        let (_, all_end) = self.keys.range(Kind::Chunk);
        let mut from = self.keys.chunk(start / CHUNK_BLOCKS);
        loop {
            let (found, more) = self.layers().range(&from, &all_end, RANGE_STEP)?;
            for (key, _) in &found {
                let chunk = chunk_index(self.keys.sub(key))?;
                if chunk.saturating_mul(CHUNK_BLOCKS) >= stop {
                    return Ok(());
                }
                self.change_chunk(chunk, |chunk_map| {
                    for (block, number) in chunk_map.0.iter_mut().zip(chunk * CHUNK_BLOCKS..) {
                        if (start..stop).contains(&number) {
                            *block = None;
                        }
                    }
                })?;
            }
            match found.last() {
                Some((last, _)) if more => from = successor(last),
                _ => return Ok(()),
            }
        }
    }

    fn remove(&mut self) -> Result<(), Error> {
        self.need("removing an object")?;
        self.cut(0)?;
        for kind in [Kind::Xattr, Kind::Omap, Kind::Lock] {
            let (start, end) = self.keys.range(kind);
            self.remove_range(&start, &end)?;
        }
        self.header = None;
        Ok(())
    }

    fn remove_range(&mut self, start: &Bytes, end: &Bytes) -> Result<(), Error> {
        let mut from = start.clone();
        loop {
            let (found, more) = self.layers().range(&from, end, RANGE_STEP)?;
            let last = found.last().map(|(key, _)| key.clone());
            for (key, _) in found {
                self.delta.insert(key, None);
            }
            match last {
                Some(last) if more => from = successor(&last),
                _ => return Ok(()),
            }
        }
    }

    fn clone_range(
        &mut self,
        source: &ObjectId,
        source_offset: u64,
        offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        let keys = ObjectKeys::new(source);
        let key = keys.header();
        // The source is read as of before the operation, also where it is the same object.
        let layers = Layers {
            deltas: smallvec![self.ground.batch],
            view: self.ground.view,
        };
        let Some(value) = layers.value(&key)? else {
            return Err(Error::new(ErrorKind::NotFound, format!("cloning {source}")));
        };
        let header = Header::decode(&key, &value)?;
        let reader = ObjectReader {
            layers,
            blocks: self.ground.blocks,
            stats: self.ground.stats,
            keys: &keys,
            cached_only: false,
        };
        self.create();
        if length == 0 {
            return Ok(());
        }
        let zero_end = (offset + length).min(self.size());
        self.zero(offset, zero_end)?;
        let mut at = source_offset;
        let end = source_offset.saturating_add(length).min(header.size);
        while at < end {
            let step_end = end.min((at / CLONE_STEP + 1) * CLONE_STEP);
            for extent in reader.extents(at, step_end).map_err(Miss::into_error)? {
                let target = extent.offset - source_offset + offset;
                self.put(target, &extent.data, false)?;
            }
            at = step_end;
        }
        let header = self.create();
        header.size = header.size.max(offset + length);
        Ok(())
    }
}

/// Each block by itself: what stays in memory of one must not keep the others.
fn pieces(content: Vec<u8>) -> SmallVec<[Bytes; 1]> {
    if content.len() == BLOCK_BYTES {
        return smallvec![content.into()];
    }
    let pieces = content.chunks_exact(BLOCK_BYTES);
    pieces.map(Bytes::copy_from_slice).collect()
}

/// Whether a guard holds; `header` is that of the object, if it exists.
pub(super) fn check_guard(
    reader: &ObjectReader<'_>,
    header: Option<Header>,
    guard: &Guard,
) -> Result<(), Miss> {
    let failed = |kind, name| Err(Miss::Failed(guard_failed(kind, name)));
    let value = |key: Bytes| match reader.value(&key)? {
        Some(value) => Ok::<_, Miss>(Some(unseal(&key, &value)?)),
        None => Ok(None),
    };
    let (holds, name) = match (guard, header) {
        (Guard::Absent, None) => (true, "Absent"),
        (Guard::Absent, Some(_)) => return failed(ErrorKind::AlreadyExists, "Absent"),
        (Guard::XattrAtMost { name, value: most }, _) => {
            let holds = value(reader.keys.xattr(name.as_str()))?.is_none_or(|stored| {
                <[u8; 8]>::try_from(&stored[..])
                    .is_ok_and(|bytes| u64::from_be_bytes(bytes) <= *most)
            });
            (holds, "XattrAtMost")
        }
        (Guard::Exists, None) => return failed(ErrorKind::NotFound, "Exists"),
        (Guard::BytesAre { .. }, None) => return failed(ErrorKind::NotFound, "BytesAre"),
        (Guard::OmapIs { .. }, None) => return failed(ErrorKind::NotFound, "OmapIs"),
        (Guard::VersionIs(_), None) => return failed(ErrorKind::NotFound, "VersionIs"),
        (Guard::XattrIs { .. }, None) => return failed(ErrorKind::NotFound, "XattrIs"),
        (Guard::Exists, Some(_)) => (true, "Exists"),
        (Guard::BytesAre { offset, data }, Some(header)) => {
            let stored = reader.bytes(*offset, data.len() as u64, header.size)?;
            if let Some(at) = (0..data.len()).find(|at| stored[*at] != data[*at]) {
                let error = guard_failed(ErrorKind::GuardFailed, "BytesAre");
                return Err(Miss::Failed(error.with_mismatch_offset(offset + at as u64)));
            }
            (true, "BytesAre")
        }
        (Guard::OmapIs { key, value: wanted }, Some(_)) => {
            (value(reader.keys.omap(key))? == *wanted, "OmapIs")
        }
        (Guard::VersionIs(version), Some(header)) => (header.version == version.0, "VersionIs"),
        (
            Guard::XattrIs {
                name,
                value: wanted,
            },
            Some(_),
        ) => {
            let stored = value(reader.keys.xattr(name.as_str()))?;
            (stored.as_ref() == Some(wanted), "XattrIs")
        }
    };
    if holds {
        return Ok(());
    }
    failed(ErrorKind::GuardFailed, name)
}

fn guard_failed(kind: ErrorKind, name: &str) -> Error {
    Error::new(kind, format!("checking guard {name}"))
}

/// Whether an operation with this step may be allowed on a full store: it takes no block.
pub(super) fn may_fit_a_full_store(step: &WriteStep) -> bool {
    let keeps_books = matches!(step, WriteStep::OmapSet { .. } | WriteStep::XattrSet { .. });
    keeps_books || is_shrinking(step)
}

/// Whether the step is allowed on a full store whatever else the operation does.
pub(super) fn is_shrinking(step: &WriteStep) -> bool {
    match step {
        WriteStep::Replace { data } => data.is_empty(),
        WriteStep::OmapRemove { .. }
        | WriteStep::OmapRemoveRange { .. }
        | WriteStep::Remove
        | WriteStep::Truncate { .. }
        | WriteStep::XattrRemove { .. }
        | WriteStep::Zero { .. } => true,
        WriteStep::Append { .. }
        | WriteStep::CloneRange { .. }
        | WriteStep::Create
        | WriteStep::OmapSet { .. }
        | WriteStep::Rollback { .. }
        | WriteStep::Write { .. }
        | WriteStep::XattrSet { .. } => false,
    }
}

/// What an operation that removes something may add beyond what it takes away: an index counts what
/// is left, and names what is to be removed later. The reserve holds many thousands of these.
const BOOK_KEEPING_BYTES: u64 = 512;

pub(super) fn chunk_index(sub: &[u8]) -> Result<u64, Error> {
    let bytes = <[u8; 8]>::try_from(sub)
        .map_err(|_| super::failure::corrupt("a chunk record without an index"))?;
    Ok(u64::from_be_bytes(bytes))
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("limits keep an object within memory")
}

/// Records looked at in one go while removing.
const RANGE_STEP: usize = 512;
/// Bytes copied in one go while cloning.
const CLONE_STEP: u64 = 4 * 1024 * 1024;
