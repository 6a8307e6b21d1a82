//! The map of a bucket: which shard holds which keys. It may be old wherever it is used, since a
//! shard itself says which keys it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::error::Error;
use super::row;
use super::{BucketId, Shared};
use crate::codec::{DecodeError, Reader, Writer};
use crate::error::ErrorKind;
use crate::object::{
    Guard, ObjectId, ObjectName, Pool, ReadOp, ReadResult, ReadStep, Version, WriteOp, WriteStep,
};

const VERSION: u8 = 1;

/// Rows of the map: whether the bucket exists, the next shard's number, a shard for the keys from
/// a place on, and shards that no key leads to.
pub(super) const STATE: &[u8] = b"s";
pub(super) const NEXT: &[u8] = b"n";
const SHARD: u8 = b'm';
const RETIRED: u8 = b'r';

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BucketState {
    /// Being made by this writer.
    Creating {
        writer: u64,
    },
    Open,
    Deleting {
        deletion: u128,
    },
    Deleted,
}

/// A shard that no key leads to: being filled, given up or moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Retired {
    /// The writer who made it.
    pub(super) writer: u64,
    /// Given up: whoever fills it must not lead keys to it any more.
    pub(super) given_up: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ShardMap {
    pub(super) version: Version,
    pub(super) state: BucketState,
    pub(super) next: u64,
    /// By the first place that belongs to the shard.
    pub(super) shards: BTreeMap<Bytes, u64>,
    pub(super) retired: BTreeMap<u64, Retired>,
}

impl ShardMap {
    /// The first place and the number of the shard that `place` belongs to.
    pub(super) fn locate(&self, place: &[u8]) -> Option<(&Bytes, u64)> {
        let bound = Bytes::copy_from_slice(place);
        let (start, number) = self.shards.range(..=bound).next_back()?;
        Some((start, *number))
    }
}

/// Objects over which the list of all buckets is spread.
pub(super) const BUCKET_LISTS: u64 = 16;

/// A part of the list of all buckets.
pub(super) fn buckets_object(meta: &Pool, list: u64) -> ObjectId {
    ObjectId::new(meta, ObjectName::numbered(&Arc::from("bucket.list"), list))
}

/// Its value is the number of the writer who made the bucket.
pub(super) fn bucket_row(id: BucketId) -> Bytes {
    Bytes::copy_from_slice(&id.0.to_be_bytes())
}

impl BucketState {
    fn exists(self) -> bool {
        matches!(self, Self::Open | Self::Deleting { .. })
    }

    pub(super) fn encode(self) -> Bytes {
        let mut out = Writer::new(VERSION);
        match self {
            Self::Open => out.u8(0),
            Self::Deleting { deletion } => out.u8(1).u128(deletion),
            Self::Deleted => out.u8(2),
            Self::Creating { writer } => out.u8(3).u64(writer),
        };
        out.finish()
    }

    fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(value, VERSION)?;
        let state = match reader.u8()? {
            0 => Self::Open,
            1 => Self::Deleting {
                deletion: reader.u128()?,
            },
            2 => Self::Deleted,
            3 => Self::Creating {
                writer: reader.u64()?,
            },
            _ => return Err(DecodeError::Field("the state of a bucket")),
        };
        reader.finish()?;
        Ok(state)
    }
}

impl Retired {
    pub(super) fn encode(self) -> Bytes {
        let mut out = Writer::new(VERSION);
        out.u64(self.writer).bool(self.given_up);
        out.finish()
    }

    fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(value, VERSION)?;
        let retired = Self {
            writer: reader.u64()?,
            given_up: reader.bool()?,
        };
        reader.finish()?;
        Ok(retired)
    }
}

pub(super) fn shard_row(start: &[u8]) -> Bytes {
    [&[SHARD], start].concat().into()
}

pub(super) fn retired_row(number: u64) -> Bytes {
    [&[RETIRED][..], &number.to_be_bytes()].concat().into()
}

/// A number as the value of a row.
pub(super) fn encode_number(number: u64) -> Bytes {
    let mut out = Writer::new(VERSION);
    out.u64(number);
    out.finish()
}

pub(super) fn decode_number(value: &[u8]) -> Result<u64, DecodeError> {
    let (mut reader, _) = Reader::new(value, VERSION)?;
    let number = reader.u64()?;
    reader.finish()?;
    Ok(number)
}

impl Shared {
    pub(super) fn map_object(&self, id: BucketId) -> ObjectId {
        ObjectId::new(&self.meta, ObjectName::numbered(&self.map_prefix, id.0))
    }

    pub(super) fn shard_object(&self, id: BucketId, number: u64) -> ObjectId {
        let prefix: Arc<str> = Arc::from(format!("bucket.shard.{:016x}", id.0));
        ObjectId::new(&self.meta, ObjectName::numbered(&prefix, number))
    }

    /// The map as last read by this node; read if there is none yet.
    pub(super) async fn map(&self, id: BucketId) -> Result<Arc<ShardMap>, Error> {
        let known = self.maps.lock().expect(super::LOCK).get(&id).cloned();
        match known {
            Some(map) => Ok(map),
            None => self.fresh_map(id).await,
        }
    }

    /// The map as it is now, whatever the state of the bucket.
    ///
    /// # Errors
    /// `NoSuchBucket` if nothing is left of the bucket.
    pub(super) async fn fresh_map_any(&self, id: BucketId) -> Result<Arc<ShardMap>, Error> {
        let map = self.read_map(id).await;
        let mut maps = self.maps.lock().expect(super::LOCK);
        match map {
            Ok(map) => {
                let map = Arc::new(map);
                if map.state.exists() {
                    maps.insert(id, Arc::clone(&map));
                } else {
                    maps.remove(&id);
                }
                Ok(map)
            }
            Err(error) => {
                maps.remove(&id);
                Err(error)
            }
        }
    }

    /// # Errors
    /// `NoSuchBucket` if the bucket does not exist or was deleted.
    pub(super) async fn fresh_map(&self, id: BucketId) -> Result<Arc<ShardMap>, Error> {
        let map = self.fresh_map_any(id).await?;
        if !map.state.exists() {
            return Err(Error::NoSuchBucket);
        }
        Ok(map)
    }

    /// Makes the objects of a bucket and opens it. What is there stays.
    ///
    /// # Errors
    /// `NoSuchBucket` if it was deleted before.
    pub(super) async fn make_bucket(&self, id: BucketId) -> Result<(), Error> {
        self.list_bucket(id).await?;
        let creating = BucketState::Creating {
            writer: self.writer.number,
        };
        let rows = vec![
            (Bytes::from_static(STATE), creating.encode()),
            (Bytes::from_static(NEXT), encode_number(2)),
            (shard_row(b""), encode_number(1)),
        ];
        self.make_object(&self.map_object(id), rows).await?;
        let state = super::shard::ShardState::open(Bytes::new(), None);
        let rows = vec![(Bytes::from_static(row::STATE), state.encode())];
        self.make_object(&self.shard_object(id, 1), rows).await?;
        loop {
            let state = self.fresh_map_any(id).await?.state;
            match state {
                BucketState::Creating { .. } => {
                    self.move_map(id, state, BucketState::Open).await?;
                }
                BucketState::Open | BucketState::Deleting { .. } => return Ok(()),
                BucketState::Deleted => return Err(Error::NoSuchBucket),
            }
        }
    }

    /// Notes for reclaim that the bucket exists, before anything of it does.
    async fn list_bucket(&self, id: BucketId) -> Result<(), Error> {
        let entries = vec![(bucket_row(id), encode_number(self.writer.number))];
        let op = WriteOp::new([WriteStep::OmapSet { entries }]);
        let object = buckets_object(&self.meta, id.0 % BUCKET_LISTS);
        Ok(self.write_settled(&object, op).await.map(drop)?)
    }

    async fn make_object(
        &self,
        object: &ObjectId,
        entries: Vec<(Bytes, Bytes)>,
    ) -> Result<(), Error> {
        let op = WriteOp::new([WriteStep::OmapSet { entries }]).guarded(Guard::Absent);
        match self.write_settled(object, op).await {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    async fn read_map(&self, id: BucketId) -> Result<ShardMap, Error> {
        let object = self.map_object(id);
        'whole: loop {
            let (mut rows, mut version) = (BTreeMap::new(), None);
            let mut start = Bytes::new();
            loop {
                let page = self.read_map_page(&object, start, version).await;
                let (page, at) = match page {
                    Ok(page) => page,
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        return Err(Error::NoSuchBucket);
                    }
                    Err(error) if error.kind() == ErrorKind::GuardFailed => continue 'whole,
                    Err(error) => return Err(error.into()),
                };
                version = Some(at);
                start = match page.entries.last() {
                    Some((last, _)) => row::after_row(last),
                    None => Bytes::new(),
                };
                rows.extend(page.entries);
                if !page.more {
                    return parse_map(at, rows).map_err(|e| super::corrupt(&object, e));
                }
            }
        }
    }

    async fn read_map_page(
        &self,
        object: &ObjectId,
        start: Bytes,
        version: Option<Version>,
    ) -> Result<(crate::object::OmapPage, Version), crate::error::Error> {
        let mut op = ReadOp::new([ReadStep::OmapScan {
            start,
            end: None,
            keys_only: false,
            count_max: self.scan_rows_max(),
        }]);
        if let Some(version) = version {
            op = op.guarded(Guard::VersionIs(version));
        }
        let output = self.read_retried(object, op).await?;
        match output.results.into_iter().next() {
            Some(ReadResult::OmapPage(page)) => Ok((page, output.version)),
            _ => Err(super::odd_answer(object)),
        }
    }
}

fn parse_map(version: Version, rows: BTreeMap<Bytes, Bytes>) -> Result<ShardMap, DecodeError> {
    let mut map = ShardMap {
        version,
        state: BucketState::Deleted,
        next: 0,
        shards: BTreeMap::new(),
        retired: BTreeMap::new(),
    };
    for (row, value) in rows {
        match row.first() {
            _ if row == STATE => map.state = BucketState::decode(&value)?,
            _ if row == NEXT => map.next = decode_number(&value)?,
            Some(&SHARD) => {
                map.shards.insert(row.slice(1..), decode_number(&value)?);
            }
            Some(&RETIRED) => {
                let number = row.get(1..).and_then(|tail| tail.try_into().ok());
                let number = number.ok_or(DecodeError::Field("a shard's number"))?;
                map.retired
                    .insert(u64::from_be_bytes(number), Retired::decode(&value)?);
            }
            _ => return Err(DecodeError::Field("a row of a bucket's map")),
        }
    }
    if map.next == 0 || !map.shards.keys().next().is_some_and(Bytes::is_empty) {
        return Err(DecodeError::Field("a bucket's map"));
    }
    Ok(map)
}
