//! Connections and datagrams on tokio: bytes in, calls done, bytes out.
//!
//! A call goes on when its connection ends: what it changes is not left half done, and who sends it again
//! waits for it. [`dispatch`] does a call, [`stream`] is a connection, [`datagram`] a socket of UDP.

mod datagram;
mod dispatch;
mod stream;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use portico_backend::budget::Budget;
use portico_backend::clock::Clock;
use portico_backend::gate::Gate;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::export::Exports;
use crate::limits::CONNECTIONS_MAX;
use crate::op::mount::Mounts;
use crate::op::portmap::Registration;
use crate::session::reply_cache::{CallKey, ReplyCache};

pub use datagram::serve_datagrams;
pub use stream::serve;

/// What all connections share.
#[derive(Debug)]
pub struct Service {
    exports: RwLock<Arc<Exports>>,
    registered: Vec<Registration>,
    replies: Mutex<ReplyCache<Waiter>>,
    mounts: Mutex<Mounts>,
    budget: Budget,
    gate: Gate,
    clock: Arc<dyn Clock>,
    places: Arc<Semaphore>,
    began: Instant,
}

/// The parts of a [`Service`] that exist before it.
pub struct ServiceParts {
    pub exports: Exports,
    /// What the port mapper tells.
    pub registered: Vec<Registration>,
    /// Bytes of calls and replies.
    pub budget: Budget,
    pub gate: Gate,
    pub clock: Arc<dyn Clock>,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub peer: SocketAddr,
    /// The address that the client reached.
    pub local: SocketAddr,
}

/// Who waits for a call that another one does: it gets the results, or nothing.
type Waiter = oneshot::Sender<Bytes>;

impl fmt::Debug for ServiceParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceParts").finish_non_exhaustive()
    }
}

impl Service {
    #[must_use]
    pub fn new(parts: ServiceParts) -> Self {
        Self {
            exports: RwLock::new(Arc::new(parts.exports)),
            registered: parts.registered,
            replies: Mutex::default(),
            mounts: Mutex::default(),
            budget: parts.budget,
            gate: parts.gate,
            clock: parts.clock,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            began: Instant::now(),
        }
    }

    #[must_use]
    pub fn exports(&self) -> Arc<Exports> {
        let exports = self.exports.read();
        Arc::clone(&exports.unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls that begin from now on are held against these.
    pub fn set_exports(&self, exports: Exports) {
        let mut current = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(exports);
    }

    /// A reply that a file system logged with its change, before a crash.
    pub fn restore(&self, call: CallKey, results: &[u8]) {
        let now_ms = self.now_ms();
        self.replies().restore(call, results, now_ms);
    }

    fn replies(&self) -> MutexGuard<'_, ReplyCache<Waiter>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never goes back.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
