//! Counters and histograms as plain atomics, in structs that are handed in. Nothing is global; the
//! program renders them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Goes up only.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets it unless it is more.
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets in microseconds: powers of four from 16 us to 17 minutes, enough to
/// tell a cache hit from a flush from a stall.
pub const LATENCY_BOUNDS_US: [u64; 14] = [
    16,
    64,
    256,
    1_024,
    4_096,
    16_384,
    65_536,
    262_144,
    1_048_576,
    4_194_304,
    16_777_216,
    67_108_864,
    268_435_456,
    1_073_741_824,
];

/// How long something took.
#[derive(Debug, Default)]
pub struct LatencyHistogram {
    /// One for each bound and one for all above; not cumulative.
    buckets: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
    longest_us: AtomicU64,
}

impl LatencyHistogram {
    pub fn record(&self, elapsed: Duration) {
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let index = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[index].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        self.longest_us.fetch_max(us, Ordering::Relaxed);
    }

    /// The longest of all, to the microsecond.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.load(Ordering::Relaxed))
    }

    /// Counts up to and including each bound, then of all; and the sum in microseconds.
    #[must_use]
    pub fn cumulative(&self) -> ([u64; LATENCY_BOUNDS_US.len() + 1], u64) {
        let mut counts = [0; LATENCY_BOUNDS_US.len() + 1];
        let mut sum = 0;
        for (count, bucket) in counts.iter_mut().zip(&self.buckets) {
            sum += bucket.load(Ordering::Relaxed);
            *count = sum;
        }
        (counts, self.sum_us.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_counts_below_it() {
        let histogram = LatencyHistogram::default();
        for us in [16, 17, u64::MAX / 1_000] {
            histogram.record(Duration::from_micros(us));
        }
        let (counts, _) = histogram.cumulative();
        assert_eq!(counts[0], 1);
        assert_eq!(counts[1], 2);
        assert_eq!(counts[LATENCY_BOUNDS_US.len()], 3);
        assert_eq!(histogram.longest().as_micros(), 18_446_744_073_709_551);
    }
}
