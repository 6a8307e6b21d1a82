//! Runs the background work of the buckets: one bounded step after the other, with pauses.

use std::sync::Arc;
use std::time::Duration;

use portico_backend::bucket::Buckets;
use portico_backend::connection::Stop;
use portico_backend::error::chain;

use crate::limits::RECLAIM_STEP_PAUSE;
use crate::metrics::ReclaimStats;

/// Works until the stop is requested; a round starts every `interval`.
pub(crate) async fn run(
    buckets: Arc<Buckets>,
    interval: Duration,
    stats: Arc<ReclaimStats>,
    stop: Stop,
) {
    loop {
        // A step that is cut short is like one that a crash ended: the next one goes on.
        let outcome = tokio::select! {
            () = stop.requested() => return,
            outcome = buckets.reclaim_step() => outcome,
        };
        let pause = match outcome {
            Ok(outcome) => {
                stats.removed.add(outcome.removed);
                if outcome.round_ended {
                    stats.rounds.add(1);
                    interval
                } else {
                    RECLAIM_STEP_PAUSE
                }
            }
            Err(error) => {
                stats.failures.add(1);
                tracing::warn!(
                    error = chain(&error),
                    "background work failed; trying later"
                );
                interval
            }
        };
        tokio::select! {
            () = stop.requested() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
