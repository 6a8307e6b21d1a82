//! Runs the background work of the volumes: one bounded step after the other, with pauses.

use std::sync::Arc;
use std::time::Duration;

use portico_backend::bucket::Buckets;
use portico_backend::clock::Clock;
use portico_backend::connection::Stop;
use portico_backend::error::chain;
use portico_backend::volumes::Volumes;

use crate::limits::{FINISH_INTERVAL, RECLAIM_STEP_PAUSE};
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

/// Finishes buckets whose making or deletion was begun and given up, until the stop is requested.
pub(crate) async fn finish_buckets(volumes: Volumes, clock: Arc<dyn Clock>, stop: Stop) {
    loop {
        if let Err(error) = volumes.buckets_finish(clock.now_ms()).await {
            tracing::warn!(error = chain(&error), "cannot look for unfinished buckets");
        }
        tokio::select! {
            () = stop.requested() => return,
            () = tokio::time::sleep(FINISH_INTERVAL) => {}
        }
    }
}
