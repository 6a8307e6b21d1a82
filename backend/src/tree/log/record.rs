//! A record of the log: what one call changed, with the answer that it gave.

use bytes::Bytes;

use super::super::row::{Row, Value};
use crate::codec::{DecodeError, Reader, Writer};

const VERSION: u8 = 1;

/// Bytes of a client's address.
pub const CLIENT_BYTES_MAX: usize = 64;

/// Bytes of an answer that is kept.
pub const RESULT_BYTES_MAX: usize = 1_024;

/// Bytes of a record: what a value of an omap holds on every engine.
pub(in crate::tree) const RECORD_BYTES_MAX: usize = 64 * 1024;

/// An answer to a call that must not be done twice, kept for the case that the call comes again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptReply {
    /// Who called, `CLIENT_BYTES_MAX` bytes at most.
    pub client: Bytes,
    /// The number that the client gave to the call.
    pub xid: u32,
    /// Of the call's bytes: a client that starts anew counts anew.
    pub checksum: u32,
    /// `RESULT_BYTES_MAX` bytes at most.
    pub result: Bytes,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::tree) struct Record {
    pub(in crate::tree) reply: Option<KeptReply>,
    /// Each row once, with its whole new value; `None` removes it.
    pub(in crate::tree) rows: Vec<(Row, Option<Value>)>,
}

impl Record {
    /// # Panics
    /// If the record is longer than `RECORD_BYTES_MAX`, which the bounds of its rows exclude, or
    /// the reply breaks its bounds.
    pub(in crate::tree) fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer.bool(self.reply.is_some());
        if let Some(reply) = &self.reply {
            assert!(reply.client.len() <= CLIENT_BYTES_MAX, "a client's address");
            assert!(reply.result.len() <= RESULT_BYTES_MAX, "a kept answer");
            writer
                .bytes(&reply.client)
                .u32(reply.xid)
                .u32(reply.checksum)
                .bytes(&reply.result);
        }
        writer.count(self.rows.len());
        for (row, value) in &self.rows {
            row.write(&mut writer);
            writer.bool(value.is_some());
            if let Some(value) = value {
                writer.bytes(&value.encode());
            }
        }
        assert!(writer.len() <= RECORD_BYTES_MAX, "a record of the log");
        writer.finish()
    }

    /// # Errors
    /// If the bytes are no such record, or break a bound.
    pub(in crate::tree) fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let reply = if reader.bool()? {
            Some(KeptReply {
                client: bounded(&mut reader, CLIENT_BYTES_MAX, "a client's address")?,
                xid: reader.u32()?,
                checksum: reader.u32()?,
                result: bounded(&mut reader, RESULT_BYTES_MAX, "a kept answer")?,
            })
        } else {
            None
        };
        // The shortest row has a tag and no value.
        let count = reader.count(2)?;
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let row = Row::read(&mut reader)?;
            let value = if reader.bool()? {
                Some(Value::decode(row, reader.bytes()?)?)
            } else {
                None
            };
            rows.push((row, value));
        }
        reader.finish()?;
        Ok(Self { reply, rows })
    }
}

fn bounded(
    reader: &mut Reader<'_>,
    bytes_max: usize,
    field: &'static str,
) -> Result<Bytes, DecodeError> {
    let bytes = reader.bytes()?;
    if bytes.len() > bytes_max {
        return Err(DecodeError::Field(field));
    }
    Ok(Bytes::copy_from_slice(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::super::record::{Entry, Inode, Kind};
    use super::super::super::row::Totals;
    use super::*;
    use crate::random::Generator;

    fn record() -> Record {
        let entry = |name: &'static str| Entry {
            name: name.into(),
            inode: 7,
            kind: Kind::File,
        };
        let entries = vec![(0, entry("a")), (3, entry("b"))];
        let directory = 1;
        Record {
            reply: Some(KeptReply {
                client: vec![1; CLIENT_BYTES_MAX].into(),
                xid: 2,
                checksum: 3,
                result: vec![4; RESULT_BYTES_MAX].into(),
            }),
            rows: vec![
                (
                    Row::Entries { directory, hash: 9 },
                    Some(Value::Entries(entries.into())),
                ),
                (Row::Entries { directory, hash: 8 }, None),
                (
                    Row::Inode(7),
                    Some(Value::Inode(Inode::new(Kind::File).into())),
                ),
                (Row::Orphan(5), Some(Value::Orphan)),
                (Row::Totals, Some(Value::Totals(Totals::default()))),
            ],
        }
    }

    #[test]
    fn records_read_back_and_cut_ones_are_none() {
        let short = Record {
            reply: None,
            rows: Vec::new(),
        };
        for record in [record(), short] {
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes), Ok(record));
            for length in 0..bytes.len() {
                assert!(Record::decode(&bytes[..length]).is_err(), "{length}");
            }
        }
    }

    #[test]
    fn hostile_records_are_refused_or_read_back() {
        let mut random = Generator::new(1);
        let original = record().encode();
        for _ in 0..20_000 {
            let mut bytes = original.to_vec();
            for _ in 0..=random.below(3) {
                let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
                bytes[at] = random.next_u64().to_le_bytes()[0];
            }
            if let Ok(record) = Record::decode(&bytes) {
                assert_eq!(Record::decode(&record.encode()), Ok(record));
            }
        }
    }

    #[test]
    fn the_largest_change_fits() {
        use super::super::super::cookie::SLOTS_MAX;
        use super::super::super::record::{NAME_BYTES_MAX, XATTR_BYTES_MAX, Xattr};
        let name = Bytes::from(vec![b'n'; NAME_BYTES_MAX]);
        let entry = |slot: u8| {
            let (name, inode, kind) = (name.clone(), slot.into(), Kind::File);
            (slot, Entry { name, inode, kind })
        };
        let entries = Value::Entries((0..SLOTS_MAX).map(entry).collect::<Vec<_>>().into());
        let many = |byte| Xattr {
            name: vec![byte].into(),
            value: Bytes::new(),
        };
        let node = Inode {
            xattrs: (1..=u8::MAX).map(many).collect(),
            target: Bytes::new(),
            ..Inode::new(Kind::File)
        };
        let mut large = node.clone();
        large.xattrs[0].value = vec![0; XATTR_BYTES_MAX - 255].into();
        let rows = [1, 2].map(|hash| (Row::Entries { directory: 1, hash }, Some(entries.clone())));
        let nodes = (0..5).map(|number| {
            let node = Value::Inode(large.clone().into());
            (Row::Inode(number), Some(node))
        });
        let change = Record {
            reply: record().reply,
            rows: rows.into_iter().chain(nodes).collect(),
        };
        assert!(change.encode().len() <= RECORD_BYTES_MAX);
    }
}
