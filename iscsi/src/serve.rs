//! One connection on tokio: bytes in, steps of the session, commands executed, bytes out.
//!
//! What is decided here and nowhere else: how many connections there are, how long a login takes,
//! when a reply leaves and whether it may. [`entry`] is the login, [`feature`] the full feature
//! phase, [`output`] what waits to be written.

mod cut_off;
mod doorkeeper;
mod entry;
mod feature;
mod output;

use std::net::SocketAddr;
use std::sync::{Arc, RwLock};

use portico_backend::budget::Budget;
use portico_backend::connection::{Peer, Stop};
use portico_backend::gate::Gate;
use ring::rand::SystemRandom;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::limits::{ADDRESS_LOGINS_MAX, CONNECTIONS_MAX};
use crate::session::registry::Sessions;
use crate::stats::Stats;
use crate::target::Targets;
use cut_off::CutOff;
use doorkeeper::Doorkeeper;
use entry::Entry;
use feature::FullFeature;

pub use cut_off::Cut;

/// What all connections share.
#[derive(Debug)]
pub struct Service {
    sessions: Sessions,
    window_budget: Budget,
    targets: RwLock<Arc<Targets>>,
    stats: Arc<Stats>,
    gate: Gate,
    random: SystemRandom,
    doorkeeper: Doorkeeper,
    cut_off: CutOff,
}

/// The parts of a [`Service`] that exist before it.
#[derive(Clone, Debug)]
pub struct ServiceParts {
    pub targets: Targets,
    pub stats: Arc<Stats>,
    /// Bytes that commands may bring along unasked, over all sessions: each session keeps
    /// `FirstBurstLength` of it for every command that it may send.
    pub window_budget: Budget,
    /// Bytes of what is asked for and read.
    pub budget: Budget,
    pub gate: Gate,
}

/// The two ends of a connection.
#[derive(Clone, Debug)]
pub struct Ends {
    pub peer: Peer,
    /// The address that the initiator reached: it says which portal this is.
    pub local: SocketAddr,
}

impl Service {
    #[must_use]
    pub fn new(parts: ServiceParts) -> Self {
        Self {
            sessions: Sessions::new(parts.window_budget.clone(), parts.budget),
            window_budget: parts.window_budget,
            targets: RwLock::new(Arc::new(parts.targets)),
            stats: parts.stats,
            gate: parts.gate,
            random: SystemRandom::new(),
            doorkeeper: Doorkeeper::new(CONNECTIONS_MAX, ADDRESS_LOGINS_MAX),
            cut_off: CutOff::default(),
        }
    }

    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Bytes that commands may bring along unasked.
    #[must_use]
    pub fn window_budget(&self) -> &Budget {
        &self.window_budget
    }

    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// What a reset does when aborted commands have not ended after
    /// [`RESET_TIMEOUT`](crate::limits::RESET_TIMEOUT). Without it, it is rejected then. The first
    /// one counts.
    pub fn set_cut_off(&self, cut: Box<Cut>) {
        self.cut_off.set(cut);
    }

    /// What is served now.
    ///
    /// # Panics
    /// If a thread panicked while it changed that.
    #[must_use]
    pub fn targets(&self) -> Arc<Targets> {
        Arc::clone(&self.targets.read().expect("no holder panics"))
    }

    /// Serves these targets from now on. Sessions of targets that are gone end; those of targets
    /// that stay keep what they have.
    ///
    /// # Panics
    /// Like [`Service::targets`].
    pub fn set_targets(&self, targets: Targets) {
        let targets = Arc::new(targets);
        *self.targets.write().expect("no holder panics") = Arc::clone(&targets);
        for session in self.sessions.list() {
            if let Some(name) = session.target()
                && !targets.has(name)
            {
                self.sessions.drop_target(name);
            }
        }
    }
}

/// Serves one connection to its end. After `stop` is requested the initiator is asked to log out;
/// cancelling the future cuts the connection. Commands that run then end all the same.
///
/// The caller accepts, ends TLS and sets `TCP_NODELAY`.
pub async fn serve<S>(stream: S, ends: Ends, service: Arc<Service>, stop: Stop)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = ends.peer.address.map(|address| address.ip());
    let Some(mut place) = service.doorkeeper.admit(address) else {
        service.stats.connections_refused.add(1);
        tracing::debug!(peer = %ends.peer, "too many connections");
        return;
    };
    let open = OpenConnection::new(Arc::clone(&service.stats));
    let entry = Entry::new(stream, &ends, Arc::clone(&service));
    match entry.run(&stop).await {
        Ok(entered) => {
            place.has_logged_in();
            let session = Arc::clone(&entered.member.session);
            tracing::debug!(peer = %ends.peer, initiator = %session.nexus().initiator, "logged in");
            let ended = FullFeature::new(entered, service, stop).run().await;
            tracing::debug!(peer = %ends.peer, %ended, "connection ended");
        }
        Err(reason) => {
            service.stats.logins_failed.add(1);
            tracing::debug!(peer = %ends.peer, %reason, "no login");
        }
    }
    drop(open);
}

/// Counts a connection for as long as it lives.
struct OpenConnection(Arc<Stats>);

impl OpenConnection {
    fn new(stats: Arc<Stats>) -> Self {
        stats.connections.add(1);
        stats.connections_open.add(1);
        Self(stats)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections_open.subtract(1);
    }
}

#[cfg(test)]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and prints what came instead"
)]
mod tests;
