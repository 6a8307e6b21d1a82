//! RENAME: a name becomes another, over what had it.

use std::sync::Arc;

use super::super::access::Access;
use super::super::error::TreeError;
use super::super::node::{Around, Before, Handle};
use super::super::record::{Entry, Inode, Kind, ROOT};
use super::super::serve::{Keep, Tree};
use super::super::view::{Caller, Stop, View, check_name};
use super::make::searched;
use super::remove::lose_name;

/// Directories above one another that are looked at.
const DEPTH_MAX: u32 = 1 << 16;

/// Both directories around the change; the same twice if they are one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Renamed {
    pub from: Around,
    pub to: Around,
}

/// One side of a renaming as it is.
struct Side {
    handle: Handle,
    directory: Arc<Inode>,
    /// With the node that it leads to.
    entry: Option<(Entry, Arc<Inode>)>,
}

impl Tree {
    /// As a whole: nobody sees both names, or neither. Two names of one node stay as they are.
    ///
    /// # Errors
    /// `NoEntry`; `IsDirectory` and `NotDirectory` if one is a directory and the other is not;
    /// `NotEmpty`; `Invalid` for a directory that would come to lie in itself, and for "." and "..";
    /// `Access`; `Permission` by a sticky bit.
    pub async fn rename(
        &self,
        caller: &Caller,
        from: (Handle, &[u8]),
        to: (Handle, &[u8]),
        keep: Option<Keep<'_, Renamed>>,
    ) -> Result<Renamed, TreeError> {
        self.change(|view| rename(view, caller, from, to), keep.as_ref())
            .await
    }
}

fn rename(
    view: &mut View<'_>,
    caller: &Caller,
    from: (Handle, &[u8]),
    to: (Handle, &[u8]),
) -> Result<Renamed, Stop> {
    let source = side(view, caller, from)?;
    let target = side(view, caller, to)?;
    let (entry, node) = source.entry.as_ref().ok_or(TreeError::NoEntry)?;
    let is_directory = node.kind == Kind::Directory;
    caller.credentials.check_remove(&source.directory, node)?;
    match &target.entry {
        Some((_, found)) => caller.credentials.check_remove(&target.directory, found)?,
        None => caller.credentials.check(&target.directory, Access::WRITE)?,
    }
    if is_directory {
        check_above(view, entry.inode, to.0.inode)?;
        if from.0.inode != to.0.inode {
            // Its ".." changes.
            caller.credentials.check(node, Access::WRITE)?;
        }
    }
    if let Some((found_entry, found)) = &target.entry {
        if found_entry.inode == entry.inode {
            return Ok(unchanged(view, &source, &target));
        }
        check_replaced(node, found)?;
        view.relink(
            to.0.inode,
            &Entry {
                name: found_entry.name.clone(),
                ..entry.clone()
            },
        )?;
        lose_name(view, found_entry.inode, found, caller.now)?;
    } else {
        let name = bytes::Bytes::copy_from_slice(to.1);
        let entry = entry.clone();
        view.link(to.0.inode, Entry { name, ..entry })?;
    }
    view.removes();
    view.unlink(from.0.inode, from.1)?;
    view.change_inode(entry.inode, node, caller.now, |node| {
        if is_directory {
            node.parent = to.0.inode;
        }
    });
    let was_directory = (target.entry.as_ref()).is_some_and(|(_, it)| it.kind == Kind::Directory);
    let lost = (1, u32::from(is_directory));
    let replaced = (u64::from(target.entry.is_some()), u32::from(was_directory));
    Ok(change_both(
        view,
        caller,
        (&source, lost),
        (&target, replaced),
    ))
}

/// A count of entries, and of directories among them.
type Counts = (u64, u32);

/// Counts both directories: one loses what `lost` says, and the other gains that and loses what
/// was replaced.
fn change_both(
    view: &mut View<'_>,
    caller: &Caller,
    (source, lost): (&Side, Counts),
    (target, replaced): (&Side, Counts),
) -> Renamed {
    let lose = |node: &mut Inode, (entries, directories): Counts| {
        node.size -= entries;
        node.link_count -= directories;
    };
    if source.handle.inode == target.handle.inode {
        let number = source.handle.inode;
        let around = view.change_directory(number, &source.directory, caller.now, |node| {
            lose(node, replaced);
        });
        return Renamed {
            from: around.clone(),
            to: around,
        };
    }
    let from = view.change_directory(source.handle.inode, &source.directory, caller.now, |node| {
        lose(node, lost);
    });
    let to = view.change_directory(target.handle.inode, &target.directory, caller.now, |node| {
        node.size += lost.0;
        node.link_count += lost.1;
        lose(node, replaced);
    });
    Renamed { from, to }
}

fn side(view: &mut View<'_>, caller: &Caller, place: (Handle, &[u8])) -> Result<Side, Stop> {
    let (handle, name) = place;
    let directory = searched(view, &caller.credentials, handle)?;
    check_name(name)?;
    let entry = match view.entry(handle.inode, name)? {
        Some(entry) => {
            let node = view.target(&entry)?;
            Some((entry, node))
        }
        None => None,
    };
    Ok(Side {
        handle,
        directory,
        entry,
    })
}

/// # Errors
/// `Invalid` if the directory `moved` is `directory`, or lies above it.
fn check_above(view: &mut View<'_>, moved: u64, directory: u64) -> Result<(), Stop> {
    let mut at = directory;
    for _ in 0..DEPTH_MAX {
        if at == moved {
            return Err(TreeError::Invalid.into());
        }
        if at == ROOT {
            return Ok(());
        }
        let node = view.inode(at)?;
        let node = node.ok_or_else(|| TreeError::corrupt("a directory above another"))?;
        at = node.parent;
    }
    Err(TreeError::Invalid.into())
}

fn check_replaced(node: &Inode, replaced: &Inode) -> Result<(), TreeError> {
    match (
        node.kind == Kind::Directory,
        replaced.kind == Kind::Directory,
    ) {
        (true, false) => Err(TreeError::NotDirectory),
        (false, true) => Err(TreeError::IsDirectory),
        (true, true) if replaced.size > 0 => Err(TreeError::NotEmpty),
        (true, true) | (false, false) => Ok(()),
    }
}

fn unchanged(view: &View<'_>, source: &Side, target: &Side) -> Renamed {
    let around = |side: &Side| Around {
        before: Before::from(&*side.directory),
        after: view.attributes(side.handle.inode, &side.directory),
    };
    Renamed {
        from: around(source),
        to: around(target),
    }
}
