//! REMOVE: a name of what is no directory, and the node with its last name.

use super::super::error::TreeError;
use super::super::node::{Around, Handle};
use super::super::record::{Inode, Kind, Time};
use super::super::serve::{Keep, Tree};
use super::super::view::{Caller, Stop, View, check_name};
use super::make::searched;

impl Tree {
    /// The directory around the change.
    ///
    /// # Errors
    /// `NoEntry`; `IsDirectory`; `Access`; `Permission` by the sticky bit.
    pub async fn remove(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        keep: Option<Keep<'_, Around>>,
    ) -> Result<Around, TreeError> {
        self.change(
            |view| {
                let parent = searched(view, &caller.credentials, directory)?;
                if matches!(name, b"." | b"..") {
                    return Err(TreeError::IsDirectory.into());
                }
                check_name(name)?;
                let entry = view.entry(directory.inode, name)?;
                let entry = entry.ok_or(TreeError::NoEntry)?;
                let node = view.target(&entry)?;
                caller.credentials.check_remove(&parent, &node)?;
                if node.kind == Kind::Directory {
                    return Err(TreeError::IsDirectory.into());
                }
                view.removes();
                view.unlink(directory.inode, name)?;
                lose_name(view, entry.inode, &node, caller.now)?;
                let shrunk = |parent: &mut Inode| parent.size -= 1;
                Ok(view.change_directory(directory.inode, &parent, caller.now, shrunk))
            },
            keep.as_ref(),
        )
        .await
    }
}

/// Takes one name away from a node, all of them from a directory. What had no more than that one
/// goes: at once if nothing else belongs to it, else by the reaper.
pub(super) fn lose_name(
    view: &mut View<'_>,
    number: u64,
    node: &Inode,
    now: Time,
) -> Result<(), Stop> {
    let is_last = node.link_count <= 1 || node.kind == Kind::Directory;
    if !is_last {
        view.change_inode(number, node, now, |node| node.link_count -= 1);
        return Ok(());
    }
    match node.kind {
        Kind::File | Kind::Directory => {
            view.change_inode(number, node, now, |node| node.link_count = 0);
            view.set_orphan(number, true);
            Ok(())
        }
        Kind::BlockDevice | Kind::CharacterDevice | Kind::Fifo | Kind::Socket | Kind::Symlink => {
            view.set_inode(number, None);
            view.uncount(1)
        }
    }
}
