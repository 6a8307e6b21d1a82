//! The only place where an engine, the volumes and the protocols meet.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use portico_backend::bucket::{BucketOptions, BucketStats};
use portico_backend::budget::Budget;
use portico_backend::catalog::Keyring;
use portico_backend::clock::SystemClock;
use portico_backend::error::{Error, ErrorKind};
use portico_backend::gate::{GateControl, gate};
use portico_backend::local::{LocalOptions, LocalStore};
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{ListCursor, ObjectStore, Pool};
use portico_backend::rados::{self, RadosOptions, RadosPool, RadosStore};
use portico_backend::tenure::{Tenure, Tenures, tenures};
use portico_iscsi::serve::{Service as IscsiService, ServiceParts as IscsiParts};
use portico_iscsi::target::Targets;
use portico_s3::serve::{S3Options, Service, ServiceParts};
use portico_s3::stats::Stats;
use tokio::sync::Mutex;

use crate::block::{self, Block};
use crate::config::{Backend, Config, Rados};
use crate::data_dir::store_path;
use crate::error::{Exit, Failure};
use crate::health::Health;
use crate::limits::{CLOSE_TIMEOUT, CLUSTER_CLOSE_TIMEOUT, RADOS_TRANSFER_BYTES};
use crate::tenure::{Keeper, Plan, Sessions};

/// The name in the catalog of the one node that a store of its own has.
const NODE_NAME: &str = "local";

/// An engine that is open. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    Local(Arc<LocalStore>),
    Memory(MemoryCluster),
    Rados(RadosStore),
}

/// Where the volumes keep what they keep.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    /// Needs an omap.
    pub(crate) meta: Pool,
    pub(crate) data: Pool,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            meta: Pool::new("meta", ""),
            data: Pool::new("data", ""),
        }
    }
}

/// Everything that is open while the program serves.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) engine: Engine,
    /// As the catalog knows it.
    pub(crate) name: Arc<str>,
    pub(crate) pools: Pools,
    pub(crate) tenures: Tenures,
    pub(crate) keeper: Arc<Mutex<Keeper>>,
    pub(crate) bucket_stats: Arc<BucketStats>,
    pub(crate) s3: Arc<Service>,
    pub(crate) block: Block,
    pub(crate) budget: Budget,
    pub(crate) gate: GateControl,
    pub(crate) health: Health,
}

impl Engine {
    /// Opens the configured engine below `data_dir`, which the caller holds.
    ///
    /// # Errors
    /// `Exit::InUse` if another program has it open.
    pub(crate) async fn open(backend: &Backend, data_dir: &Path) -> Result<Self, Failure> {
        match *backend {
            Backend::Rados(ref rados) => {
                let options = rados_options(rados);
                let opened = blocking(move || RadosStore::open(options)).await;
                opened
                    .map(Self::Rados)
                    .map_err(|error| Failure::from_source("cannot use the cluster", &error))
            }
            Backend::Memory { capacity_bytes } => {
                Ok(Self::Memory(MemoryCluster::new(MemoryOptions {
                    capacity_bytes,
                    ..MemoryOptions::default()
                })))
            }
            Backend::Local {
                capacity_bytes,
                cache_bytes,
            } => {
                let options = LocalOptions {
                    capacity_bytes,
                    cache_bytes,
                    ..LocalOptions::default()
                };
                let path = store_path(data_dir);
                let shown = path.display().to_string();
                let opened = blocking(move || {
                    let mut builder = DirBuilder::new();
                    builder.recursive(true).mode(0o700);
                    builder.create(&path).map_err(|error| {
                        Error::new(ErrorKind::Unavailable, "make the directory").with_source(error)
                    })?;
                    LocalStore::open(&path, options)
                })
                .await;
                opened
                    .map(Self::Local)
                    .map_err(|error| cannot_open(&shown, &error))
            }
        }
    }

    /// # Errors
    /// If a cluster is not reached.
    pub(crate) async fn session(&self, purpose: &str) -> Result<Arc<dyn ObjectStore>, Failure> {
        match self {
            Self::Local(store) => Ok(store.session(purpose)),
            Self::Memory(cluster) => Ok(cluster.session(purpose)),
            Self::Rados(store) => {
                let (store, purpose) = (store.clone(), purpose.to_owned());
                let opened = blocking(move || store.session(&purpose)).await;
                opened.map_err(|error| Failure::from_source("cannot use the cluster", &error))
            }
        }
    }

    /// Whether nothing was ever stored in a cluster, so that there is nothing that a keyring would
    /// have to open.
    ///
    /// # Errors
    /// If the cluster does not answer.
    pub(crate) async fn is_empty(&self) -> Result<bool, Failure> {
        let store = self.session("look for a catalog").await?;
        let pool = Pools::default().meta;
        let listed = store.list(&pool, ListCursor::start(), 1).await;
        let page = listed.map_err(|error| {
            Failure::from_source("cannot look into the pool for metadata", &error)
        })?;
        Ok(page.names.is_empty() && page.next.is_none())
    }

    /// # Errors
    /// If the store cannot be closed cleanly; what was acknowledged is safe all the same.
    pub(crate) async fn close(&self) -> Result<(), Failure> {
        let store = match self {
            Self::Local(store) => store,
            Self::Memory(_) | Self::Rados(_) => return Ok(()),
        };
        let store = Arc::clone(store);
        blocking(move || store.close())
            .await
            .map_err(|error| Failure::from_source("the store did not close cleanly", &error))
    }
}

impl Node {
    /// Opens everything on an engine; the gate is closed.
    ///
    /// # Errors
    /// If the store cannot be used, or the keyring does not fit it.
    pub(crate) async fn open(
        config: &Config,
        engine: Engine,
        keyring: Arc<Keyring>,
        seed: u64,
    ) -> Result<Self, Failure> {
        let name = node_name(&config.backend);
        let plan = Plan {
            sessions: Sessions::Engine(engine.clone()),
            pools: Pools::default(),
            clock: Arc::new(SystemClock),
            keyring,
            name,
            // A store of its own has no other program.
            has_rivals: matches!(config.backend, Backend::Rados(_)),
            options: bucket_options(config),
            stats: Arc::default(),
        };
        match Self::open_with(&engine, config, plan, seed).await {
            Ok(node) => Ok(node),
            Err(failure) => {
                if let Err(second) = engine.close().await {
                    tracing::error!("{second}");
                }
                Err(failure)
            }
        }
    }

    pub(crate) async fn open_with(
        engine: &Engine,
        config: &Config,
        plan: Plan,
        seed: u64,
    ) -> Result<Self, Failure> {
        let (pools, clock) = (plan.pools.clone(), Arc::clone(&plan.clock));
        let name: Arc<str> = Arc::from(plan.name.as_str());
        let bucket_stats = Arc::clone(&plan.stats);
        let (control, tenures) = tenures();
        let mut keeper = Keeper::new(plan, control);
        keeper.open().await?;
        let (budget, window_budget) = budgets(config);
        let (control, gate) = gate(false);
        let block = block_of(&budget, window_budget, |iscsi| block::Parts {
            engine: engine.clone(),
            pools: pools.clone(),
            tenures: tenures.clone(),
            node: Arc::clone(&name),
            iscsi,
        });
        let health = Health::new(gate.clone(), tenures.clone());
        let parts = ServiceParts {
            tenures: tenures.clone(),
            clock,
            stats: Arc::new(Stats::default()),
            budget: budget.clone(),
            gate,
            seed,
        };
        Ok(Self {
            engine: engine.clone(),
            name,
            pools,
            tenures,
            keeper: Arc::new(Mutex::new(keeper)),
            bucket_stats,
            s3: Arc::new(Service::new(parts, s3_options(config))),
            block,
            budget,
            gate: control,
            health,
        })
    }

    /// # Errors
    /// If the session was fenced.
    pub(crate) fn tenure(&self) -> Result<Arc<Tenure>, Failure> {
        let current = self.tenures.current();
        current.map_err(|why| Failure::new(Exit::Failed, why.to_string()))
    }

    /// Closes the gate, then everything from the top down. Nothing is served any more.
    ///
    /// # Errors
    /// The first failure; the rest is closed all the same.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        self.gate.set_open(false);
        let close = async {
            self.block.close().await;
            let ended = self.keeper.lock().await.close().await;
            let closed = self.engine.close().await;
            ended.and(closed)
        };
        tokio::time::timeout(CLOSE_TIMEOUT, close)
            .await
            .unwrap_or_else(|_| {
                Err(Failure::new(
                    Exit::Failed,
                    "the store did not close in time; what was acknowledged is safe",
                ))
            })
    }
}

/// What may be in flight, and how much of that initiators may send unasked: each of their sessions
/// keeps some of it for as long as it lives.
fn budgets(config: &Config) -> (Budget, Budget) {
    let all = config.limits.memory_bytes;
    let window = all / 2;
    let rest = match config.iscsi.listen.is_empty() {
        // Nobody takes any of the other half.
        true => all,
        false => all - window,
    };
    (Budget::new(rest), Budget::new(window))
}

fn block_of(
    budget: &Budget,
    window_budget: Budget,
    parts: impl FnOnce(Arc<IscsiService>) -> block::Parts,
) -> Block {
    let (control, gate) = gate(false);
    let service = IscsiService::new(IscsiParts {
        targets: Targets::default(),
        stats: Arc::default(),
        window_budget,
        budget: budget.clone(),
        gate,
    });
    Block::new(parts(Arc::new(service)), control)
}

fn rados_options(rados: &Rados) -> RadosOptions {
    let pools = Pools::default();
    let places = [(pools.meta, &rados.meta), (pools.data, &rados.data)];
    let pools = places.map(|(pool, place)| RadosPool {
        name: pool.name().to_owned(),
        ceph_pool: place.pool.clone(),
        namespace: place.namespace.clone(),
    });
    let mut options = RadosOptions::new(rados.conf.clone(), &rados.client, pools.to_vec());
    options.keyring.clone_from(&rados.keyring);
    options.op_timeout = rados.op_timeout;
    options.slow_op = rados.slow_op;
    options.bytes_max = rados.in_flight_bytes;
    options.ops_max = rados.in_flight_ops;
    options
}

/// The name of this node in the catalog.
fn node_name(backend: &Backend) -> String {
    let Backend::Rados(rados) = backend else {
        return NODE_NAME.to_owned();
    };
    rados.node.clone().unwrap_or_else(|| {
        let machine = rustix::system::uname();
        machine.nodename().to_string_lossy().into_owned()
    })
}

/// Waits for what ends when the last handle of a cluster is dropped.
pub(crate) async fn wait_for_cluster() {
    let waited = tokio::task::spawn_blocking(|| rados::wait_until_closed(CLUSTER_CLOSE_TIMEOUT));
    if !waited.await.unwrap_or(false) {
        tracing::warn!("connections to the cluster did not close in time");
    }
}

fn bucket_options(config: &Config) -> BucketOptions {
    BucketOptions {
        grace_ms: u64::try_from(config.reclaim.grace.as_millis()).expect("at most 30 days"),
        shard_keys_max: config.shard_keys_max,
        ..BucketOptions::default()
    }
}

fn s3_options(config: &Config) -> S3Options {
    S3Options {
        region: config.s3.region.clone(),
        virtual_host_domains: config.s3.virtual_host_domains.clone(),
        sigv2: config.s3.sigv2,
        part_bytes_min: config.s3.multipart_part_bytes_min,
        transfer_bytes_per_second_min: config.limits.transfer_bytes_per_second_min,
        transfer_bytes: match config.backend {
            Backend::Rados(_) => RADOS_TRANSFER_BYTES,
            Backend::Local { .. } | Backend::Memory { .. } => S3Options::default().transfer_bytes,
        },
        ..S3Options::default()
    }
}

/// Runs what blocks on a thread for that.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(panic) => {
            Err(Error::new(ErrorKind::Unavailable, "the task did not end").with_source(panic))
        }
    }
}

fn cannot_open(path: &str, error: &Error) -> Failure {
    let failure = Failure::from_source(format!("cannot open the store {path}"), error);
    match error.kind() {
        ErrorKind::Busy => failure
            .with_exit(Exit::InUse)
            .with_help("another program has it open; stop it first"),
        ErrorKind::Corrupt => failure
            .with_help("\"portico check\" tells what is damaged; see docs/operations/recover.md"),
        ErrorKind::AlreadyExists
        | ErrorKind::Fenced
        | ErrorKind::GuardFailed
        | ErrorKind::Locked
        | ErrorKind::NoSpace
        | ErrorKind::NotFound
        | ErrorKind::TooLarge
        | ErrorKind::Unavailable
        | ErrorKind::Unsupported => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portico_backend::connection::{Peer, stop};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

    async fn memory_node() -> Node {
        let mut config = Config::load(None).unwrap();
        config.backend = Backend::Memory {
            capacity_bytes: 1 << 30,
        };
        let keyring = Arc::new(Keyring::generate("k1").unwrap());
        let engine = Engine::open(&config.backend, &config.data_dir)
            .await
            .unwrap();
        Node::open(&config, engine, keyring, 7).await.unwrap()
    }

    async fn ask(node: &Node) -> Vec<u8> {
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let (_control, stop) = stop();
        let served = portico_s3::serve::serve(server, Peer::default(), Arc::clone(&node.s3), stop);
        let served = tokio::spawn(served);
        client.write_all(REQUEST).await.unwrap();
        let mut reply = Vec::new();
        client.read_to_end(&mut reply).await.unwrap();
        drop(client);
        served.await.unwrap();
        reply
    }

    /// A node that lost its right to serve must not let a finished reply leave.
    #[tokio::test(start_paused = true)]
    async fn no_reply_leaves_while_the_gate_is_closed() {
        let node = memory_node().await;
        assert_eq!(ask(&node).await, b"");
        node.gate.set_open(true);
        assert!(ask(&node).await.starts_with(b"HTTP/1.1 403 "));
        node.gate.set_open(false);
        assert_eq!(ask(&node).await, b"");
        node.close().await.unwrap();
    }
}
