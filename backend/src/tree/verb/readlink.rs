//! READLINK: what a symbolic link holds.

use bytes::Bytes;

use super::super::error::TreeError;
use super::super::node::{Attributes, Handle};
use super::super::record::Kind;
use super::super::serve::Tree;

impl Tree {
    /// # Errors
    /// `Invalid` if the node is no symbolic link.
    pub async fn readlink(&self, link: Handle) -> Result<(Bytes, Attributes), TreeError> {
        self.look(|view| {
            let node = view.node(link)?;
            if node.kind != Kind::Symlink {
                return Err(TreeError::Invalid.into());
            }
            Ok((node.target.clone(), view.attributes(link.inode, &node)))
        })
        .await
    }
}
