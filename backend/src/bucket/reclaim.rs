//! Background work, one bounded step at a time: a round goes over this node's failures, all
//! buckets and their shards, and all writers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::change::Change;
use super::error::Error;
use super::growth::SplitNote;
use super::map::{self, BUCKET_LISTS, BucketState, ShardMap, buckets_object};
use super::record::Key;
use super::row::{self, GARBAGE, PART, REMAINS, RowRange, kind_range};
use super::shard::Phase;
use super::sweep::{Budget, Clearing, Source, Sweep};
use super::writer::WriterRecord;
use super::{BucketId, ReclaimOutcome, Shared, corrupt, odd_answer};
use crate::error::{Error as StoreError, ErrorKind};
use crate::object::{Guard, ObjectId, OmapPage, ReadResult, ReadStep, WriteOp, WriteStep};

/// Rows that one step looks at.
const ROWS_PER_STEP: u32 = 64;

/// Markers of writers that a shard may hold before those of ended ones go.
const MARKERS_MAX: usize = 16;

/// What is left of a round; the next step takes the first.
#[derive(Debug, Default)]
pub(super) struct Round(VecDeque<Task>);

#[derive(Debug)]
pub(super) enum Task {
    /// Data of this node that was never linked.
    Failures,
    /// A page of a part of the list of buckets.
    List { list: u64, start: Bytes },
    Bucket {
        id: BucketId,
        /// The value of the bucket's row in the list.
        listed: Bytes,
    },
    /// Rows of a kind in a shard, from `start` on.
    Shard {
        id: BucketId,
        number: u64,
        kind: u8,
        start: Bytes,
    },
    /// The rest of a row of garbage.
    Garbage(Sweep),
    /// The rest of an upload that ended.
    Upload(Clearing),
    /// A shard that no key leads to.
    Retired { id: BucketId, number: u64 },
    /// What is left of a deleted bucket.
    Gone { id: BucketId },
    /// A page of the writers.
    Writers { start: Bytes },
    /// Data ids of a writer that ended.
    Writer { number: u64, record: WriterRecord },
}

impl Shared {
    pub(super) async fn reclaim_step(self: &Arc<Self>) -> Result<ReclaimOutcome, Error> {
        let mut round = self.round.lock().await;
        if round.0.is_empty() {
            round.0.push_back(Task::Failures);
            round.0.extend((0..BUCKET_LISTS).map(|list| Task::List {
                list,
                start: Bytes::new(),
            }));
            round.0.push_back(Task::Writers {
                start: Bytes::new(),
            });
        }
        let task = round.0.pop_front().expect("a round has tasks");
        let mut more = Vec::new();
        let result = self.reclaim_task(task, &mut more).await;
        for task in more.into_iter().rev() {
            round.0.push_front(task);
        }
        Ok(ReclaimOutcome {
            removed: result?,
            round_ended: round.0.is_empty(),
        })
    }

    /// Does a task and says how many objects it removed; `more` comes next.
    async fn reclaim_task(
        self: &Arc<Self>,
        task: Task,
        more: &mut Vec<Task>,
    ) -> Result<u64, Error> {
        match task {
            Task::Failures => self.reclaim_failure(more).await,
            Task::List { list, start } => self.reclaim_list(list, start, more).await,
            Task::Bucket { id, listed } => self.reclaim_bucket(id, listed, more).await,
            Task::Shard {
                id,
                number,
                kind,
                start,
            } => self.reclaim_shard(id, number, kind, start, more).await,
            Task::Garbage(sweep) => {
                let mut budget = Budget::of_step();
                more.extend(self.sweep(sweep, &mut budget).await?);
                Ok(budget.removed())
            }
            Task::Upload(clearing) => {
                let mut budget = Budget::of_step();
                more.extend(self.clear_upload(clearing, &mut budget).await?);
                Ok(budget.removed())
            }
            Task::Retired { id, number } => self.reclaim_retired(id, number).await,
            Task::Gone { id } => self.reclaim_gone(id).await,
            Task::Writers { start } => self.reclaim_writers(start, more).await,
            Task::Writer { number, record } => self.reclaim_writer(number, record, more).await,
        }
    }

    async fn reclaim_failure(&self, more: &mut Vec<Task>) -> Result<u64, Error> {
        let Some(failure) = self.failures.take_due(self.now_ms()) else {
            return Ok(0);
        };
        more.push(Task::Failures);
        match self.remove_span(&failure.span).await {
            Ok(removed) => {
                self.settle_id(failure.span.data);
                Ok(removed)
            }
            Err(error) => {
                self.failures.push(super::data::Failure {
                    due_ms: self.now_ms().saturating_add(1),
                    ..failure
                });
                Err(error.into())
            }
        }
    }

    async fn reclaim_list(
        &self,
        list: u64,
        start: Bytes,
        more: &mut Vec<Task>,
    ) -> Result<u64, Error> {
        let object = buckets_object(&self.meta, list);
        let end = Bytes::from_static(&[0xff; 9]);
        let Some(page) = self.page(&object, RowRange { start, end }).await? else {
            return Ok(0);
        };
        for (row, listed) in &page.entries {
            let number = <[u8; 8]>::try_from(row.as_ref());
            let number = number.map_err(|error| corrupt(&object, error))?;
            let id = BucketId(u64::from_be_bytes(number));
            more.push(Task::Bucket {
                id,
                listed: listed.clone(),
            });
        }
        if let Some(start) = next_start(&page) {
            more.push(Task::List { list, start });
        }
        Ok(0)
    }

    async fn reclaim_bucket(
        &self,
        id: BucketId,
        listed: Bytes,
        more: &mut Vec<Task>,
    ) -> Result<u64, Error> {
        let map = match self.fresh_map_any(id).await {
            Err(Error::NoSuchBucket) => {
                self.forget_bucket(id, listed).await?;
                return Ok(0);
            }
            other => other?,
        };
        if let BucketState::Creating { writer } = map.state {
            if self.has_writer_ended(writer).await? {
                self.move_map(id, map.state, BucketState::Deleted).await?;
            }
            return Ok(0);
        }
        for number in map.shards.values() {
            more.push(Task::Shard {
                id,
                number: *number,
                kind: REMAINS,
                start: kind_range(REMAINS).start,
            });
        }
        for number in map.retired.keys() {
            more.push(Task::Retired {
                id,
                number: *number,
            });
        }
        if map.state == BucketState::Deleted {
            more.push(Task::Gone { id });
        }
        Ok(0)
    }

    /// Takes a bucket without a map off the list, unless somebody makes it.
    async fn forget_bucket(&self, id: BucketId, listed: Bytes) -> Result<(), Error> {
        let list = buckets_object(&self.meta, id.0 % BUCKET_LISTS);
        let creator = map::decode_number(&listed).map_err(|e| corrupt(&list, e))?;
        if !self.has_writer_ended(creator).await? {
            return Ok(());
        }
        let row = map::bucket_row(id);
        let op = WriteOp::new([WriteStep::OmapRemove {
            keys: vec![row.clone()],
        }])
        .guarded(Guard::OmapIs {
            key: row,
            value: Some(listed),
        });
        match self.write(&list, op).await {
            Err(error) if error.kind() != ErrorKind::GuardFailed => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn reclaim_shard(
        self: &Arc<Self>,
        id: BucketId,
        number: u64,
        kind: u8,
        start: Bytes,
        more: &mut Vec<Task>,
    ) -> Result<u64, Error> {
        let object = self.shard_object(id, number);
        let end = kind_range(kind).end;
        let Some(page) = self.page(&object, RowRange { start, end }).await? else {
            return Ok(0);
        };
        let mut budget = Budget::of_step();
        for (row, value) in &page.entries {
            if budget.is_spent() {
                more.push(Task::Shard {
                    id,
                    number,
                    kind,
                    start: row.clone(),
                });
                return Ok(budget.removed());
            }
            let source = Source {
                id,
                object: object.clone(),
                row: row.clone(),
            };
            let rest = match kind {
                REMAINS => self.begin_upload(source, value, &mut budget).await?,
                _ => self.begin_garbage(source, value, &mut budget).await?,
            };
            more.extend(rest);
        }
        match next_start(&page) {
            Some(start) => more.push(Task::Shard {
                id,
                number,
                kind,
                start,
            }),
            // Garbage comes after all part rows that may name the same data.
            None if kind == REMAINS => more.push(Task::Shard {
                id,
                number,
                kind: GARBAGE,
                start: kind_range(GARBAGE).start,
            }),
            None => {
                self.reclaim_split(id, number).await?;
                self.reclaim_markers(&object).await?;
            }
        }
        Ok(budget.removed())
    }

    /// A step's worth of rows; `None` if the object is gone.
    pub(super) async fn page(
        &self,
        object: &ObjectId,
        range: RowRange,
    ) -> Result<Option<OmapPage>, Error> {
        match self.scan_shard(object, &range, false, ROWS_PER_STEP).await {
            Ok(page) => Ok(Some(page)),
            Err(Error::Store(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A step's worth of rows of one key, from the shard that holds them now: an empty page of a
    /// shard that was split meanwhile would say that there are none.
    pub(super) async fn page_of_key(
        &self,
        id: BucketId,
        object: &ObjectId,
        range: RowRange,
    ) -> Result<Option<OmapPage>, Error> {
        let place = range.start.clone();
        let step = ReadStep::OmapScan {
            start: range.start.clone(),
            end: Some(range.end.clone()),
            keys_only: false,
            count_max: ROWS_PER_STEP,
        };
        match self.read_at(id, row::place(&place), [step]).await {
            Ok((_, output, _)) => match output.results.into_iter().nth(1) {
                Some(ReadResult::OmapPage(page)) => Ok(Some(page)),
                _ => Err(odd_answer(object).into()),
            },
            // The shards of a deleted bucket split no more.
            Err(Error::NoSuchBucket) => self.page(object, range).await,
            Err(error) => Err(error),
        }
    }

    /// Takes rows away that were dealt with.
    pub(super) async fn collect(
        self: &Arc<Self>,
        id: BucketId,
        object: &ObjectId,
        key: &Key,
        rows: Vec<Bytes>,
    ) -> Result<(), Error> {
        let change = Change::Collect { rows: rows.clone() };
        match self.change(id, key, change, None).await {
            Ok(_) => Ok(()),
            // Nobody else changes the shards of a deleted bucket.
            Err(Error::NoSuchBucket) => {
                let op = WriteOp::new([WriteStep::OmapRemove { keys: rows }]);
                match self.write_settled(object, op).await {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
                    _ => Ok(()),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Finishes a split whose writer has ended, or gave up.
    async fn reclaim_split(self: &Arc<Self>, id: BucketId, number: u64) -> Result<(), Error> {
        let view = self.read_view(&self.shard_object(id, number), []).await?;
        let (Phase::Splitting(split) | Phase::Frozen(split)) = &view.state.phase else {
            return Ok(());
        };
        if !self.has_writer_ended(split.writer).await? && split.writer != self.writer.number {
            return Ok(());
        }
        self.go_on_with_split(id, number).await
    }

    /// Forgets the last batches of writers that write no more.
    async fn reclaim_markers(&self, object: &ObjectId) -> Result<(), Error> {
        let Some(page) = self.page(object, kind_range(row::MARKER)).await? else {
            return Ok(());
        };
        if page.entries.len() <= MARKERS_MAX {
            return Ok(());
        }
        let mut ended = Vec::new();
        for (row, _) in page.entries {
            let number = row.get(1..).and_then(|tail| tail.try_into().ok());
            let writer = u64::from_be_bytes(number.ok_or_else(|| odd_row(object))?);
            if writer != self.writer.number && self.has_writer_ended(writer).await? {
                ended.push(row);
            }
        }
        let op = WriteOp::new([WriteStep::OmapRemove { keys: ended }]).guarded(Guard::Exists);
        match self.write(object, op).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn reclaim_retired(&self, id: BucketId, number: u64) -> Result<u64, Error> {
        let map = self.fresh_map_any(id).await?;
        let Some(retired) = map.retired.get(&number) else {
            return Ok(0);
        };
        let own = retired.writer == self.writer.number;
        let ended = if own {
            let notes = self.splitting.lock().expect(super::LOCK);
            let running = |((bucket, _), note): (&(BucketId, u64), &SplitNote)| {
                *bucket == id && matches!(note, SplitNote::Running(_))
            };
            !notes.iter().any(running) && !self.uncertain.load(Ordering::SeqCst)
        } else {
            self.has_writer_ended(retired.writer).await?
        };
        if !retired.given_up {
            if ended {
                let given_up = map::Retired {
                    given_up: true,
                    ..*retired
                };
                let entries = vec![(map::retired_row(number), given_up.encode())];
                self.write_map(id, &map, [WriteStep::OmapSet { entries }])
                    .await?;
            }
            return Ok(0);
        }
        let object = self.shard_object(id, number);
        match self.read_view(&object, []).await {
            // The split that moved it has not got so far.
            Ok(view) if matches!(view.state.phase, Phase::Frozen(_)) => {
                if let Phase::Frozen(split) = &view.state.phase {
                    self.finish_parent(&object, split).await?;
                }
                return Ok(0);
            }
            Ok(_) => {}
            Err(Error::Store(error)) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let removed = self.remove_object(object).await?;
        if ended {
            // Whoever made it makes it no more, so its number can be forgotten.
            let keys = vec![map::retired_row(number)];
            self.write_map(id, &map, [WriteStep::OmapRemove { keys }])
                .await?;
        }
        Ok(removed)
    }

    /// Removes a deleted bucket once no row of it names data.
    async fn reclaim_gone(&self, id: BucketId) -> Result<u64, Error> {
        let map = match self.fresh_map_any(id).await {
            Err(Error::NoSuchBucket) => return Ok(0),
            other => other?,
        };
        if map.state != BucketState::Deleted || self.has_data_rows(id, &map).await? {
            return Ok(0);
        }
        let mut removed = 0;
        for number in map.shards.values().chain(map.retired.keys()) {
            removed += self.remove_object(self.shard_object(id, *number)).await?;
        }
        removed += self.remove_object(self.map_object(id)).await?;
        let op = WriteOp::new([WriteStep::OmapRemove {
            keys: vec![map::bucket_row(id)],
        }]);
        let list = buckets_object(&self.meta, id.0 % BUCKET_LISTS);
        self.write_settled(&list, op).await?;
        Ok(removed)
    }

    async fn has_data_rows(&self, id: BucketId, map: &ShardMap) -> Result<bool, Error> {
        for number in map.shards.values() {
            let object = self.shard_object(id, *number);
            for kind in [PART, GARBAGE, REMAINS] {
                let page = self.page(&object, kind_range(kind)).await?;
                if page.is_some_and(|page| !page.entries.is_empty()) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Where the next page of rows starts.
pub(super) fn next_start(page: &OmapPage) -> Option<Bytes> {
    let (last, _) = page.entries.last().filter(|_| page.more)?;
    Some(row::after_row(last))
}

pub(super) fn odd_row(object: &ObjectId) -> StoreError {
    let context = format!("a row of {object} has no key");
    StoreError::new(ErrorKind::Corrupt, context)
}
