//! The group committer: all changes that wait for one shard go into one operation.
//!
//! A batch reads what its changes need together with the shard's state, decides them one behind
//! the other, and writes guarded by the shard's version. Whoever wrote in between, in this node or
//! another, makes the guard fail, and the batch is decided anew. Each batch also sets its writer's
//! marker row to a number of its own: after an unknown outcome the marker says whether it
//! happened, and the version whether it still may.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::change::{Answer, Change, Refusal};
use super::data::Staged;
use super::error::Error;
use super::map::{decode_number, encode_number};
use super::record::Key;
use super::shard::{Phase, View};
use super::{BucketId, Shared, copy_error, corrupt, pause, row};
use crate::error::{Error as StoreError, ErrorKind};
use crate::object::{Guard, ObjectId, ReadStep, Version, WriteOp};

/// Changes of one batch.
const BATCH_CHANGES_MAX: usize = 64;

/// Bytes of one batch, roughly.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long a change is tried before its caller is told that its outcome is unknown.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a change waits for room in its shard before its caller is told to slow down.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);

/// How often a change is sent to another shard because its own had moved.
const REROUTES_MAX: u32 = 100;

/// Changes that wait for one shard.
pub(super) type Queue = VecDeque<Pending>;

/// A change that waits for its shard.
#[derive(Debug)]
pub(super) struct Pending {
    key: Key,
    change: Change,
    /// Data that the change links; removed if it does not.
    staged: Option<Staged>,
    reply: oneshot::Sender<Result<Answer, Error>>,
    reroutes: u32,
}

#[derive(Debug)]
struct Batch {
    shared: Arc<Shared>,
    id: BucketId,
    number: u64,
    object: ObjectId,
    pending: Vec<Pending>,
    /// Attempts whose outcome is unknown, all guarded by one version.
    unknown: Vec<Attempt>,
    started: Instant,
    rounds: u32,
}

#[derive(Debug)]
struct Attempt {
    number: u64,
    version: Version,
    results: Vec<Result<Answer, Error>>,
}

#[derive(Debug, PartialEq)]
enum Step {
    Again,
    Done,
}

impl Shared {
    /// Makes a change and says what it did. The change goes on if the caller does not wait.
    pub(super) async fn change(
        self: &Arc<Self>,
        id: BucketId,
        key: &Key,
        change: Change,
        staged: Option<Staged>,
    ) -> Result<Answer, Error> {
        let (reply, answer) = oneshot::channel();
        let pending = Pending {
            key: key.clone(),
            change,
            staged,
            reply,
            reroutes: 0,
        };
        let shared = Arc::clone(self);
        // A task, so that the data finds its link or its end whoever waits.
        tokio::spawn(async move {
            match shared.map(id).await {
                Ok(map) => shared.queue(id, &map, vec![pending]),
                Err(error) => drop(pending.reply.send(Err(error))),
            }
        });
        answer.await.unwrap_or_else(|_| {
            let context = "the task of a change ended early";
            Err(StoreError::new(ErrorKind::Unavailable, context).into())
        })
    }

    /// Puts changes into the queues of their shards and starts whom nobody serves.
    fn queue(self: &Arc<Self>, id: BucketId, map: &super::map::ShardMap, pending: Vec<Pending>) {
        let mut queues = self.queues.lock().expect(super::LOCK);
        for one in pending {
            let place = row::key_range(row::ENTRY, &one.key).start;
            let (_, number) = map
                .locate(row::place(&place))
                .expect("the first shard begins before all keys");
            match queues.get_mut(&(id, number)) {
                Some(queue) => queue.push_back(one),
                None => {
                    queues.insert((id, number), VecDeque::from([one]));
                    tokio::spawn(serve(Arc::clone(self), id, number));
                }
            }
        }
    }

    fn take_batch(&self, id: BucketId, number: u64) -> Vec<Pending> {
        let mut queues = self.queues.lock().expect(super::LOCK);
        let rows_max = usize::try_from(self.limits.omap_keys_max / 5).unwrap_or(usize::MAX);
        let (mut batch, mut bytes, mut rows) = (Vec::new(), 0, 0);
        if let Some(queue) = queues.get_mut(&(id, number)) {
            while let Some(next) = queue.front() {
                bytes += next.change.weight();
                rows += next.change.row_count();
                let full =
                    batch.len() >= BATCH_CHANGES_MAX || bytes > BATCH_BYTES_MAX || rows > rows_max;
                if full && !batch.is_empty() {
                    break;
                }
                batch.extend(queue.pop_front());
            }
            if batch.is_empty() {
                queues.remove(&(id, number));
            }
        }
        batch
    }

    /// Sends changes to the shards that the newest map names.
    fn reroute(self: &Arc<Self>, id: BucketId, pending: Vec<Pending>) {
        let shared = Arc::clone(self);
        let rounds = pending.iter().map(|one| one.reroutes).max().unwrap_or(0);
        let route = async move {
            pause(rounds).await;
            match shared.fresh_map(id).await {
                Ok(map) => shared.queue(id, &map, pending),
                Err(error) => fail_all(pending, &error),
            }
        };
        let boxed: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(route);
        tokio::spawn(boxed);
    }
}

/// Serves the queue of one shard until it is empty.
async fn serve(shared: Arc<Shared>, id: BucketId, number: u64) {
    loop {
        let pending = shared.take_batch(id, number);
        if pending.is_empty() {
            return;
        }
        let batch = Batch {
            object: shared.shard_object(id, number),
            shared: Arc::clone(&shared),
            id,
            number,
            pending,
            unknown: Vec::new(),
            started: Instant::now(),
            rounds: 0,
        };
        batch.commit().await;
    }
}

impl Batch {
    async fn commit(mut self) {
        loop {
            let step = match self.attempt().await {
                Ok(step) => step,
                Err(error) if self.unknown.is_empty() => {
                    fail_all(std::mem::take(&mut self.pending), &error);
                    Step::Done
                }
                Err(error) => {
                    self.leave_unknown(&error);
                    Step::Done
                }
            };
            if step == Step::Done {
                return;
            }
            if self.started.elapsed() > PATIENCE {
                let context = "a change found no end in time";
                self.leave_unknown(&StoreError::new(ErrorKind::Unavailable, context).into());
                return;
            }
            self.rounds += 1;
        }
    }

    /// One round of reading, deciding and writing. An error ends the batch.
    async fn attempt(&mut self) -> Result<Step, Error> {
        let turn = match self.shared.split_underway(self.id, self.number) {
            Some(underway) => Some(Arc::clone(&underway.turn).lock_owned().await),
            None => None,
        };
        let Some(mut view) = self.read().await? else {
            if self.unknown.is_empty() {
                self.reroute_all();
                return Ok(Step::Done);
            }
            let context = "a change's shard is gone, and whether it happened";
            return Err(StoreError::new(ErrorKind::Unavailable, context).into());
        };
        if let Some(step) = self.settle(&view)? {
            return Ok(step);
        }
        match view.state.phase.clone() {
            Phase::Open | Phase::Splitting(_) => {}
            Phase::Moved => {
                self.reroute_all();
                return Ok(Step::Done);
            }
            Phase::Frozen(_) | Phase::Filling => {
                drop(turn);
                self.wait_for_split(&view).await?;
                return Ok(Step::Again);
            }
            Phase::Closing { deletion } => {
                self.shared
                    .wait_for_deletion(self.id, &self.object, &view, deletion, self.started)
                    .await?;
                return Ok(Step::Again);
            }
        }
        self.reroute_strangers(&view);
        if self.pending.is_empty() {
            return Ok(Step::Done);
        }
        let growing = self.pending.iter().filter(|one| !one.change.is_freeing());
        let rows = growing.map(|one| one.change.row_count() as u64).sum();
        let shared = &self.shared;
        if rows > 0 && shared.is_room_coming(self.id, self.number, &view.state, rows) {
            drop(turn);
            return self.wait_for_room().await;
        }
        let results = self.decide(&mut view)?;
        if !view.is_changed() {
            self.deliver(results);
            return Ok(Step::Done);
        }
        self.write(&view, results).await
    }

    /// `None`: the shard is gone.
    async fn read(&self) -> Result<Option<View>, Error> {
        let marker = ReadStep::OmapGet {
            keys: vec![row::marker(self.shared.writer.number)],
        };
        let wanted = self.pending.iter();
        let steps = wanted.flat_map(|one| one.change.reads(&one.key));
        let op = View::read_op(std::iter::once(marker).chain(steps));
        match self.shared.read_retried(&self.object, op.clone()).await {
            Ok(output) => View::new(&op, output)
                .map(Some)
                .map_err(|e| corrupt(&self.object, e)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds out what became of attempts of unknown outcome.
    fn settle(&mut self, view: &View) -> Result<Option<Step>, Error> {
        let marker = view.row(&row::marker(self.shared.writer.number));
        let applied = marker.map(|value| decode_number(value)).transpose();
        let applied = applied.map_err(|e| corrupt(&self.object, e))?;
        let found = self
            .unknown
            .iter()
            .position(|attempt| Some(attempt.number) == applied);
        if let Some(index) = found {
            let attempt = self.unknown.swap_remove(index);
            self.deliver(attempt.results);
            return Ok(Some(Step::Done));
        }
        // Their guard can never hold again once the version has changed.
        self.unknown
            .retain(|attempt| attempt.version == view.version);
        Ok(None)
    }

    fn decide(&self, view: &mut View) -> Result<Vec<Result<Answer, Error>>, Error> {
        let now_ms = self.shared.now_ms();
        let mut results = Vec::with_capacity(self.pending.len());
        for one in &self.pending {
            results.push(match one.change.decide(&one.key, view, now_ms) {
                Ok(answer) => Ok(answer),
                Err(Refusal::Error(error)) => Err(error),
                Err(Refusal::Decode(error)) => return Err(corrupt(&self.object, error)),
            });
        }
        Ok(results)
    }

    async fn write(
        &mut self,
        view: &View,
        results: Vec<Result<Answer, Error>>,
    ) -> Result<Step, Error> {
        let number = self.shared.next_batch.fetch_add(1, Ordering::Relaxed);
        let marker = row::marker(self.shared.writer.number);
        let (steps, state) = view.steps((marker, encode_number(number)));
        let op = WriteOp::new(steps).guarded(Guard::VersionIs(view.version));
        match self.shared.write(&self.object, op).await {
            Ok(_) => {
                self.shared.stats.batches.add(1);
                self.shared.stats.changes.add(self.pending.len() as u64);
                self.deliver(results);
                self.shared.stats.fullest_shard.raise(state.all_rows());
                self.shared.consider_split(self.id, self.number, &state);
                Ok(Step::Done)
            }
            Err(error) => {
                self.write_failed(number, view.version, results, error)
                    .await
            }
        }
    }

    async fn write_failed(
        &mut self,
        number: u64,
        version: Version,
        results: Vec<Result<Answer, Error>>,
        error: StoreError,
    ) -> Result<Step, Error> {
        match error.kind() {
            ErrorKind::GuardFailed | ErrorKind::NotFound => {
                self.shared.stats.conflicts.add(1);
                self.step_aside().await?;
                Ok(Step::Again)
            }
            ErrorKind::Unavailable => {
                self.unknown.push(Attempt {
                    number,
                    version,
                    results,
                });
                pause(self.rounds).await;
                Ok(Step::Again)
            }
            ErrorKind::Busy => {
                pause(self.rounds).await;
                Ok(Step::Again)
            }
            ErrorKind::Fenced => {
                self.leave_unknown(&error.into());
                Ok(Step::Done)
            }
            ErrorKind::NoSpace if self.unknown.is_empty() => self.refuse_growing(error.into()),
            ErrorKind::AlreadyExists
            | ErrorKind::Corrupt
            | ErrorKind::Locked
            | ErrorKind::NoSpace
            | ErrorKind::TooLarge
            | ErrorKind::Unsupported => Err(error.into()),
        }
    }

    /// Tells what needs room that there is none, so that what gives room back does not fail with it.
    fn refuse_growing(&mut self, error: Error) -> Result<Step, Error> {
        let (freeing, growing): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|one| one.change.is_freeing());
        if freeing.is_empty() || growing.is_empty() {
            self.pending = freeing;
            self.pending.extend(growing);
            return Err(error);
        }
        fail_all(growing, &error);
        self.pending = freeing;
        Ok(Step::Again)
    }

    /// Lets a split make room before the shard holds more than it may.
    async fn wait_for_room(&mut self) -> Result<Step, Error> {
        if self.unknown.is_empty() && self.started.elapsed() > ROOM_PATIENCE {
            let context = "an index shard is full and its split takes long";
            return self.refuse_growing(StoreError::new(ErrorKind::Busy, context).into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(Step::Again)
    }

    /// Lets the other session go first for a random while that grows with each loss.
    async fn step_aside(&self) -> Result<(), Error> {
        if self.rounds > 0 {
            let span = 1 << self.rounds.min(5);
            let ms = u64::try_from(self.shared.random()? % span).expect("below 32");
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        Ok(())
    }

    async fn wait_for_split(&self, view: &View) -> Result<(), Error> {
        let waited = self.started.elapsed();
        self.shared
            .help_split(self.id, self.number, &view.state, waited)
            .await?;
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(())
    }

    fn reroute_all(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.reroute(pending);
    }

    /// Sends changes away whose keys this shard does not hold.
    fn reroute_strangers(&mut self, view: &View) {
        let (own, strangers) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|one| {
                let start = row::key_range(row::ENTRY, &one.key).start;
                view.state.covers(row::place(&start))
            });
        self.pending = own;
        self.reroute(strangers);
    }

    fn reroute(&self, mut pending: Vec<Pending>) {
        for one in &mut pending {
            one.reroutes += 1;
        }
        let (given_up, pending): (Vec<_>, Vec<_>) = pending
            .into_iter()
            .partition(|one| one.reroutes > REROUTES_MAX);
        fail_all(given_up, &Error::Conflict);
        if !pending.is_empty() {
            self.shared.reroute(self.id, pending);
        }
    }

    fn deliver(&mut self, results: Vec<Result<Answer, Error>>) {
        for (one, result) in self.pending.drain(..).zip(results) {
            if let Ok(Answer::Object(_) | Answer::Part(_)) = result
                && let Some(staged) = one.staged
            {
                staged.keep();
            }
            drop(one.reply.send(result));
        }
    }

    /// Tells the callers that nobody knows; their data stays until this writer has ended.
    fn leave_unknown(&mut self, error: &Error) {
        for one in &mut self.pending {
            if let Some(staged) = one.staged.take() {
                staged.leave();
            }
        }
        fail_all(std::mem::take(&mut self.pending), error);
    }
}

/// Gives each the same error.
fn fail_all(pending: Vec<Pending>, error: &Error) {
    for one in pending {
        let copy = match error {
            Error::Store(error) => Error::Store(copy_error(error)),
            Error::Conflict => Error::Conflict,
            Error::NoSuchBucket => Error::NoSuchBucket,
            other @ (Error::BucketNotEmpty
            | Error::EntityTooLarge
            | Error::InvalidPart { .. }
            | Error::NoSuchKey
            | Error::NoSuchUpload
            | Error::NoSuchVersion
            | Error::PreconditionFailed(_)) => {
                let context = format!("a change failed: {other}");
                Error::Store(StoreError::new(ErrorKind::Unavailable, context))
            }
        };
        drop(one.reply.send(Err(copy)));
    }
}
