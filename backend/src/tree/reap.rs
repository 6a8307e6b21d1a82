//! Removing what nothing needs any more: the objects of nodes that no name leads to, and bytes
//! behind the size of files that were cut.
//!
//! The row of an orphan is logged with what made it one, and goes when its objects are gone. So
//! what a crash interrupts is begun again.

use std::sync::Arc;

use super::cookie::HASH_END;
use super::data::{DataLocks, ahead_of};
use super::error::TreeError;
use super::header::corrupt;
use super::place::{number_of, shard_of};
use super::record::{Inode, Kind};
use super::shared::Shared;
use crate::error::{Error, ErrorKind};
use crate::object::{OmapPage, Priority, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep};

/// Orphans looked at in one round.
const ROUND: u32 = 256;

/// Nodes that one record forgets.
const RECORD_NODES: usize = 64;

impl Shared {
    /// Removes until the tree is served no more.
    pub(super) async fn reap_all(&self, locks: &Arc<DataLocks>) {
        loop {
            match self.reap_round(locks).await {
                Ok(true) => {}
                Ok(false) => self.reap_due.notified().await,
                Err(error) => {
                    tracing::debug!(%error, "removing what nothing needs");
                    self.reap_due.notified().await;
                }
            }
            if self.state().is_ending() {
                return;
            }
        }
    }

    /// Removes some; says whether there may be more.
    pub(super) async fn reap_round(&self, locks: &Arc<DataLocks>) -> Result<bool, TreeError> {
        let numbers = self.orphans().await?;
        let mut gone = Vec::new();
        for number in &numbers {
            let node = self
                .call(
                    |view| {
                        let is_orphan = view.is_orphan(*number)?;
                        Ok(if is_orphan {
                            view.inode(*number)?
                        } else {
                            None
                        })
                    },
                    None,
                )
                .await?;
            match node {
                Some(node) if node.link_count == 0 => {
                    let lock = locks.of(*number);
                    let _alone = lock.write().await;
                    self.remove_objects(*number, &node).await?;
                    locks.set_clean(*number, false);
                    gone.push(*number);
                }
                Some(_) => self.trim(*number, locks).await?,
                None => {}
            }
            if gone.len() >= RECORD_NODES {
                self.forget(std::mem::take(&mut gone)).await?;
            }
        }
        self.forget(gone).await?;
        Ok(!numbers.is_empty())
    }

    /// Some orphans, by their numbers.
    async fn orphans(&self) -> Result<Vec<u64>, TreeError> {
        let changed = {
            let state = self.state();
            state.check_served()?;
            state.overlay.orphans(ROUND as usize)
        };
        let (mut numbers, hidden) = changed;
        let object = self.place.orphans();
        let op = ReadOp::new([ReadStep::OmapScan {
            start: bytes::Bytes::new(),
            end: None,
            keys_only: true,
            count_max: ROUND,
        }]);
        let page = match self.read(&object, op).await {
            Ok(output) => match output.results.into_iter().next() {
                Some(ReadResult::OmapPage(page)) => page,
                _ => return Err(corrupt(&object.to_string()).into()),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => OmapPage::default(),
            Err(error) => return Err(error.into()),
        };
        if page.more && numbers.is_empty() {
            // What is gone may hide what is behind it, until that is applied.
            self.apply_round().await?;
        }
        for (key, _) in page.entries {
            let number = number_of(&key).ok_or_else(|| corrupt(&object.to_string()))?;
            if !numbers.contains(&number) && !hidden.contains(&number) {
                numbers.push(number);
            }
        }
        Ok(numbers)
    }

    async fn remove_objects(&self, number: u64, node: &Inode) -> Result<(), Error> {
        if node.kind == Kind::Directory {
            let mut start = 0;
            while start < HASH_END {
                let (_, end) = shard_of(start, node.shard_count);
                let op = WriteOp::new([WriteStep::Remove]).with_priority(Priority::Background);
                let object = self.place.shard(number, start);
                match self.write(&object, op).await {
                    Ok(_) => {}
                    Err((error, _)) if error.kind() == ErrorKind::NotFound => {}
                    Err((error, _)) => return Err(error),
                }
                start = end;
            }
            return Ok(());
        }
        let removed = self.cut_data(number, 0, node.dirty_end).await;
        removed.map_err(|(error, _)| error)
    }

    /// Gives back the bytes behind the size of a file that was cut.
    pub(super) async fn trim(&self, number: u64, locks: &Arc<DataLocks>) -> Result<(), TreeError> {
        let lock = locks.of(number);
        let _alone = lock.write().await;
        let node = self.call(|view| view.inode(number), None).await?;
        let Some(node) = node.filter(|node| node.link_count > 0) else {
            return Ok(());
        };
        self.clean(number, &node, locks).await?;
        self.call(
            |view| {
                // It may have lost its last name since.
                let node = view.inode(number)?;
                if let Some(node) = node.filter(|node| node.link_count > 0) {
                    view.removes();
                    view.set_orphan(number, false);
                    let dirty_end = ahead_of(node.size.max(1), self.header.layout);
                    let dirty_end = node.dirty_end.min(dirty_end);
                    view.set_inode(
                        number,
                        Some(Inode {
                            dirty_end,
                            ..(*node).clone()
                        }),
                    );
                }
                Ok(())
            },
            None,
        )
        .await
    }

    /// Zeros what lies behind the size of a file, under its lock, held alone.
    pub(super) async fn clean(
        &self,
        number: u64,
        node: &Inode,
        locks: &DataLocks,
    ) -> Result<(), Error> {
        if locks.is_clean(number) {
            return Ok(());
        }
        match self.cut_data(number, node.size, node.dirty_end).await {
            Ok(()) => {
                locks.set_clean(number, true);
                Ok(())
            }
            Err((error, is_unknown)) => {
                self.stop_if_unknown(&error, is_unknown);
                Err(error)
            }
        }
    }

    /// A change of data that may still happen, later than others, is the end of serving.
    pub(super) fn stop_if_unknown(&self, error: &Error, is_unknown: bool) {
        if is_unknown || error.kind().is_perhaps_applied() {
            self.stop(error);
        }
    }

    async fn forget(&self, numbers: Vec<u64>) -> Result<(), TreeError> {
        if numbers.is_empty() {
            return Ok(());
        }
        self.call(
            |view| {
                view.removes();
                let (mut count, mut used_bytes) = (0, 0);
                for number in &numbers {
                    // Two may have removed the same objects.
                    if let Some(node) = view.inode(*number)? {
                        count += 1;
                        used_bytes += node.used_bytes;
                    }
                    view.set_inode(*number, None);
                    view.set_orphan(*number, false);
                }
                view.charge(used_bytes, 0)?;
                view.uncount(count)
            },
            None,
        )
        .await
    }
}
