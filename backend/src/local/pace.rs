//! Back-pressure: while a checkpoint is on its way, writers share the room that is left beside it,
//! so that each waits a little and none waits for all of the checkpoint.
//!
//! The committer says how much room there is and how long it must last; writers take turns before
//! their jobs are queued. Nobody who waits here holds anything that others need.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::object::Priority;

/// The rate at which writers are let in.
#[derive(Debug, Default)]
pub(super) struct Pace {
    state: Mutex<State>,
    lifted: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// `None`: as fast as they come.
    bytes_per_second: Option<u64>,
    /// When the next one of each lane may enter.
    next: [Option<Instant>; 2],
}

/// Large writes of the background and the small ones of clients don't wait behind each other.
#[derive(Clone, Copy, Debug)]
enum Lane {
    Client,
    Background,
}

impl Pace {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a change of `bytes` may enter.
    pub(super) async fn turn(&self, bytes: u64, priority: Priority) {
        let lane = match priority {
            Priority::Urgent => return,
            Priority::Client | Priority::Forward => Lane::Client,
            Priority::Background => Lane::Background,
        };
        // Before the look at the rate, or a lift between the two would be missed.
        let lifted = self.lifted.notified();
        let Some(at) = self.take_turn(bytes, lane) else {
            return;
        };
        tokio::select! {
            () = tokio::time::sleep_until(at) => {}
            () = lifted => {}
        }
    }

    /// `room_bytes` must last for `left`.
    pub(super) fn limit(&self, room_bytes: u64, left: Duration) {
        let left_us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX).max(1);
        let rate = room_bytes.saturating_mul(1_000_000) / left_us;
        self.state().bytes_per_second = Some(rate.max(RATE_MIN));
    }

    /// There is room for everybody.
    pub(super) fn lift(&self) {
        let mut state = self.state();
        if state.bytes_per_second.is_none() {
            return;
        }
        *state = State::default();
        drop(state);
        self.lifted.notify_waiters();
    }

    /// `None`: at once.
    fn take_turn(&self, bytes: u64, lane: Lane) -> Option<Instant> {
        let mut state = self.state();
        let rate = state.bytes_per_second?;
        // Together more than there is: the committer sees it and says less.
        let lane_rate = match lane {
            Lane::Client => rate,
            Lane::Background => rate / 2,
        };
        let now = Instant::now();
        let next = &mut state.next[lane as usize];
        let at = next.map_or(now, |next| next.max(now));
        let share_us = bytes.saturating_mul(1_000_000) / lane_rate;
        *next = Some(at + Duration::from_micros(share_us));
        (at > now + SHORTEST_WAIT).then_some(at)
    }
}

/// Writers are never stopped: the committer stops them when there is no room at all.
const RATE_MIN: u64 = 64 * 1024;

/// A timer is no more exact than this.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writers_share_what_is_left_and_a_lift_lets_all_in() {
        let pace = Arc::new(Pace::default());
        let began = Instant::now();
        pace.turn(1 << 30, Priority::Client).await;
        assert_eq!(began.elapsed(), Duration::ZERO);

        pace.limit(1 << 20, Duration::from_secs(1));
        for _ in 0..8 {
            pace.turn(64 << 10, Priority::Client).await;
        }
        let elapsed = began.elapsed().as_millis();
        assert!((430..=450).contains(&elapsed), "{elapsed} ms");

        // The second of the background waits, but nobody behind it.
        let copy = || pace.turn(1 << 20, Priority::Background);
        copy().await;
        let client = async {
            pace.turn(1, Priority::Client).await;
            began.elapsed().as_millis()
        };
        let ((), elapsed) = tokio::join!(copy(), client);
        assert!(elapsed <= 520, "{elapsed} ms");
        assert!(began.elapsed() > Duration::from_secs(2));

        let waiting = tokio::spawn({
            let pace = Arc::clone(&pace);
            async move {
                pace.turn(1 << 30, Priority::Client).await;
                pace.turn(1, Priority::Client).await;
            }
        });
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(!waiting.is_finished());
        pace.lift();
        waiting.await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(14));
    }
}
