//! MKDIR: a directory.

use super::super::error::TreeError;
use super::super::node::Handle;
use super::super::record::{Inode, Kind};
use super::super::serve::{Keep, Tree};
use super::super::view::Caller;
use super::make::{Made, SetAttributes, make};

impl Tree {
    /// # Errors
    /// `Exists`, `NameTooLong`, `Invalid`, `NotDirectory`, `Access`, `Quota`, `NoSpace`.
    pub async fn mkdir(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        attributes: &SetAttributes,
        keep: Option<Keep<'_, Made>>,
    ) -> Result<Made, TreeError> {
        let node = Inode {
            parent: directory.inode,
            ..Inode::new(Kind::Directory)
        };
        self.change(
            |view| make(view, caller, directory, name, &node, attributes),
            keep.as_ref(),
        )
        .await
    }
}
