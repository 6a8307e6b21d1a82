//! SYMLINK: a symbolic link.

use bytes::Bytes;

use super::super::error::TreeError;
use super::super::node::Handle;
use super::super::record::{Inode, Kind, TARGET_BYTES_MAX};
use super::super::serve::{Keep, Tree};
use super::super::view::Caller;
use super::make::{Made, SetAttributes, make};

impl Tree {
    /// What the link holds is kept as it is: only clients follow links.
    ///
    /// # Errors
    /// As `mkdir`; `NameTooLong` for a target of more than `TARGET_BYTES_MAX` bytes, `Invalid` for
    /// an empty one, or one with a zero byte.
    pub async fn symlink(
        &self,
        caller: &Caller,
        place: (Handle, &[u8]),
        target: Bytes,
        attributes: &SetAttributes,
        keep: Option<Keep<'_, Made>>,
    ) -> Result<Made, TreeError> {
        if target.len() > TARGET_BYTES_MAX {
            return Err(TreeError::NameTooLong);
        }
        if target.is_empty() || target.contains(&0) {
            return Err(TreeError::Invalid);
        }
        let attributes = SetAttributes {
            mode: attributes.mode.or(Some(0o777)),
            size: None,
            ..*attributes
        };
        let node = Inode {
            target,
            ..Inode::new(Kind::Symlink)
        };
        let (directory, name) = place;
        self.change(
            |view| make(view, caller, directory, name, &node, &attributes),
            keep.as_ref(),
        )
        .await
    }
}
