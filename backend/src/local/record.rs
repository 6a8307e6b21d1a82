//! Keys and values of the one ordered space of records; see `docs/format.md`, "Records".

use std::fmt::Write as _;

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use crate::codec::{DecodeError, Reader, Writer, crc32c};
use crate::error::Error;
use crate::object::{LockHolder, LockKind, ObjectId, Pool, SessionId};

use super::failure::corrupt;

/// Bytes of one block, the unit of space and of data checksums.
pub(super) const BLOCK_BYTES: usize = 4096;
pub(super) const BLOCK_BYTES_U64: u64 = 4096;
/// Blocks of one chunk-map entry.
pub(super) const CHUNK_BLOCKS: u64 = 16;

/// First byte of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Chunk,
    Header,
    Lock,
    Omap,
    Xattr,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::Chunk,
        Self::Header,
        Self::Lock,
        Self::Omap,
        Self::Xattr,
    ];

    pub(super) fn tag(self) -> u8 {
        match self {
            Self::Chunk => b'C',
            Self::Header => b'H',
            Self::Lock => b'L',
            Self::Omap => b'M',
            Self::Xattr => b'X',
        }
    }
}

/// The keys of one object: made once for each operation.
#[derive(Clone, Debug)]
pub(super) struct ObjectKeys(Bytes);

impl ObjectKeys {
    pub(super) fn new(object: &ObjectId) -> Self {
        let mut name = String::with_capacity(object.name.prefix().len() + NUMBER_BYTES);
        write!(name, "{}", object.name).expect("a string takes all");
        let mut bytes = pool_bytes(&object.pool);
        let length = u16::try_from(name.len()).expect("bounded by OBJECT_NAME_BYTES_MAX");
        bytes.put_u16(length);
        bytes.put_slice(name.as_bytes());
        Self(bytes.freeze())
    }

    pub(super) fn header(&self) -> Bytes {
        self.key(Kind::Header, b"")
    }

    pub(super) fn xattr(&self, name: &str) -> Bytes {
        self.key(Kind::Xattr, name.as_bytes())
    }

    pub(super) fn omap(&self, key: &[u8]) -> Bytes {
        self.key(Kind::Omap, key)
    }

    pub(super) fn lock(&self, name: &str) -> Bytes {
        self.key(Kind::Lock, name.as_bytes())
    }

    pub(super) fn chunk(&self, index: u64) -> Bytes {
        self.key(Kind::Chunk, &index.to_be_bytes())
    }

    /// All keys of one kind: `start..end`.
    pub(super) fn range(&self, kind: Kind) -> (Bytes, Bytes) {
        let start = self.key(kind, b"");
        let end = successor_of_prefix(&start);
        (start, end)
    }

    /// What follows the object's name in a key of it.
    pub(super) fn sub<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key.get(1 + self.0.len()..).unwrap_or_default()
    }

    /// The same for shared bytes, without a copy.
    pub(super) fn sub_bytes(&self, key: &Bytes) -> Bytes {
        key.slice((1 + self.0.len()).min(key.len())..)
    }

    fn key(&self, kind: Kind, sub: &[u8]) -> Bytes {
        let mut key = BytesMut::with_capacity(1 + self.0.len() + sub.len());
        key.put_u8(kind.tag());
        key.put_slice(&self.0);
        key.put_slice(sub);
        key.freeze()
    }
}

/// Pool and namespace as they stand in keys.
pub(super) fn pool_bytes(pool: &Pool) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(64);
    for part in [pool.name(), pool.namespace()] {
        bytes.put_u8(u8::try_from(part.len()).expect("bounded by POOL_NAME_BYTES_MAX"));
        bytes.put_slice(part.as_bytes());
    }
    bytes
}

/// Header keys of a pool: `start..end`.
pub(super) fn pool_range(pool: &Pool) -> (Bytes, Bytes) {
    let mut start = BytesMut::from(&[Kind::Header.tag()][..]);
    start.put_slice(&pool_bytes(pool));
    let start = start.freeze();
    let end = successor_of_prefix(&start);
    (start, end)
}

/// A key taken apart.
#[derive(Debug)]
pub(super) struct ParsedKey<'a> {
    pub(super) kind: Kind,
    /// Pool and namespace as bytes, for counting.
    pub(super) pool: &'a [u8],
    pub(super) pool_name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) sub: &'a [u8],
}

pub(super) fn parse_key(key: &[u8]) -> Result<ParsedKey<'_>, DecodeError> {
    let mut reader = Reader::fragment(key);
    let tag = reader.u8()?;
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| kind.tag() == tag)
        .ok_or(DecodeError::Field("the kind of a key"))?;
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| DecodeError::Field("a name"));
    let pool_length = usize::from(reader.u8()?);
    let pool_name = text(reader.raw(pool_length)?)?;
    let namespace_length = usize::from(reader.u8()?);
    let namespace = text(reader.raw(namespace_length)?)?;
    let length = [reader.u8()?, reader.u8()?];
    let name = text(reader.raw(usize::from(u16::from_be_bytes(length)))?)?;
    let sub = reader.raw(reader.remaining())?;
    Ok(ParsedKey {
        kind,
        pool: &key[1..3 + pool_length + namespace_length],
        pool_name,
        namespace,
        name,
        sub,
    })
}

/// The least key above all that start with `prefix`.
pub(super) fn successor_of_prefix(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    assert!(!end.is_empty(), "a kind is below 0xff");
    Bytes::from(end)
}

/// The least key above `key`.
pub(super) fn successor(key: &[u8]) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.put_slice(key);
    next.put_u8(0);
    next.freeze()
}

/// A value as it is stored: version tag, payload, checksum over key and all before it.
pub(super) fn seal(key: &[u8], payload: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(1 + payload.len() + SUM_BYTES);
    value.put_u8(VALUE_VERSION);
    value.put_slice(payload);
    let sum = value_sum(key, &value);
    value.put_u32_le(sum);
    value.freeze()
}

/// The payload of a stored value.
pub(super) fn unseal(key: &[u8], value: &Bytes) -> Result<Bytes, Error> {
    let body = value
        .len()
        .checked_sub(SUM_BYTES)
        .filter(|body| *body > 0)
        .ok_or_else(|| damaged(key, "is cut short"))?;
    if value_sum(key, &value[..body]).to_le_bytes() != value[body..] {
        return Err(damaged(key, "does not match its checksum"));
    }
    if value[0] != VALUE_VERSION {
        return Err(damaged(key, "has an unknown version"));
    }
    Ok(value.slice(1..body))
}

fn value_sum(key: &[u8], body: &[u8]) -> u32 {
    // A checksum of checksums spares a copy of both.
    let mut sums = [0; 8];
    sums[..4].copy_from_slice(&crc32c(key).to_le_bytes());
    sums[4..].copy_from_slice(&crc32c(body).to_le_bytes());
    crc32c(&sums)
}

fn damaged(key: &[u8], what: &str) -> Error {
    corrupt(format!("{} {what}", describe(key)))
}

/// A key for people.
pub(super) fn describe(key: &[u8]) -> String {
    match parse_key(key) {
        Err(_) => format!("the record with the unreadable key {}", key.escape_ascii()),
        Ok(parsed) => {
            let kind = match parsed.kind {
                Kind::Chunk => "chunk",
                Kind::Header => "header",
                Kind::Lock => "lock",
                Kind::Omap => "omap entry",
                Kind::Xattr => "attribute",
            };
            let sub = match <[u8; 8]>::try_from(parsed.sub) {
                Ok(index) if parsed.kind == Kind::Chunk => u64::from_be_bytes(index).to_string(),
                _ => parsed.sub.escape_ascii().to_string(),
            };
            let pool = if parsed.namespace.is_empty() {
                parsed.pool_name.to_owned()
            } else {
                format!("{}:{}", parsed.pool_name, parsed.namespace)
            };
            format!("{kind} {sub} of object {pool}/{}", parsed.name)
        }
    }
}

/// The header of an object. An object exists if it has one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) version: u64,
    pub(super) size: u64,
}

impl Header {
    pub(super) fn encode(self, key: &[u8]) -> Bytes {
        let mut writer = Writer::sized(HEADER_BYTES);
        writer.u64(self.version).u64(self.size);
        seal(key, &writer.finish())
    }

    pub(super) fn decode(key: &[u8], value: &Bytes) -> Result<Self, Error> {
        let payload = unseal(key, value)?;
        let mut reader = Reader::fragment(&payload);
        (|| {
            let header = Self {
                version: reader.u64()?,
                size: reader.u64()?,
            };
            reader.clone().finish()?;
            Ok(header)
        })()
        .map_err(|e: DecodeError| damaged(key, "is no header").with_source(e))
    }
}

/// Where a block of an object lies, and what it holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct BlockRef {
    pub(super) block: u64,
    pub(super) sum: u32,
}

/// Blocks of 64 KiB of an object; `None` is a hole.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Chunk(pub(super) [Option<BlockRef>; 16]);

impl Chunk {
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// A mask of blocks that are there, runs of consecutive blocks, their checksums.
    pub(super) fn encode(&self, key: &[u8]) -> Bytes {
        let mut mask = 0_u16;
        let mut runs: SmallVec<[(u64, u8); 16]> = SmallVec::new();
        for (index, block) in self.0.iter().enumerate() {
            let Some(block) = block else { continue };
            mask |= 1 << index;
            match runs.last_mut() {
                Some((start, count)) if *start + u64::from(*count) == block.block => *count += 1,
                _ => runs.push((block.block, 1)),
            }
        }
        let mut writer = Writer::sized(CHUNK_BYTES_MAX);
        writer.u16(mask);
        writer.u8(u8::try_from(runs.len()).expect("at most 16"));
        for (start, count) in runs {
            writer.u64(start).u8(count);
        }
        for block in self.0.iter().flatten() {
            writer.u32(block.sum);
        }
        seal(key, &writer.finish())
    }

    pub(super) fn decode(key: &[u8], value: &Bytes) -> Result<Self, Error> {
        let payload = unseal(key, value)?;
        Self::decode_payload(&payload).map_err(|e| damaged(key, "is no chunk map").with_source(e))
    }

    fn decode_payload(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::fragment(payload);
        let mask = reader.u16()?;
        let mut blocks: SmallVec<[u64; 16]> = SmallVec::new();
        for _ in 0..reader.u8()? {
            let start = reader.u64()?;
            for offset in 0..u64::from(reader.u8()?) {
                let block = start.checked_add(offset).filter(|b| *b < BLOCKS_MAX);
                blocks.push(block.ok_or(DecodeError::Field("a block number"))?);
                if blocks.len() > 16 {
                    return Err(DecodeError::Field("the number of blocks"));
                }
            }
        }
        let present = (0..16).filter(|bit| mask & (1 << bit) != 0);
        if present.clone().count() != blocks.len() {
            return Err(DecodeError::Field("the number of blocks"));
        }
        let mut chunk = Self::default();
        for (index, block) in present.zip(blocks) {
            chunk.0[index] = Some(BlockRef {
                block,
                sum: reader.u32()?,
            });
        }
        reader.finish()?;
        Ok(chunk)
    }
}

/// A holder of a lock as stored. Expiry counts anew when the store is opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct StoredHolder {
    pub(super) holder: LockHolder,
    pub(super) expiry_ms: Option<u64>,
}

pub(super) fn encode_holders(key: &[u8], holders: &[StoredHolder]) -> Bytes {
    let mut writer = Writer::fragment();
    writer.count(holders.len());
    for stored in holders {
        writer
            .str(&stored.holder.session.0)
            .bytes(&stored.holder.cookie)
            .bool(stored.holder.kind == LockKind::Exclusive)
            .bool(stored.expiry_ms.is_some())
            .u64(stored.expiry_ms.unwrap_or_default());
    }
    seal(key, &writer.finish())
}

pub(super) fn decode_holders(key: &[u8], value: &Bytes) -> Result<Vec<StoredHolder>, Error> {
    let payload = unseal(key, value)?;
    let mut reader = Reader::fragment(&payload);
    let mut read = || {
        let mut holders = Vec::new();
        for _ in 0..reader.count(18)? {
            let session = SessionId(reader.str()?.into());
            let cookie = Bytes::copy_from_slice(reader.bytes()?);
            let kind = if reader.bool()? {
                LockKind::Exclusive
            } else {
                LockKind::Shared
            };
            let expires = reader.bool()?;
            let expiry_ms = Some(reader.u64()?).filter(|_| expires);
            holders.push(StoredHolder {
                holder: LockHolder {
                    session,
                    cookie,
                    kind,
                },
                expiry_ms,
            });
        }
        reader.clone().finish()?;
        Ok(holders)
    };
    read().map_err(|e: DecodeError| damaged(key, "is no list of lock holders").with_source(e))
}

/// What a number adds to an object's name.
const NUMBER_BYTES: usize = 17;
const HEADER_BYTES: usize = 16;
/// A chunk none of whose blocks lie together.
const CHUNK_BYTES_MAX: usize = 3 + 16 * (9 + 4);
const VALUE_VERSION: u8 = 1;
const SUM_BYTES: usize = 4;
/// 16 EiB of blocks: beyond it, byte offsets do not fit 64 bits.
const BLOCKS_MAX: u64 = 1 << 52;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectName;

    fn keys(name: &str) -> ObjectKeys {
        ObjectKeys::new(&ObjectId::new(&Pool::new("p", "n"), ObjectName::new(name)))
    }

    #[test]
    fn keys_of_one_object_lie_together_and_come_apart_again() {
        let (start, end) = keys("a").range(Kind::Omap);
        for sub in [&b""[..], b"k", b"\xff\xff"] {
            let key = keys("a").omap(sub);
            assert!(start <= key && key < end);
            let parsed = parse_key(&key).unwrap();
            assert_eq!(
                (parsed.kind, parsed.name, parsed.sub),
                (Kind::Omap, "a", sub)
            );
        }
        assert!(!(start..end).contains(&keys("aa").omap(b"")));
    }

    #[test]
    fn a_chunk_survives_its_encoding() {
        let mut chunk = Chunk::default();
        for (index, block) in [(0, 7), (1, 8), (4, 9), (15, 1_000_000)] {
            chunk.0[index] = Some(BlockRef { block, sum: 3 });
        }
        let key = keys("a").chunk(5);
        assert_eq!(Chunk::decode(&key, &chunk.encode(&key)).unwrap(), chunk);
    }

    #[test]
    fn a_value_under_another_key_is_corrupt() {
        let sealed = seal(b"one", b"payload");
        assert_eq!(unseal(b"one", &sealed).unwrap(), &b"payload"[..]);
        assert!(unseal(b"two", &sealed).is_err());
        for length in 0..sealed.len() {
            assert!(unseal(b"one", &sealed.slice(..length)).is_err());
        }
    }
}
