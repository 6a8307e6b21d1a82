//! What is stored of a node and of a directory's entry: bounded records, each with its version
//! first.

use bytes::Bytes;

use crate::codec::{DecodeError, Reader, Writer};

/// Bytes of a name in a directory (`NAME_MAX` of Linux).
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of what a symbolic link holds (`PATH_MAX` of Linux).
pub const TARGET_BYTES_MAX: usize = 4_096;

/// Bytes of a node's extended attributes together, names and values.
pub const XATTR_BYTES_MAX: usize = 4_096;

/// Bytes of a file: 16 TiB, as ext4 has them. What is removed is looked for up to here.
pub const FILE_BYTES_MAX: u64 = 1 << 44;

/// Names of one node that is no directory, as ext4 has them.
pub const LINKS_MAX: u32 = 65_000;

/// Objects that the entries of one directory lie in: a thousand million entries and more.
pub const SHARDS_MAX: u32 = 1 << 16;

/// Permission bits with set-user-ID, set-group-ID and sticky bit.
pub const MODE_MASK: u16 = 0o7777;

/// The smallest cookie of an entry: 0 is the start of a directory, 1 is ".", 2 is "..".
pub const COOKIE_MIN: u64 = 3;

/// The number of the node at the top.
pub const ROOT: u64 = 1;

const INODE_VERSION: u8 = 1;
const ENTRY_VERSION: u8 = 1;

/// What a node is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    BlockDevice,
    CharacterDevice,
    Directory,
    Fifo,
    File,
    Socket,
    Symlink,
}

/// A moment: seconds since 1970-01-01 UTC, and nanoseconds below 10^9.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// An extended attribute.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Xattr {
    /// 1 to 255 bytes.
    pub name: Bytes,
    pub value: Bytes,
}

/// A node: all that is known of it but its bytes and its entries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Inode {
    pub kind: Kind,
    /// Bits of `MODE_MASK`.
    pub mode: u16,
    /// Names that lead here. 0 is a node that goes when nobody has it open.
    pub link_count: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes; `FILE_BYTES_MAX` at most. Of a directory: its entries. Of a link: those of its target.
    pub size: u64,
    /// Bytes that are allocated for data.
    pub used_bytes: u64,
    /// No byte of data lies at or behind it. Between `size` and here old bytes may lie, to be zeroed
    /// before the size grows over them.
    pub dirty_end: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    pub born: Time,
    /// Greater after each change, whatever the clocks say.
    pub change_counter: u64,
    /// Told apart from another node that had the number before.
    pub generation: u32,
    /// Of a directory: the one that it lies in, itself for the root. Else 0.
    pub parent: u64,
    /// Of a directory: how many objects its entries lie in, 1 to `SHARDS_MAX`. Else 0.
    pub shard_count: u32,
    /// Of a symbolic link: 1 to `TARGET_BYTES_MAX` bytes. Else empty.
    pub target: Bytes,
    /// Of a file made by an exclusive create: what its maker gave (RFC 1813, section 3.3.8).
    pub create_verifier: Option<[u8; 8]>,
    /// In ascending order of names, `XATTR_BYTES_MAX` together.
    pub xattrs: Vec<Xattr>,
}

/// A name in a directory. Its cookie is its key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// See [`is_name`].
    pub name: Bytes,
    pub inode: u64,
    pub kind: Kind,
}

/// Whether a directory can hold this name: 1 to 255 bytes without "/" and NUL, not "." and "..".
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

impl Kind {
    fn tag(self) -> u8 {
        match self {
            Self::File => 1,
            Self::Directory => 2,
            Self::BlockDevice => 3,
            Self::CharacterDevice => 4,
            Self::Symlink => 5,
            Self::Socket => 6,
            Self::Fifo => 7,
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            1 => Self::File,
            2 => Self::Directory,
            3 => Self::BlockDevice,
            4 => Self::CharacterDevice,
            5 => Self::Symlink,
            6 => Self::Socket,
            7 => Self::Fifo,
            _ => return Err(DecodeError::Field("a kind of node")),
        })
    }
}

impl Time {
    fn write(self, writer: &mut Writer) {
        writer
            .raw(&self.seconds.to_le_bytes())
            .u32(self.nanoseconds);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let seconds = i64::from_le_bytes(reader.u64()?.to_le_bytes());
        let nanoseconds = reader.u32()?;
        if nanoseconds >= 1_000_000_000 {
            return Err(DecodeError::Field("nanoseconds"));
        }
        Ok(Self {
            seconds,
            nanoseconds,
        })
    }
}

impl Inode {
    /// A node of this kind that says nothing else yet.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        let never = Time::default();
        Self {
            kind,
            mode: 0,
            link_count: 0,
            uid: 0,
            gid: 0,
            size: 0,
            used_bytes: 0,
            dirty_end: 0,
            device: (0, 0),
            accessed: never,
            modified: never,
            changed: never,
            born: never,
            change_counter: 0,
            generation: 0,
            parent: 0,
            shard_count: u32::from(kind == Kind::Directory),
            target: Bytes::new(),
            create_verifier: None,
            xattrs: Vec::new(),
        }
    }

    /// # Panics
    /// If a field is out of its range: whoever took it in from outside has checked it.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        assert_eq!(self.check(), Ok(()), "a node that can be read back");
        let mut writer = Writer::new(INODE_VERSION);
        writer
            .u8(self.kind.tag())
            .u16(self.mode)
            .u32(self.link_count)
            .u32(self.uid)
            .u32(self.gid)
            .u64(self.size)
            .u64(self.used_bytes)
            .u64(self.dirty_end)
            .u32(self.device.0)
            .u32(self.device.1);
        for time in [self.accessed, self.modified, self.changed, self.born] {
            time.write(&mut writer);
        }
        writer
            .u64(self.change_counter)
            .u32(self.generation)
            .u64(self.parent)
            .u32(self.shard_count)
            .bytes(&self.target)
            .bool(self.create_verifier.is_some())
            .raw(self.create_verifier.as_ref().map_or(&[][..], |it| it))
            .count(self.xattrs.len());
        for xattr in &self.xattrs {
            writer.bytes(&xattr.name).bytes(&xattr.value);
        }
        writer.finish()
    }

    /// # Errors
    /// If the bytes are no such record, or break a bound.
    pub fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, INODE_VERSION)?;
        let node = Self {
            kind: Kind::read(&mut reader)?,
            mode: reader.u16()?,
            link_count: reader.u32()?,
            uid: reader.u32()?,
            gid: reader.u32()?,
            size: reader.u64()?,
            used_bytes: reader.u64()?,
            dirty_end: reader.u64()?,
            device: (reader.u32()?, reader.u32()?),
            accessed: Time::read(&mut reader)?,
            modified: Time::read(&mut reader)?,
            changed: Time::read(&mut reader)?,
            born: Time::read(&mut reader)?,
            change_counter: reader.u64()?,
            generation: reader.u32()?,
            parent: reader.u64()?,
            shard_count: reader.u32()?,
            target: bounded(&mut reader, TARGET_BYTES_MAX, "a link's target")?,
            create_verifier: read_verifier(&mut reader)?,
            xattrs: read_xattrs(&mut reader)?,
        };
        reader.finish()?;
        node.check()?;
        Ok(node)
    }

    /// The bounds that both directions hold to.
    fn check(&self) -> Result<(), DecodeError> {
        let times = [self.accessed, self.modified, self.changed, self.born];
        let is_link = self.kind == Kind::Symlink;
        let is_directory = self.kind == Kind::Directory;
        let xattr_bytes: usize = self.xattrs.iter().map(xattr_bytes).sum();
        let names = |xattr: &Xattr| (1..=NAME_BYTES_MAX).contains(&xattr.name.len());
        let ascend = |pair: &[Xattr]| matches!(pair, [a, b] if a.name < b.name);
        for (holds, field) in [
            (self.mode & !MODE_MASK == 0, "a mode"),
            (self.size <= FILE_BYTES_MAX, "a size"),
            (self.dirty_end <= FILE_BYTES_MAX, "the end of data"),
            (
                times.iter().all(|time| time.nanoseconds < 1_000_000_000),
                "nanoseconds",
            ),
            (is_link != self.target.is_empty(), "a link's target"),
            (self.target.len() <= TARGET_BYTES_MAX, "a link's target"),
            (is_directory == (self.parent != 0), "a parent"),
            (is_directory == (self.shard_count != 0), "a count of shards"),
            (self.shard_count <= SHARDS_MAX, "a count of shards"),
            (xattr_bytes <= XATTR_BYTES_MAX, "extended attributes"),
            (self.xattrs.iter().all(names), "an attribute's name"),
            (
                self.xattrs.windows(2).all(ascend),
                "the order of attributes",
            ),
        ] {
            if !holds {
                return Err(DecodeError::Field(field));
            }
        }
        Ok(())
    }
}

impl Entry {
    /// # Panics
    /// If the name is none: whoever took it in from outside has checked it.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        assert!(is_name(&self.name), "an entry has a name");
        let mut writer = Writer::new(ENTRY_VERSION);
        writer.u8(self.kind.tag()).u64(self.inode).bytes(&self.name);
        writer.finish()
    }

    /// # Errors
    /// If the bytes are no such record, or hold what is no name.
    pub fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, ENTRY_VERSION)?;
        let kind = Kind::read(&mut reader)?;
        let inode = reader.u64()?;
        let name = bounded(&mut reader, NAME_BYTES_MAX, "a name")?;
        reader.finish()?;
        if !is_name(&name) {
            return Err(DecodeError::Field("a name"));
        }
        Ok(Self { name, inode, kind })
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

fn read_verifier(reader: &mut Reader<'_>) -> Result<Option<[u8; 8]>, DecodeError> {
    if !reader.bool()? {
        return Ok(None);
    }
    Ok(Some(reader.u64()?.to_le_bytes()))
}

fn read_xattrs(reader: &mut Reader<'_>) -> Result<Vec<Xattr>, DecodeError> {
    // A name of 1 byte with the lengths of name and value.
    let count = reader.count(9)?;
    if count > XATTR_BYTES_MAX {
        return Err(DecodeError::Field("extended attributes"));
    }
    let mut xattrs = Vec::with_capacity(count);
    for _ in 0..count {
        xattrs.push(Xattr {
            name: bounded(reader, NAME_BYTES_MAX, "an attribute's name")?,
            value: bounded(reader, XATTR_BYTES_MAX, "extended attributes")?,
        });
    }
    Ok(xattrs)
}

fn xattr_bytes(xattr: &Xattr) -> usize {
    xattr.name.len() + xattr.value.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;

    fn file() -> Inode {
        let xattr = |name: &'static str, value: &'static str| Xattr {
            name: name.into(),
            value: value.into(),
        };
        let time = |seconds| Time {
            seconds,
            nanoseconds: 999_999_999,
        };
        Inode {
            mode: 0o6755,
            link_count: u32::MAX,
            uid: 1,
            gid: 2,
            size: FILE_BYTES_MAX,
            used_bytes: 3,
            dirty_end: 4,
            device: (5, 6),
            accessed: time(i64::MIN),
            modified: time(-1),
            changed: time(0),
            born: time(i64::MAX),
            change_counter: u64::MAX,
            generation: 7,
            create_verifier: Some(*b"verifier"),
            xattrs: vec![xattr("user.a", ""), xattr("user.b", "value")],
            ..Inode::new(Kind::File)
        }
    }

    fn nodes() -> Vec<Inode> {
        let link = Inode {
            target: vec![b'x'; TARGET_BYTES_MAX].into(),
            ..Inode::new(Kind::Symlink)
        };
        let root = Inode {
            parent: ROOT,
            ..Inode::new(Kind::Directory)
        };
        let plain = [
            Kind::BlockDevice,
            Kind::CharacterDevice,
            Kind::Fifo,
            Kind::Socket,
        ];
        let plain = plain.into_iter().map(Inode::new);
        plain.chain([file(), link, root]).collect()
    }

    #[test]
    fn nodes_read_back() {
        for node in nodes() {
            assert_eq!(Inode::decode(&node.encode()), Ok(node));
        }
    }

    #[test]
    fn a_node_cut_short_or_followed_by_more_is_none() {
        for node in nodes() {
            let record = node.encode();
            for length in 0..record.len() {
                assert!(Inode::decode(&record[..length]).is_err(), "{length}");
            }
            let mut longer = record.to_vec();
            longer.push(0);
            assert_eq!(Inode::decode(&longer), Err(DecodeError::TrailingBytes));
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_are_a_node() {
        let mut random = Generator::new(1);
        let originals = nodes();
        for round in 0..20_000 {
            let mut record = originals[round % originals.len()].encode().to_vec();
            for _ in 0..=random.below(3) {
                let at = usize::try_from(random.below(record.len() as u64)).unwrap();
                record[at] = random.next_u64().to_le_bytes()[0];
            }
            if let Ok(node) = Inode::decode(&record) {
                assert_eq!(Inode::decode(&node.encode()), Ok(node));
            }
        }
    }

    #[test]
    fn nodes_out_of_bounds_are_refused() {
        let many = |length: usize| Xattr {
            name: "n".into(),
            value: vec![0; length].into(),
        };
        let broken: [fn(&mut Inode); 7] = [
            |node| node.mode = 0o10000,
            |node| node.shard_count = 1,
            |node| node.size = FILE_BYTES_MAX + 1,
            |node| node.dirty_end = FILE_BYTES_MAX + 1,
            |node| node.parent = 1,
            |node| node.target = "x".into(),
            |node| node.xattrs.reverse(),
        ];
        for (number, breaks) in broken.iter().enumerate() {
            let mut node = file();
            breaks(&mut node);
            assert!(node.check().is_err(), "{number}");
        }
        let mut node = file();
        node.xattrs = vec![many(XATTR_BYTES_MAX - 1)];
        assert_eq!(node.check(), Ok(()));
        node.xattrs = vec![many(XATTR_BYTES_MAX)];
        assert!(node.check().is_err());
    }

    #[test]
    fn entries_read_back_and_hold_names_only() {
        let entry = |name: &[u8]| Entry {
            name: Bytes::copy_from_slice(name),
            inode: u64::MAX,
            kind: Kind::Symlink,
        };
        for name in [&b"a"[..], b"...", b"\xff\xfe", &[b'n'; NAME_BYTES_MAX]] {
            let record = entry(name).encode();
            assert_eq!(Entry::decode(&record), Ok(entry(name)));
            for length in 0..record.len() {
                assert!(Entry::decode(&record[..length]).is_err());
            }
        }
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'n'; 256]] {
            assert!(!is_name(name), "{name:?}");
            let mut writer = Writer::new(ENTRY_VERSION);
            writer.u8(1).u64(2).bytes(name);
            let decoded = Entry::decode(&writer.finish());
            assert_eq!(decoded, Err(DecodeError::Field("a name")), "{name:?}");
        }
    }
}
