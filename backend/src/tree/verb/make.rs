//! What all calls have in common that make a node.

use super::super::access::{Access, Credentials, OwnerChange};
use super::super::error::TreeError;
use super::super::node::{Around, Attributes, Handle};
use super::super::record::{Entry, FILE_BYTES_MAX, Inode, Kind, Time};
use super::super::view::{Caller, Stop, View, check_name};

/// What shall be set of a node (`sattr3`). The default leaves all as it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SetAttributes {
    /// Bits of [`super::super::record::MODE_MASK`]; others are ignored.
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: SetTime,
    pub modified: SetTime,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SetTime {
    #[default]
    Keep,
    /// The server's time.
    Now,
    At(Time),
}

/// A node that was made, or that was there and is taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Made {
    pub node: Attributes,
    pub directory: Around,
}

impl SetTime {
    pub(super) fn or(self, kept: Time, now: Time) -> Time {
        match self {
            Self::Keep => kept,
            Self::Now => now,
            Self::At(time) => time,
        }
    }
}

/// The directory of a handle, if this caller may look names up in it.
pub(super) fn searched(
    view: &mut View<'_>,
    credentials: &Credentials,
    handle: Handle,
) -> Result<std::sync::Arc<Inode>, Stop> {
    let directory = view.directory(handle)?;
    credentials.check(&directory, Access::EXECUTE)?;
    Ok(directory)
}

/// Makes a node with one name. `node` has what its kind needs; owner, mode, times and numbers come
/// here.
///
/// # Errors
/// `Exists` if the name is there, also for ones that no node can have.
pub(super) fn make(
    view: &mut View<'_>,
    caller: &Caller,
    directory: Handle,
    name: &[u8],
    node: &Inode,
    attributes: &SetAttributes,
) -> Result<Made, Stop> {
    let parent = searched(view, &caller.credentials, directory)?;
    if matches!(name, b"." | b"..") {
        return Err(TreeError::Exists.into());
    }
    check_name(name)?;
    if view.entry(directory.inode, name)?.is_some() {
        return Err(TreeError::Exists.into());
    }
    caller.credentials.check(&parent, Access::WRITE)?;
    let node = born(view, caller, &parent, node, attributes)?;
    let number = view.new_number()?;
    let is_directory = node.kind == Kind::Directory;
    let entry = Entry {
        name: bytes::Bytes::copy_from_slice(name),
        inode: number,
        kind: node.kind,
    };
    view.link(directory.inode, entry)?;
    let links = parent.link_count.checked_add(u32::from(is_directory));
    let link_count = links.ok_or(TreeError::TooManyLinks)?;
    let around = view.change_directory(directory.inode, &parent, caller.now, |parent| {
        parent.size += 1;
        parent.link_count = link_count;
    });
    let made = view.attributes(number, &node);
    view.set_inode(number, Some(node));
    Ok(Made {
        node: made,
        directory: around,
    })
}

fn born(
    view: &mut View<'_>,
    caller: &Caller,
    parent: &Inode,
    node: &Inode,
    attributes: &SetAttributes,
) -> Result<Inode, Stop> {
    let credentials = &caller.credentials;
    let asked = attributes.mode.unwrap_or(0);
    let (gid, mode) = credentials.inherit(parent, node.kind, asked);
    let size = match node.kind {
        Kind::File => attributes.size.unwrap_or(0),
        Kind::Symlink => node.target.len() as u64,
        Kind::BlockDevice | Kind::CharacterDevice | Kind::Directory | Kind::Fifo | Kind::Socket => {
            0
        }
    };
    if size > FILE_BYTES_MAX {
        return Err(TreeError::FileTooBig.into());
    }
    let mut node = Inode {
        mode,
        uid: credentials.uid,
        gid,
        link_count: if node.kind == Kind::Directory { 2 } else { 1 },
        size,
        accessed: attributes.accessed.or(caller.now, caller.now),
        modified: attributes.modified.or(caller.now, caller.now),
        changed: caller.now,
        born: caller.now,
        change_counter: 1,
        generation: view.generation(),
        ..node.clone()
    };
    let given = OwnerChange {
        mode: None,
        uid: attributes.uid.filter(|uid| *uid != node.uid),
        gid: attributes.gid.filter(|gid| *gid != node.gid),
    };
    let mode = credentials.change_owner(&node, given)?;
    node.mode = mode.unwrap_or(node.mode);
    node.uid = given.uid.unwrap_or(node.uid);
    node.gid = given.gid.unwrap_or(node.gid);
    Ok(node)
}
