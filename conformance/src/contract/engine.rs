//! The engines under test, and what the suite needs of them beside their sessions.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::ObjectStore;

/// Makes stores of one engine.
pub trait Harness: Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// A new, empty store; it may hold `capacity_bytes` if that is given.
    fn open(&self, capacity_bytes: Option<u64>) -> Box<dyn Cluster>;

    /// How many seeds of random operations are worth their time.
    fn seed_count(&self) -> u64;
}

/// A store that is open. Dropping it throws its content away.
pub trait Cluster: Debug + Send + Sync {
    fn session(&self, purpose: &str) -> Arc<dyn ObjectStore>;

    /// Stops cleanly and opens again what was stored. All sessions were dropped before.
    fn reopen(self: Box<Self>) -> Reopening;

    /// How often stable storage was waited for, if the engine has any.
    fn flush_count(&self) -> Option<u64>;
}

/// A store on its way back.
pub type Reopening = Pin<Box<dyn Future<Output = Box<dyn Cluster>> + Send>>;

#[derive(Clone, Copy, Debug)]
pub struct MemoryHarness;

impl Harness for MemoryHarness {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn open(&self, capacity_bytes: Option<u64>) -> Box<dyn Cluster> {
        let mut options = MemoryOptions::default();
        options.capacity_bytes = capacity_bytes.unwrap_or(options.capacity_bytes);
        Box::new(MemoryCluster::new(options))
    }

    fn seed_count(&self) -> u64 {
        48
    }
}

impl Cluster for MemoryCluster {
    fn session(&self, purpose: &str) -> Arc<dyn ObjectStore> {
        Self::session(self, purpose)
    }

    /// A crash with everything flushed loses the sessions and nothing else.
    fn reopen(self: Box<Self>) -> Reopening {
        Box::pin(async move {
            let session = Self::session(&self, "reopen");
            session.flush().await.expect("a new session may flush");
            self.crash();
            let reopened: Box<dyn Cluster> = self;
            reopened
        })
    }

    fn flush_count(&self) -> Option<u64> {
        None
    }
}
