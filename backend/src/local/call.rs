//! Calling the committer. Whoever brings the first job calls it when its turn ends, and commits
//! there what waits for no device: a change of threads would cost more than a buffered write.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use super::commit::{Committer, EndsStore};
use super::core::Core;
use super::queue::Called;

/// The duty to call the committer. Dropped without more, it calls the thread.
#[derive(Debug)]
#[must_use = "dropped at once it calls the thread"]
pub(super) struct Call {
    core: Weak<Core>,
    committer: Weak<Mutex<Committer>>,
    callers: Arc<Callers>,
}

/// Who calls now: the end of a store waits for them, so that it can be opened again at once.
#[derive(Debug, Default)]
pub(super) struct Callers {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    count: usize,
    closed: bool,
}

struct Caller<'a>(&'a Callers);

impl Call {
    pub(super) fn new(
        core: &Arc<Core>,
        committer: &Arc<Mutex<Committer>>,
        callers: &Arc<Callers>,
    ) -> Self {
        Self {
            core: Arc::downgrade(core),
            committer: Arc::downgrade(committer),
            callers: Arc::clone(callers),
        }
    }

    /// Commits here what is buffered; all else goes to the thread.
    pub(super) fn commit(mut self) {
        let callers = Arc::clone(&self.callers);
        let Some(caller) = callers.enter() else {
            return;
        };
        if self.is_done_here() {
            self.core = Weak::new();
        }
        drop(self);
        drop(caller);
    }

    /// Whether nothing is left for the thread.
    fn is_done_here(&self) -> bool {
        let (Some(core), Some(committer)) = (self.core.upgrade(), self.committer.upgrade()) else {
            return true;
        };
        // The thread has it, or a panic ended the store.
        let Ok(mut committer) = committer.try_lock() else {
            return false;
        };
        let _end = EndsStoreInPanic(&core);
        while committer.may_work_here() {
            match core.queue.take_here() {
                Called::Here(batch) => committer.work_here(batch),
                Called::ForThread => return false,
                Called::Done => return true,
            }
        }
        false
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(_caller) = self.callers.enter() else {
            return;
        };
        if let Some(core) = self.core.upgrade() {
            core.queue.call();
        }
    }
}

impl Callers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when the store has ended.
    fn enter(&self) -> Option<Caller<'_>> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.count += 1;
        Some(Caller(self))
    }

    /// Nobody calls any more when this returns.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        while state.count > 0 {
            state = self
                .left
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.count -= 1;
        if state.closed {
            self.0.left.notify_all();
        }
    }
}

/// What a panic left half done is the end of the store.
struct EndsStoreInPanic<'a>(&'a Core);

impl Drop for EndsStoreInPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(EndsStore(self.0));
        }
    }
}
