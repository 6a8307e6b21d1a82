//! Applying: what is logged goes to its objects, many rows with one operation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::super::row::{Row, Value};
use super::super::shared::{AT_ONCE, Shared};
use super::overlay::Change;
use crate::error::{Error, ErrorKind};
use crate::limits::FORCED_BYTES_MAX;
use crate::object::{Guard, ObjectId, WriteOp, WriteStep, XattrName};

/// The [`mark`] of the last operation that applied something to the object, 8 bytes big-endian. An
/// operation that comes late, after a later one, does nothing.
const APPLIED: XattrName = XattrName::new("portico.tree.applied");

/// Bytes of rows in one operation.
const OP_BYTES_MAX: usize = 512 * 1024;

/// Bytes of what an operation of rows has besides.
const OP_HEAD_BYTES: usize = 64;

/// After a full store refused to take rows, the next try comes so late.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// A key, and the value that it gets or loses.
type KeyChange = (Bytes, Option<Bytes>);

impl Shared {
    /// Applies until the tree is served no more.
    pub(in crate::tree) async fn apply_all(&self) {
        loop {
            self.logged.notified().await;
            let wait = Duration::from_millis(self.options.apply_ms);
            // Both ways are fine: enough came together, or enough time went by.
            drop(tokio::time::timeout(wait, self.apply_due.notified()).await);
            if self.state().is_ending() {
                return;
            }
            match self.apply_round().await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    tracing::debug!(%error, "a full store takes no rows");
                    tokio::time::sleep(FULL_PAUSE).await;
                    self.logged.notify_one();
                }
                Err(error) => self.stop(&error),
            }
        }
    }

    /// Applies all that is logged now, and splits the directories that grew too large.
    pub(in crate::tree) async fn apply_round(&self) -> Result<(), Error> {
        let _alone = self.applying.lock().await;
        let (barrier, changes) = {
            let state = self.state();
            let barrier = state.committed_up_to();
            (barrier, state.overlay.changes(barrier))
        };
        let counts = self.shard_counts(&changes).await?;
        let mut objects: BTreeMap<ObjectId, Vec<KeyChange>> = BTreeMap::new();
        for change in &changes {
            let shard_count = match change.row {
                Row::Entries { directory, .. } => counts.get(&directory).copied().flatten(),
                Row::Inode(_) | Row::Orphan(_) | Row::Totals => Some(1),
            };
            // What lies in a directory that is gone goes with its objects.
            if let Some(shard_count) = shard_count {
                let (object, key) = self.place.row(change.row, shard_count);
                let value = change.value.as_ref().map(Value::encode);
                objects.entry(object).or_default().push((key, value));
            }
        }
        stream::iter(objects)
            .map(|(object, rows)| self.apply_to(object, rows, barrier))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        let grown = grown(&changes, self.options.shard_entries_max);
        {
            let mut state = self.state();
            for change in changes {
                state.overlay.applied(change);
            }
            state.applied(barrier);
        }
        self.applied.send_replace(barrier);
        for directory in grown {
            self.split(directory).await?;
        }
        Ok(())
    }

    /// How many shards the directories of these rows have; `None` for one that is gone.
    async fn shard_counts(&self, changes: &[Change]) -> Result<BTreeMap<u64, Option<u32>>, Error> {
        let directories: BTreeSet<u64> = changes
            .iter()
            .filter_map(|change| match change.row {
                Row::Entries { directory, .. } => Some(directory),
                Row::Inode(_) | Row::Orphan(_) | Row::Totals => None,
            })
            .collect();
        let mut counts = BTreeMap::new();
        let mut open: Vec<u64> = directories.into_iter().collect();
        while !open.is_empty() {
            let rows: Vec<Row> = open.iter().map(|number| Row::Inode(*number)).collect();
            self.load(&rows).await?;
            let state = self.state();
            open.retain(|number| match state.overlay.get(Row::Inode(*number)) {
                None => true,
                Some((value, _)) => {
                    counts.insert(*number, shard_count(value));
                    false
                }
            });
        }
        Ok(counts)
    }

    async fn apply_to(
        &self,
        object: ObjectId,
        rows: Vec<KeyChange>,
        barrier: u64,
    ) -> Result<(), Error> {
        let keys_max = self.store.limits(&object.pool).omap_keys_max as usize;
        for part in parts(rows, keys_max, OP_BYTES_MAX) {
            match self.write_rows(&object, &part, barrier, false).await {
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    let forced_max = usize::try_from(FORCED_BYTES_MAX).expect("4 KiB");
                    for small in parts(part, keys_max, forced_max - OP_HEAD_BYTES) {
                        self.write_rows(&object, &small, barrier, true).await?;
                    }
                }
                answer => answer?,
            }
        }
        Ok(())
    }

    async fn write_rows(
        &self,
        object: &ObjectId,
        rows: &[KeyChange],
        barrier: u64,
        is_forced: bool,
    ) -> Result<(), Error> {
        let mut entries = Vec::new();
        let mut keys = Vec::new();
        for (key, value) in rows {
            match value {
                Some(value) => entries.push((key.clone(), value.clone())),
                None => keys.push(key.clone()),
            }
        }
        let op = WriteOp::new([
            WriteStep::Create,
            WriteStep::OmapSet { entries },
            WriteStep::OmapRemove { keys },
        ]);
        self.write_applied(object, op, mark(barrier, 0), is_forced)
            .await
    }

    /// An operation on an object of rows. Those with the same mark may happen in any order, and
    /// each twice.
    pub(in crate::tree) async fn write_applied(
        &self,
        object: &ObjectId,
        op: WriteOp,
        mark: u64,
        is_forced: bool,
    ) -> Result<(), Error> {
        let guard = Guard::XattrAtMost {
            name: APPLIED,
            value: mark,
        };
        let op = op.guarded(guard).step(WriteStep::epoch_set(APPLIED, mark));
        let mut op = self.claim.apply(op);
        if is_forced {
            op = op.forced_when_full();
        }
        let written = self.write(object, op).await;
        written.map(|_| ()).map_err(|(error, _)| error)
    }
}

/// What orders the operations on an object of rows: how far the log was applied before, and a
/// step of what is done then.
pub(in crate::tree) fn mark(barrier: u64, step: u16) -> u64 {
    assert!(barrier < 1 << 48, "a log of so many records");
    (barrier << 16) | u64::from(step)
}

/// `None` if the directory is gone, or goes.
fn shard_count(value: Option<&Value>) -> Option<u32> {
    match value {
        Some(Value::Inode(node)) if node.link_count > 0 => Some(node.shard_count),
        _ => None,
    }
}

/// Directories with more entries than their shards should hold.
fn grown(changes: &[Change], shard_entries_max: u32) -> Vec<u64> {
    let is_grown = |change: &Change| match (change.row, &change.value) {
        (Row::Inode(number), Some(Value::Inode(node))) => {
            let entries_max = u64::from(node.shard_count) * u64::from(shard_entries_max);
            (node.shard_count > 0 && node.size > entries_max).then_some(number)
        }
        _ => None,
    };
    changes.iter().filter_map(is_grown).collect()
}

/// The rows in parts of at most so many keys and bytes, or of one row.
fn parts(rows: Vec<KeyChange>, keys_max: usize, bytes_max: usize) -> Vec<Vec<KeyChange>> {
    let mut parts: Vec<Vec<KeyChange>> = Vec::new();
    let mut bytes = 0;
    for (key, value) in rows {
        let row_bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
        bytes += row_bytes;
        match parts.last_mut() {
            Some(part) if part.len() < keys_max && bytes <= bytes_max => part.push((key, value)),
            Some(_) | None => {
                bytes = row_bytes;
                parts.push(vec![(key, value)]);
            }
        }
    }
    parts
}
