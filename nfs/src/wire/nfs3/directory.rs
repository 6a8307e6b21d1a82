//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16 and 3.3.17).
//!
//! A client says how many bytes it takes; a `Listing` takes entries as long as the results have no more.

use super::attributes::{ATTRIBUTES_BYTES, PostOp};
use super::handle::Handle;
use super::name::Name;
use super::status::Status;
use crate::limits::DATA_BYTES_MAX;
use crate::wire::xdr::{List, message, opaque_bytes};

message! {
    /// Arguments of READDIR.
    pub struct ReadDir {
        pub directory: Handle,
        /// 0, or that of an entry behind which to go on.
        pub cookie: u64,
        /// That of the results which the cookie is from.
        pub cookie_verifier: [u8; 8],
        /// Bytes of the results at most, without their status.
        pub count: u32,
    }
}

message! {
    /// `entry3`.
    pub struct Entry {
        pub fileid: u64,
        pub name: Name,
        pub cookie: u64,
    }
}

message! {
    /// Results of READDIR.
    pub struct ReadDirDone {
        pub attributes: PostOp,
        pub cookie_verifier: [u8; 8],
        pub entries: List<Entry>,
        pub eof: bool,
    }
}

message! {
    /// Arguments of READDIRPLUS.
    pub struct ReadDirPlus {
        pub directory: Handle,
        pub cookie: u64,
        pub cookie_verifier: [u8; 8],
        /// Bytes of what READDIR would tell of the entries, at most.
        pub dircount: u32,
        /// Bytes of the results at most, without their status.
        pub maxcount: u32,
    }
}

message! {
    /// `entryplus3`.
    pub struct EntryPlus {
        pub fileid: u64,
        pub name: Name,
        pub cookie: u64,
        pub attributes: PostOp,
        pub handle: Option<Handle>,
    }
}

message! {
    /// Results of READDIRPLUS.
    pub struct ReadDirPlusDone {
        pub attributes: PostOp,
        pub cookie_verifier: [u8; 8],
        pub entries: List<EntryPlus>,
        pub eof: bool,
    }
}

/// Entries of a directory on their way to a client that takes so many bytes.
#[derive(Debug)]
pub struct Listing<E> {
    attributes: PostOp,
    cookie_verifier: [u8; 8],
    entries: Vec<E>,
    /// What more there is room for: `dircount` and `maxcount`.
    directory_bytes_left: usize,
    bytes_left: Option<usize>,
}

/// What lists hold.
pub trait Listed {
    /// Bytes of it in a list of READDIR.
    fn directory_bytes(&self) -> usize;

    /// Bytes of it in its own list.
    fn bytes(&self) -> usize;
}

impl Listing<Entry> {
    /// For READDIR.
    #[must_use]
    pub fn new(asked: &ReadDir, attributes: PostOp, cookie_verifier: [u8; 8]) -> Self {
        Self::within(u32::MAX, asked.count, attributes, cookie_verifier)
    }

    /// What it became. `eof`: there is nothing behind the last entry.
    ///
    /// # Errors
    /// `TooSmall` if there is no room for any entry, or for a list without one.
    pub fn finish(self, eof: bool) -> Result<ReadDirDone, Status> {
        self.check(eof)?;
        Ok(ReadDirDone {
            attributes: self.attributes,
            cookie_verifier: self.cookie_verifier,
            entries: List(self.entries),
            eof,
        })
    }
}

impl Listing<EntryPlus> {
    /// For READDIRPLUS.
    #[must_use]
    pub fn new_plus(asked: &ReadDirPlus, attributes: PostOp, cookie_verifier: [u8; 8]) -> Self {
        Self::within(asked.dircount, asked.maxcount, attributes, cookie_verifier)
    }

    /// As `finish` of READDIR.
    ///
    /// # Errors
    /// `TooSmall` if there is no room for any entry, or for a list without one.
    pub fn finish(self, eof: bool) -> Result<ReadDirPlusDone, Status> {
        self.check(eof)?;
        Ok(ReadDirPlusDone {
            attributes: self.attributes,
            cookie_verifier: self.cookie_verifier,
            entries: List(self.entries),
            eof,
        })
    }
}

impl<E: Listed> Listing<E> {
    fn within(dircount: u32, maxcount: u32, attributes: PostOp, cookie_verifier: [u8; 8]) -> Self {
        let bytes = |count: u32| usize::try_from(count).expect("32 bits fit");
        let frame = 4 + attributes.map_or(0, |_| ATTRIBUTES_BYTES) + FRAME_BYTES;
        Self {
            attributes,
            cookie_verifier,
            entries: Vec::new(),
            directory_bytes_left: bytes(dircount),
            bytes_left: bytes(maxcount.min(DATA_BYTES_MAX)).checked_sub(frame),
        }
    }

    /// Takes an entry if there is room for it; the list ends before one that it does not take.
    #[must_use = "an entry that does not fit is the next one to ask for"]
    pub fn push(&mut self, entry: E) -> bool {
        let bytes_left = self
            .bytes_left
            .and_then(|left| left.checked_sub(entry.bytes()));
        let directory_bytes_left = self
            .directory_bytes_left
            .checked_sub(entry.directory_bytes());
        let (Some(left), Some(directory_left)) = (bytes_left, directory_bytes_left) else {
            return false;
        };
        self.bytes_left = Some(left);
        self.directory_bytes_left = directory_left;
        self.entries.push(entry);
        true
    }

    /// Whether an entry with a name of this length fits without attributes and handle: whoever has to fetch
    /// them asks first.
    #[must_use]
    pub fn has_room_for(&self, name_bytes: usize) -> bool {
        let bytes = entry_bytes(name_bytes);
        self.bytes_left.is_some_and(|left| bytes <= left) && bytes <= self.directory_bytes_left
    }

    fn check(&self, eof: bool) -> Result<(), Status> {
        let says_nothing = self.entries.is_empty() && !eof;
        match self.bytes_left.is_none() || says_nothing {
            true => Err(Status::TooSmall),
            false => Ok(()),
        }
    }
}

impl Listed for Entry {
    fn directory_bytes(&self) -> usize {
        self.bytes()
    }

    fn bytes(&self) -> usize {
        entry_bytes(self.name.0.len())
    }
}

impl Listed for EntryPlus {
    fn directory_bytes(&self) -> usize {
        entry_bytes(self.name.0.len())
    }

    fn bytes(&self) -> usize {
        let attributes = self.attributes.map_or(0, |_| ATTRIBUTES_BYTES);
        let handle = self
            .handle
            .map_or(0, |handle| opaque_bytes(handle.as_bytes().len()));
        self.directory_bytes() + 4 + attributes + 4 + handle
    }
}

/// That there is one, `fileid`, `name`, `cookie`.
fn entry_bytes(name_bytes: usize) -> usize {
    4 + 8 + opaque_bytes(name_bytes) + 8
}

/// Verifier, the end of the list, `eof`.
const FRAME_BYTES: usize = 8 + 4 + 4;
