//! What the front door counts. The program renders it.

use std::time::Duration;

use portico_backend::stats::{Counter, Gauge, LatencyHistogram};

use crate::scsi::command::{Outcome, Status};

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

/// What a unit did, by what was asked of it.
#[derive(Debug, Default)]
pub struct UnitStats {
    pub read: Work,
    /// Everything that changes the medium.
    pub write: Work,
    pub other: Work,
}

/// Commands of one kind, or of one session.
#[derive(Debug, Default)]
pub struct Work {
    pub commands: Counter,
    /// Those whose status was not GOOD.
    pub failed: Counter,
    /// Bytes from the initiator.
    pub bytes_in: Counter,
    /// Bytes to the initiator.
    pub bytes_out: Counter,
    /// Executing a command, without its data transfer.
    pub time: LatencyHistogram,
}

impl Work {
    pub(crate) fn record(&self, elapsed: Duration, outcome: &Outcome) {
        self.commands.add(1);
        if outcome.status == Status::Good {
            self.bytes_in.add(outcome.data_out_bytes);
        } else {
            self.failed.add(1);
        }
        self.bytes_out.add(outcome.data_in.len());
        self.time.record(elapsed);
    }
}
