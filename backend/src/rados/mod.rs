//! The RADOS engine: objects on a Ceph cluster.
//!
//! A session of the object model is a client of the cluster, with connections of its own, so that
//! fencing kills one and no other. What an operation becomes is planned in `plan`, executed in
//! `write` and `read`, and bounded in `flow`. `librados` loads the C library and is the only module
//! with `unsafe`.
//!
//! Nothing here tries an operation again whose outcome is unknown. Tried again is what certainly
//! did not happen: an operation planned on facts that were not true any more.

mod blocking;
mod code;
mod connect;
mod fence;
mod flow;
mod keys;
mod librados;
mod lock;
mod monitor;
mod plan;
mod read;
mod session;
mod snapshot;
mod stats;
mod watch;
mod write;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use self::blocking::Blocking;
use self::connect::connect;
use self::flow::Flow;
use self::librados::Cluster;
use self::monitor::PoolFacts;
use self::session::{Session, locked};
use crate::error::{Error, ErrorKind};
use crate::object::{ObjectStore, Pool};

pub use self::flow::OldestOp;
pub use self::monitor::{ClusterHealth, Fullness, HealthCheck, PoolFullness};
pub use self::stats::RadosStats;

/// How a cluster is reached and used.
#[derive(Clone, Debug)]
pub struct RadosOptions {
    /// `ceph.conf` of the cluster.
    pub conf: PathBuf,
    /// Such as `client.portico`.
    pub client: String,
    /// `None` for what the configuration says.
    pub keyring: Option<PathBuf>,
    /// All pools that are used. Others do not exist for this store.
    pub pools: Vec<RadosPool>,
    /// Operations that the cluster may have of us at once, over all sessions.
    pub ops_max: u32,
    /// Bytes that these may keep.
    pub bytes_max: u64,
    /// What an operation without a deadline waits for its answer.
    pub op_timeout: Duration,
    /// An operation that took longer is logged.
    pub slow_op: Duration,
    pub connect_timeout: Duration,
}

/// A pool of the object model and where it lies in the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RadosPool {
    /// The name that volumes use.
    pub name: String,
    pub ceph_pool: String,
    /// Namespaces of the object model lie within this one.
    pub namespace: String,
}

impl RadosOptions {
    #[must_use]
    pub fn new(conf: PathBuf, client: &str, pools: Vec<RadosPool>) -> Self {
        Self {
            conf,
            client: client.to_owned(),
            keyring: None,
            pools,
            ops_max: 1_024,
            bytes_max: 256 << 20,
            op_timeout: Duration::from_secs(60),
            slow_op: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(30),
        }
    }
}

/// A cluster that is open, of which any number of sessions is opened. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RadosStore {
    shared: Arc<Shared>,
    /// For questions about the cluster; carries no operations, so nobody fences it.
    control: Arc<Cluster>,
    /// As last seen.
    fullness: Arc<Mutex<Vec<PoolFullness>>>,
}

/// What all sessions share.
#[derive(Debug)]
struct Shared {
    options: RadosOptions,
    pools: Vec<PoolFacts>,
    flow: Arc<Flow>,
    stats: Arc<RadosStats>,
    /// For calls that wait for OSDs.
    osd_calls: Blocking,
    /// For calls that wait for monitors: a frozen OSD must not stop a fence.
    mon_calls: Blocking,
}

impl RadosStore {
    /// Connects, and looks at the pools. Blocks for `connect_timeout` at most, and then for what
    /// the monitors need.
    ///
    /// # Errors
    /// `Unsupported` if librados is missing or too old, `NotFound` if a pool does not exist,
    /// `Unavailable` if the cluster cannot be reached or refuses the client.
    pub fn open(options: RadosOptions) -> Result<Self, Error> {
        let control = Arc::new(connect(&options)?);
        let pools = monitor::probe_pools(&control, &options.pools)?;
        let stats = Arc::new(RadosStats::default());
        let flow = Flow::new(
            options.ops_max,
            options.bytes_max,
            options.slow_op,
            Arc::clone(&stats),
        );
        Ok(Self {
            shared: Arc::new(Shared {
                options,
                pools,
                flow,
                stats,
                osd_calls: Blocking::start("rados-osd", 4)?,
                mon_calls: Blocking::start("rados-mon", 2)?,
            }),
            control,
            fullness: Arc::default(),
        })
    }

    /// Another client of the cluster. Blocks.
    ///
    /// # Errors
    /// `Unavailable` if the cluster cannot be reached.
    pub fn session(&self, purpose: &str) -> Result<Arc<dyn ObjectStore>, Error> {
        Session::open(&self.shared, purpose).map(|session| session as _)
    }

    #[must_use]
    pub fn stats(&self) -> &Arc<RadosStats> {
        &self.shared.stats
    }

    /// What the cluster has had of us for the longest time without an answer.
    #[must_use]
    pub fn oldest_op(&self) -> Option<OldestOp> {
        self.shared.flow.oldest()
    }

    /// What the monitors say.
    ///
    /// # Errors
    /// `Unavailable` if no monitor answers.
    pub async fn health(&self) -> Result<ClusterHealth, Error> {
        let control = Arc::clone(&self.control);
        let asked = self.shared.mon_calls.run(move || monitor::health(&control));
        asked.await?
    }

    /// Asks the monitors how full the pools are, and keeps the answer for [`Self::fullness`].
    ///
    /// # Errors
    /// `Unavailable` if no monitor answers; what was known before stays.
    pub async fn look_at_fullness(&self) -> Result<Vec<PoolFullness>, Error> {
        let control = Arc::clone(&self.control);
        let pools = self.shared.options.pools.clone();
        let asked = self
            .shared
            .mon_calls
            .run(move || monitor::fullness(&control, &pools));
        let found = asked.await??;
        locked(&self.fullness).clone_from(&found);
        Ok(found)
    }

    /// How full the pools were when last looked at; empty if nobody looked.
    #[must_use]
    pub fn fullness(&self) -> Vec<PoolFullness> {
        locked(&self.fullness).clone()
    }
}

/// Waits until the clients of sessions that were dropped have shut down. A process that ends before
/// may end with a crash in librados. Blocks; `false` if the time was too short.
#[must_use]
pub fn wait_until_closed(timeout: Duration) -> bool {
    librados::wait_until_closed(timeout)
}

impl Shared {
    fn pool(&self, pool: &Pool) -> Result<&PoolFacts, Error> {
        let found = self
            .pools
            .iter()
            .find(|facts| facts.pool.name == pool.name());
        found.ok_or_else(|| {
            let text = format!("pool {pool} is not among the configured ones");
            Error::new(ErrorKind::NotFound, text)
        })
    }
}
