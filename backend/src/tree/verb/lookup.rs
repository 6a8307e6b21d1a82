//! LOOKUP: the node that a name leads to.

use super::super::error::TreeError;
use super::super::node::{Attributes, Handle};
use super::super::record::NAME_BYTES_MAX;
use super::super::serve::Tree;
use super::super::view::Caller;
use super::make::searched;

impl Tree {
    /// The node of this name, and the directory. "." is the directory itself, ".." the one above,
    /// of the root the root.
    ///
    /// # Errors
    /// `NoEntry`, `NotDirectory`, `NameTooLong`, `Access` without the right to search.
    pub async fn lookup(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Result<(Attributes, Attributes), TreeError> {
        self.look(|view| {
            let parent = searched(view, &caller.credentials, directory)?;
            if name.len() > NAME_BYTES_MAX {
                return Err(TreeError::NameTooLong.into());
            }
            let number = match name {
                b"." => directory.inode,
                b".." => parent.parent,
                _ => {
                    let entry = view.entry(directory.inode, name)?;
                    entry.ok_or(TreeError::NoEntry)?.inode
                }
            };
            let node = view.inode(number)?;
            let node = node.ok_or_else(|| TreeError::corrupt("an entry that leads nowhere"))?;
            let found = view.attributes(number, &node);
            Ok((found, view.attributes(directory.inode, &parent)))
        })
        .await
    }
}
