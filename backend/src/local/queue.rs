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
use crate::object::{ObjectId, Priority, SessionId, Version, WriteOp};

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
    /// Nothing is taken in any more.
    closed: bool,
    /// Nothing is worked off any more.
    stopped: bool,
}

/// What the committer does now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Attention {
    /// It works, and looks at the queue before it waits.
    #[default]
    Busy,
    Waits,
    /// It waits, and somebody is about to call it.
    IsCalled,
}

/// Whoever holds it has to call the committer, which dropping it does.
#[derive(Debug)]
#[must_use = "dropped at once it calls the committer for the first of several jobs"]
pub(super) struct Call(Arc<Core>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.queue.filled.notify_one();
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a job in. The first one for a committer that waits gives the duty to call it; jobs that
    /// come before the call share its batch.
    pub(super) fn push(core: &Arc<Core>, job: Job) -> Result<Option<Call>, Error> {
        let mut state = core.queue.state();
        if state.closed {
            return Err(closed());
        }
        let class = match job.priority {
            Priority::Urgent => 0,
            Priority::Client => 1,
            Priority::Forward => 2,
            Priority::Background => 3,
        };
        state.classes[class].push_back(job);
        let is_first = state.committer == Attention::Waits;
        if is_first {
            state.committer = Attention::IsCalled;
        }
        Ok(is_first.then(|| Call(Arc::clone(core))))
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

    /// Waits for work, or for nothing longer than `until`: then the batch is empty. `None` when
    /// stopped.
    pub(super) fn take(&self, until: Option<Instant>) -> Option<Batch> {
        let mut state = self.state();
        loop {
            if state.stopped {
                return None;
            }
            let mut batch = Batch {
                controls: std::mem::take(&mut state.controls),
                jobs: Vec::new(),
            };
            // Each class has its share of a batch, so none starves; the rest goes by class.
            for (class, share) in CLASS_SHARES.into_iter().enumerate() {
                let count = share.min(state.classes[class].len());
                batch.jobs.extend(state.classes[class].drain(..count));
            }
            for class in &mut state.classes {
                let count = (BATCH_JOBS_MAX - batch.jobs.len()).min(class.len());
                batch.jobs.extend(class.drain(..count));
            }
            if !batch.jobs.is_empty() || !batch.controls.is_empty() {
                return Some(batch);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Some(batch);
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
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the store was closed")
}

/// More would make the first of a batch wait for the last without saving a sync.
const BATCH_JOBS_MAX: usize = 256;
const CLASS_SHARES: [usize; 4] = [32, 160, 48, 16];
