//! Splitting a shard while it is in use.
//!
//! The parent goes from open to splitting: from then on every change is logged beside itself. Its
//! rows are copied to two new shards, then what was logged meanwhile. When little is left, the
//! parent is frozen, the rest copied, the map switched and the parent marked moved. A split begins
//! at half of what a shard may hold; whoever fills the other half before the split ends waits for
//! it. Until the map
//! is switched nothing leads to the new shards, so whoever finds that a split makes no progress
//! gives its shards up in the map and starts anew with others; the map's version decides who won.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join;
use tokio::time::Instant;

use super::error::Error;
use super::filling::Child;
use super::growth::Underway;
use super::map::{self, BucketState, Retired, ShardMap, encode_number, retired_row, shard_row};
use super::reclaim::next_start;
use super::row::{self, ENTRY, GARBAGE, KEYED, LOG, PART, RowRange, UPLOAD, kind_range};
use super::shard::{Phase, ShardState, Split};
use super::{BucketId, Shared, corrupt, may_pass, odd_answer, pause};
use crate::codec::DecodeError;
use crate::error::ErrorKind;
use crate::object::{
    Guard, ObjectId, OmapPage, Priority, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep,
};

/// Bytes copied at a time, roughly: whoever writes elsewhere may wait for as much.
const COPY_BYTES: usize = 512 * 1024;

/// Rows copied at a time, before their size is known and at most.
const COPY_ROWS: usize = 256;
const COPY_ROWS_MAX: usize = 1_000;

/// Logged changes read at a time: catching up must be faster than batches are.
const LOG_ROWS: u32 = 1_000;

/// Logged changes that may be left when the parent is frozen: some ten operations' worth.
const FREEZE_ROWS_MAX: usize = 512;

/// Rounds of catching up before the parent is frozen with whatever is left.
const CATCH_UP_ROUNDS_MAX: u32 = 64;

/// Rows of a moved shard that are removed at a time.
const EMPTIED_ROWS: u32 = 256;

/// How often a step is tried that others or a bad link defeat.
const TRIES_MAX: u32 = 50;

/// A split on its way.
#[derive(Debug)]
struct Splitter<'a> {
    shared: &'a Arc<Shared>,
    id: BucketId,
    number: u64,
    parent: ObjectId,
    split: Split,
    /// Where the log was read up to.
    log_at: Bytes,
    underway: Arc<Underway>,
}

/// Half of the parent's keys.
#[derive(Clone, Copy, Debug)]
enum Side {
    Left,
    Right,
}

/// What one round of catching up did.
#[derive(Clone, Copy, Debug)]
struct CaughtUp {
    /// Logged changes that were read.
    rows: usize,
    /// Whether more of them were there.
    more: bool,
}

impl Shared {
    /// `Some` number of rows if they all belong to one key.
    pub(super) async fn split_shard(
        self: &Arc<Self>,
        id: BucketId,
        number: u64,
    ) -> Result<Option<u64>, Error> {
        let parent = self.shard_object(id, number);
        let map = self.fresh_map(id).await?;
        let view = self.read_view(&parent, []).await?;
        let former = match &view.state.phase {
            Phase::Open => None,
            Phase::Splitting(split) | Phase::Frozen(split) => Some(split.clone()),
            Phase::Moved | Phase::Filling | Phase::Closing { .. } => return Ok(None),
        };
        if map.shards.get(&view.state.start) != Some(&number) {
            if let Some(split) = former {
                self.finish_parent(&parent, &split).await?;
            }
            return Ok(None);
        }
        let at = match &former {
            Some(split) => split.at.clone(),
            None => match self.middle(&parent, &view.state).await? {
                Some(at) => at,
                None => return Ok(Some(view.state.totals.rows)),
            },
        };
        let allocated = self.allocate(id, number, &view.state.start, at, former.as_ref());
        let Some(split) = allocated.await? else {
            return Ok(None);
        };
        let mut splitter = Splitter {
            shared: self,
            id,
            number,
            parent,
            split,
            log_at: kind_range(LOG).start,
            underway: self.split_underway(id, number).unwrap_or_default(),
        };
        splitter.run(&view.state.phase).await?;
        Ok(None)
    }

    /// Takes two numbers for new shards and gives up those of a former attempt. `None`: the map
    /// does not name the parent any more, or the bucket is being deleted.
    async fn allocate(
        &self,
        id: BucketId,
        number: u64,
        start: &Bytes,
        at: Bytes,
        former: Option<&Split>,
    ) -> Result<Option<Split>, Error> {
        for round in 0..TRIES_MAX {
            let map = self.fresh_map(id).await?;
            if map.shards.get(start) != Some(&number) || map.state != BucketState::Open {
                return Ok(None);
            }
            let split = Split {
                at: at.clone(),
                left: map.next,
                right: map.next + 1,
                writer: self.writer.number,
            };
            let fresh = Retired {
                writer: self.writer.number,
                given_up: false,
            };
            let mut entries = vec![
                (Bytes::from_static(map::NEXT), encode_number(map.next + 2)),
                (retired_row(split.left), fresh.encode()),
                (retired_row(split.right), fresh.encode()),
            ];
            for old in former.iter().flat_map(|split| [split.left, split.right]) {
                if let Some(retired) = map.retired.get(&old) {
                    let retired = Retired {
                        given_up: true,
                        ..*retired
                    };
                    entries.push((retired_row(old), retired.encode()));
                }
            }
            if self
                .write_map(id, &map, [WriteStep::OmapSet { entries }])
                .await?
            {
                return Ok(Some(split));
            }
            pause(round.min(4)).await;
        }
        Err(Error::Conflict)
    }

    /// Makes sure that no key is ever led to the new shards of a split that has not switched.
    pub(super) async fn give_up_split(&self, id: BucketId, split: &Split) -> Result<(), Error> {
        for round in 0..TRIES_MAX {
            let map = self.fresh_map(id).await?;
            let mut entries = Vec::new();
            for number in [split.left, split.right] {
                match map.retired.get(&number) {
                    Some(retired) if !retired.given_up => {
                        let retired = Retired {
                            given_up: true,
                            ..*retired
                        };
                        entries.push((retired_row(number), retired.encode()));
                    }
                    Some(_) | None => {}
                }
            }
            if entries.is_empty() {
                return Ok(());
            }
            self.write_map(id, &map, [WriteStep::OmapSet { entries }])
                .await?;
            pause(round.min(4)).await;
        }
        Err(Error::Conflict)
    }

    /// Changes a map as of a version; `false` if somebody came first or nobody knows.
    pub(super) async fn write_map(
        &self,
        id: BucketId,
        map: &ShardMap,
        steps: impl IntoIterator<Item = WriteStep>,
    ) -> Result<bool, Error> {
        let op = WriteOp::new(steps)
            .guarded(Guard::VersionIs(map.version))
            .with_priority(Priority::Urgent);
        match self.write(&self.map_object(id), op).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::GuardFailed || may_pass(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The place in the middle of a shard's rows; `None` if they all belong to one key.
    async fn middle(&self, parent: &ObjectId, state: &ShardState) -> Result<Option<Bytes>, Error> {
        let mut places = Vec::new();
        for kind in [ENTRY, UPLOAD, PART, GARBAGE] {
            let mut range = kind_range(kind);
            loop {
                let page = self.scan_shard(parent, &range, true, u32::MAX).await?;
                for (row, _) in &page.entries {
                    places.push(row::place_of_key(row));
                }
                match next_start(&page) {
                    Some(start) => range.start = start,
                    None => break,
                }
            }
        }
        places.sort_unstable();
        let middle = places.get(places.len() / 2).cloned();
        let first = places.first().cloned();
        let chosen = if middle == first {
            places
                .into_iter()
                .find(|place| Some(place) != first.as_ref())
        } else {
            middle
        };
        Ok(chosen.filter(|at| *at > state.start && state.covers(at)))
    }

    /// A page of a shard's rows, whatever the state of the shard.
    pub(super) async fn scan_shard(
        &self,
        object: &ObjectId,
        range: &RowRange,
        keys_only: bool,
        count_max: u32,
    ) -> Result<OmapPage, Error> {
        let op = ReadOp::new([ReadStep::OmapScan {
            start: range.start.clone(),
            end: Some(range.end.clone()),
            keys_only,
            count_max: count_max.min(self.scan_rows_max()),
        }])
        .with_priority(Priority::Background);
        let output = self.read_retried(object, op).await?;
        match output.results.into_iter().next() {
            Some(ReadResult::OmapPage(page)) => Ok(page),
            _ => Err(odd_answer(object).into()),
        }
    }

    /// Marks a frozen shard moved, now that the map leads elsewhere.
    pub(super) async fn finish_parent(
        &self,
        parent: &ObjectId,
        split: &Split,
    ) -> Result<(), Error> {
        for round in 0..TRIES_MAX {
            let view = match self.read_view(parent, []).await {
                Err(Error::Store(error)) if error.kind() == ErrorKind::NotFound => return Ok(()),
                other => other?,
            };
            if view.state.phase != Phase::Frozen(split.clone()) {
                return Ok(());
            }
            let state = ShardState {
                totals: super::shard::Totals::default(),
                ..view.state.with_phase(Phase::Moved)
            };
            let entries = vec![(Bytes::from_static(row::STATE), state.encode())];
            let op = WriteOp::new([WriteStep::OmapSet { entries }])
                .guarded(Guard::VersionIs(view.version));
            match self.write(parent, op).await {
                Ok(_) => return self.empty_moved(parent).await,
                Err(error) if error.kind() == ErrorKind::GuardFailed || may_pass(&error) => {
                    pause(round.min(4)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Conflict)
    }
}

impl Shared {
    /// Takes the rows out of a moved shard, a few at a time: an engine may have to touch each of
    /// them, and whoever writes elsewhere waits meanwhile. What is left goes with the object.
    async fn empty_moved(&self, parent: &ObjectId) -> Result<(), Error> {
        for kind in KEYED.iter().chain(&[LOG]) {
            let mut range = kind_range(*kind);
            loop {
                let scan = self.scan_shard(parent, &range, true, EMPTIED_ROWS);
                let page = match scan.await {
                    Err(Error::Store(error)) if error.kind() == ErrorKind::NotFound => {
                        return Ok(());
                    }
                    other => other?,
                };
                let keys: Vec<Bytes> = page.entries.into_iter().map(|(row, _)| row).collect();
                let Some(last) = keys.last() else { break };
                // What was removed may cost the next scan as much as what is there.
                range.start = row::after_row(last);
                let op = WriteOp::new([WriteStep::OmapRemove { keys }])
                    .with_priority(Priority::Background);
                match self.write_settled(parent, op).await {
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                    other => drop(other?),
                }
                if !page.more {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Splitter<'_> {
    /// `seen` is the phase in which the parent was when numbers were taken.
    async fn run(&mut self, seen: &Phase) -> Result<(), Error> {
        let splitting = Phase::Splitting(self.split.clone());
        let Some((state, _)) = self.step_to(seen, splitting.clone()).await? else {
            return Ok(());
        };
        let mut children = self.make_children(&state).await?;
        let [left, right] = &mut children;
        try_join(self.copy(left, Side::Left), self.copy(right, Side::Right)).await?;
        for _round in 0..CATCH_UP_ROUNDS_MAX {
            let priority = self.underway.priority();
            let caught_up = self.catch_up(&mut children, priority).await?;
            if !caught_up.more && caught_up.rows < FREEZE_ROWS_MAX {
                break;
            }
        }
        let frozen = Phase::Frozen(self.split.clone());
        let Some((state, frozen_at)) = self.step_to(&splitting, frozen).await? else {
            return Ok(());
        };
        // Changes wait from here on, so what does not depend on each other goes on at once.
        let (shared, id) = (self.shared, self.id);
        let (map, ()) = try_join(shared.fresh_map(id), self.fill_up(&mut children)).await?;
        let [left, right] = &children;
        if left.totals().plus(&right.totals()) != state.totals {
            return Err(corrupt(
                &self.parent,
                DecodeError::Field("the totals of a shard"),
            ));
        }
        if self.switch(&state, map).await? {
            self.shared.stats.splits.add(1);
            self.shared.stats.freezes.record(frozen_at.elapsed());
            self.shared.finish_parent(&self.parent, &self.split).await?;
        }
        Ok(())
    }

    /// Changes the parent's phase; gives its state and a time before which it was in the former
    /// phase. `None` if another writer got hold of it.
    async fn step_to(
        &self,
        from: &Phase,
        to: Phase,
    ) -> Result<Option<(ShardState, Instant)>, Error> {
        let mut begun = Instant::now();
        for round in 0..TRIES_MAX {
            let _turn = self.underway.turn.lock().await;
            let view = self.shared.read_view(&self.parent, []).await?;
            if view.state.phase == to {
                return Ok(Some((view.state, begun)));
            }
            if view.state.phase != *from {
                return Ok(None);
            }
            begun = Instant::now();
            let shared = self.shared;
            if shared.set_phase(&self.parent, &view, to.clone()).await? {
                return Ok(Some((view.state.with_phase(to), begun)));
            }
            if round > 8 {
                pause(round / 8).await;
            }
        }
        Err(Error::Conflict)
    }

    async fn make_children(&self, parent: &ShardState) -> Result<[Child; 2], Error> {
        let split = &self.split;
        let left = ShardState {
            phase: Phase::Filling,
            ..ShardState::open(parent.start.clone(), Some(split.at.clone()))
        };
        let right = ShardState {
            phase: Phase::Filling,
            ..ShardState::open(split.at.clone(), parent.end.clone())
        };
        let make = async |number, state| {
            let object = self.shared.shard_object(self.id, number);
            Child::make(self.shared, object, state).await
        };
        Ok([
            make(split.left, left).await?,
            make(split.right, right).await?,
        ])
    }

    /// Copies the rows of one side.
    async fn copy(&self, child: &mut Child, side: Side) -> Result<(), Error> {
        let mut count = COPY_ROWS;
        for kind in KEYED {
            let mut range = kind_range(kind);
            let middle: Bytes = [&[kind], &self.split.at[..]].concat().into();
            match side {
                Side::Left => range.end = middle,
                Side::Right => range.start = middle,
            }
            loop {
                let count_max = u32::try_from(count).expect("at most COPY_ROWS_MAX");
                let scan = self
                    .shared
                    .scan_shard(&self.parent, &range, false, count_max);
                let page = scan.await?;
                let Some((last, _)) = page.entries.last() else {
                    break;
                };
                range.start = row::after_row(last);
                let sizes = page
                    .entries
                    .iter()
                    .map(|(row, value)| row.len() + value.len());
                let average = sizes.sum::<usize>() / page.entries.len();
                count = (COPY_BYTES / average.max(1)).clamp(1, COPY_ROWS_MAX);
                child.fill(page.entries, self.underway.priority()).await?;
                if !page.more {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Copies the rest while the parent is frozen, and opens the new shards.
    async fn fill_up(&mut self, children: &mut [Child; 2]) -> Result<(), Error> {
        while self.catch_up(children, Priority::Urgent).await?.more {}
        let [left, right] = children;
        try_join(left.open(), right.open()).await?;
        Ok(())
    }

    /// Copies what the log names behind where it was read up to.
    async fn catch_up(
        &mut self,
        children: &mut [Child; 2],
        priority: Priority,
    ) -> Result<CaughtUp, Error> {
        let range = RowRange {
            start: self.log_at.clone(),
            end: kind_range(LOG).end,
        };
        let page = self
            .shared
            .scan_shard(&self.parent, &range, false, LOG_ROWS)
            .await?;
        let Some((last, _)) = page.entries.last() else {
            let more = page.more;
            return Ok(CaughtUp { rows: 0, more });
        };
        let caught_up = CaughtUp {
            rows: page.entries.len(),
            more: page.more,
        };
        self.log_at = row::after_row(last);
        let rows: BTreeSet<Bytes> = page.entries.into_iter().map(|(_, row)| row).collect();
        let keys: Vec<Bytes> = rows.into_iter().collect();
        let now = self.shared.rows_of(&self.parent, &keys).await?;
        let (left, right): (Vec<_>, Vec<_>) = keys
            .into_iter()
            .zip(now)
            .partition(|(row, _)| row::place(row) < self.split.at);
        let [left_child, right_child] = children;
        try_join(
            left_child.update(left, priority),
            right_child.update(right, priority),
        )
        .await?;
        Ok(caught_up)
    }

    /// Leads the keys to the new shards; `false` if this split was given up. `map` was read lately.
    async fn switch(&self, parent: &ShardState, map: Arc<ShardMap>) -> Result<bool, Error> {
        let (split, mut map) = (&self.split, map);
        for round in 0..TRIES_MAX {
            if round > 0 {
                map = self.shared.fresh_map(self.id).await?;
            }
            let named = map.shards.get(&parent.start).copied();
            if named == Some(split.left) || map.shards.values().any(|n| *n == split.right) {
                return Ok(true);
            }
            let given_up = map.retired.get(&split.left).is_none_or(|old| old.given_up);
            if named != Some(self.number) || given_up {
                return Ok(false);
            }
            if map.state == BucketState::Open {
                let old = Retired {
                    writer: self.shared.writer.number,
                    given_up: true,
                };
                let steps = [
                    WriteStep::OmapRemove {
                        keys: vec![retired_row(split.left), retired_row(split.right)],
                    },
                    WriteStep::OmapSet {
                        entries: vec![
                            (shard_row(&parent.start), encode_number(split.left)),
                            (shard_row(&split.at), encode_number(split.right)),
                            (retired_row(self.number), old.encode()),
                        ],
                    },
                ];
                if self.shared.write_map(self.id, &map, steps).await? {
                    return Ok(true);
                }
            }
            pause(round.min(4)).await;
        }
        Err(Error::Conflict)
    }
}
