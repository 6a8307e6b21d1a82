//! How much the cluster has of us at once: what is in flight keeps its memory until the cluster
//! answers, whoever gave up waiting, so a frozen cluster must not be given more and more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::stats::RadosStats;
use crate::budget::{Budget, Permit};
use crate::object::{ObjectId, Priority};

#[derive(Debug)]
pub(super) struct Flow {
    ops: Arc<Semaphore>,
    /// Background work takes from here first, so that clients always find a place.
    background: Arc<Semaphore>,
    bytes: Budget,
    underway: Mutex<Underway>,
    stats: Arc<RadosStats>,
    slow_op: Duration,
}

#[derive(Debug, Default)]
struct Underway {
    next: u64,
    /// By number, which is the order of asking.
    ops: BTreeMap<u64, (Instant, ObjectId, Kind)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Notify,
    Read,
    Write,
}

/// A place among the operations in flight, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    flow: Arc<Flow>,
    number: u64,
    bytes: u64,
    start: Instant,
    kind: Kind,
    object: ObjectId,
    _permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>, Permit),
}

/// The operation that the cluster has had for the longest time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OldestOp {
    pub object: String,
    pub age: Duration,
}

impl Flow {
    pub(super) fn new(
        ops_max: u32,
        bytes_max: u64,
        slow_op: Duration,
        stats: Arc<RadosStats>,
    ) -> Arc<Self> {
        let semaphore = |permits: u32| {
            let permits = usize::try_from(permits).expect("32 bits fit");
            Arc::new(Semaphore::new(permits))
        };
        Arc::new(Self {
            ops: semaphore(ops_max),
            background: semaphore((ops_max / 4).max(1)),
            bytes: Budget::new(bytes_max),
            underway: Mutex::default(),
            stats,
            slow_op,
        })
    }

    /// Waits for a place, in the order of asking.
    pub(super) async fn enter(
        self: &Arc<Self>,
        object: &ObjectId,
        kind: Kind,
        priority: Priority,
        bytes: u64,
    ) -> Place {
        let asked = Instant::now();
        let background = match priority {
            Priority::Background => Some(acquire(&self.background).await),
            Priority::Client | Priority::Forward | Priority::Urgent => None,
        };
        let permits = (
            acquire(&self.ops).await,
            background,
            self.bytes.take(bytes).await,
        );
        let start = Instant::now();
        self.stats.queue.record(start - asked);
        self.stats.in_flight.add(1);
        self.stats.in_flight_bytes.add(bytes);
        let number = {
            let mut underway = self.underway();
            underway.next += 1;
            let number = underway.next;
            underway.ops.insert(number, (start, object.clone(), kind));
            number
        };
        Place {
            flow: Arc::clone(self),
            number,
            bytes,
            start,
            kind,
            object: object.clone(),
            _permits: permits,
        }
    }

    pub(super) fn oldest(&self) -> Option<OldestOp> {
        let underway = self.underway();
        let (start, object, _) = underway.ops.values().next()?;
        Some(OldestOp {
            object: object.to_string(),
            age: start.elapsed(),
        })
    }

    fn underway(&self) -> MutexGuard<'_, Underway> {
        self.underway.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let elapsed = self.start.elapsed();
        let stats = &self.flow.stats;
        match self.kind {
            Kind::Read => stats.read_service.record(elapsed),
            Kind::Write => stats.write_service.record(elapsed),
            Kind::Notify => {}
        }
        stats.in_flight.subtract(1);
        stats.in_flight_bytes.subtract(self.bytes);
        self.flow.underway().ops.remove(&self.number);
        if elapsed >= self.flow.slow_op && self.kind != Kind::Notify {
            stats.slow_ops.add(1);
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(object = %self.object, kind = ?self.kind, elapsed_ms, "slow operation");
        }
    }
}

async fn acquire(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let acquired = Arc::clone(semaphore).acquire_owned().await;
    acquired.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{ObjectName, Pool};

    fn id() -> ObjectId {
        ObjectId::new(&Pool::new("p", ""), ObjectName::new("a"))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_in_flight_is_bounded_and_clients_find_a_place_beside_background_work() {
        let stats = Arc::new(RadosStats::default());
        let flow = Flow::new(8, 1 << 20, Duration::from_secs(1), Arc::clone(&stats));
        let id = id();
        let enter = |priority| flow.enter(&id, Kind::Write, priority, 4_096);
        let background = [
            enter(Priority::Background).await,
            enter(Priority::Background).await,
        ];
        let short = Duration::from_millis(5);
        let third = tokio::time::timeout(short, enter(Priority::Background)).await;
        assert!(third.is_err(), "a quarter is for background work");
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(enter(Priority::Client).await);
        }
        assert!(
            tokio::time::timeout(short, enter(Priority::Client))
                .await
                .is_err()
        );
        assert_eq!(stats.in_flight.value(), 8);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(flow.oldest().unwrap().age >= Duration::from_secs(2));
        drop(background);
        drop(clients);
        assert_eq!(
            (stats.in_flight.value(), stats.in_flight_bytes.value()),
            (0, 0)
        );
        assert_eq!(stats.slow_ops.value(), 8);
        assert_eq!(flow.oldest(), None);
    }
}
