//! What a file system gives to be served.
//!
//! One method per operation, each atomic: what it tells of a node before and after a change has nothing
//! between the two. Permissions are the file system's to check, against what the caller became by the
//! rules of its export.

#[cfg(test)]
pub(crate) mod memory;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::session::reply_cache::CallKey;
use crate::wire::nfs3::attributes::{
    Attributes, Device, FileType, SetAttributes, Time, Wcc, WccAttributes,
};
use crate::wire::nfs3::create::CreateHow;
use crate::wire::nfs3::data::Stable;
use crate::wire::nfs3::handle::Handle;

/// A file system. Names are checked before they come here, except for what `.` and `..` mean.
pub trait FileSystem: Debug + Send + Sync {
    /// Tells it from others, in `fsid` and in every handle.
    fn id(&self) -> u64;

    fn bounds(&self) -> Bounds;

    fn root(&self) -> Reply<'_, Node>;

    fn getattr<'a>(&'a self, node: NodeId) -> Reply<'a, Attributes>;

    /// With `guard`, `NotSync` unless the node changed at that time last.
    fn setattr<'a>(
        &'a self,
        caller: &'a Caller,
        node: NodeId,
        attributes: SetAttributes,
        guard: Option<Time>,
        keep: Option<Keep<'a, Around>>,
    ) -> Reply<'a, Around>;

    /// The node of a name, and the directory's attributes.
    fn lookup<'a>(&'a self, caller: &'a Caller, place: Place<'a>) -> Reply<'a, (Node, Attributes)>;

    /// What of read, write and execute the mode allows.
    fn access<'a>(&'a self, caller: &'a Caller, node: NodeId) -> Reply<'a, (Allowed, Attributes)>;

    /// `Invalid` for what is no symbolic link.
    fn readlink<'a>(&'a self, node: NodeId) -> Reply<'a, (Bytes, Attributes)>;

    fn read<'a>(
        &'a self,
        caller: &'a Caller,
        file: NodeId,
        offset: u64,
        count: u32,
    ) -> Reply<'a, Data>;

    /// All of the data.
    fn write<'a>(
        &'a self,
        caller: &'a Caller,
        file: NodeId,
        offset: u64,
        data: Bytes,
        stable: Stable,
    ) -> Reply<'a, Written>;

    fn create<'a>(
        &'a self,
        caller: &'a Caller,
        place: Place<'a>,
        how: CreateHow,
        keep: Option<Keep<'a, Made>>,
    ) -> Reply<'a, Made>;

    /// A directory, a symbolic link, or a special file.
    fn make<'a>(
        &'a self,
        caller: &'a Caller,
        place: Place<'a>,
        what: What,
        attributes: SetAttributes,
        keep: Option<Keep<'a, Made>>,
    ) -> Reply<'a, Made>;

    fn remove<'a>(
        &'a self,
        caller: &'a Caller,
        place: Place<'a>,
        keep: Option<Keep<'a, Around>>,
    ) -> Reply<'a, Around>;

    fn rmdir<'a>(
        &'a self,
        caller: &'a Caller,
        place: Place<'a>,
        keep: Option<Keep<'a, Around>>,
    ) -> Reply<'a, Around>;

    /// Both directories around the change.
    fn rename<'a>(
        &'a self,
        caller: &'a Caller,
        from: Place<'a>,
        to: Place<'a>,
        keep: Option<Keep<'a, (Around, Around)>>,
    ) -> Reply<'a, (Around, Around)>;

    fn link<'a>(
        &'a self,
        caller: &'a Caller,
        node: NodeId,
        place: Place<'a>,
        keep: Option<Keep<'a, Made>>,
    ) -> Reply<'a, Made>;

    /// At most `count_max` entries behind a cookie, 0 for the beginning; `BadCookie` for one that no
    /// listing gives. Cookies stay valid while other entries come and go.
    fn readdir<'a>(
        &'a self,
        caller: &'a Caller,
        directory: NodeId,
        after: u64,
        count_max: u32,
        with_nodes: bool,
    ) -> Reply<'a, Listing>;

    fn statfs(&self) -> Reply<'_, Space>;

    /// Every write to the file that was answered is stable then. The attributes after, and the verifier.
    fn commit<'a>(&'a self, caller: &'a Caller, file: NodeId) -> Reply<'a, (Attributes, [u8; 8])>;
}

/// What a file system answers, in time.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Which node of which file system; it holds as long as the node does.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId {
    pub file_system: u64,
    pub inode: u64,
    /// An inode's number comes again; with the same generation it does not.
    pub generation: u32,
}

/// A node as it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Node {
    pub id: NodeId,
    pub attributes: Attributes,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub directory: NodeId,
    pub name: &'a [u8],
}

/// Who acts, and when.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Without `gid`, in any order.
    pub groups: Vec<u32>,
    /// The server's time.
    pub now: Time,
}

/// An answer that is kept with the change, so that a call which comes again is answered so, and not
/// done: after a crash too.
#[derive(Clone, Copy)]
pub struct Keep<'a, T> {
    pub call: CallKey,
    /// The results that say this, `KEPT_RESULTS_BYTES_MAX` bytes at most.
    pub encode: &'a (dyn Fn(&T) -> Bytes + Send + Sync),
}

impl<T> Debug for Keep<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keep")
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}

/// A node around one change: nothing came between the two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Around {
    pub before: WccAttributes,
    pub after: Attributes,
}

/// A node that was made, or that was there and is taken; and its directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Made {
    pub node: Node,
    pub directory: Around,
}

/// What is made beside files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    Directory,
    SymbolicLink(Bytes),
    BlockDevice(Device),
    CharacterDevice(Device),
    Socket,
    Fifo,
}

/// What the mode allows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Allowed {
    pub read: bool,
    pub write: bool,
    pub execute: bool,
}

#[derive(Clone, Debug)]
pub struct Data {
    /// As the store gave them.
    pub pieces: Vec<Bytes>,
    /// Nothing is behind them.
    pub eof: bool,
    pub attributes: Attributes,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Written {
    pub file: Around,
    /// `FileSync` where everything is durable when it is answered.
    pub committed: Stable,
    /// Changes when writes that were not stable may be lost.
    pub verifier: [u8; 8],
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    pub name: Bytes,
    pub cookie: u64,
    pub fileid: u64,
    /// If it was asked for, and is still there.
    pub node: Option<Node>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listing {
    /// By ascending cookies; `.` and `..` first.
    pub entries: Vec<Entry>,
    /// Nothing is behind the last one.
    pub is_end: bool,
    pub directory: Attributes,
}

/// Bytes and files: all there may be, and how many more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub total_files: u64,
    pub free_files: u64,
}

/// What does not change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bounds {
    pub file_bytes_max: u64,
    pub links_max: u32,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Error {
    /// The mode forbids it.
    Access,
    BadCookie,
    /// Another type of node is needed.
    BadType,
    Exists,
    FileTooBig,
    Invalid,
    Io,
    IsDirectory,
    NameTooLong,
    NoEntry,
    NoSpace,
    NotDirectory,
    NotEmpty,
    /// Only an owner may, or root.
    NotOwner,
    NotSync,
    Quota,
    Stale,
    TooManyLinks,
    /// It may have been done or not, and this node may not tell: nothing is answered.
    Unanswerable,
}

impl NodeId {
    /// Version, file system, inode, generation: 21 bytes.
    #[must_use]
    pub fn to_handle(self) -> Handle {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[0] = HANDLE_VERSION;
        bytes[1..9].copy_from_slice(&self.file_system.to_be_bytes());
        bytes[9..17].copy_from_slice(&self.inode.to_be_bytes());
        bytes[17..].copy_from_slice(&self.generation.to_be_bytes());
        Handle::new(&bytes)
    }

    /// `None` if these bytes were never a handle: `NFS3ERR_BADHANDLE`.
    #[must_use]
    pub fn from_handle(handle: &Handle) -> Option<Self> {
        let bytes = <&[u8; HANDLE_BYTES]>::try_from(handle.as_bytes()).ok()?;
        let (version, rest) = bytes.split_first_chunk::<1>()?;
        let (file_system, rest) = rest.split_first_chunk()?;
        let (inode, generation) = rest.split_first_chunk()?;
        (version[0] == HANDLE_VERSION).then_some(Self {
            file_system: u64::from_be_bytes(*file_system),
            inode: u64::from_be_bytes(*inode),
            generation: u32::from_be_bytes(generation.try_into().ok()?),
        })
    }
}

impl From<Around> for Wcc {
    fn from(around: Around) -> Self {
        Self {
            before: Some(around.before),
            after: Some(around.after),
        }
    }
}

impl Node {
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.attributes.kind == FileType::Directory
    }
}

/// The first byte of a handle.
const HANDLE_VERSION: u8 = 1;

const HANDLE_BYTES: usize = 21;
const _: () = assert!(HANDLE_BYTES <= crate::limits::HANDLE_BYTES_MAX);
