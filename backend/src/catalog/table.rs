//! A table of the catalog: keys and records in the omaps of a fixed number of objects, chosen by a
//! hash of the key so that none grows too large.

use std::sync::Arc;

use bytes::Bytes;

use crate::codec::crc32c;
use crate::error::{Error, ErrorKind};
use crate::limits::OMAP_KEYS_PER_OP_MAX;
use crate::object::{
    Guard, ObjectId, ObjectName, ObjectStore, OmapPage, Pool, ReadOp, ReadResult, ReadStep,
    Version, WriteOp, WriteStep,
};

/// One table.
#[derive(Debug)]
pub(super) struct Table {
    store: Arc<dyn ObjectStore>,
    pool: Pool,
    prefix: Arc<str>,
    partition_count: u32,
}

/// One record as it was and as it shall be; `None` for absent.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    pub(super) key: Bytes,
    pub(super) old: Option<Bytes>,
    pub(super) new: Option<Bytes>,
}

/// All records of one partition. They may stem from several moments from `version` on.
#[derive(Debug)]
pub(super) struct Partition {
    /// `None` while the partition's object does not exist.
    pub(super) version: Option<Version>,
    pub(super) entries: Vec<(Bytes, Bytes)>,
}

impl Table {
    pub(super) fn new(
        store: &Arc<dyn ObjectStore>,
        pool: &Pool,
        name: &str,
        partition_count: u32,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            pool: pool.clone(),
            prefix: Arc::from(name),
            partition_count,
        }
    }

    pub(super) fn partitions(&self) -> std::ops::Range<u32> {
        0..self.partition_count
    }

    pub(super) fn partition_of(&self, key: &[u8]) -> u32 {
        crc32c(key) % self.partition_count
    }

    /// The record of `key` as the store has it now.
    pub(super) async fn read(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let object = self.object(self.partition_of(key));
        let op = ReadOp::new([ReadStep::OmapGet {
            keys: vec![Bytes::copy_from_slice(key)],
        }]);
        let output = match self.store.read(&object, op).await {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match output.results.into_iter().next() {
            Some(ReadResult::OmapValues(values)) => Ok(values.into_iter().next().flatten()),
            _ => Err(strange_answer(&object)),
        }
    }

    /// The version of a partition, which grows with each change in it.
    pub(super) async fn version(&self, partition: u32) -> Result<Option<Version>, Error> {
        let object = self.object(partition);
        match self
            .store
            .read(&object, ReadOp::new([ReadStep::Stat]))
            .await
        {
            Ok(output) => Ok(Some(output.version)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All records of a partition. What changes meanwhile may be in it or not, and makes the
    /// partition's version greater than the one returned.
    pub(super) async fn load(&self, partition: u32) -> Result<Partition, Error> {
        let mut version = None;
        let mut entries = Vec::new();
        let mut start = Bytes::new();
        loop {
            let Some((page_version, page)) = self.page(partition, start).await? else {
                break;
            };
            version.get_or_insert(page_version);
            let next = page.entries.last().map(|(key, _)| key_after(key));
            entries.extend(page.entries);
            match next {
                Some(next) if page.more => start = next,
                _ => break,
            }
        }
        Ok(Partition { version, entries })
    }

    /// Makes all edits, which lie in one partition, or none. `false` if a record is not as `old`
    /// says. An edit whose outcome the store does not know counts as made if the records read back
    /// as they shall be.
    ///
    /// # Panics
    /// If the edits lie in different partitions, or there are none.
    pub(super) async fn edit(&self, edits: &[Edit]) -> Result<bool, Error> {
        let first = edits.first().expect("an edit changes something");
        let partition = self.partition_of(&first.key);
        assert!(
            edits
                .iter()
                .all(|edit| self.partition_of(&edit.key) == partition),
            "one operation edits one partition"
        );
        match self.edit_partition(partition, edits).await {
            Err(error) if error.kind().is_perhaps_applied() => {
                if self.is_made(edits).await.unwrap_or(false) {
                    Ok(true)
                } else {
                    Err(error)
                }
            }
            outcome => outcome,
        }
    }

    async fn edit_partition(&self, partition: u32, edits: &[Edit]) -> Result<bool, Error> {
        let object = self.object(partition);
        // The object is made by whoever is first; afterwards it is never removed.
        let makes_only = edits.iter().all(|edit| edit.old.is_none());
        for _ in 0..2 {
            match self.store.write(&object, guarded(edits)).await {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::GuardFailed => return Ok(false),
                Err(error) if error.kind() == ErrorKind::NotFound && makes_only => {}
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error),
            }
            let op = steps(edits).guarded(Guard::Absent);
            match self.store.write(&object, op).await {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Busy,
            format!("make {object}: it comes and goes"),
        ))
    }

    async fn is_made(&self, edits: &[Edit]) -> Result<bool, Error> {
        for edit in edits {
            if self.read(&edit.key).await? != edit.new {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn page(
        &self,
        partition: u32,
        start: Bytes,
    ) -> Result<Option<(Version, OmapPage)>, Error> {
        let object = self.object(partition);
        let op = ReadOp::new([ReadStep::OmapScan {
            start,
            end: None,
            keys_only: false,
            count_max: scan_keys_max(&*self.store, &self.pool),
        }]);
        let output = match self.store.read(&object, op).await {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match output.results.into_iter().next() {
            Some(ReadResult::OmapPage(page)) => Ok(Some((output.version, page))),
            _ => Err(strange_answer(&object)),
        }
    }

    fn object(&self, partition: u32) -> ObjectId {
        let name = ObjectName::numbered(&self.prefix, u64::from(partition));
        ObjectId::new(&self.pool, name)
    }
}

/// The error of a record that is not readable.
pub(super) fn corrupt(what: &str, key: &[u8], error: crate::codec::DecodeError) -> Error {
    let key = String::from_utf8_lossy(key);
    Error::new(
        ErrorKind::Corrupt,
        format!("the catalog's record of the {what} {key:?}"),
    )
    .with_source(error)
}

/// The error of an engine that answers another question than the one asked.
pub(super) fn strange_answer(object: &ObjectId) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("read {object}: not the answer asked for"),
    )
}

/// Keys that one scan may ask for.
pub(super) fn scan_keys_max(store: &dyn ObjectStore, pool: &Pool) -> u32 {
    OMAP_KEYS_PER_OP_MAX.min(store.limits(pool).omap_keys_max)
}

/// The least key behind `key`.
pub(super) fn key_after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    Bytes::from(next)
}

fn guarded(edits: &[Edit]) -> WriteOp {
    let mut op = steps(edits);
    for edit in edits {
        op = op.guarded(Guard::OmapIs {
            key: edit.key.clone(),
            value: edit.old.clone(),
        });
    }
    op
}

fn steps(edits: &[Edit]) -> WriteOp {
    let mut entries = Vec::new();
    let mut keys = Vec::new();
    for edit in edits {
        match &edit.new {
            Some(new) => entries.push((edit.key.clone(), new.clone())),
            None => keys.push(edit.key.clone()),
        }
    }
    let mut op = WriteOp::default();
    if !entries.is_empty() {
        op = op.step(WriteStep::OmapSet { entries });
    }
    if !keys.is_empty() {
        op = op.step(WriteStep::OmapRemove { keys });
    }
    // What exists changes and goes on a full store too: a node starts again, a bucket is deleted.
    match edits.iter().any(|edit| edit.old.is_some()) {
        true => op.forced_when_full(),
        false => op,
    }
}
