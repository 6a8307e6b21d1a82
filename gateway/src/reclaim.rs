//! Runs the background work of the volumes: one bounded step after the other, with pauses.

use std::sync::Arc;
use std::time::Duration;

use portico_backend::clock::Clock;
use portico_backend::connection::Stop;
use portico_backend::error::chain;
use portico_backend::tenure::Tenures;

use crate::limits::{FINISH_INTERVAL, RECLAIM_STEP_PAUSE, VACANT_PAUSE};
use crate::metrics::ReclaimStats;

/// Works until the stop is requested; a round starts every `interval`.
pub(crate) async fn run(
    tenures: Tenures,
    interval: Duration,
    stats: Arc<ReclaimStats>,
    stop: Stop,
) {
    loop {
        let Ok(tenure) = tenures.current() else {
            tokio::select! {
                () = stop.requested() => return,
                () = tokio::time::sleep(VACANT_PAUSE) => continue,
            }
        };
        // A step that is cut short is like one that a crash ended: the next one goes on.
        let outcome = tokio::select! {
            () = stop.requested() => return,
            outcome = tenure.volumes.buckets.reclaim_step() => outcome,
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
            Err(_) if !tenure.lasts() => VACANT_PAUSE,
            Err(error) => {
                stats.failures.add(1);
                tracing::warn!(
                    error = chain(&error),
                    "background work failed; trying later"
                );
                interval
            }
        };
        // A session that was fenced is not kept for the pause.
        drop(tenure);
        tokio::select! {
            () = stop.requested() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Finishes buckets whose making or deletion was begun and given up, until the stop is requested.
pub(crate) async fn finish_buckets(tenures: Tenures, clock: Arc<dyn Clock>, stop: Stop) {
    loop {
        let mut pause = VACANT_PAUSE;
        if let Ok(tenure) = tenures.current() {
            let finished = tenure.volumes.buckets_finish(clock.now_ms()).await;
            if tenure.lasts() {
                pause = FINISH_INTERVAL;
                if let Err(error) = finished {
                    tracing::warn!(error = chain(&error), "cannot look for unfinished buckets");
                }
            }
        }
        tokio::select! {
            () = stop.requested() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
