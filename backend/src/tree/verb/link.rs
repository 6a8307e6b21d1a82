//! LINK: one name more for a node.

use super::super::access::Access;
use super::super::error::TreeError;
use super::super::node::Handle;
use super::super::record::{Entry, Kind, LINKS_MAX};
use super::super::serve::{Keep, Tree};
use super::super::view::{Caller, check_name};
use super::make::{Made, searched};

impl Tree {
    /// The node, with its new name counted, and the directory.
    ///
    /// # Errors
    /// `Permission` for a directory; `Exists`; `TooManyLinks` above `LINKS_MAX`.
    pub async fn link(
        &self,
        caller: &Caller,
        node: Handle,
        directory: Handle,
        name: &[u8],
        keep: Option<Keep<'_, Made>>,
    ) -> Result<Made, TreeError> {
        self.change(
            |view| {
                let found = view.node(node)?;
                let parent = searched(view, &caller.credentials, directory)?;
                if matches!(name, b"." | b"..") {
                    return Err(TreeError::Exists.into());
                }
                check_name(name)?;
                if view.entry(directory.inode, name)?.is_some() {
                    return Err(TreeError::Exists.into());
                }
                caller.credentials.check(&parent, Access::WRITE)?;
                if found.kind == Kind::Directory {
                    return Err(TreeError::Permission.into());
                }
                if found.link_count >= LINKS_MAX {
                    return Err(TreeError::TooManyLinks.into());
                }
                let entry = Entry {
                    name: bytes::Bytes::copy_from_slice(name),
                    inode: node.inode,
                    kind: found.kind,
                };
                view.link(directory.inode, entry)?;
                let around = view.change_inode(node.inode, &found, caller.now, |node| {
                    node.link_count += 1;
                });
                let grown = |parent: &mut super::super::record::Inode| parent.size += 1;
                Ok(Made {
                    node: around.after,
                    directory: view.change_directory(directory.inode, &parent, caller.now, grown),
                })
            },
            keep.as_ref(),
        )
        .await
    }
}
