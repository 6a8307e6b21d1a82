//! RMDIR: an empty directory.

use super::super::error::TreeError;
use super::super::node::{Around, Handle};
use super::super::record::Kind;
use super::super::serve::{Keep, Tree};
use super::super::view::{Caller, check_name};
use super::make::searched;
use super::remove::lose_name;

impl Tree {
    /// The directory that held it, around the change.
    ///
    /// # Errors
    /// `NoEntry`; `NotDirectory`; `NotEmpty`, also for ".."; `Invalid` for "."; `Access`;
    /// `Permission` by the sticky bit.
    pub async fn rmdir(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        keep: Option<Keep<'_, Around>>,
    ) -> Result<Around, TreeError> {
        self.change(
            |view| {
                let parent = searched(view, &caller.credentials, directory)?;
                if name == b".." {
                    return Err(TreeError::NotEmpty.into());
                }
                check_name(name)?;
                let entry = view.entry(directory.inode, name)?;
                let entry = entry.ok_or(TreeError::NoEntry)?;
                let node = view.target(&entry)?;
                caller.credentials.check_remove(&parent, &node)?;
                if node.kind != Kind::Directory {
                    return Err(TreeError::NotDirectory.into());
                }
                if node.size > 0 {
                    return Err(TreeError::NotEmpty.into());
                }
                view.removes();
                view.unlink(directory.inode, name)?;
                lose_name(view, entry.inode, &node, caller.now)?;
                Ok(
                    view.change_directory(directory.inode, &parent, caller.now, |parent| {
                        parent.size -= 1;
                        parent.link_count -= 1;
                    }),
                )
            },
            keep.as_ref(),
        )
        .await
    }
}
