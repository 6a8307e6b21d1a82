//! One session on an open store: the way of operations to the committer and to the readers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::engine::admission;
use crate::error::{Error, ErrorKind};
use crate::object::{
    Limits, ListCursor, ListPage, LockHolder, LockName, LockRequest, Notification, NotifyOutcome,
    ObjectId, ObjectStore, Payload, Pool, Priority, ReadOp, ReadOutput, ReadStep, Reply, SessionId,
    SnapId, Usage, Version, Watch, WriteOp, WriteStep,
};

use super::LocalStore;
use super::answer::answer;
use super::call::Call;
use super::core::{Core, LIMITS};
use super::extent::{Miss, Prepared, whole_blocks};
use super::lock::LockChange;
use super::media::serves_tasks;
use super::queue::{Control, Job, PreparedBlocks, Receipt, What};
use super::read;
use super::record::{BLOCK_BYTES, BLOCK_BYTES_U64, ObjectKeys};

/// A session; it ends when its last handle is dropped.
#[derive(Debug)]
pub(super) struct LocalSession {
    store: Arc<LocalStore>,
    id: SessionId,
}

impl LocalSession {
    pub(super) fn open(store: &Arc<LocalStore>, purpose: &str) -> Self {
        let id = store.core().sessions.open();
        tracing::debug!(session = %id, purpose, "opened a session");
        Self {
            store: Arc::clone(store),
            id,
        }
    }

    fn core(&self) -> &Arc<Core> {
        self.store.core()
    }

    fn admit(&self, deadline: Option<Instant>) -> Result<(), Error> {
        self.core().sessions.admit(&self.id)?;
        match deadline {
            Some(deadline) if deadline <= Instant::now() => {
                Err(Error::new(ErrorKind::Unavailable, "starting in time"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Runs a question to files on a thread that may block.
    async fn ask_files<T: Send + 'static>(
        &self,
        deadline: Option<Instant>,
        ask: impl FnOnce(&Core) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let core = Arc::clone(self.core());
        let asked = tokio::task::spawn_blocking(move || ask(&core));
        let answered = in_time(deadline, asked).await?;
        // The answer may be older than the fence.
        self.core().sessions.admit(&self.id)?;
        answered.map_err(|_| Error::new(ErrorKind::Unavailable, "reading"))?
    }

    async fn control(&self, make: impl FnOnce(Receipt<()>) -> Control) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.core().queue.control(make(answer))?;
        answered.await.map_err(|_| ended())?
    }

    /// Brings a job to the committer and waits for its answer.
    async fn submit(
        &self,
        object: &ObjectId,
        what: What,
        permit_bytes: u64,
        priority: Priority,
        deadline: Option<Instant>,
    ) -> Result<Version, Error> {
        let core = self.core();
        let began = Instant::now();
        let turn = core.pace.turn(permit_bytes + RECORD_BYTES, priority);
        in_time(deadline, turn).await?;
        core.stats.held_back_time.record(began.elapsed());
        let take = core.in_flight.take(permit_bytes.max(1));
        let permit = in_time(deadline, take).await?;
        let (answer, answered) = answer();
        let job = Job {
            session: self.id.clone(),
            object: object.clone(),
            keys: ObjectKeys::new(object),
            what,
            priority,
            deadline,
            queued: Instant::now(),
            answer,
            permit: Some(permit),
            retried: false,
            is_starved: false,
        };
        if core.queue.push(job)? {
            call_later(self.store.call());
        }
        in_time(deadline, answered).await?
    }

    async fn write_op(&self, object: &ObjectId, op: WriteOp) -> Result<Version, Error> {
        admission::check_write(object, &op, &LIMITS)?;
        self.admit(op.deadline)?;
        self.core().poison.check()?;
        let bytes = op.payload_bytes();
        let (priority, deadline) = (op.priority, op.deadline);
        let what = if self.is_large(&op) {
            let large = self.core().in_flight.take(bytes);
            let _permit = in_time(deadline, large).await?;
            self.prepare(op).await?
        } else {
            What::Write {
                op: Box::new(op),
                prepared: PreparedBlocks::new(self.core()),
            }
        };
        let bytes = if matches!(&what, What::Write { prepared, .. } if prepared.steps.is_empty()) {
            bytes
        } else {
            // Its data is in the file; only edges and records are still to come.
            BLOCK_BYTES_U64
        };
        self.submit(object, what, bytes, priority, deadline).await
    }

    fn is_large(&self, op: &WriteOp) -> bool {
        op.steps
            .iter()
            .any(|step| large_step(step, self.inline_bytes_max()).is_some())
    }

    fn inline_bytes_max(&self) -> u64 {
        u64::from(self.core().options.inline_bytes_max)
    }

    /// Writes large data to new blocks before the committer sees the operation.
    async fn prepare(&self, op: WriteOp) -> Result<What, Error> {
        let inline_bytes_max = self.inline_bytes_max();
        let mut op = op;
        for retried in [false, true] {
            let core = Arc::clone(self.core());
            let written = tokio::task::spawn_blocking(move || {
                let result = write_large(&core, &op, inline_bytes_max);
                (op, result)
            });
            let (back, result) = written
                .await
                .map_err(|_| Error::new(ErrorKind::Unavailable, "writing data"))?;
            op = back;
            match result {
                Ok(prepared) => {
                    let op = Box::new(op);
                    return Ok(What::Write { op, prepared });
                }
                Err(error) if error.kind() == ErrorKind::NoSpace && !retried => {
                    // What was freed lately can be used behind a checkpoint.
                    self.control(Control::Checkpoint).await?;
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("the second try returns")
    }
}

impl Drop for LocalSession {
    fn drop(&mut self) {
        self.core().sessions.end(&self.id);
        for watchers in self.core().watches().values_mut() {
            watchers.remove_session(&self.id);
        }
    }
}

impl ObjectStore for LocalSession {
    fn limits(&self, _pool: &Pool) -> Limits {
        LIMITS
    }

    fn read<'a>(&'a self, object: &'a ObjectId, op: ReadOp) -> Reply<'a, ReadOutput> {
        Box::pin(async move {
            if is_short(&op) && serves_tasks() {
                return self.read_here(object, &op);
            }
            if let Some(answer) = self.try_read_cached(object, &op) {
                return answer;
            }
            let began = Instant::now();
            let (object, deadline) = (object.clone(), op.deadline);
            let answer = self.ask_files(deadline, move |core| {
                let answer = read::read(core, &object, &op, false).map_err(Miss::into_error);
                core.stats.reads.add(1);
                core.stats.read_time.record(began.elapsed());
                answer
            });
            answer.await
        })
    }

    fn try_read_cached(&self, object: &ObjectId, op: &ReadOp) -> Option<Result<ReadOutput, Error>> {
        let allowed = admission::check_read(op, &LIMITS).and_then(|()| self.admit(op.deadline));
        if let Err(error) = allowed {
            return Some(Err(error));
        }
        match read::read(self.core(), object, op, true) {
            Err(Miss::NotCached) => None,
            answer => {
                self.core().stats.reads.add(1);
                self.core().stats.reads_cached.add(1);
                Some(answer.map_err(Miss::into_error))
            }
        }
    }

    fn write<'a>(&'a self, object: &'a ObjectId, op: WriteOp) -> Reply<'a, Version> {
        Box::pin(self.write_op(object, op))
    }

    fn list<'a>(
        &'a self,
        pool: &'a Pool,
        cursor: ListCursor,
        count_max: u32,
    ) -> Reply<'a, ListPage> {
        assert!(count_max > 0, "a page holds a name");
        Box::pin(async move {
            self.admit(None)?;
            let pool = pool.clone();
            let page = self.ask_files(None, move |core| {
                read::list(core, &pool, &cursor, count_max)
            });
            page.await
        })
    }

    fn lock<'a>(&'a self, object: &'a ObjectId, request: LockRequest) -> Reply<'a, ()> {
        let now = Instant::now();
        let what = What::Lock(LockChange::Take { request, now });
        self.change_lock(object, what)
    }

    fn unlock<'a>(&'a self, object: &'a ObjectId, name: LockName, cookie: Bytes) -> Reply<'a, ()> {
        let what = What::Lock(LockChange::GiveBack {
            name,
            session: self.id.clone(),
            cookie,
            now: Instant::now(),
        });
        self.change_lock(object, what)
    }

    fn lock_holders<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
    ) -> Reply<'a, Vec<LockHolder>> {
        Box::pin(async move {
            self.admit(None)?;
            let (object, now) = (object.clone(), Instant::now());
            let holders = self.ask_files(None, move |core| {
                read::lock_holders(core, &object, name.0, now)
            });
            holders.await
        })
    }

    fn lock_break<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
        holder: LockHolder,
    ) -> Reply<'a, ()> {
        let what = What::Lock(LockChange::GiveBack {
            name,
            session: holder.session,
            cookie: holder.cookie,
            now: Instant::now(),
        });
        self.change_lock(object, what)
    }

    fn watch<'a>(&'a self, object: &'a ObjectId) -> Reply<'a, Box<dyn Watch>> {
        Box::pin(async move {
            self.admit(None)?;
            let (wanted, id) = (object.clone(), self.id.clone());
            let watch = self.ask_files(None, move |core| {
                // Under the lock that removing an object takes: no watch outlives its object.
                let mut watches = core.watches();
                need_object(core, &wanted)?;
                Ok(watches.entry(wanted).or_default().add(&id))
            });
            let watch: Box<dyn Watch> = Box::new(watch.await?);
            Ok(watch)
        })
    }

    fn notify<'a>(
        &'a self,
        object: &'a ObjectId,
        payload: Bytes,
        timeout: Duration,
    ) -> Reply<'a, NotifyOutcome> {
        Box::pin(async move {
            self.admit(None)?;
            let until = Instant::now() + timeout;
            let notification = Notification {
                id: self
                    .core()
                    .next_notification
                    .fetch_add(1, Ordering::Relaxed),
                notifier: self.id.clone(),
                payload,
            };
            let wanted = object.clone();
            let pending = self.ask_files(None, move |core| {
                need_object(core, &wanted)?;
                let mut watches = core.watches();
                Ok(watches.entry(wanted).or_default().notify(&notification))
            });
            Ok(pending.await?.wait(until).await)
        })
    }

    fn session(&self) -> SessionId {
        self.id.clone()
    }

    fn open_session<'a>(&'a self, purpose: &'a str) -> Reply<'a, Arc<dyn ObjectStore>> {
        Box::pin(async move {
            self.admit(None)?;
            Ok(self.store.session(purpose))
        })
    }

    fn fence<'a>(&'a self, victim: &'a SessionId) -> Reply<'a, ()> {
        Box::pin(async move {
            self.admit(None)?;
            let fenced = self.control(|answer| Control::Fence(victim.clone(), answer));
            fenced.await?;
            for watchers in self.core().watches().values_mut() {
                watchers.remove_session(victim);
            }
            Ok(())
        })
    }

    fn may_write<'a>(&'a self, session: &'a SessionId) -> Reply<'a, bool> {
        Box::pin(async move {
            self.admit(None)?;
            if self.core().sessions.may_write(session) != Some(false) {
                return Ok(true);
            }
            // An ended session's last operation may be on its way still.
            self.control(Control::Barrier).await?;
            Ok(false)
        })
    }

    fn snapshot_create<'a>(&'a self, _pool: &'a Pool) -> Reply<'a, SnapId> {
        Box::pin(async move {
            self.admit(None)?;
            Err(Error::new(ErrorKind::Unsupported, "snapshots"))
        })
    }

    fn snapshot_remove<'a>(&'a self, _pool: &'a Pool, _snapshot: SnapId) -> Reply<'a, ()> {
        Box::pin(async move {
            self.admit(None)?;
            Err(Error::new(ErrorKind::Unsupported, "snapshots"))
        })
    }

    fn flush(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            self.admit(None)?;
            self.control(Control::Flush).await
        })
    }

    fn usage<'a>(&'a self, pool: &'a Pool) -> Reply<'a, Usage> {
        Box::pin(async move {
            self.admit(None)?;
            let core = self.core();
            Ok(Usage {
                capacity_bytes: core.capacity_bytes(),
                used_bytes: core.blocks.used_bytes(),
                object_count: read::object_count(core, pool),
            })
        })
    }
}

impl LocalSession {
    /// Answers on this thread, which hands its tasks to another one where the device must be waited
    /// for. That is rare and a change of threads for each read costs more than the read.
    fn read_here(&self, object: &ObjectId, op: &ReadOp) -> Result<ReadOutput, Error> {
        admission::check_read(op, &LIMITS)?;
        self.admit(op.deadline)?;
        let began = Instant::now();
        let answer = read::read(self.core(), object, op, false).map_err(Miss::into_error);
        // The answer may be older than the fence.
        self.core().sessions.admit(&self.id)?;
        let stats = &self.core().stats;
        stats.reads.add(1);
        stats.reads_cached.add(1);
        stats.read_time.record(began.elapsed());
        answer
    }

    fn change_lock<'a>(&'a self, object: &'a ObjectId, what: What) -> Reply<'a, ()> {
        Box::pin(async move {
            self.admit(None)?;
            let done = self.submit(object, what, 0, Priority::Urgent, None);
            done.await.map(|_| ())
        })
    }
}

/// Whether a read takes so little that other tasks of the thread don't notice.
fn is_short(op: &ReadOp) -> bool {
    let cost = |step: &ReadStep| match step {
        ReadStep::Extents { length, .. } => length.div_ceil(BLOCK_BYTES_U64),
        ReadStep::OmapGet { keys } => keys.len() as u64,
        ReadStep::OmapScan { count_max, .. } => u64::from(*count_max),
        ReadStep::Stat | ReadStep::Xattr { .. } => 1,
    };
    let costs = op.steps.iter().map(cost);
    costs.fold(0, u64::saturating_add) <= SHORT_READ_MAX
}

fn need_object(core: &Core, object: &ObjectId) -> Result<(), Error> {
    if read::exists(core, object)? {
        return Ok(());
    }
    let context = format!("looking for {object}");
    Err(Error::new(ErrorKind::NotFound, context))
}

async fn in_time<T>(
    deadline: Option<Instant>,
    future: impl Future<Output = T>,
) -> Result<T, Error> {
    match deadline {
        None => Ok(future.await),
        Some(deadline) => timeout_at(deadline, future)
            .await
            .map_err(|_| Error::new(ErrorKind::Unavailable, "answering in time")),
    }
}

/// Calls the committer when the task that runs now is done with its turn: until then it may bring
/// more jobs, which would find the committer at work on the first one alone.
fn call_later(call: Call) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(async move { call.commit() }));
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the store ended before it answered")
}

/// The blocks that a step covers in full, if they are worth writing early: the first block's number
/// in the object, where the data of it starts in the step's data, and how many bytes.
fn large_step(step: &WriteStep, inline_bytes_max: u64) -> Option<(&Payload, u64, u64, u64)> {
    if let WriteStep::Replace { data } = step
        && data.len() > inline_bytes_max
    {
        return Some((data, 0, 0, data.len()));
    }
    if let WriteStep::Write { offset, data } = step
        && data.len() > inline_bytes_max
    {
        let (start, end) = whole_blocks(*offset, data.len());
        let skip = start * BLOCK_BYTES_U64 - offset;
        return Some((data, start, skip, (end - start) * BLOCK_BYTES_U64));
    }
    None
}

fn write_large(
    core: &Arc<Core>,
    op: &WriteOp,
    inline_bytes_max: u64,
) -> Result<PreparedBlocks, Error> {
    let mut prepared = PreparedBlocks::new(core);
    for (index, step) in op.steps.iter().enumerate() {
        let Some((data, first, skip, length)) = large_step(step, inline_bytes_max) else {
            continue;
        };
        if length == 0 {
            continue;
        }
        let data = data.to_bytes();
        let skip = usize::try_from(skip).expect("less than a block");
        let length = usize::try_from(length).expect("limits fit memory");
        let data = data.slice(skip..skip + length);
        // Only the last block of a whole object can be cut: zeros follow to its end.
        let whole = data.len() / BLOCK_BYTES * BLOCK_BYTES;
        let mut blocks = core.blocks.write(&data[..whole], &core.stats)?;
        if whole < data.len() {
            let mut last = vec![0; BLOCK_BYTES];
            last[..data.len() - whole].copy_from_slice(&data[whole..]);
            match core.blocks.write(&last, &core.stats) {
                Ok(more) => blocks.extend(more),
                Err(error) => {
                    core.blocks.release(blocks.iter().map(|block| block.block));
                    return Err(error);
                }
            }
        }
        prepared.steps.push(Prepared {
            step: index,
            first,
            blocks,
        });
    }
    Ok(prepared)
}

/// What a change takes in memory and log beside its data.
const RECORD_BYTES: u64 = 256;

/// Records and blocks of a read that is answered where it is asked.
const SHORT_READ_MAX: u64 = 64;
