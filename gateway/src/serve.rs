//! The life of `portico serve`: open, listen, serve until told to stop, finish, close.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portico_backend::catalog::Secret;
use portico_backend::clock::SystemClock;
use portico_backend::connection::{Stop, StopControl, stop};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::admin;
use crate::assemble::{Engine, Node, wait_for_cluster};
use crate::banner::Banner;
use crate::config::{Backend, Config, Listen};
use crate::data_dir::{DataDir, store_path};
use crate::descriptors;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::health::Phase;
use crate::keyring;
use crate::limits::{CERTIFICATE_CHECK_INTERVAL, SIDE_CONNECTIONS_MAX};
use crate::listen::{Bounds, Listener, Protocol};
use crate::metrics::{self, ReclaimStats};
use crate::pools;
use crate::private_file;
use crate::reclaim;
use crate::root::{self, RootKeys};
use crate::shutdown::{Asked, Signals};
use crate::space::Space;
use crate::tenure;
use crate::tls::{Certificates, Reload};

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// If something cannot be opened, a listener ends by itself, or the store does not close cleanly.
pub(crate) async fn serve(config: Config, environment: Environment) -> Result<(), Failure> {
    let mut signals = Signals::install()?;
    descriptors::raise_limit(config.limits.connections + config.iscsi.connections);
    let data_dir = DataDir::take(&config.data_dir)?;
    let outcome = serve_from(&config, &environment, &data_dir, &mut signals).await;
    if matches!(config.backend, Backend::Rados(_)) {
        wait_for_cluster().await;
    }
    outcome
}

async fn serve_from(
    config: &Config,
    environment: &Environment,
    data_dir: &DataDir,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let (engine, keyring) = match config.backend {
        // The keyring comes first: without it nothing is made.
        Backend::Local { .. } | Backend::Memory { .. } => {
            let is_local = matches!(config.backend, Backend::Local { .. });
            let is_new = !is_local || data_dir.store_is_new();
            if is_local && is_new && config.keyring_file.exists() {
                warn_of_new_store(config);
            }
            let keyring = keyring::load(&config.keyring_file, is_new)?;
            let engine = Engine::open(&config.backend, data_dir.path()).await?;
            (engine, keyring)
        }
        Backend::Rados(_) => {
            let engine = Engine::open(&config.backend, data_dir.path()).await?;
            let is_new = engine.is_empty().await?;
            (engine, keyring::load(&config.keyring_file, is_new)?)
        }
    };
    let node = Node::open(config, engine, keyring, random_seed()?).await?;
    if let Some(warning) = Space::of(config).and_then(|space| space.warning()) {
        tracing::warn!("{warning}");
    }
    let outcome = run(config, environment, &node, signals).await;
    let closed = node.close().await;
    if outcome.is_ok() && closed.is_ok() {
        tracing::info!("closed");
    }
    outcome.and(closed)
}

async fn run(
    config: &Config,
    environment: &Environment,
    node: &Node,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let listeners = Listeners::bind(config).await?;
    let show = std::io::stdout().is_terminal();
    let root = root::ensure(
        &node.tenure()?.volumes.catalog,
        environment,
        &config.root_credentials_file,
        show,
    )
    .await?;
    let addresses: Vec<SocketAddr> = listeners.s3.iter().filter_map(Listener::address).collect();
    let banner = listeners.banner(config, &root).render();
    let certificates = listeners.certificates();
    let portals = listeners.iscsi.iter().filter_map(Listener::address);
    node.block.begin(portals.collect()).await;
    let mut running = Running::start(config, node, listeners, certificates.clone());
    node.gate.set_open(true);
    node.health.enter(Phase::Serving);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), s3 = ?addresses, "serving");
    print_banner(&banner);
    let outcome = loop {
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Reload => reload(&certificates).await,
                Asked::Stop => break Ok(()),
            },
            failure = running.ended() => break Err(failure),
        }
    };
    tracing::info!("stopping");
    node.health.enter(Phase::Stopping);
    tokio::select! {
        () = running.stop() => return outcome,
        () = second_stop(signals) => {}
    }
    running.cut().await;
    let what = "told twice to stop: requests were cut";
    outcome.and(Err(Failure::new(Exit::Failed, what)))
}

/// Bound sockets that are not served yet.
#[derive(Debug)]
struct Listeners {
    s3: Vec<Listener>,
    iscsi: Vec<Listener>,
    metrics: Option<Listener>,
    admin: Listener,
    admin_tcp: Option<(Listener, Secret)>,
}

impl Listeners {
    async fn bind(config: &Config) -> Result<Self, Failure> {
        let mut s3 = Vec::with_capacity(config.s3.listen.len());
        for listen in &config.s3.listen {
            if listen.tls.is_none() && !listen.address.ip().is_loopback() {
                tracing::warn!(address = %listen.address, "S3 is served without TLS");
            }
            s3.push(Listener::bind(listen).await?);
        }
        let mut iscsi = Vec::with_capacity(config.iscsi.listen.len());
        for address in &config.iscsi.listen {
            let listen = Listen {
                address: *address,
                tls: None,
            };
            iscsi.push(Listener::bind(&listen).await?);
        }
        let metrics = match config.metrics {
            None => None,
            Some(address) => Some(Listener::bind(&Listen { address, tls: None }).await?),
        };
        let admin_tcp = match &config.admin.tcp {
            None => None,
            Some(tcp) => {
                let token = token(&tcp.token_file)
                    .map_err(|failure| failure.of_key("admin.tcp.token_file"))?;
                Some((Listener::bind(&tcp.listen).await?, token))
            }
        };
        Ok(Self {
            s3,
            iscsi,
            metrics,
            admin: Listener::bind_unix(&config.admin.socket)?,
            admin_tcp,
        })
    }

    fn certificates(&self) -> Vec<Arc<Certificates>> {
        let admin = self.admin_tcp.as_ref().map(|(listener, _)| listener);
        self.s3
            .iter()
            .chain(admin)
            .filter_map(|listener| listener.certificates().cloned())
            .collect()
    }

    fn banner<'a>(&self, config: &'a Config, root: &'a RootKeys) -> Banner<'a> {
        let address = |listener: &Listener| -> Option<SocketAddr> { listener.address() };
        let certificate = |listen: &'a Listen| listen.tls.as_ref().map(|tls| &*tls.certificate);
        Banner {
            data_dir: &config.data_dir,
            in_memory: matches!(config.backend, Backend::Memory { .. }),
            s3: self
                .s3
                .iter()
                .zip(&config.s3.listen)
                .filter_map(|(one, listen)| Some((address(one)?, certificate(listen))))
                .collect(),
            region: &config.s3.region,
            iscsi: self.iscsi.iter().filter_map(Listener::address).collect(),
            metrics: self.metrics.as_ref().and_then(address),
            admin_socket: &config.admin.socket,
            admin_tcp: self.admin_tcp.as_ref().and_then(|(one, _)| address(one)),
            root,
            credentials_file: &config.root_credentials_file,
        }
    }
}

/// Everything that runs beside the wait for signals.
#[derive(Debug)]
struct Running {
    /// Ends first: nothing new comes in, and what is in work is finished.
    front: JoinSet<()>,
    front_stop: StopControl,
    /// Stays until the front has ended, so that metrics and health tell of the stop.
    side: JoinSet<()>,
    side_stop: StopControl,
}

impl Running {
    fn start(
        config: &Config,
        node: &Node,
        listeners: Listeners,
        certificates: Vec<Arc<Certificates>>,
    ) -> Self {
        let (front_stop, stopping) = stop();
        let mut front = JoinSet::new();
        let bounds = Bounds {
            permits: Arc::new(Semaphore::new(config.limits.connections)),
            stop_timeout: config.limits.stop_timeout,
        };
        for listener in listeners.s3 {
            let protocol = Protocol::S3(Arc::clone(&node.s3));
            front.spawn(listener.run(protocol, bounds.clone(), stopping.clone()));
        }
        let bounds = Bounds {
            permits: Arc::new(Semaphore::new(config.iscsi.connections)),
            stop_timeout: config.limits.stop_timeout,
        };
        for listener in listeners.iscsi {
            let protocol = Protocol::Iscsi(Arc::clone(node.block.iscsi()));
            front.spawn(listener.run(protocol, bounds.clone(), stopping.clone()));
        }
        front.spawn(node.block.clone().follow(stopping.clone()));
        let reclaimed = Arc::new(ReclaimStats::default());
        front.spawn(reclaim::run(
            node.tenures.clone(),
            config.reclaim.interval,
            Arc::clone(&reclaimed),
            stopping.clone(),
        ));
        front.spawn(reclaim::finish_buckets(
            node.tenures.clone(),
            Arc::new(SystemClock),
            stopping.clone(),
        ));

        front.spawn(tenure::keep(
            Arc::clone(&node.keeper),
            Arc::clone(node.health.reopened()),
            stopping.clone(),
        ));

        let (side_stop, stopping) = stop();
        let mut side = JoinSet::new();
        let mut http = |listener: Listener, router: axum::Router| {
            let bounds = Bounds {
                permits: Arc::new(Semaphore::new(SIDE_CONNECTIONS_MAX)),
                stop_timeout: Duration::from_secs(1),
            };
            side.spawn(listener.run(Protocol::Http(router), bounds, stopping.clone()));
        };
        if let Some(listener) = listeners.metrics {
            let sources = metrics::Sources::new(node, reclaimed);
            http(listener, metrics::router(sources));
        }
        let router = admin::router(admin::Context::new(node, config));
        if let Some((listener, token)) = listeners.admin_tcp {
            http(listener, admin::with_token(router.clone(), token));
        }
        http(listeners.admin, router);
        if let Engine::Rados(store) = &node.engine {
            side.spawn(pools::watch(store.clone(), stopping.clone()));
        }
        side.spawn(watch_certificates(certificates, stopping));
        Self {
            front,
            front_stop,
            side,
            side_stop,
        }
    }

    /// Waits until a part ends that should not.
    async fn ended(&mut self) -> Failure {
        let part = tokio::select! {
            Some(_) = self.front.join_next() => "serving S3 or iSCSI",
            Some(_) = self.side.join_next() => "serving metrics or admin requests",
        };
        Failure::new(Exit::Failed, format!("the task of {part} ended by itself"))
            .with_help("the log tells why; please report it")
    }

    /// Lets everything end as it should.
    async fn stop(&mut self) {
        self.front_stop.request();
        while self.front.join_next().await.is_some() {}
        self.side_stop.request();
        while self.side.join_next().await.is_some() {}
    }

    /// Ends everything where it is.
    async fn cut(&mut self) {
        self.front.shutdown().await;
        self.side.shutdown().await;
    }
}

async fn second_stop(signals: &mut Signals) {
    while signals.next().await != Asked::Stop {}
}

async fn watch_certificates(certificates: Vec<Arc<Certificates>>, stop: Stop) {
    loop {
        tokio::select! {
            () = stop.requested() => return,
            () = tokio::time::sleep(CERTIFICATE_CHECK_INTERVAL) => reload(&certificates).await,
        }
    }
}

/// Looks at the files of all certificates, and logs what came of it.
async fn reload(certificates: &[Arc<Certificates>]) {
    for one in certificates {
        let one = Arc::clone(one);
        let look = move || {
            let file = one.files().certificate.display().to_string();
            match one.reload() {
                Reload::Unchanged => {}
                Reload::Replaced => tracing::info!(file, "a new certificate is in use"),
                Reload::Refused(failure) => {
                    tracing::error!("the former certificate stays in use: {failure}");
                }
            }
        };
        if let Err(panic) = tokio::task::spawn_blocking(look).await {
            tracing::error!(%panic, "looking at a certificate failed");
        }
    }
}

/// A keyring is there from an earlier start, or was put there for a store that was to follow. Where
/// the store's volume is not mounted, clients would find an empty server that takes their writes.
fn warn_of_new_store(config: &Config) {
    tracing::warn!(
        keyring = %config.keyring_file.display(),
        "making an empty store in {}, although the keyring was made before; if there should be \
         one, stop at once and put it back, or mount the volume that it is on",
        store_path(&config.data_dir).display(),
    );
}

fn token(path: &std::path::Path) -> Result<Secret, Failure> {
    let text = private_file::read(path)?.ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            format!("the token {} does not exist", path.display()),
        )
        .with_help("write a long random token into it, with mode 0600")
    })?;
    Secret::new(text.trim()).map_err(|error| {
        let what = format!("the token in {} {error}", path.display());
        Failure::new(Exit::Usage, what)
    })
}

fn random_seed() -> Result<u64, Failure> {
    let mut seed = [0; 8];
    SystemRandom::new()
        .fill(&mut seed)
        .map_err(|_| Failure::new(Exit::Failed, "the machine gives no random numbers"))?;
    Ok(u64::from_le_bytes(seed))
}

/// Whoever started the program may have closed its output; that is no reason to stop.
fn print_banner(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::warn!(%error, "cannot write to standard output");
    }
}
