//! GETATTR: what a node is.

use super::super::error::TreeError;
use super::super::node::{Attributes, Handle};
use super::super::serve::Tree;

impl Tree {
    /// Everybody may.
    ///
    /// # Errors
    /// `Stale`, and what the store says.
    pub async fn getattr(&self, node: Handle) -> Result<Attributes, TreeError> {
        self.look(|view| {
            let found = view.node(node)?;
            Ok(view.attributes(node.inode, &found))
        })
        .await
    }
}
