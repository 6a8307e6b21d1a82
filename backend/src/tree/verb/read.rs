//! READ: bytes of a file.

use super::super::access::Access;
use super::super::error::TreeError;
use super::super::node::{Attributes, Handle};
use super::super::serve::Tree;
use super::super::view::Caller;
use super::commit::check_file;
use crate::object::Payload;

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadAnswer {
    pub data: Payload,
    /// Whether the data reaches the file's end.
    pub is_end: bool,
    pub attributes: Attributes,
}

impl Tree {
    /// Bytes from `offset` on, fewer than `length` at the end of the file. Takes as much memory as
    /// that. The time of access stays: it is not worth a change of the tree.
    ///
    /// # Errors
    /// `Access`; `IsDirectory` and `Invalid` for what is no file.
    pub async fn read(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
    ) -> Result<ReadAnswer, TreeError> {
        let lock = self.data_locks.of(file.inode);
        let _shared = lock.read().await;
        let attributes = self
            .look(|view| {
                let node = view.node(file)?;
                check_file(node.kind)?;
                // Who may execute a file reads it for that (RFC 1813 section 4.4).
                let credentials = &caller.credentials;
                if !credentials.allowed(&node).includes(Access::EXECUTE) {
                    credentials.check_data(&node, Access::READ)?;
                }
                Ok(view.attributes(file.inode, &node))
            })
            .await?;
        let rest = attributes.size.saturating_sub(offset);
        let length = rest.min(u64::from(length));
        let data = if length == 0 {
            Payload::default()
        } else {
            self.shared.read_data(file.inode, offset, length).await?
        };
        Ok(ReadAnswer {
            data,
            is_end: length == rest,
            attributes,
        })
    }
}
