//! ACCESS: what a caller may do with a node.

use super::super::access::Access;
use super::super::error::TreeError;
use super::super::node::{Attributes, Handle};
use super::super::serve::Tree;
use super::super::view::Caller;

impl Tree {
    /// What of `READ`, `WRITE` and `EXECUTE` is allowed, with the node's attributes.
    ///
    /// # Errors
    /// `Stale`, and what the store says.
    pub async fn access(
        &self,
        caller: &Caller,
        node: Handle,
    ) -> Result<(Access, Attributes), TreeError> {
        self.look(|view| {
            let found = view.node(node)?;
            let allowed = caller.credentials.allowed(&found);
            Ok((allowed, view.attributes(node.inode, &found)))
        })
        .await
    }
}
