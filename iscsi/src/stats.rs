//! What the front door counts. The program renders it.

use portico_backend::stats::{Counter, Gauge, LatencyHistogram};

/// All counters of the iSCSI front door.
#[derive(Debug, Default)]
pub struct Stats {
    pub connections: Counter,
    pub connections_open: Gauge,
    /// Connections refused for their number.
    pub connections_refused: Counter,
    pub sessions: Counter,
    pub sessions_open: Gauge,
    /// Logins that were answered with a failure.
    pub logins_failed: Counter,
    /// Commands answered, whatever their status.
    pub commands: Counter,
    /// Commands whose status was not GOOD.
    pub commands_failed: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    /// Executing a command, without its data transfer.
    pub service: LatencyHistogram,
    /// Task management functions, resets included.
    pub management: Counter,
    pub rejects: Counter,
    /// Connections ended for silence, a digest, or a protocol error.
    pub connections_cut: Counter,
}
