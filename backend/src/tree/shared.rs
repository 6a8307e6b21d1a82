//! What the calls on a tree and its tasks share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::header::Header;
use super::log::state::State;
use super::place::Place;
use crate::claim::Claim;
use crate::error::{Error, ErrorKind};
use crate::object::{ObjectId, ObjectStore, ReadOp, ReadOutput, Version, WriteOp};

/// Tries of one operation that may pass.
const TRIES_MAX: u32 = 8;

/// Operations of one task on their way.
pub(super) const AT_ONCE: usize = 8;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) place: Place,
    pub(super) header: Header,
    pub(super) claim: Claim,
    pub(super) options: TreeOptions,
    state: Mutex<State>,
    /// There is something to log.
    pub(super) staged: Notify,
    /// There is something to apply.
    pub(super) logged: Notify,
    /// Held by who applies.
    pub(super) applying: tokio::sync::Mutex<()>,
    /// There is much to apply.
    pub(super) apply_due: Notify,
    /// There may be something to remove.
    pub(super) reap_due: Notify,
    /// How far the log is applied; told after each round.
    pub(super) applied: watch::Sender<u64>,
}

/// How a tree is served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TreeOptions {
    /// Entries of one object of a directory, above which it is split.
    pub shard_entries_max: u32,
    /// A change is applied after so long, unless many come before.
    pub apply_ms: u64,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            // Below `OMAP_KEYS_PER_OBJECT_MAX`: chance fills some shards more than others.
            shard_entries_max: 45_000,
            apply_ms: 200,
        }
    }
}

impl Shared {
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        place: Place,
        header: Header,
        claim: Claim,
        options: TreeOptions,
        state: State,
    ) -> Self {
        let applied = watch::channel(state.applied_up_to()).0;
        Self {
            store,
            place,
            header,
            claim,
            options,
            state: Mutex::new(state),
            staged: Notify::new(),
            logged: Notify::new(),
            applying: tokio::sync::Mutex::default(),
            apply_due: Notify::new(),
            reap_due: Notify::new(),
            applied,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is served any more, and every task ends.
    pub(super) fn stop(&self, error: &Error) {
        // Who lost the claim may not say anything, as one that was fenced.
        let kind = if error.kind() == ErrorKind::GuardFailed {
            ErrorKind::Fenced
        } else {
            error.kind()
        };
        tracing::warn!(tree = %self.place.header(), %error, "tree is served no more");
        self.state().stop(kind, &error.to_string());
        self.wake_all();
    }

    /// All tasks look whether they should go on, and so does who waits for one of them.
    pub(super) fn wake_all(&self) {
        for wakes in [&self.staged, &self.logged, &self.apply_due, &self.reap_due] {
            wakes.notify_one();
        }
        self.applied.send_modify(|_| {});
    }

    /// A write that can be done twice, tried again while the reason may pass. Says as well whether
    /// an earlier try may have happened, or may happen later.
    pub(super) async fn write(
        &self,
        object: &ObjectId,
        op: WriteOp,
    ) -> Result<Version, (Error, bool)> {
        let mut is_unknown = false;
        for round in 0.. {
            let error = match self.store.write(object, op.clone()).await {
                Ok(version) => return Ok(version),
                Err(error) => error,
            };
            let passes = matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unavailable);
            is_unknown |= error.kind().is_perhaps_applied();
            if !passes || round >= TRIES_MAX || self.state().check_served().is_err() {
                return Err((error, is_unknown));
            }
            pause(round).await;
        }
        unreachable!("the loop ends by returning")
    }

    pub(super) async fn read(&self, object: &ObjectId, op: ReadOp) -> Result<ReadOutput, Error> {
        let answer = self.read_in_the_end(object, op).await;
        if let Err(error) = &answer
            && error.kind() == ErrorKind::Fenced
        {
            // What is known here is known no more.
            self.stop(error);
        }
        answer
    }

    async fn read_in_the_end(&self, object: &ObjectId, op: ReadOp) -> Result<ReadOutput, Error> {
        if let Some(answer) = self.store.try_read_cached(object, &op) {
            return answer;
        }
        for round in 0.. {
            let error = match self.store.read(object, op.clone()).await {
                Ok(output) => return Ok(output),
                Err(error) => error,
            };
            let passes = matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unavailable);
            if !passes || round >= TRIES_MAX {
                return Err(error);
            }
            pause(round).await;
        }
        unreachable!("the loop ends by returning")
    }
}

/// Waits a little longer each round, 256 ms at most.
async fn pause(round: u32) {
    tokio::time::sleep(Duration::from_millis(2 << round.min(7))).await;
}
