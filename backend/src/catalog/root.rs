//! The catalog's root object: counters, and how one session tells the others of a change.
//!
//! A change that others may have in memory goes like this:
//!
//! 1. announce: the root gets a key `pending/...` that names the partition;
//! 2. the record is changed in its table;
//! 3. settle: the root's sequence grows by one and the announcement goes, in one operation;
//! 4. notify: who watches the root hears the sequence and what changed.
//!
//! Whoever knows the sequence and looks at the announcements has missed nothing, wherever the
//! changing session may have died.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};

use super::error::CatalogError;
use super::table::{corrupt, scan_keys_max, strange_answer};
use crate::codec::{DecodeError, Reader, Writer};
use crate::error::{Error, ErrorKind};
use crate::object::{
    Guard, ObjectId, ObjectName, ObjectStore, Pool, ReadOp, ReadResult, ReadStep, WriteOp,
    WriteStep,
};

/// The layout of the whole catalog, and of the root's records.
const VERSION: u8 = 1;

const FORMAT: &[u8] = b"format";
const SEQUENCE: &[u8] = b"sequence";
const PENDING: &[u8] = b"pending/";
/// The least key behind all that begin with `PENDING`.
const PENDING_END: &[u8] = b"pending0";

/// Attempts to win a counter against others.
const ATTEMPTS_MAX: u32 = 256;

/// A number that is given out once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counter {
    Bucket,
    Node,
    Target,
}

/// Which table a change is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TableKind {
    AccessKey,
    Bucket,
    Initiator,
    Lun,
    Node,
    Target,
    User,
}

/// Where something changes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Change {
    pub(super) table: TableKind,
    pub(super) partition: u32,
    pub(super) key: Bytes,
}

/// What a notification says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct News {
    /// The catalog that made the change.
    pub(super) origin: u64,
    pub(super) sequence: u64,
    pub(super) change: Change,
}

/// What the root says at one moment.
#[derive(Debug)]
pub(super) struct RootState {
    pub(super) sequence: u64,
    /// Changes begun and not settled, with their keys.
    pub(super) pending: Vec<(Bytes, Change)>,
    /// Whether there are more than fit in one scan, or some that this program does not understand:
    /// then everything counts as changed.
    pub(super) pending_unclear: bool,
}

/// The key of an announcement.
#[derive(Clone, Debug)]
pub(super) struct Announcement(Bytes);

#[derive(Debug)]
pub(super) struct Root {
    store: Arc<dyn ObjectStore>,
    object: ObjectId,
    /// Tells this catalog from all others, also in the same session.
    origin: u64,
    announced: AtomicU64,
}

impl Root {
    /// Opens the root, making it if it is not there.
    pub(super) async fn open(
        store: &Arc<dyn ObjectStore>,
        pool: &Pool,
    ) -> Result<Self, CatalogError> {
        let mut origin = [0; 8];
        SystemRandom::new()
            .fill(&mut origin)
            .map_err(|_| CatalogError::Random)?;
        let root = Self {
            store: Arc::clone(store),
            object: ObjectId::new(pool, ObjectName::new("catalog")),
            origin: u64::from_le_bytes(origin),
            announced: AtomicU64::new(0),
        };
        let make = WriteOp::new([WriteStep::OmapSet {
            entries: vec![
                (Bytes::from_static(FORMAT), number(u64::from(VERSION))),
                (Bytes::from_static(SEQUENCE), number(1)),
            ],
        }])
        .guarded(Guard::Absent);
        match store.write(&root.object, make).await {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        let format = root.number_of(FORMAT).await?.map(|(number, _)| number);
        if format != Some(u64::from(VERSION)) {
            let context = format!(
                "open the catalog {}: its format is {format:?}, this program knows {VERSION}",
                root.object
            );
            return Err(Error::new(ErrorKind::Unsupported, context).into());
        }
        Ok(root)
    }

    pub(super) fn object(&self) -> &ObjectId {
        &self.object
    }

    pub(super) fn origin(&self) -> u64 {
        self.origin
    }

    /// The sequence and the announcements, at one moment.
    pub(super) async fn read(&self) -> Result<RootState, Error> {
        let op = ReadOp::new([
            ReadStep::OmapGet {
                keys: vec![Bytes::from_static(SEQUENCE)],
            },
            ReadStep::OmapScan {
                start: Bytes::from_static(PENDING),
                end: Some(Bytes::from_static(PENDING_END)),
                keys_only: false,
                // One key of the operation is the sequence.
                count_max: scan_keys_max(&*self.store, &self.object.pool) - 1,
            },
        ]);
        let output = self.store.read(&self.object, op).await?;
        let [ReadResult::OmapValues(values), ReadResult::OmapPage(page)] =
            output.results.as_slice()
        else {
            return Err(strange_answer(&self.object));
        };
        let sequence = match values.first() {
            Some(Some(value)) => {
                number_from(value).map_err(|error| corrupt("counter", SEQUENCE, error))?
            }
            _ => return Err(corrupt("counter", SEQUENCE, DecodeError::Truncated)),
        };
        let mut state = RootState {
            sequence,
            pending: Vec::with_capacity(page.entries.len()),
            pending_unclear: page.more,
        };
        for (key, value) in &page.entries {
            match Change::decode(value) {
                Ok(change) => state.pending.push((key.clone(), change)),
                Err(_) => state.pending_unclear = true,
            }
        }
        Ok(state)
    }

    /// The next number of a counter: greater than all before.
    pub(super) async fn count(&self, counter: Counter) -> Result<u64, Error> {
        let key: &[u8] = match counter {
            Counter::Bucket => b"bucket",
            Counter::Node => b"node",
            Counter::Target => b"target",
        };
        self.increase(key, None).await
    }

    /// Says that `change` is about to be made.
    pub(super) async fn announce(&self, change: &Change) -> Result<Announcement, Error> {
        let count = self.announced.fetch_add(1, Ordering::Relaxed);
        let mut key = PENDING.to_vec();
        key.extend_from_slice(format!("{:016x}/{count:016x}", self.origin).as_bytes());
        let key = Bytes::from(key);
        let op = WriteOp::new([WriteStep::OmapSet {
            entries: vec![(key.clone(), change.encode())],
        }]);
        self.store
            .write(&self.object, op.guarded(Guard::Exists).forced_when_full())
            .await?;
        Ok(Announcement(key))
    }

    /// The announced change was not made.
    pub(super) async fn withdraw(&self, announcement: &Announcement) -> Result<(), Error> {
        let op = WriteOp::new([WriteStep::OmapRemove {
            keys: vec![announcement.0.clone()],
        }]);
        self.store.write(&self.object, op).await.map(|_| ())
    }

    /// The announced change was made, or perhaps made: gives the new sequence.
    pub(super) async fn settle(&self, announcement: &Announcement) -> Result<u64, Error> {
        self.increase(SEQUENCE, Some(announcement.0.clone())).await
    }

    async fn increase(&self, key: &'static [u8], remove: Option<Bytes>) -> Result<u64, Error> {
        for _ in 0..ATTEMPTS_MAX {
            let (current, stored) = match self.number_of(key).await? {
                Some((current, stored)) => (current, Some(stored)),
                None => (0, None),
            };
            let next = current.checked_add(1).ok_or_else(|| {
                let context = format!("count in {}: a counter is at its end", self.object);
                Error::new(ErrorKind::Corrupt, context)
            })?;
            let mut op = WriteOp::new([WriteStep::OmapSet {
                entries: vec![(Bytes::from_static(key), number(next))],
            }])
            .guarded(Guard::OmapIs {
                key: Bytes::from_static(key),
                value: stored,
            })
            .forced_when_full();
            if let Some(remove) = &remove {
                op = op.step(WriteStep::OmapRemove {
                    keys: vec![remove.clone()],
                });
            }
            match self.store.write(&self.object, op).await {
                Ok(_) => return Ok(next),
                Err(error) if error.kind() == ErrorKind::GuardFailed => {}
                Err(error) => return Err(error),
            }
        }
        let context = format!("count in {}: others keep counting", self.object);
        Err(Error::new(ErrorKind::Busy, context))
    }

    async fn number_of(&self, key: &'static [u8]) -> Result<Option<(u64, Bytes)>, Error> {
        let op = ReadOp::new([ReadStep::OmapGet {
            keys: vec![Bytes::from_static(key)],
        }]);
        let output = self.store.read(&self.object, op).await?;
        let Some(ReadResult::OmapValues(values)) = output.results.into_iter().next() else {
            return Err(strange_answer(&self.object));
        };
        match values.into_iter().next().flatten() {
            Some(value) => {
                let current =
                    number_from(&value).map_err(|error| corrupt("counter", key, error))?;
                Ok(Some((current, value)))
            }
            None => Ok(None),
        }
    }
}

impl Announcement {
    /// An announcement of somebody who went away, to be settled on its behalf.
    pub(super) fn found(key: &Bytes) -> Self {
        Self(key.clone())
    }
}

impl Change {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        self.write(&mut writer);
        writer.finish()
    }

    fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let change = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(change)
    }

    fn write(&self, writer: &mut Writer) {
        let table = match self.table {
            TableKind::AccessKey => 1,
            TableKind::Bucket => 2,
            TableKind::Node => 3,
            TableKind::User => 4,
            TableKind::Lun => 5,
            TableKind::Target => 6,
            TableKind::Initiator => 7,
        };
        writer.u8(table).u32(self.partition).bytes(&self.key);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let table = match reader.u8()? {
            1 => TableKind::AccessKey,
            2 => TableKind::Bucket,
            3 => TableKind::Node,
            4 => TableKind::User,
            5 => TableKind::Lun,
            6 => TableKind::Target,
            7 => TableKind::Initiator,
            _ => return Err(DecodeError::Field("table")),
        };
        Ok(Self {
            table,
            partition: reader.u32()?,
            key: Bytes::copy_from_slice(reader.bytes()?),
        })
    }
}

impl News {
    pub(super) fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer.u64(self.origin).u64(self.sequence);
        self.change.write(&mut writer);
        writer.finish()
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(payload, VERSION)?;
        let news = Self {
            origin: reader.u64()?,
            sequence: reader.u64()?,
            change: Change::read(&mut reader)?,
        };
        reader.finish()?;
        Ok(news)
    }
}

fn number(value: u64) -> Bytes {
    let mut writer = Writer::new(VERSION);
    writer.u64(value);
    writer.finish()
}

fn number_from(record: &[u8]) -> Result<u64, DecodeError> {
    let (mut reader, _) = Reader::new(record, VERSION)?;
    let value = reader.u64()?;
    reader.finish()?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_read_back_and_cut_ones_do_not() {
        let news = News {
            origin: 1,
            sequence: 2,
            change: Change {
                table: TableKind::Bucket,
                partition: 63,
                key: Bytes::from_static(b"photos"),
            },
        };
        let payload = news.encode();
        assert_eq!(News::decode(&payload), Ok(news));
        for length in 0..payload.len() {
            assert!(News::decode(&payload[..length]).is_err());
        }
    }
}
