//! The committer: one thread that turns waiting jobs into one log record and one sync.
//!
//! Order within a batch: guards and steps of each job over all before it, large data stable, the
//! record into the log, the log stable, records published, answers. A batch of buffered jobs
//! alone is published without the syncs; its record is written later, behind its data.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::object::{Durability, ObjectId, Version, WriteOp};

use super::answer::{Answer, Told};
use super::change::{Change, Ground, may_fit_a_full_store};
use super::core::{Core, Frozen};
use super::log::{Delta, Log, record_bytes};
use super::media::FileName;
use super::memtable::{Memtable, View};
use super::options::PlantedBug;
use super::queue::{Batch, Control, Job, PreparedBlocks, Receipt, What};
use super::record::parse_key;

/// The thread's own state.
#[derive(Debug)]
pub(super) struct Committer {
    core: Arc<Core>,
    log: Log,
    /// Upper half of versions: how often the store was opened.
    open_counter: u64,
    /// Lower half: changes since then.
    changes: u64,
    /// Blocks that records of the active generation no longer name.
    freed: Vec<u64>,
    /// Blocks of records of the active generation that only memory and the log have.
    kept: Vec<u64>,
    /// A task works with it that must not wait for a device.
    is_here: bool,
    /// Since when the store may be quiet; `None` while there is nothing to give back.
    watch: Option<QuietWatch>,
}

/// A span of time in which jobs are counted.
#[derive(Debug)]
struct QuietWatch {
    ends: Instant,
    jobs: usize,
}

/// A batch while it is worked out.
#[derive(Debug, Default)]
struct Work {
    delta: Delta,
    inline: Vec<(u64, Bytes)>,
    /// The blocks of that.
    kept: Vec<u64>,
    freed: Vec<u64>,
    taken: Vec<u64>,
    /// Who is answered when the record is stable.
    done: Vec<Done>,
    /// Objects that appeared (`true`) or went.
    counts: Vec<(Bytes, bool)>,
    removed: Vec<ObjectId>,
    /// Jobs that found no space and may find some behind a checkpoint.
    starved: Vec<Job>,
    durable: bool,
    /// What the base may need for all records in memory and of this batch.
    demand: u64,
    headroom: u64,
}

#[derive(Debug)]
struct Done {
    answer: Answer<Version>,
    version: Version,
    /// Held until the answer.
    job: JobRest,
}

#[derive(Debug)]
struct JobRest {
    _permit: Option<crate::budget::Permit>,
    _what: What,
}

impl Committer {
    pub(super) fn new(core: Arc<Core>, log: Log, open_counter: u64) -> Self {
        Self {
            core,
            log,
            open_counter,
            changes: 0,
            freed: Vec::new(),
            kept: Vec::new(),
            is_here: false,
            watch: None,
        }
    }

    /// Whether a batch of buffered jobs waits for no device now.
    pub(super) fn may_work_here(&self) -> bool {
        let is_due = self.core.poison.is_set() || self.is_due();
        !is_due && (self.log.pending_bytes() <= PENDING_BYTES_MAX || !self.core.blocks.is_dirty())
    }

    /// Commits a batch of buffered jobs that waits for nothing. What found no room is left to the
    /// thread.
    pub(super) fn work_here(&mut self, batch: Batch) {
        let began = Instant::now();
        let core = Arc::clone(&self.core);
        let jobs = batch.jobs.len();
        core.stats.batches_here.add(1);
        self.is_here = true;
        let starved = self.work_jobs(batch.jobs, false, began);
        self.is_here = false;
        for mut job in starved {
            job.is_starved = true;
            core.queue.give_back(job);
        }
        if let Some(watch) = &mut self.watch {
            watch.jobs += jobs;
        } else if let Some(span) = core.options.quiet_checkpoint {
            let ends = Instant::now() + span;
            self.watch = Some(QuietWatch { ends, jobs });
            core.queue.set_watch(Some(ends));
        }
    }

    /// Gives `true` if the store was closed.
    fn work(&mut self, batch: Batch) -> bool {
        let began = Instant::now();
        let mut flushes = Vec::new();
        let mut checkpoints = Vec::new();
        let mut close = None;
        for control in batch.controls {
            match control {
                Control::Fence(victim, answer) => {
                    self.core.sessions.fence(&victim);
                    answer_with(answer, Ok(()));
                }
                Control::Barrier(answer) => answer_with(answer, Ok(())),
                Control::Flush(answer) => flushes.push(answer),
                Control::Checkpoint(answer) => checkpoints.push(answer),
                Control::Close(answer) => close = Some(answer),
            }
        }
        let jobs = batch.jobs.len();
        let starved = self.work_jobs(batch.jobs, !flushes.is_empty(), began);
        // A batch that found no room for its record was not synced; what came before it must be.
        let flushed = if flushes.is_empty() {
            Ok(())
        } else {
            self.flush()
        };
        for answer in flushes {
            answer_with(answer, flushed.as_ref().copied().map_err(copy_error));
        }
        if !starved.is_empty() || !checkpoints.is_empty() {
            let made_room = self.checkpoint_and_wait();
            for answer in checkpoints {
                answer_with(answer, made_room.as_ref().copied().map_err(copy_error));
            }
        }
        for mut job in starved {
            job.retried = true;
            self.work_jobs(vec![job], false, began);
        }
        self.rotate_if_full();
        self.rotate_if_quiet(jobs);
        let watch_ends = self.watch.as_ref().map(|watch| watch.ends);
        self.core.queue.set_watch(watch_ends);
        let Some(answer) = close else { return false };
        let done = self.checkpoint_and_wait();
        drop(answer.send(done.map(|()| self.log.last_sequence())));
        true
    }

    /// Works out and commits jobs; gives back those that found no space.
    fn work_jobs(&mut self, jobs: Vec<Job>, flush: bool, began: Instant) -> Vec<Job> {
        let core = Arc::clone(&self.core);
        let mut work = Work {
            demand: core.base_demand(),
            headroom: core.headroom(),
            ..Work::default()
        };
        let view = core.view();
        for job in jobs {
            core.stats
                .queue_time
                .record(began.saturating_duration_since(job.queued));
            self.work_out(job, &view, &mut work);
        }
        drop(view);
        match self.commit(&mut work, flush) {
            Ok(()) => {
                self.publish(&mut work, began);
                work.starved
            }
            Err(error) => {
                if error.kind() == ErrorKind::NoSpace {
                    // Not a byte was written: the log found no room for the record.
                    core.blocks.release(std::mem::take(&mut work.taken));
                } else {
                    core.poison.set(&error);
                }
                let mut told = Told::default();
                for done in work.done {
                    done.answer.give(Err(copy_error(&error)), &mut told);
                }
                told.tell();
                work.starved
            }
        }
    }

    fn work_out(&mut self, mut job: Job, view: &View, work: &mut Work) {
        let core = Arc::clone(&self.core);
        let allowed = core
            .sessions
            .admit(&job.session)
            .and_then(|()| core.poison.check())
            .and_then(|()| in_time(job.deadline));
        if let Err(error) = allowed {
            return refuse(job.answer, error);
        }
        let ground = Ground {
            blocks: &core.blocks,
            stats: &core.stats,
            view,
            batch: &work.delta,
            inline_bytes_max: u64::from(core.options.inline_bytes_max),
        };
        self.changes += 1;
        let version = (self.open_counter << VERSION_BITS) + self.changes;
        let mut change = match Change::begin(ground, &job.keys) {
            Ok(change) => change,
            Err(error) => return refuse(job.answer, error),
        };
        let result = match &job.what {
            What::Write { op, prepared } => {
                let fits = |demand: u64| work.demand + demand <= work.headroom;
                run_write(&core, &mut change, (op, prepared), version, fits)
            }
            What::Lock(what) => core.locks.apply(&mut change, &job.keys, &job.session, what),
        };
        if let Err(error) = result {
            change.undo();
            if error.kind() == ErrorKind::NoSpace && !job.retried {
                work.starved.push(job);
            } else {
                refuse(job.answer, error);
            }
            return;
        }
        let (existed, exists) = (change.existed, change.header.is_some());
        work.freed.append(&mut change.freed);
        work.taken.append(&mut change.taken);
        work.kept
            .extend(change.inline.iter().map(|(block, _)| *block));
        work.inline.append(&mut change.inline);
        work.demand += change.demand();
        let delta = std::mem::take(&mut change.delta);
        if existed != exists {
            work.counts.push((job.keys.header(), exists));
        }
        if existed && !exists {
            work.removed.push(job.object.clone());
        }
        work.delta.extend(delta);
        work.durable |= match &mut job.what {
            What::Write { op, prepared } => {
                work.taken.extend(taken_by(prepared));
                prepared.adopt();
                op.durability == Durability::Durable
            }
            What::Lock(_) => true,
        };
        work.done.push(Done {
            answer: job.answer,
            version: Version(version),
            job: JobRest {
                _permit: job.permit,
                _what: job.what,
            },
        });
    }

    /// Brings the batch into the log, and makes it stable if somebody asked for that.
    fn commit(&mut self, work: &mut Work, flush: bool) -> Result<(), Error> {
        let core = Arc::clone(&self.core);
        let stats = &core.stats;
        if !work.delta.is_empty() {
            if core.options.planted_bug == Some(PlantedBug::InlineDataNotLogged) {
                work.inline.clear();
            }
            let bytes = record_bytes(&work.delta, &work.inline);
            if self.log.used_bytes() + bytes > core.options.log_bytes && !self.log.is_fresh() {
                self.rotate()?;
            }
            match self.log.reserve(bytes) {
                Err(error) if error.kind() == ErrorKind::NoSpace && !self.log.is_fresh() => {
                    // The other log has its space already; removing works on a full disk.
                    self.rotate()?;
                    self.log.reserve(bytes)?;
                }
                result => result?,
            }
            self.log.append(&work.delta, &work.inline, bytes);
            stats.batches.add(1);
            stats.log_bytes.add(bytes);
        }
        if flush && core.options.planted_bug == Some(PlantedBug::FlushSkipped) {
            return Ok(());
        }
        if work.durable || flush {
            self.sync()?;
        } else if self.log.pending_bytes() > PENDING_BYTES_MAX
            && !(self.is_here && core.blocks.is_dirty())
        {
            core.blocks.sync_if_dirty(&core.poison, stats)?;
            self.log.write_out().map_err(no_longer_free)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let core = Arc::clone(&self.core);
        core.poison.check()?;
        if core.options.planted_bug == Some(PlantedBug::FlushSkipped) {
            return Ok(());
        }
        self.sync().inspect_err(|error| core.poison.set(error))
    }

    /// Makes stable all that the log holds.
    fn sync(&mut self) -> Result<(), Error> {
        let core = Arc::clone(&self.core);
        if self.log.is_synced() {
            return Ok(());
        }
        core.blocks.sync_if_dirty(&core.poison, &core.stats)?;
        if core.options.planted_bug == Some(PlantedBug::LogSyncSkipped) {
            self.log.write_out()?;
            self.log.pretend_synced();
            return Ok(());
        }
        core.stats.log_flushes.add(1);
        let began = Instant::now();
        let result = self.log.sync().map_err(no_longer_free);
        core.stats.log_flush_time.record(began.elapsed());
        result
    }

    fn publish(&mut self, work: &mut Work, began: Instant) {
        let core = Arc::clone(&self.core);
        if !work.delta.is_empty() {
            let gate = core
                .publishing
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            core.view().active.publish(std::mem::take(&mut work.delta));
            drop(gate);
            core.count_record_bytes();
        }
        for (key, appeared) in work.counts.drain(..) {
            if let Ok(parsed) = parse_key(&key) {
                core.count_object(parsed.pool, appeared);
            }
        }
        if !work.removed.is_empty() {
            let mut watches = core.watches();
            for object in work.removed.drain(..) {
                watches.remove(&object);
            }
        }
        if core.options.planted_bug == Some(PlantedBug::BlockReusedEarly) {
            core.blocks.release(work.freed.drain(..));
        }
        self.freed.append(&mut work.freed);
        self.kept.append(&mut work.kept);
        let mut told = Told::default();
        let elapsed = began.elapsed();
        for done in work.done.drain(..) {
            core.stats.writes.add(1);
            core.stats.service_time.record(elapsed);
            done.answer.give(Ok(done.version), &mut told);
            drop(done.job);
        }
        told.tell();
    }

    /// Whether the generation is large enough for a checkpoint.
    fn is_due(&self) -> bool {
        let core = &self.core;
        let options = &core.options;
        let freed_bytes = self.freed.len() as u64 * super::record::BLOCK_BYTES_U64;
        let freed_max = (core.blocks.block_bytes() / 8).max(FREED_BYTES_MIN);
        core.view().active.bytes() > options.memtable_bytes
            || self.log.used_bytes() > options.log_bytes / 2
            || freed_bytes > freed_max
            || core.base_demand() > core.headroom() / 2
    }

    /// Starts a checkpoint when the generation is large; waits for the one before only if this
    /// one must not grow any more.
    fn rotate_if_full(&mut self) {
        let core = Arc::clone(&self.core);
        if core.poison.is_set() {
            return;
        }
        let options = &core.options;
        let table_bytes = core.view().active.bytes();
        let log_bytes = self.log.used_bytes();
        let is_urgent = table_bytes > 3 * options.memtable_bytes;
        if (is_urgent || self.is_due() && core.checkpoint.is_idle())
            && let Err(error) = self.rotate()
        {
            core.poison.set(&error);
        }
        // What is kept back is for those who pass. The end of the checkpoint lifts it.
        let table_room = (2 * options.memtable_bytes).saturating_sub(table_bytes);
        let log_room = (options.log_bytes / 8 * 7).saturating_sub(log_bytes);
        let room = table_room.min(log_room);
        core.checkpoint
            .while_busy(|left| core.pace.limit(room, left));
    }

    /// Starts a checkpoint when the store was left alone for a while and it gives space back. A few
    /// jobs don't count: who keeps a lock renews it for ever.
    fn rotate_if_quiet(&mut self, jobs: usize) {
        let core = Arc::clone(&self.core);
        let Some(span) = core.options.quiet_checkpoint else {
            return;
        };
        let now = Instant::now();
        let begin = || QuietWatch {
            ends: now + span,
            jobs: 0,
        };
        let watch = match &mut self.watch {
            Some(watch) => watch,
            None if jobs == 0 => return,
            none => none.insert(begin()),
        };
        watch.jobs += jobs;
        if now < watch.ends {
            return;
        }
        let is_quiet = watch.jobs <= QUIET_JOBS_MAX && core.checkpoint.is_idle();
        let freed_bytes = self.freed.len() as u64 * super::record::BLOCK_BYTES_U64;
        let is_worth_it = freed_bytes + core.view().active.bytes() >= QUIET_BYTES_MIN;
        self.watch = (is_worth_it && !is_quiet).then(begin);
        if is_worth_it
            && is_quiet
            && !core.poison.is_set()
            && let Err(error) = self.rotate()
        {
            core.poison.set(&error);
        }
    }

    /// Freezes the generation and goes on in the other log.
    fn rotate(&mut self) -> Result<(), Error> {
        let core = Arc::clone(&self.core);
        self.sync()?;
        core.checkpoint.wait_idle();
        core.poison.check()?;
        let (old_generation, log_bytes) = (self.log.generation(), self.log.used_bytes());
        self.log.rotate().map_err(no_longer_free)?;
        if core.options.planted_bug == Some(PlantedBug::LogDroppedEarly) {
            let file = FileName::Log(u8::from(old_generation % 2 == 1));
            drop(core.medium.write_at(file, 0, &[0; 512]));
        }
        core.change_view(|view| View {
            active: Arc::new(Memtable::default()),
            frozen: Some(Arc::clone(&view.active)),
            base: Arc::clone(&view.base),
            token: Arc::clone(&view.token),
        });
        let table = core.view().frozen.as_ref().map(Arc::clone);
        let table = table.expect("just frozen");
        core.checkpoint.give(Frozen {
            weight_bytes: table.bytes() + log_bytes,
            table,
            sequence: self.log.last_sequence(),
            freed: std::mem::take(&mut self.freed),
            kept: std::mem::take(&mut self.kept),
        });
        Ok(())
    }

    fn checkpoint_and_wait(&mut self) -> Result<(), Error> {
        let core = Arc::clone(&self.core);
        core.poison.check()?;
        if core.is_full() {
            super::checkpoint::refill_reserve(&core);
        }
        if !core.view().active.is_empty() || !self.freed.is_empty() {
            self.rotate().inspect_err(|error| core.poison.set(error))?;
        }
        core.checkpoint.wait_idle();
        core.poison.check()
    }
}

/// The committer's thread. Works until the store ends.
pub(super) fn run(core: &Core, committer: &Mutex<Committer>) {
    let _end = EndsStore(core);
    while core.queue.wait() {
        // Nobody goes on with what a panic left half done: the store has ended then.
        let mut committer = committer.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = core.queue.take();
        if committer.work(batch) {
            break;
        }
    }
}

/// When the thread ends, in whichever way, nobody waits for it any more.
pub(super) struct EndsStore<'a>(pub(super) &'a Core);

impl Drop for EndsStore<'_> {
    fn drop(&mut self) {
        self.0.poison.close();
        self.0.queue.stop();
        self.0.checkpoint.stop();
    }
}

/// Guards, steps, and whether the store has room for what they make.
fn run_write(
    core: &Core,
    change: &mut Change<'_>,
    (op, prepared): (&WriteOp, &PreparedBlocks),
    version: u64,
    fits: impl Fn(u64) -> bool,
) -> Result<(), Error> {
    if core.is_full() && !op.steps.iter().all(may_fit_a_full_store) {
        return Err(super::allocator::full());
    }
    change.run(op, &prepared.steps, version)?;
    let has_room = !core.is_full() && change.is_within_capacity() && fits(change.demand());
    if has_room || change.fits_a_full_store(op)? {
        return Ok(());
    }
    Err(super::allocator::full())
}

/// An answer that nobody waits for any more is nobody's loss.
fn answer_with<T>(answer: Receipt<T>, result: Result<T, Error>) {
    drop(answer.send(result));
}

/// Answers one that is not part of the batch.
fn refuse(answer: Answer<Version>, error: Error) {
    let mut told = Told::default();
    answer.give(Err(error), &mut told);
    told.tell();
}

fn taken_by(prepared: &PreparedBlocks) -> Vec<u64> {
    let steps = prepared.steps.iter();
    let blocks = steps.flat_map(|step| step.blocks.iter().map(|block| block.block));
    blocks.collect()
}

fn in_time(deadline: Option<Instant>) -> Result<(), Error> {
    match deadline {
        Some(deadline) if deadline <= Instant::now() => {
            Err(Error::new(ErrorKind::Unavailable, "starting in time"))
        }
        Some(_) | None => Ok(()),
    }
}

fn copy_error(error: &Error) -> Error {
    let kind = if error.kind() == ErrorKind::NoSpace {
        ErrorKind::NoSpace
    } else {
        ErrorKind::Unavailable
    };
    Error::new(kind, crate::error::chain(error))
}

/// A log without room after its space was reserved is no full store, but a broken promise of the
/// medium: the record may be there in part.
fn no_longer_free(error: Error) -> Error {
    if error.kind() == ErrorKind::NoSpace {
        return Error::new(ErrorKind::Unavailable, "writing the log").with_source(error);
    }
    error
}

/// The lower half of a version has room for 2^40 changes of one opening.
const VERSION_BITS: u32 = 40;
/// Buffered records that wait in memory.
const PENDING_BYTES_MAX: usize = 1024 * 1024;
/// So many jobs while it is watched leave a store quiet.
const QUIET_JOBS_MAX: usize = 16;
/// Less memory and freed space than this is not worth a checkpoint of a quiet store.
const QUIET_BYTES_MIN: u64 = 256 * 1024;
/// Freed space below this never starts a checkpoint by itself.
const FREED_BYTES_MIN: u64 = 64 * 1024 * 1024;
