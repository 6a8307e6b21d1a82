//! Splitting a directory that grew: the upper half of one shard moves to an object of its own.
//!
//! Only the applier writes shards, and it splits between two rounds. So what is copied stands
//! still; what changes meanwhile lies over it in the log. The new shard counts from the record
//! that says so; a split that ends before that is begun anew, with a clean object.

use super::cookie::HASH_END;
use super::header::corrupt;
use super::log::apply::mark;
use super::log::record::Record;
use super::log::state::Landed;
use super::place::{next_split, number_key};
use super::record::{Inode, SHARDS_MAX};
use super::row::{Row, Value};
use super::shared::Shared;
use crate::error::{Error, ErrorKind};
use crate::object::{ObjectId, OmapPage, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep};

/// Rows copied at once: a row has 2.3 KiB at most.
const PAGE: u32 = 256;

/// Steps after which no further split begins. One takes some hundreds.
const STEPS_MAX: u16 = u16::MAX / 2;

/// The marks of splits between two rounds, each greater than those before: a shard that was split
/// off may be split again.
struct Marks {
    barrier: u64,
    step: u16,
}

impl Marks {
    fn new(barrier: u64) -> Self {
        Self { barrier, step: 0 }
    }

    fn next(&mut self) -> u64 {
        self.step += 1;
        mark(self.barrier, self.step)
    }
}

impl Shared {
    /// Splits the shards of a directory until they are small enough.
    pub(super) async fn split(&self, directory: u64) -> Result<(), Error> {
        let mut marks = Marks::new(self.state().applied_up_to());
        while marks.step < STEPS_MAX {
            let Some(node) = self.directory(directory).await? else {
                return Ok(());
            };
            let entries_max =
                u64::from(node.shard_count) * u64::from(self.options.shard_entries_max);
            if node.size <= entries_max || node.shard_count >= SHARDS_MAX {
                return Ok(());
            }
            let split = self.split_once(directory, node.shard_count, &mut marks);
            match split.await {
                Ok(()) => {}
                // Larger shards are slower, no more than that.
                Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        // The rest follows the next change of the directory.
        Ok(())
    }

    async fn split_once(
        &self,
        directory: u64,
        shard_count: u32,
        marks: &mut Marks,
    ) -> Result<(), Error> {
        let (start, middle, end) = next_split(shard_count);
        let old = self.place.shard(directory, start);
        let new = self.place.shard(directory, middle);
        let (middle, end) = (number_key(middle), number_key(end));
        let remove_from = |start| WriteStep::OmapRemoveRange {
            start,
            end: number_key(HASH_END),
        };
        let clean = WriteOp::new([WriteStep::Create, remove_from(number_key(0))]);
        self.write_applied(&new, clean, marks.next(), false).await?;
        let mut at = middle.clone();
        loop {
            let page = self.scan(&old, at, end.clone()).await?;
            let Some((last, _)) = page.entries.last() else {
                break;
            };
            at = [&last[..], &[0]].concat().into();
            let entries = page.entries;
            let copy = WriteOp::new([WriteStep::OmapSet { entries }]);
            self.write_applied(&new, copy, marks.next(), false).await?;
            if !page.more {
                break;
            }
        }
        if self.count_shard(directory, shard_count).await? {
            // Perhaps a split before could not take its upper half away.
            let halve = WriteOp::new([WriteStep::Create, remove_from(middle)]);
            self.write_applied(&old, halve, marks.next(), true).await?;
        }
        Ok(())
    }

    /// Logs that the directory has one shard more, unless it is gone.
    async fn count_shard(&self, directory: u64, shard_count: u32) -> Result<bool, Error> {
        loop {
            let Some(node) = self.directory(directory).await? else {
                return Ok(false);
            };
            let landed = {
                let mut state = self.state();
                state.check_served()?;
                // It may have been changed, or been forgotten, since.
                match state.overlay.get(Row::Inode(directory)) {
                    Some((Some(Value::Inode(now)), _)) if *now == node => {}
                    _ => continue,
                }
                assert_eq!(node.shard_count, shard_count, "one splitter");
                let grown = Inode {
                    shard_count: shard_count + 1,
                    ..(*node).clone()
                };
                let record = Record {
                    reply: None,
                    rows: vec![(Row::Inode(directory), Some(Value::Inode(grown.into())))],
                };
                let (_, landed) = state.stage(record, true);
                landed
            };
            self.staged.notify_one();
            match landed.await {
                Ok(Landed::Done) => return Ok(true),
                Ok(Landed::Again) => {}
                Ok(Landed::Full) => {
                    return Err(Error::new(
                        ErrorKind::NoSpace,
                        "tree: splitting a directory",
                    ));
                }
                Ok(Landed::Stopped) | Err(_) => {
                    self.state().check_served()?;
                    return Err(corrupt("a split"));
                }
            }
        }
    }

    /// The directory as it is now; `None` if it is gone, or goes.
    async fn directory(&self, number: u64) -> Result<Option<std::sync::Arc<Inode>>, Error> {
        let row = Row::Inode(number);
        loop {
            match self.state().overlay.get(row) {
                Some((Some(Value::Inode(node)), _)) if node.link_count > 0 => {
                    return Ok(Some(node.clone()));
                }
                Some(_) => return Ok(None),
                None => {}
            }
            self.load(&[row]).await?;
        }
    }

    pub(super) async fn scan(
        &self,
        shard: &ObjectId,
        start: bytes::Bytes,
        end: bytes::Bytes,
    ) -> Result<OmapPage, Error> {
        let op = ReadOp::new([ReadStep::OmapScan {
            start,
            end: Some(end),
            keys_only: false,
            count_max: PAGE,
        }]);
        match self.read(shard, op).await {
            Ok(output) => match output.results.into_iter().next() {
                Some(ReadResult::OmapPage(page)) => Ok(page),
                _ => Err(corrupt(&shard.to_string())),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(OmapPage::default()),
            Err(error) => Err(error),
        }
    }
}
