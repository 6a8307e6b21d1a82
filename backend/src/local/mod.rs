//! The embedded engine: one directory, one node, no set-up.
//!
//! What is acknowledged as durable survives power loss; every stored byte that can reach a reader
//! has a checksum. `docs/format.md` says what lies where and which invariants hold; the code may
//! not use a fact about the files that is not written there.
//!
//! A write goes `session` -> `queue` -> `call`, `commit` (`change`, `log`) -> `memtable`, later by
//! `checkpoint` to `base`. A read goes `session` -> `read` -> `memtable`, `base`, `blocks`.

mod allocator;
mod answer;
mod base;
mod blocks;
mod buffers;
mod cache;
mod call;
mod change;
mod check;
mod checkpoint;
mod commit;
mod core;
mod extent;
mod failure;
mod lock;
mod log;
pub mod media;
mod memtable;
mod options;
mod pace;
mod queue;
mod read;
mod record;
mod recover;
mod session;
mod standing;
mod superblock;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

pub use check::{Report, check, check_on};
pub use options::{LocalOptions, LocalStats, PlantedBug};

use self::call::{Call, Callers};
use self::commit::Committer;
use self::core::Core;
use self::media::{Directory, Medium};
use self::queue::Control;
use self::session::LocalSession;
use self::superblock::{State, Superblock};
use crate::error::{Error, ErrorKind};
use crate::object::ObjectStore;

/// An open store. Dropping it and all its sessions without `close` is like a power cut: nothing
/// acknowledged is lost.
#[derive(Debug)]
pub struct LocalStore {
    core: Arc<Core>,
    committer: Arc<Mutex<Committer>>,
    callers: Arc<Callers>,
    life: Mutex<Life>,
}

#[derive(Debug)]
struct Life {
    superblock: Superblock,
    threads: Vec<JoinHandle<()>>,
}

impl LocalStore {
    /// Opens the store in `directory`, or makes one there. Blocks the thread.
    ///
    /// # Errors
    /// `Busy` if it is open elsewhere; `Corrupt` if an invariant of the format is broken;
    /// `Unsupported` if a newer program made it.
    pub fn open(directory: &Path, options: LocalOptions) -> Result<Arc<Self>, Error> {
        let medium: Arc<dyn Medium> = Arc::new(Directory::open(directory)?);
        Self::open_on(&medium, options)
    }

    /// The same on any medium.
    ///
    /// # Errors
    /// See `open`.
    pub fn open_on(medium: &Arc<dyn Medium>, options: LocalOptions) -> Result<Arc<Self>, Error> {
        let opened = recover::open(medium, options)?;
        let core = Arc::new(Core::new(opened.parts));
        checkpoint::refill_reserve(&core);
        core.count_record_bytes();
        let open_counter = opened.superblock.open_counter;
        let committer = Committer::new(Arc::clone(&core), opened.log, open_counter);
        let committer = Arc::new(Mutex::new(committer));
        let store = Arc::new(Self {
            life: Mutex::new(Life {
                superblock: opened.superblock,
                threads: Vec::new(),
            }),
            core: Arc::clone(&core),
            committer: Arc::clone(&committer),
            callers: Arc::default(),
        });
        let (committing, commits) = (Arc::clone(&core), committer);
        store.life().threads.push(thread("commit", move || {
            commit::run(&committing, &commits);
        })?);
        let checkpoint = thread("checkpoint", move || checkpoint::run(&core))?;
        store.life().threads.push(checkpoint);
        Ok(store)
    }

    /// A new session; `purpose` is for the operator's eyes.
    #[must_use]
    pub fn session(self: &Arc<Self>, purpose: &str) -> Arc<dyn ObjectStore> {
        Arc::new(LocalSession::open(self, purpose))
    }

    #[must_use]
    pub fn stats(&self) -> &LocalStats {
        &self.core.stats
    }

    /// Moves everything to the base and marks the store as closed. Later operations of its sessions
    /// are `Unavailable`. Blocks the thread.
    ///
    /// # Errors
    /// `Unavailable` if an I/O error happened before or now; what was acknowledged is in the log.
    pub fn close(&self) -> Result<(), Error> {
        let ended = || Error::new(ErrorKind::Unavailable, "the store was closed");
        let (answer, answered) = mpsc::sync_channel(1);
        self.core.queue.control(Control::Close(answer))?;
        let sequence = answered.recv().map_err(|_| ended())?;
        self.core.sessions.end_all();
        self.core.poison.close();
        let mut life = self.life();
        join(&mut life);
        let sequence = sequence?;
        self.core.base.close()?;
        life.superblock.state = State::Closed;
        life.superblock.sequence = sequence;
        life.superblock.advance(&*self.core.medium)
    }

    fn core(&self) -> &Arc<Core> {
        &self.core
    }

    fn call(&self) -> Call {
        Call::new(&self.core, &self.committer, &self.callers)
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LocalStore {
    fn drop(&mut self) {
        self.core.queue.stop();
        self.core.checkpoint.stop();
        join(&mut self.life());
        self.callers.close();
    }
}

fn join(life: &mut Life) {
    for thread in life.threads.drain(..) {
        if thread.join().is_err() {
            tracing::error!("a thread of the store panicked");
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new()
        .name(format!("local-{name}"))
        .spawn(work)
        .map_err(|e| Error::new(ErrorKind::Unavailable, "starting a thread").with_source(e))
}

#[cfg(test)]
mod tests;
