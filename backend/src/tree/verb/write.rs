//! WRITE: bytes into a file.

use std::sync::Arc;

use super::super::access::Access;
use super::super::data::{DataLocks, ahead_of, used_after_write};
use super::super::error::TreeError;
use super::super::node::{Around, Handle};
use super::super::record::{FILE_BYTES_MAX, Inode};
use super::super::serve::Tree;
use super::super::shared::Shared;
use super::super::view::{Caller, Stop, View, later};
use super::commit::{Verifier, check_file};
use crate::error::{Error, ErrorKind};
use crate::object::{Durability, Payload};

/// When a write is stable (`stable_how`). What belongs to the file besides its bytes always is,
/// when the call is answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stability {
    /// When the call is answered.
    FileSync,
    /// After the next COMMIT with the same verifier.
    Unstable,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Written {
    pub file: Around,
    pub stability: Stability,
    pub verifier: Verifier,
}

/// A write on its way. It goes on when nobody waits for it any more: what takes the bytes away
/// must not come between.
struct Write {
    shared: Arc<Shared>,
    locks: Arc<DataLocks>,
    caller: Caller,
    file: Handle,
    offset: u64,
    data: Payload,
    durability: Durability,
}

impl Tree {
    /// All of `data` at `offset`. Two writes of the same bytes at the same time have no order.
    ///
    /// # Errors
    /// `Access`; `FileTooBig`; `Quota`; `NoSpace`; `IsDirectory` and `Invalid` for what is no file.
    /// Parts may have been written below the size that the file had, whatever the error is.
    pub async fn write(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        data: Payload,
        stability: Stability,
    ) -> Result<Written, TreeError> {
        let is_unstable = stability == Stability::Unstable && self.shared.is_buffered();
        let (stability, durability) = if is_unstable {
            (Stability::Unstable, Durability::Buffered)
        } else {
            (Stability::FileSync, Durability::Durable)
        };
        let verifier = self.verifier();
        let write = Write {
            shared: Arc::clone(&self.shared),
            locks: Arc::clone(&self.data_locks),
            caller: caller.clone(),
            file,
            offset,
            data,
            durability,
        };
        let written = tokio::spawn(async move { write.run().await }).await;
        let file = written.map_err(|error| {
            let context = "tree: writing data";
            Error::new(ErrorKind::Unavailable, context).with_source(error)
        })??;
        Ok(Written {
            file,
            stability,
            verifier,
        })
    }
}

impl Write {
    async fn run(self) -> Result<Around, TreeError> {
        self.shared.room().await?;
        let end = self.offset.checked_add(self.data.len());
        let end = end.filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(TreeError::FileTooBig)?;
        let lock = self.locks.of(self.file.inode);
        loop {
            let _shared = lock.read().await;
            let node = self.shared.call(|view| self.check(view), None).await?;
            if self.data.is_empty() {
                return self.shared.call(|view| self.log(view, end), None).await;
            }
            if end > node.size && !self.locks.is_clean(self.file.inode) {
                drop(_shared);
                self.clean(&lock).await?;
                continue;
            }
            if end > node.dirty_end {
                self.shared.call(|view| self.reach(view, end), None).await?;
            }
            self.put().await?;
            return self.shared.call(|view| self.log(view, end), None).await;
        }
    }

    fn check(&self, view: &mut View<'_>) -> Result<Arc<Inode>, Stop> {
        let node = view.node(self.file)?;
        check_file(node.kind)?;
        let credentials = &self.caller.credentials;
        credentials.check_data(&node, Access::WRITE)?;
        let used_bytes = used_after_write(&node, self.offset, self.data.len());
        // The quota is asked before anything is written; counted is after.
        view.charge(node.used_bytes, used_bytes)?;
        view.forget_changes();
        Ok(node)
    }

    async fn clean(&self, lock: &tokio::sync::RwLock<()>) -> Result<(), TreeError> {
        let _alone = lock.write().await;
        let node = self.shared.call(|view| view.node(self.file), None).await?;
        let number = self.file.inode;
        self.shared.clean(number, &node, &self.locks).await?;
        Ok(())
    }

    /// Logs that data may lie up to some way behind `end`, before it does.
    fn reach(&self, view: &mut View<'_>, end: u64) -> Result<(), Stop> {
        let node = view.node(self.file)?;
        if node.dirty_end < end {
            let ahead = Inode {
                dirty_end: ahead_of(end, self.shared.header.layout),
                ..(*node).clone()
            };
            view.set_inode(self.file.inode, Some(ahead));
        }
        Ok(())
    }

    async fn put(&self) -> Result<(), TreeError> {
        let number = self.file.inode;
        let put = self
            .shared
            .write_data(number, self.offset, &self.data, self.durability)
            .await;
        put.map_err(|(error, is_unknown)| {
            self.locks.set_clean(number, false);
            self.shared.stop_if_unknown(&error, is_unknown);
            error.into()
        })
    }

    /// The file as it is now that the data is there.
    fn log(&self, view: &mut View<'_>, end: u64) -> Result<Around, Stop> {
        let node = view.node(self.file)?;
        let used_bytes = used_after_write(&node, self.offset, self.data.len());
        view.charge(node.used_bytes, used_bytes)?;
        let credentials = &self.caller.credentials;
        let now = self.caller.now;
        let is_empty = self.data.is_empty();
        if is_empty {
            return Ok(Around {
                before: (&*node).into(),
                after: view.attributes(self.file.inode, &node),
            });
        }
        Ok(view.change_inode(self.file.inode, &node, now, |after| {
            after.size = node.size.max(end);
            after.used_bytes = used_bytes;
            after.modified = later(now, node.changed);
            after.mode = credentials.mode_after_write(node.mode);
        }))
    }
}
