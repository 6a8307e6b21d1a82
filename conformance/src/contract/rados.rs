//! The RADOS engine on a real cluster. Each store is a set of namespaces of its own in pools that
//! are made once; a store with little room is a pool of its own with a quota.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portico_backend::object::ObjectStore;
use portico_backend::rados::{RadosOptions, RadosPool, RadosStore};

use super::engine::{Cluster, Harness, Reopening};

/// Where stores lie, and where `q` lies, so that two pools are two pools.
const POOL: &str = "portico-contract";
const OTHER_POOL: &str = "portico-contract-other";
const FULL_POOL: &str = "portico-contract-full";

/// Stores of this process, so that none meets what another left.
static STORES: AtomicU64 = AtomicU64::new(0);

/// The pools that checks name.
const NAMES: [&str; 4] = ["contract", "p", "pn", "q"];

/// A cluster by its configuration, with the right to do everything there.
#[derive(Debug)]
pub struct RadosHarness {
    conf: PathBuf,
    client: String,
    run: String,
    seed_count: u64,
}

#[derive(Debug)]
struct RadosCluster {
    store: RadosStore,
    options: RadosOptions,
}

impl RadosHarness {
    /// `client` may make pools and set quotas, such as `client.admin`.
    ///
    /// # Panics
    /// If the cluster cannot be asked.
    #[must_use]
    pub fn new(conf: &Path, client: &str, seed_count: u64) -> Self {
        let harness = Self {
            conf: conf.to_owned(),
            client: client.to_owned(),
            run: std::process::id().to_string(),
            seed_count,
        };
        for pool in [POOL, OTHER_POOL] {
            harness.make_pool(pool);
        }
        harness
    }

    /// Options of a new, empty store in the pools that checks name.
    #[must_use]
    pub fn options(&self) -> RadosOptions {
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        let pools = NAMES.map(|name| RadosPool {
            name: name.to_owned(),
            ceph_pool: if name == "q" { OTHER_POOL } else { POOL }.to_owned(),
            namespace: format!("{}-{number}-{name}", self.run),
        });
        RadosOptions::new(self.conf.clone(), &self.client, pools.to_vec())
    }

    /// Runs the `ceph` program.
    ///
    /// # Panics
    /// If it fails.
    pub fn ceph(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("ceph");
        command.arg("-c").arg(&self.conf).args(["-n", &self.client]);
        let output = command.args(arguments).output();
        let output = output.expect("the package ceph-common is installed");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "ceph {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn make_pool(&self, pool: &str) {
        self.ceph(&["osd", "pool", "create", pool, "16", "16", "replicated"]);
        self.ceph(&["osd", "pool", "application", "enable", pool, "portico"]);
    }

    /// An empty pool that may hold so many bytes.
    fn make_full_pool(&self, capacity_bytes: u64) {
        let sure = "--yes-i-really-really-mean-it";
        self.ceph(&["osd", "pool", "delete", FULL_POOL, FULL_POOL, sure]);
        self.make_pool(FULL_POOL);
        let bytes = capacity_bytes.to_string();
        self.ceph(&["osd", "pool", "set-quota", FULL_POOL, "max_bytes", &bytes]);
    }
}

impl Harness for RadosHarness {
    fn name(&self) -> &'static str {
        "rados"
    }

    fn open(&self, capacity_bytes: Option<u64>) -> Box<dyn Cluster> {
        let mut options = self.options();
        if let Some(capacity_bytes) = capacity_bytes {
            self.make_full_pool(capacity_bytes);
            for pool in &mut options.pools {
                FULL_POOL.clone_into(&mut pool.ceph_pool);
            }
        }
        let store = RadosStore::open(options.clone()).expect("the cluster is reached");
        Box::new(RadosCluster { store, options })
    }

    fn seed_count(&self) -> u64 {
        self.seed_count
    }

    /// Replies of a cluster take milliseconds.
    fn patience(&self) -> u32 {
        10
    }

    /// OSDs report what they hold, and monitors mark full pools, every few seconds.
    fn space_lag(&self) -> Duration {
        Duration::from_secs(12)
    }

    /// A quota counts data and objects.
    fn maps_take_space(&self) -> bool {
        false
    }
}

impl Cluster for RadosCluster {
    fn session(&self, purpose: &str) -> Arc<dyn ObjectStore> {
        let session = self.store.session(purpose);
        session.expect("the cluster is reached")
    }

    fn reopen(self: Box<Self>) -> Reopening {
        Box::pin(async move {
            let Self { store, options } = *self;
            drop(store);
            let store = RadosStore::open(options.clone()).expect("the cluster is reached");
            let reopened: Box<dyn Cluster> = Box::new(Self { store, options });
            reopened
        })
    }

    /// The cluster's own affair.
    fn flush_count(&self) -> Option<u64> {
        None
    }
}
