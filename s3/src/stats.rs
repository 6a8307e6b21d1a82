//! What the front door counts. The program renders it.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use portico_backend::stats::{Counter, Gauge, LatencyHistogram};

use crate::wire::action::ACTIONS;

/// All counters of the S3 front door.
#[derive(Debug)]
pub struct Stats {
    pub connections: Counter,
    pub connections_open: Gauge,
    pub requests_in_work: Gauge,
    /// One for each action by name, whether it is built or not.
    verbs: BTreeMap<&'static str, VerbStats>,
    /// Requests that failed before it was known which action they ask for.
    unrouted: VerbStats,
}

/// Counters of one verb.
#[derive(Debug, Default)]
pub struct VerbStats {
    /// Answered requests, failed ones included.
    pub count: Counter,
    /// Answers of 400 to 499.
    pub client_errors: Counter,
    /// Answers of 500 and above.
    pub server_errors: Counter,
    /// From the end of the request's head to the end of the reply's head, without the waiting that
    /// `queue` counts.
    pub service: LatencyHistogram,
    /// Waiting for bytes in flight.
    pub queue: LatencyHistogram,
    /// Bytes of request bodies as they came over the wire.
    pub bytes_in: Counter,
    /// Bytes of reply bodies that were announced.
    pub bytes_out: Counter,
}

/// What is counted of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) status: StatusCode,
    pub(crate) elapsed: Duration,
    pub(crate) queued: Duration,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            connections: Counter::default(),
            connections_open: Gauge::default(),
            requests_in_work: Gauge::default(),
            verbs: ACTIONS
                .iter()
                .map(|row| (row.name, VerbStats::default()))
                .collect(),
            unrouted: VerbStats::default(),
        }
    }
}

impl Stats {
    /// Counters of the action of this name, or of the requests that no action could be found for.
    #[must_use]
    pub fn verb(&self, name: Option<&str>) -> &VerbStats {
        name.and_then(|name| self.verbs.get(name))
            .unwrap_or(&self.unrouted)
    }

    /// Name and counters of every verb that was asked for.
    pub fn verbs(&self) -> impl Iterator<Item = (&'static str, &VerbStats)> {
        self.verbs
            .iter()
            .map(|(name, verb)| (*name, verb))
            .chain([("Unknown", &self.unrouted)])
            .filter(|(_, verb)| verb.count.value() > 0)
    }
}

impl VerbStats {
    pub(crate) fn record(&self, sample: &Sample) {
        self.count.add(1);
        if sample.status.is_client_error() {
            self.client_errors.add(1);
        }
        if sample.status.is_server_error() {
            self.server_errors.add(1);
        }
        self.service
            .record(sample.elapsed.saturating_sub(sample.queued));
        self.queue.record(sample.queued);
        self.bytes_in.add(sample.bytes_in);
        self.bytes_out.add(sample.bytes_out);
    }
}
