//! SETATTR: owner, mode, times and size.

use super::super::access::{Access, OwnerChange, TimeChange};
use super::super::error::TreeError;
use super::super::node::{Around, Before, Handle};
use super::super::record::{FILE_BYTES_MAX, Inode, Kind, MODE_MASK, Time};
use super::super::serve::{Keep, Tree};
use super::super::view::{Caller, Stop, View, later};
use super::make::{SetAttributes, SetTime};

impl Tree {
    /// All of it or nothing. With `guard`, only if the node changed at that time last.
    ///
    /// # Errors
    /// `NotSync` by the guard; `Permission` and `Access`; `IsDirectory` and `Invalid` for the size
    /// of what is no file; `FileTooBig`; `Quota`.
    pub async fn setattr(
        &self,
        caller: &Caller,
        node: Handle,
        attributes: &SetAttributes,
        guard: Option<Time>,
        keep: Option<Keep<'_, Around>>,
    ) -> Result<Around, TreeError> {
        let set = |view: &mut View<'_>| {
            let found = view.node(node)?;
            if guard.is_some_and(|changed| changed != found.changed) {
                return Err(TreeError::NotSync.into());
            }
            set(view, caller, (node.inode, &found), attributes)
        };
        let Some(size) = attributes.size else {
            return self.change(set, keep.as_ref()).await;
        };
        let lock = self.data_locks.of(node.inode);
        let _alone = lock.write().await;
        let found = self
            .look(|view| {
                let found = view.node(node)?;
                check_size(&found, size)?;
                caller.credentials.check_data(&found, Access::WRITE)?;
                Ok(found)
            })
            .await?;
        if size > found.size {
            let shared = &self.shared;
            shared.clean(node.inode, &found, &self.data_locks).await?;
        } else if size < found.size {
            // What is cut off lies behind the size from here on, whatever comes of the call.
            self.data_locks.set_clean(node.inode, false);
        }
        self.change(set, keep.as_ref()).await
    }
}

fn set(
    view: &mut View<'_>,
    caller: &Caller,
    (number, node): (u64, &Inode),
    attributes: &SetAttributes,
) -> Result<Around, Stop> {
    let credentials = &caller.credentials;
    let owner = OwnerChange {
        mode: attributes.mode.map(|mode| mode & MODE_MASK),
        uid: attributes.uid,
        gid: attributes.gid,
    };
    let mode = credentials.change_owner(node, owner)?;
    credentials.check_times(
        node,
        kind_of(attributes.accessed),
        kind_of(attributes.modified),
    )?;
    if let Some(size) = attributes.size {
        check_size(node, size)?;
        credentials.check_data(node, Access::WRITE)?;
    }
    if *attributes == SetAttributes::default() {
        return Ok(Around {
            before: Before::from(node),
            after: view.attributes(number, node),
        });
    }
    let used_bytes = (attributes.size).map_or(node.used_bytes, |size| node.used_bytes.min(size));
    let is_cut = attributes.size.is_some_and(|size| size < node.size);
    if is_cut {
        view.removes();
        view.set_orphan(number, true);
    }
    view.charge(node.used_bytes, used_bytes)?;
    Ok(view.change_inode(number, node, caller.now, |after| {
        let now = later(caller.now, node.changed);
        after.uid = owner.uid.unwrap_or(node.uid);
        after.gid = owner.gid.unwrap_or(node.gid);
        if let Some(size) = attributes.size {
            after.size = size;
            after.used_bytes = used_bytes;
            after.modified = now;
            after.mode = credentials.mode_after_write(node.mode);
        }
        after.mode = mode.unwrap_or(after.mode);
        after.accessed = attributes.accessed.or(node.accessed, now);
        after.modified = attributes.modified.or(after.modified, now);
    }))
}

fn check_size(node: &Inode, size: u64) -> Result<(), TreeError> {
    match node.kind {
        Kind::File if size > FILE_BYTES_MAX => Err(TreeError::FileTooBig),
        Kind::File => Ok(()),
        Kind::Directory => Err(TreeError::IsDirectory),
        Kind::BlockDevice | Kind::CharacterDevice | Kind::Fifo | Kind::Socket | Kind::Symlink => {
            Err(TreeError::Invalid)
        }
    }
}

fn kind_of(time: SetTime) -> TimeChange {
    match time {
        SetTime::Keep => TimeChange::Keep,
        SetTime::Now => TimeChange::Now,
        SetTime::At(_) => TimeChange::Chosen,
    }
}
