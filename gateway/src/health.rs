//! Whether the program lives and whether it can serve, for those who send it traffic.

use std::sync::Arc;
use std::time::Duration;

use portico_backend::error::chain;
use portico_backend::gate::Gate;
use portico_backend::stats::Counter;
use portico_backend::tenure::Tenures;
use tokio::sync::watch;

/// How far the program is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    Starting,
    Serving,
    Stopping,
}

/// Answers whether this node can serve. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    phase: watch::Sender<Phase>,
    gate: Gate,
    tenures: Tenures,
    reopened: Arc<Counter>,
}

/// How long the store may take to answer before it counts as unable to serve.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

impl Health {
    pub(crate) fn new(gate: Gate, tenures: Tenures) -> Self {
        Self {
            phase: watch::Sender::new(Phase::Starting),
            gate,
            tenures,
            reopened: Arc::default(),
        }
    }

    /// Sessions that were opened in place of one that was fenced.
    pub(crate) fn reopened(&self) -> &Arc<Counter> {
        &self.reopened
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// # Errors
    /// The reason why requests should go elsewhere, as a sentence.
    pub(crate) async fn readiness(&self) -> Result<(), String> {
        match *self.phase.borrow() {
            Phase::Starting => return Err("the program is starting".to_owned()),
            Phase::Stopping => return Err("the program is stopping".to_owned()),
            Phase::Serving => {}
        }
        if !self.gate.is_open() {
            return Err("this node may not serve at the moment".to_owned());
        }
        let tenure = self.tenures.current().map_err(|why| why.to_string())?;
        // A store that refuses writes after an I/O error says so here, and with nothing buffered
        // it costs nothing.
        match tokio::time::timeout(STORE_TIMEOUT, tenure.store.flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("the store failed: {}", chain(&error))),
            Err(_) => Err("the store does not answer".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portico_backend::bucket::{BucketOptions, Buckets};
    use portico_backend::catalog::{Catalog, Keyring};
    use portico_backend::clock::{Clock, FixedClock};
    use portico_backend::gate::gate;
    use portico_backend::memory::{MemoryCluster, MemoryOptions};
    use portico_backend::object::Pool;
    use portico_backend::tenure::{Tenure, tenures, watched};
    use portico_backend::volumes::Volumes;

    #[tokio::test]
    async fn ready_means_serving_with_an_open_gate_and_a_store_that_answers() {
        let cluster = MemoryCluster::new(MemoryOptions::default());
        let (store, lasts) = watched(cluster.session("test"));
        let victim = store.session();
        let clock: Arc<dyn Clock> = Arc::new(FixedClock::new(1));
        let keyring = Arc::new(Keyring::generate("k1").unwrap());
        let (meta, data) = (Pool::new("meta", ""), Pool::new("data", ""));
        let catalog = Catalog::open(store.clone(), meta.clone(), clock.clone(), keyring);
        let catalog = catalog.await.unwrap();
        let options = BucketOptions::default();
        let buckets = Buckets::open(store.clone(), meta, data, clock, options);
        let buckets = buckets.await.unwrap();
        let volumes = Volumes { catalog, buckets };
        let (tenure, tenures) = tenures();
        tenure.begin(Tenure::new(volumes, store, lasts));
        let (control, gate) = gate(true);
        let health = Health::new(gate, tenures);
        assert!(health.readiness().await.unwrap_err().contains("starting"));
        health.enter(Phase::Serving);
        assert_eq!(health.readiness().await, Ok(()));
        control.set_open(false);
        assert!(health.readiness().await.is_err());
        control.set_open(true);
        cluster.session("other").fence(&victim).await.unwrap();
        let reason = health.readiness().await.unwrap_err();
        assert!(reason.contains("the store failed"), "{reason}");
        let reason = health.readiness().await.unwrap_err();
        assert!(reason.contains("was fenced"), "{reason}");
        tenure.end("it is being opened again");
        let reason = health.readiness().await.unwrap_err();
        assert!(reason.contains("opened again"), "{reason}");
        health.enter(Phase::Stopping);
        assert!(health.readiness().await.unwrap_err().contains("stopping"));
    }
}
