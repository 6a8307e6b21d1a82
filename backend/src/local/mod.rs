//! The embedded engine: one directory, one node, no set-up.
//!
//! What is acknowledged as durable survives power loss; every stored byte that can reach a reader
//! has a checksum. `docs/format.md` says what lies where and which invariants hold; the code may
//! not use a fact about the files that is not written there.

#![expect(clippy::todo, reason = "bodies follow")]

mod check;
pub mod media;
mod options;

use std::path::Path;
use std::sync::Arc;

pub use check::{Report, check};
pub use options::{LocalOptions, LocalStats, PlantedBug};

use crate::error::Error;
use crate::object::ObjectStore;

/// An open store. Dropping it without `close` is like a power cut: nothing acknowledged is lost.
#[derive(Debug)]
pub struct LocalStore {
    stats: LocalStats,
}

impl LocalStore {
    /// Opens the store in `directory`, or makes one there. Blocks the thread.
    ///
    /// # Errors
    /// `Busy` if it is open elsewhere; `Corrupt` if an invariant of the format is broken.
    pub fn open(directory: &Path, options: LocalOptions) -> Result<Arc<Self>, Error> {
        let medium: Arc<dyn media::Medium> = Arc::new(media::Directory::open(directory)?);
        Self::open_on(&medium, options)
    }

    /// The same on any medium.
    ///
    /// # Errors
    /// See `open`.
    pub fn open_on(
        medium: &Arc<dyn media::Medium>,
        options: LocalOptions,
    ) -> Result<Arc<Self>, Error> {
        todo!("{medium:?} {options:?}")
    }

    /// A new session; `purpose` is for the operator's eyes.
    #[must_use]
    pub fn session(self: &Arc<Self>, purpose: &str) -> Arc<dyn ObjectStore> {
        todo!("{purpose}")
    }

    #[must_use]
    pub fn stats(&self) -> &LocalStats {
        &self.stats
    }

    /// Moves everything to the base and marks the store as closed. Later operations of its sessions
    /// are `Unavailable`. Blocks the thread.
    ///
    /// # Errors
    /// `Unavailable` if an I/O error happened before or now; what was acknowledged is in the log.
    pub fn close(&self) -> Result<(), Error> {
        todo!()
    }
}
