//! The bytes of one object: from ranges to chunks to blocks.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::error::Error;
use crate::object::Extent;

use super::blocks::Blocks;
use super::memtable::Layers;
use super::options::LocalStats;
use super::record::{BLOCK_BYTES, BLOCK_BYTES_U64, BlockRef, CHUNK_BLOCKS, Chunk, ObjectKeys};

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Miss {
    /// Only a file knows, and only memory was asked.
    NotCached,
    Failed(Error),
}

impl From<Error> for Miss {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Miss {
    /// The error of a question that was allowed to go to the files.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::NotCached => unreachable!("files were allowed"),
        }
    }
}

/// Reads one object through some layers.
#[derive(Debug)]
pub(super) struct ObjectReader<'a> {
    pub(super) layers: Layers<'a>,
    pub(super) blocks: &'a Blocks,
    pub(super) stats: &'a LocalStats,
    pub(super) keys: &'a ObjectKeys,
    pub(super) cached_only: bool,
}

impl ObjectReader<'_> {
    pub(super) fn value(&self, key: &[u8]) -> Result<Option<Bytes>, Miss> {
        if self.cached_only {
            return self.layers.value_in_memory(key).ok_or(Miss::NotCached);
        }
        Ok(self.layers.value(key)?)
    }

    pub(super) fn chunk(&self, index: u64) -> Result<Chunk, Miss> {
        let key = self.keys.chunk(index);
        match self.value(&key)? {
            None => Ok(Chunk::default()),
            Some(value) => Ok(Chunk::decode(&key, &value)?),
        }
    }

    /// The content of one block; `None` is a hole.
    pub(super) fn block(&self, index: u64) -> Result<Option<Bytes>, Miss> {
        let chunk = self.chunk(index / CHUNK_BLOCKS)?;
        match chunk.0[slot(index)] {
            None => Ok(None),
            Some(block) => self.run(&[block]).map(Some),
        }
    }

    fn run(&self, run: &[BlockRef]) -> Result<Bytes, Miss> {
        self.blocks
            .read_run(run, self.cached_only, self.stats)?
            .ok_or(Miss::NotCached)
    }

    /// Data of `offset..end`, holes left out. `end` is at most the object's size.
    pub(super) fn extents(&self, offset: u64, end: u64) -> Result<Vec<Extent>, Miss> {
        let mut extents = Vec::new();
        if offset >= end {
            return Ok(extents);
        }
        let mut pieces = Pieces {
            runs: Vec::new(),
            last: None,
        };
        let (first, last) = (offset / BLOCK_BYTES_U64, (end - 1) / BLOCK_BYTES_U64);
        for chunk_index in first / CHUNK_BLOCKS..=last / CHUNK_BLOCKS {
            let chunk = self.chunk(chunk_index)?;
            for (block, index) in chunk.0.iter().zip(chunk_index * CHUNK_BLOCKS..) {
                if let Some(block) = block
                    && (first..=last).contains(&index)
                {
                    pieces.push(index, *block);
                }
            }
        }
        for (start, runs) in pieces.runs {
            let data = self.join(&runs)?;
            let data_start = start * BLOCK_BYTES_U64;
            let cut_front = offset.saturating_sub(data_start);
            let cut_end = (data_start + data.len() as u64).saturating_sub(end);
            let to = data.len() - usize::try_from(cut_end).expect("within a block");
            let from = usize::try_from(cut_front).expect("within a block");
            extents.push(Extent {
                offset: data_start + cut_front,
                data: data.slice(from..to),
            });
        }
        Ok(extents)
    }

    /// Blocks that follow each other in the object, wherever they lie.
    fn join(&self, runs: &[Vec<BlockRef>]) -> Result<Bytes, Miss> {
        if let [one] = runs {
            return self.run(one);
        }
        let blocks: usize = runs.iter().map(Vec::len).sum();
        let mut data = BytesMut::with_capacity(blocks * BLOCK_BYTES);
        for run in runs {
            data.extend_from_slice(&self.run(run)?);
        }
        Ok(data.freeze())
    }

    /// The bytes of `offset..offset + length`; holes and what is beyond the end are zeros.
    pub(super) fn bytes(&self, offset: u64, length: u64, size: u64) -> Result<Bytes, Miss> {
        let extents = self.extents(offset, size.min(offset.saturating_add(length)))?;
        if let [one] = extents.as_slice()
            && one.offset == offset
            && one.data.len() as u64 == length
        {
            return Ok(one.data.clone());
        }
        let length = usize::try_from(length).expect("limits fit memory");
        let mut bytes = BytesMut::zeroed(length);
        for extent in extents {
            let at = usize::try_from(extent.offset - offset).expect("within the range");
            bytes[at..at + extent.data.len()].copy_from_slice(&extent.data);
        }
        Ok(bytes.freeze())
    }
}

/// Object-contiguous pieces, each of disk-contiguous runs.
struct Pieces {
    runs: Vec<(u64, Vec<Vec<BlockRef>>)>,
    last: Option<u64>,
}

impl Pieces {
    fn push(&mut self, index: u64, block: BlockRef) {
        let continues = self.last.is_some_and(|last| last + 1 == index);
        self.last = Some(index);
        if !continues {
            self.runs.push((index, vec![vec![block]]));
            return;
        }
        let (_, runs) = self.runs.last_mut().expect("continues one");
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|b| b.block + 1 == block.block) => run.push(block),
            _ => runs.push(vec![block]),
        }
    }
}

/// Where a block stands in its chunk.
pub(super) fn slot(index: u64) -> usize {
    usize::try_from(index % CHUNK_BLOCKS).expect("below 16")
}

/// Blocks that `offset..offset + length` covers in full, as numbers in the object: `start..end`.
pub(super) fn whole_blocks(offset: u64, length: u64) -> (u64, u64) {
    let start = offset.div_ceil(BLOCK_BYTES_U64);
    let end = (offset + length) / BLOCK_BYTES_U64;
    (start, end.max(start))
}

/// Blocks of one step that were written before the operation came to the committer.
#[derive(Clone, Debug, Default)]
pub(super) struct Prepared {
    /// The step's place in the operation.
    pub(super) step: usize,
    /// Number in the object of the first block.
    pub(super) first: u64,
    pub(super) blocks: Vec<BlockRef>,
}

pub(super) type PreparedSteps = SmallVec<[Prepared; 1]>;
