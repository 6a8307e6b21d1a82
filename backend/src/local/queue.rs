//! The way to the committer: four classes of jobs, and requests that belong to no object.
//!
//! Bounded by the store's budget of bytes in flight, of which each job holds a share.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::budget::Permit;
use crate::error::{Error, ErrorKind};
use crate::object::{Durability, ObjectId, Priority, SessionId, Version, WriteOp};

use super::answer::Answer;
use super::blocks::Blocks;
use super::core::Core;
use super::extent::PreparedSteps;
use super::lock::LockChange;
use super::record::ObjectKeys;

/// The answer to a request that is no job.
pub(super) type Receipt<T> = oneshot::Sender<Result<T, Error>>;

/// A change of one object on its way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) session: SessionId,
    pub(super) object: ObjectId,
    pub(super) keys: ObjectKeys,
    pub(super) what: What,
    pub(super) priority: Priority,
    pub(super) deadline: Option<Instant>,
    pub(super) queued: Instant,
    pub(super) answer: Answer<Version>,
    pub(super) permit: Option<Permit>,
    /// It found no space once, and the store made some.
    pub(super) retried: bool,
    /// It found no space where none could be made.
    pub(super) is_starved: bool,
}

#[derive(Debug)]
pub(super) enum What {
    Write {
        op: Box<WriteOp>,
        prepared: PreparedBlocks,
    },
    Lock(LockChange),
}

/// Large data that lies in its blocks already. Given back unless a record comes to name it.
#[derive(Debug)]
pub(super) struct PreparedBlocks {
    core: Arc<Core>,
    pub(super) steps: PreparedSteps,
}

impl PreparedBlocks {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            steps: PreparedSteps::new(),
        }
    }

    /// The blocks have an owner now.
    pub(super) fn adopt(&mut self) {
        self.steps.clear();
    }
}

impl Drop for PreparedBlocks {
    fn drop(&mut self) {
        let blocks: &Blocks = &self.core.blocks;
        for step in &self.steps {
            blocks.release(step.blocks.iter().map(|block| block.block));
        }
    }
}

/// A request to the committer that is no change of an object.
#[derive(Debug)]
pub(super) enum Control {
    /// Everything published before is stable when it is answered.
    Flush(Receipt<()>),
    /// No change of the session is published after the answer.
    Fence(SessionId, Receipt<()>),
    /// No change that was being made is unpublished after the answer.
    Barrier(Receipt<()>),
    /// Moves all records to the base, so that freed space can be used again.
    Checkpoint(Receipt<()>),
    /// The same, and the committer ends.
    Close(mpsc::SyncSender<Result<u64, Error>>),
}

/// What the committer takes in one go.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    pub(super) controls: Vec<Control>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By `Priority`, the most pressing first.
    classes: [VecDeque<Job>; 4],
    controls: Vec<Control>,
    committer: Attention,
    watch_ends: Option<Instant>,
    /// Nothing is taken in any more.
    closed: bool,
    /// Nothing is worked off any more.
    stopped: bool,
}

/// What the committer does now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Attention {
    /// It works, and looks at the queue before it waits.
    Busy,
    /// It waits, or has not begun.
    #[default]
    Waits,
    /// It waits, and somebody is about to call it.
    IsCalled,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a job in. `true` for the first one of a committer that waits: it has to be called.
    pub(super) fn push(&self, job: Job) -> Result<bool, Error> {
        let mut state = self.state();
        if state.closed {
            return Err(closed());
        }
        let class = class_of(&job);
        state.classes[class].push_back(job);
        let is_first = state.committer == Attention::Waits;
        if is_first {
            state.committer = Attention::IsCalled;
        }
        Ok(is_first)
    }

    pub(super) fn control(&self, control: Control) -> Result<(), Error> {
        let mut state = self.state();
        if state.closed {
            return Err(closed());
        }
        state.closed = matches!(control, Control::Close(_));
        state.controls.push(control);
        self.filled.notify_one();
        Ok(())
    }

    /// Ends the committer at once. What waits is answered with `Unavailable`, as by a power cut.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.closed = true;
        state.stopped = true;
        state.controls.clear();
        state.classes = Default::default();
        self.filled.notify_one();
    }

    /// Takes back a job that could not be done where it was taken.
    pub(super) fn give_back(&self, job: Job) {
        let class = class_of(&job);
        let mut state = self.state();
        // Dropped, it is answered.
        if !state.stopped {
            state.classes[class].push_front(job);
        }
    }

    /// Calls the committer's thread.
    pub(super) fn call(&self) {
        self.filled.notify_one();
    }

    /// Waits for work, or until the time of `set_watch` has come. `false` when stopped.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state();
        loop {
            if state.stopped {
                return false;
            }
            let left = state.watch_ends;
            let left = left.map(|ends| ends.saturating_duration_since(Instant::now()));
            if state.has_work() || left == Some(Duration::ZERO) {
                return true;
            }
            state.committer = Attention::Waits;
            state = match left {
                None => self
                    .filled
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let waited = self.filled.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.committer = Attention::Busy;
        }
    }

    /// What is there now. Whoever takes it holds the committer: batches are committed in their order.
    pub(super) fn take(&self) -> Batch {
        self.state().take()
    }

    /// What the task that calls may commit itself; it looks here again afterwards. Without a batch
    /// the call is done with, or goes on to the thread.
    pub(super) fn take_here(&self) -> Called {
        let mut state = self.state();
        if !state.has_work() {
            state.committer = Attention::Waits;
            return Called::Done;
        }
        let mut jobs = state.classes.iter().flatten();
        if state.stopped || !state.controls.is_empty() || !jobs.all(Job::is_buffered) {
            return Called::ForThread;
        }
        state.committer = Attention::Busy;
        Called::Here(state.take())
    }

    /// When the committer's thread looks after the store although there is no work.
    pub(super) fn set_watch(&self, ends: Option<Instant>) {
        let mut state = self.state();
        let is_sooner = state.watch_ends.is_none() && ends.is_some();
        state.watch_ends = ends;
        if is_sooner {
            self.filled.notify_one();
        }
    }
}

impl State {
    fn take(&mut self) -> Batch {
        let mut batch = Batch {
            controls: std::mem::take(&mut self.controls),
            jobs: Vec::new(),
        };
        // Each class has its share of a batch, so none starves; the rest goes by class.
        for (class, share) in self.classes.iter_mut().zip(CLASS_SHARES) {
            let count = share.min(class.len());
            batch.jobs.extend(class.drain(..count));
        }
        for class in &mut self.classes {
            let count = (BATCH_JOBS_MAX - batch.jobs.len()).min(class.len());
            batch.jobs.extend(class.drain(..count));
        }
        batch
    }

    fn has_work(&self) -> bool {
        !self.controls.is_empty() || self.classes.iter().any(|class| !class.is_empty())
    }
}

impl Job {
    /// Whether nobody waits for a device before it is answered.
    fn is_buffered(&self) -> bool {
        match &self.what {
            What::Write { op, .. } => op.durability == Durability::Buffered && !self.is_starved,
            What::Lock(_) => false,
        }
    }
}

/// What a call finds.
#[derive(Debug)]
pub(super) enum Called {
    Here(Batch),
    ForThread,
    Done,
}

fn class_of(job: &Job) -> usize {
    match job.priority {
        Priority::Urgent => 0,
        Priority::Client => 1,
        Priority::Forward => 2,
        Priority::Background => 3,
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the store was closed")
}

/// More would make the first of a batch wait for the last without saving a sync.
const BATCH_JOBS_MAX: usize = 256;
const CLASS_SHARES: [usize; 4] = [32, 160, 48, 16];
