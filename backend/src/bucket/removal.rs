//! Deleting a bucket: atomic, though its keys lie in many shards.
//!
//! The map says "deleting" under a token, then each shard, found empty, is closed under the same
//! token, then the map says "deleted". A shard that is not empty makes the map say "open" again. A
//! closed shard belongs to the deletion that the map names; under any other map it opens again.

use tokio::time::Instant;

use bytes::Bytes;
use futures_util::{TryStreamExt, stream};

use super::error::Error;
use super::map::{self, BucketState};
use super::row::{ENTRY, RowRange, UPLOAD, kind_range};
use super::shard::{Phase, View};
use super::{BucketId, Shared, corrupt, may_pass, pause, row};
use crate::error::ErrorKind;
use crate::object::{Guard, ObjectId, Priority, ReadStep, WriteOp, WriteStep};

/// How often a shard is read anew because somebody changed it.
const TRIES_MAX: u32 = 50;

/// How often a deletion is begun anew because it was given up, or another one was on its way.
const DELETIONS_MAX: u32 = 8;

/// Shards closed at a time.
const SHARDS_AT_ONCE: usize = 16;

impl Shared {
    pub(super) async fn delete_bucket(&self, id: BucketId) -> Result<(), Error> {
        for _round in 0..DELETIONS_MAX {
            let deletion = self.random()?;
            let deleting = BucketState::Deleting { deletion };
            if !self.move_map(id, BucketState::Open, deleting).await? {
                if let BucketState::Deleting { deletion } = self.fresh_map(id).await?.state {
                    self.give_up_deletion_later(id, deletion).await?;
                }
                continue;
            }
            self.close_shards(id, deletion).await?;
            if self.move_map(id, deleting, BucketState::Deleted).await? {
                self.maps.lock().expect(super::LOCK).remove(&id);
                return Ok(());
            }
            // A change that waited too long gave this deletion up.
        }
        Err(Error::Conflict)
    }

    /// Closes all shards, or opens them again if one is not empty.
    async fn close_shards(&self, id: BucketId, deletion: u128) -> Result<(), Error> {
        // No split changes the map any more: its switch guards that the bucket is open.
        let map = self.fresh_map(id).await?;
        let closed = stream::iter(map.shards.values().map(Ok))
            .try_for_each_concurrent(SHARDS_AT_ONCE, |number| {
                self.close_shard(id, *number, deletion)
            });
        if let Err(error) = closed.await {
            let deleting = BucketState::Deleting { deletion };
            self.move_map(id, deleting, BucketState::Open).await?;
            for number in map.shards.values() {
                self.reopen_shard(id, *number, deletion).await?;
            }
            return Err(error);
        }
        Ok(())
    }

    /// A change met a closed shard: waits, opens the shard again or says that the bucket is gone.
    pub(super) async fn wait_for_deletion(
        &self,
        id: BucketId,
        object: &ObjectId,
        view: &View,
        deletion: u128,
        since: Instant,
    ) -> Result<(), Error> {
        let map = self.fresh_map(id).await?;
        if map.state != (BucketState::Deleting { deletion }) {
            self.set_phase(object, view, Phase::Open).await?;
        } else if since.elapsed().as_millis() > u128::from(self.options.takeover_ms) {
            let deleting = BucketState::Deleting { deletion };
            self.move_map(id, deleting, BucketState::Open).await?;
        } else {
            pause(2).await;
        }
        Ok(())
    }

    /// Whether the map went from one state to the other, or had gone there.
    pub(super) async fn move_map(
        &self,
        id: BucketId,
        from: BucketState,
        to: BucketState,
    ) -> Result<bool, Error> {
        let object = self.map_object(id);
        let entries = vec![(Bytes::from_static(map::STATE), to.encode())];
        let op = WriteOp::new([WriteStep::OmapSet { entries }]).guarded(Guard::OmapIs {
            key: Bytes::from_static(map::STATE),
            value: Some(from.encode()),
        });
        match self.write_settled(&object, op).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::GuardFailed => {
                Ok(self.fresh_map_any(id).await?.state == to)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::NoSuchBucket),
            Err(error) => Err(error.into()),
        }
    }

    /// Another deletion is on its way; after a while without an end it is given up.
    async fn give_up_deletion_later(&self, id: BucketId, deletion: u128) -> Result<(), Error> {
        let since = Instant::now();
        let deleting = BucketState::Deleting { deletion };
        while self.fresh_map(id).await?.state == deleting {
            if since.elapsed().as_millis() > u128::from(self.options.takeover_ms) {
                self.move_map(id, deleting, BucketState::Open).await?;
                return Ok(());
            }
            pause(3).await;
        }
        Ok(())
    }

    async fn close_shard(&self, id: BucketId, number: u64, deletion: u128) -> Result<(), Error> {
        let object = self.shard_object(id, number);
        let closing = Phase::Closing { deletion };
        for round in 0..TRIES_MAX {
            let first = |range: RowRange| ReadStep::OmapScan {
                start: range.start,
                end: Some(range.end),
                keys_only: true,
                count_max: 1,
            };
            let (entries, uploads) = (kind_range(ENTRY), kind_range(UPLOAD));
            let steps = [first(entries.clone()), first(uploads.clone())];
            let view = self.read_view(&object, steps).await?;
            if view.state.phase == closing {
                return Ok(());
            }
            if view.first(&entries).is_some() || view.first(&uploads).is_some() {
                return Err(Error::BucketNotEmpty);
            }
            if let Phase::Frozen(split) = &view.state.phase {
                // The splitter looks at the map alone from here on: it must not switch to what it
                // copied before this shard was closed, and perhaps opened again.
                self.give_up_split(id, split).await?;
            }
            self.set_phase(&object, &view, closing.clone()).await?;
            pause(round.min(3)).await;
        }
        Err(Error::Conflict)
    }

    async fn reopen_shard(&self, id: BucketId, number: u64, deletion: u128) -> Result<(), Error> {
        let object = self.shard_object(id, number);
        for _round in 0..TRIES_MAX {
            let view = self.read_view(&object, []).await?;
            if view.state.phase != (Phase::Closing { deletion }) {
                return Ok(());
            }
            self.set_phase(&object, &view, Phase::Open).await?;
        }
        Err(Error::Conflict)
    }

    /// The state of a shard and the rows that `steps` read.
    pub(super) async fn read_view(
        &self,
        object: &ObjectId,
        steps: impl IntoIterator<Item = ReadStep>,
    ) -> Result<View, Error> {
        let op = View::read_op(steps);
        let output = self.read_retried(object, op.clone()).await?;
        View::new(&op, output).map_err(|error| corrupt(object, error))
    }

    /// Changes the phase of a shard as of a view; `false` if somebody came first or nobody knows.
    pub(super) async fn set_phase(
        &self,
        object: &ObjectId,
        view: &View,
        phase: Phase,
    ) -> Result<bool, Error> {
        let state = view.state.with_phase(phase);
        let entries = vec![(Bytes::from_static(row::STATE), state.encode())];
        let op = WriteOp::new([WriteStep::OmapSet { entries }])
            .guarded(Guard::VersionIs(view.version))
            .with_priority(Priority::Urgent);
        match self.write(object, op).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::GuardFailed || may_pass(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
