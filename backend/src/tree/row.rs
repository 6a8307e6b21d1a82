//! Rows: the unit in which a tree is read, changed, logged and stored.
//!
//! A change of a tree is a list of rows with their whole new values, so that doing it twice is
//! doing it once. Each row lies under one key in one object (`place.rs`).

use std::sync::Arc;

use bytes::Bytes;

use super::cookie::SLOTS_MAX;
use super::record::{Entry, Inode};
use crate::codec::{DecodeError, Reader, Writer};

/// The name of a row. Rows of one directory stand together, in the order of their hashes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Row {
    /// The names of one hash in a directory.
    Entries {
        directory: u64,
        hash: u64,
    },
    Inode(u64),
    /// A node that no name leads to any more, whose data or objects remain to be removed.
    Orphan(u64),
    Totals,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Value {
    Entries(Arc<Vec<(u8, Entry)>>),
    Inode(Arc<Inode>),
    Orphan,
    Totals(Totals),
}

/// What is counted over the whole tree.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Totals {
    /// Numbers from here on were never a node's.
    pub(super) inode_next: u64,
    pub(super) inode_count: u64,
    /// The sum of what the nodes say.
    pub(super) used_bytes: u64,
}

const ENTRIES_VERSION: u8 = 1;
const ORPHAN_VERSION: u8 = 1;
const TOTALS_VERSION: u8 = 1;

impl Row {
    pub(super) fn write(self, writer: &mut Writer) {
        match self {
            Self::Entries { directory, hash } => writer.u8(1).u64(directory).u64(hash),
            Self::Inode(number) => writer.u8(2).u64(number),
            Self::Orphan(number) => writer.u8(3).u64(number),
            Self::Totals => writer.u8(4),
        };
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            1 => Self::Entries {
                directory: reader.u64()?,
                hash: reader.u64()?,
            },
            2 => Self::Inode(reader.u64()?),
            3 => Self::Orphan(reader.u64()?),
            4 => Self::Totals,
            _ => return Err(DecodeError::Field("a kind of row")),
        })
    }
}

impl Value {
    pub(super) fn encode(&self) -> Bytes {
        match self {
            Self::Entries(entries) => encode_entries(entries),
            Self::Inode(node) => node.encode(),
            Self::Orphan => Writer::new(ORPHAN_VERSION).finish(),
            Self::Totals(totals) => {
                let mut writer = Writer::new(TOTALS_VERSION);
                writer
                    .u64(totals.inode_next)
                    .u64(totals.inode_count)
                    .u64(totals.used_bytes);
                writer.finish()
            }
        }
    }

    /// The value of this row.
    ///
    /// # Errors
    /// If the bytes are no value of such a row.
    pub(super) fn decode(row: Row, bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(match row {
            Row::Entries { .. } => Self::Entries(Arc::new(decode_entries(bytes)?)),
            Row::Inode(_) => Self::Inode(Arc::new(Inode::decode(bytes)?)),
            Row::Orphan(_) => {
                let (reader, _) = Reader::new(bytes, ORPHAN_VERSION)?;
                reader.finish()?;
                Self::Orphan
            }
            Row::Totals => Self::Totals(decode_totals(bytes)?),
        })
    }
}

fn encode_entries(entries: &[(u8, Entry)]) -> Bytes {
    assert!(entries.len() <= usize::from(SLOTS_MAX), "slots of one hash");
    let mut writer = Writer::new(ENTRIES_VERSION);
    writer.count(entries.len());
    for (slot, entry) in entries {
        writer.u8(*slot).bytes(&entry.encode());
    }
    writer.finish()
}

fn decode_entries(bytes: &[u8]) -> Result<Vec<(u8, Entry)>, DecodeError> {
    let (mut reader, _) = Reader::new(bytes, ENTRIES_VERSION)?;
    let count = reader.count(5)?;
    if !(1..=usize::from(SLOTS_MAX)).contains(&count) {
        return Err(DecodeError::Field("slots of one hash"));
    }
    let mut entries: Vec<(u8, Entry)> = Vec::with_capacity(count);
    for _ in 0..count {
        let slot = reader.u8()?;
        let ascends = entries.last().is_none_or(|(last, _)| *last < slot);
        if slot >= SLOTS_MAX || !ascends {
            return Err(DecodeError::Field("a slot"));
        }
        entries.push((slot, Entry::decode(reader.bytes()?)?));
    }
    reader.finish()?;
    Ok(entries)
}

fn decode_totals(bytes: &[u8]) -> Result<Totals, DecodeError> {
    let (mut reader, _) = Reader::new(bytes, TOTALS_VERSION)?;
    let totals = Totals {
        inode_next: reader.u64()?,
        inode_count: reader.u64()?,
        used_bytes: reader.u64()?,
    };
    reader.finish()?;
    Ok(totals)
}
