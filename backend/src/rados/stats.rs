//! What the engine counts, over all sessions of the process.

use crate::stats::{Counter, Gauge, LatencyHistogram};

/// Shared by all sessions; the program renders it.
#[derive(Debug, Default)]
pub struct RadosStats {
    /// From the call until the cluster is asked: the wait for a place among those in flight.
    pub queue: LatencyHistogram,
    /// From asking the cluster until its answer.
    pub read_service: LatencyHistogram,
    pub write_service: LatencyHistogram,
    /// Operations that took longer than `RadosOptions::slow_op`.
    pub slow_ops: Counter,
    /// Calls that gave up at their deadline; the cluster may still execute them.
    pub timeouts: Counter,
    /// Calls that gave up before the cluster was asked.
    pub refused: Counter,
    /// Operations that the cluster has, also those that nobody waits for any more.
    pub in_flight: Gauge,
    /// Bytes that these operations keep.
    pub in_flight_bytes: Gauge,
    /// Writes answered with "no space".
    pub no_space: Counter,
    /// Sessions of this process that another one fenced.
    pub fenced_sessions: Counter,
    /// Watches that ended without being dropped.
    pub watches_lost: Counter,
}
