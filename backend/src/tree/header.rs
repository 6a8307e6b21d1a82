//! What a tree is, said once when it is made.

use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};

use super::place::Place;
use super::row::Row;
use crate::codec::{DecodeError, Reader, Writer};
use crate::error::{Error, ErrorKind};
use crate::object::{ObjectStore, ReadOp, ReadResult, ReadStep};
use crate::stripe::Layout;

const VERSION: u8 = 1;
const KEY: &[u8] = b"header";

/// The bounds that a tree sets itself. They may be overshot by what is on its way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TreeQuota {
    /// Bytes of data, holes not counted.
    pub bytes: Option<u64>,
    /// Nodes of all kinds.
    pub inodes: Option<u64>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Header {
    /// The key of [`super::cookie::hash`].
    pub(super) hash_key: [u8; 16],
    pub(super) layout: Layout,
    pub(super) quota: TreeQuota,
}

impl Header {
    pub(super) fn key() -> Bytes {
        Bytes::from_static(KEY)
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer
            .raw(&self.hash_key)
            .u32(self.layout.stripe_unit())
            .u32(self.layout.stripe_count())
            .u32(self.layout.object_size());
        for bound in [self.quota.bytes, self.quota.inodes] {
            writer.bool(bound.is_some()).u64(bound.unwrap_or(0));
        }
        writer.finish()
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let hash_key = reader.u128()?.to_le_bytes();
        let layout = Layout::new(reader.u32()?, reader.u32()?, reader.u32()?)
            .map_err(|_| DecodeError::Field("a layout"))?;
        let mut bound = || -> Result<Option<u64>, DecodeError> {
            let is_bound = reader.bool()?;
            let value = reader.u64()?;
            Ok(is_bound.then_some(value))
        };
        let quota = TreeQuota {
            bytes: bound()?,
            inodes: bound()?,
        };
        reader.finish()?;
        Ok(Self {
            hash_key,
            layout,
            quota,
        })
    }

    /// # Errors
    /// `NotFound` if there is no such tree.
    pub(super) async fn read(store: &dyn ObjectStore, place: &Place) -> Result<Self, Error> {
        let object = place.header();
        let keys = vec![Self::key()];
        let output = store
            .read(&object, ReadOp::new([ReadStep::OmapGet { keys }]))
            .await?;
        let Some(ReadResult::OmapValues(values)) = output.results.first() else {
            return Err(corrupt(&object.to_string()));
        };
        let record = values.first().cloned().flatten().unwrap_or_default();
        Self::decode(&record).map_err(|error| corrupt(&object.to_string()).with_source(error))
    }
}

/// What of `object` is not as it must be.
pub(super) fn corrupt(object: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("tree: a record of {object}"))
}

/// A row that does not read.
pub(super) fn corrupt_row(row: Row, error: DecodeError) -> Error {
    Error::new(ErrorKind::Corrupt, format!("tree: the row {row:?}")).with_source(error)
}

pub(super) fn draw<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        let context = "tree: the machine gives no random numbers";
        Error::new(ErrorKind::Unavailable, context)
    })?;
    Ok(bytes)
}
