//! The bytes of files: striped over objects of the data pool, holes where no object is.
//!
//! What stands between a file's size and its `dirty_end` is not told to anybody, and is zeroed
//! before the size grows over it. So data may be written before the size is logged, and a file may
//! be cut by logging its size: what is left behind never comes back.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::RwLock;

use super::header::corrupt;
use super::record::{FILE_BYTES_MAX, Inode};
use super::shared::{AT_ONCE, Shared};
use crate::error::{Error, ErrorKind};
use crate::object::{
    Durability, ObjectId, Payload, ReadOp, ReadOutput, ReadResult, ReadStep, WriteOp, WriteStep,
};
use crate::stripe::{Layout, Piece};

/// How far ahead of a file's size its `dirty_end` goes at most: as far again, up to this.
const AHEAD_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Files whose bytes behind their size are known to be zeros.
const CLEAN_FILES_MAX: usize = 100_000;

/// Locks of files that may be nobody's any more.
const LOCKS_KEPT: usize = 1_024;

/// What reads of nothing point to.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Who reads or writes the bytes of a file shares its lock; who takes bytes away holds it alone.
#[derive(Debug, Default)]
pub(super) struct DataLocks {
    locks: Mutex<HashMap<u64, Weak<RwLock<()>>>>,
    clean: Mutex<HashSet<u64>>,
}

impl DataLocks {
    pub(super) fn of(&self, inode: u64) -> Arc<RwLock<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(&inode).and_then(Weak::upgrade) {
            return lock;
        }
        if locks.len() >= LOCKS_KEPT && locks.len().is_power_of_two() {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::default();
        locks.insert(inode, Arc::downgrade(&lock));
        lock
    }

    /// Whether only zeros lie behind the size of this file. Asked and told under its lock.
    pub(super) fn is_clean(&self, inode: u64) -> bool {
        self.clean().contains(&inode)
    }

    pub(super) fn set_clean(&self, inode: u64, is_clean: bool) {
        let mut clean = self.clean();
        if !is_clean {
            clean.remove(&inode);
        } else if clean.len() < CLEAN_FILES_MAX {
            clean.insert(inode);
        } else {
            // They are cleaned again when they grow.
            clean.clear();
        }
    }

    fn clean(&self) -> std::sync::MutexGuard<'_, HashSet<u64>> {
        self.clean.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The `dirty_end` of a file that is written up to `end`.
pub(super) fn ahead_of(end: u64, layout: Layout) -> u64 {
    let object = u64::from(layout.object_size());
    let ahead = end + end.clamp(0, AHEAD_BYTES_MAX);
    ahead.next_multiple_of(object).min(FILE_BYTES_MAX)
}

/// Bytes that a file takes when `length` bytes from `offset` on are written. How its holes lie is
/// not known: what is written below the size fills them first.
pub(super) fn used_after_write(node: &Inode, offset: u64, length: u64) -> u64 {
    let behind = (offset + length).saturating_sub(node.size).min(length);
    let holes = node.size.saturating_sub(node.used_bytes);
    node.used_bytes + behind + (length - behind).min(holes)
}

impl Shared {
    /// The bytes of a range below the file's size; zeros where nothing is.
    pub(super) async fn read_data(
        &self,
        inode: u64,
        offset: u64,
        length: u64,
    ) -> Result<Payload, Error> {
        let prefix = self.place.data_prefix(inode);
        let parts: Vec<Vec<Bytes>> = stream::iter(self.header.layout.map(offset, length))
            .map(|piece| {
                let object = self.place.data(&prefix, piece.object_number);
                async move {
                    let op = ReadOp::new([ReadStep::Extents {
                        offset: piece.object_offset,
                        length: piece.length,
                    }]);
                    let answer = self.read(&object, op).await;
                    filled(&object, &piece, answer)
                }
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(Payload::from(parts.concat()))
    }

    /// # Errors
    /// What the store says, and whether some of it may happen later.
    pub(super) async fn write_data(
        &self,
        inode: u64,
        offset: u64,
        data: &Payload,
        durability: Durability,
    ) -> Result<(), (Error, bool)> {
        let prefix = self.place.data_prefix(inode);
        let ops = self.header.layout.map(offset, data.len()).map(|piece| {
            let object = self.place.data(&prefix, piece.object_number);
            let step = WriteStep::Write {
                offset: piece.object_offset,
                data: data.slice(piece.buffer_offset, piece.length),
            };
            let op = WriteOp {
                durability,
                ..WriteOp::new([step])
            };
            (object, op)
        });
        self.write_each(ops).await
    }

    /// Takes away what lies behind `size` of a file whose data ends at `end` at most. All of it
    /// reads as zeros then, and takes no space.
    pub(super) async fn cut_data(
        &self,
        inode: u64,
        size: u64,
        end: u64,
    ) -> Result<(), (Error, bool)> {
        let prefix = self.place.data_prefix(inode);
        let layout = self.header.layout;
        let touched = layout.first_touched(size)..layout.object_count(end);
        let ops = touched.filter_map(|number| {
            let step = match layout.kept_bytes(number, size) {
                0 => WriteStep::Remove,
                kept if kept == u64::from(layout.object_size()) => return None,
                size => WriteStep::Truncate { size },
            };
            let object = self.place.data(&prefix, number);
            Some((object, WriteOp::new([step])))
        });
        self.write_each(ops).await
    }

    /// Waits for all, a few at a time, also if one fails: nothing that may be known is on its way
    /// when this returns. What is not there needs no removing.
    async fn write_each(
        &self,
        ops: impl Iterator<Item = (ObjectId, WriteOp)>,
    ) -> Result<(), (Error, bool)> {
        let mut writes = stream::iter(ops)
            .map(|(object, op)| async move { self.write(&object, op).await })
            .buffer_unordered(AT_ONCE);
        let mut outcome: Result<(), (Error, bool)> = Ok(());
        while let Some(answer) = writes.next().await {
            match answer {
                Ok(_) => {}
                Err((error, _)) if error.kind() == ErrorKind::NotFound => {}
                Err((error, is_unknown)) => {
                    let was_unknown = matches!(outcome, Err((_, true)));
                    outcome = Err((error, is_unknown || was_unknown));
                }
            }
        }
        outcome
    }
}

/// The bytes of a piece with its holes filled.
fn filled(
    object: &ObjectId,
    piece: &Piece,
    answer: Result<ReadOutput, Error>,
) -> Result<Vec<Bytes>, Error> {
    let end = piece.object_offset + piece.length;
    let mut at = piece.object_offset;
    let mut bytes = Vec::with_capacity(1);
    let output = match answer {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if let Some(output) = output {
        let [ReadResult::Extents(extents)] = output.results.as_slice() else {
            return Err(corrupt(&object.to_string()));
        };
        for extent in extents {
            let extent_end = extent.offset + extent.data.len() as u64;
            if extent.offset < at || extent_end > end {
                return Err(corrupt(&object.to_string()));
            }
            push_zeros(&mut bytes, extent.offset - at);
            bytes.push(extent.data.clone());
            at = extent_end;
        }
    }
    push_zeros(&mut bytes, end - at);
    Ok(bytes)
}

fn push_zeros(bytes: &mut Vec<Bytes>, count: u64) {
    let mut rest = count;
    while rest > 0 {
        let length = rest.min(ZEROS.len() as u64);
        let length_here = usize::try_from(length).expect("at most the length of a slice");
        bytes.push(Bytes::from_static(&ZEROS[..length_here]));
        rest -= length;
    }
}
