//! The engines under test, and what the suite needs of them beside their sessions.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use portico_backend::local::{LocalOptions, LocalStore};
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::ObjectStore;
use tempfile::TempDir;

/// Makes stores of one engine.
pub trait Harness: Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// A new, empty store; it may hold `capacity_bytes` if that is given.
    fn open(&self, capacity_bytes: Option<u64>) -> Box<dyn Cluster>;

    /// How many seeds of random operations are worth their time.
    fn seed_count(&self) -> u64;

    /// How many times longer than in one process a check may take.
    fn patience(&self) -> u32 {
        1
    }

    /// How late the engine notices what its objects take.
    fn space_lag(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether keys and values count for what a pool may hold.
    fn maps_take_space(&self) -> bool {
        true
    }
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

/// The embedded engine in a directory of its own.
#[derive(Clone, Copy, Debug)]
pub struct LocalHarness {
    /// How its stores are opened, but for their capacity.
    pub options: LocalOptions,
    pub name: &'static str,
    pub seed_count: u64,
}

#[derive(Debug)]
struct LocalCluster {
    store: Arc<LocalStore>,
    options: LocalOptions,
    directory: TempDir,
}

impl Harness for LocalHarness {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, capacity_bytes: Option<u64>) -> Box<dyn Cluster> {
        let options = LocalOptions {
            capacity_bytes,
            ..self.options
        };
        let directory = tempfile::tempdir().expect("a directory is made");
        let store = LocalStore::open(directory.path(), options).expect("a store is made");
        Box::new(LocalCluster {
            store,
            options,
            directory,
        })
    }

    fn seed_count(&self) -> u64 {
        self.seed_count
    }
}

impl Cluster for LocalCluster {
    fn session(&self, purpose: &str) -> Arc<dyn ObjectStore> {
        self.store.session(purpose)
    }

    fn reopen(self: Box<Self>) -> Reopening {
        Box::pin(async move {
            let Self {
                store,
                options,
                directory,
            } = *self;
            store.close().expect("a clean stop");
            drop(store);
            let store = LocalStore::open(directory.path(), options).expect("a store opens again");
            let reopened: Box<dyn Cluster> = Box::new(Self {
                store,
                options,
                directory,
            });
            reopened
        })
    }

    fn flush_count(&self) -> Option<u64> {
        let stats = self.store.stats();
        Some(stats.log_flushes.value() + stats.data_flushes.value())
    }
}
