//! The order of changes that overlap.
//!
//! A store gives operations that overlap in time no order, and a command that an initiator aborted,
//! or whose session ended, goes on: it could undo what was written later and answered. So a change
//! begins once all earlier ones of the same bytes have ended, whoever asked for them.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Changes of one unit under way.
#[derive(Debug, Default)]
pub(super) struct Changes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    begun: u64,
    under_way: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    /// In ascending order, none of which touch.
    ranges: Vec<Range<u64>>,
    /// Earlier ones that overlap and have not ended.
    ahead: usize,
    go: Option<oneshot::Sender<()>>,
}

/// A change under way, until dropped.
#[derive(Debug)]
pub(super) struct Change<'a> {
    changes: &'a Changes,
    number: u64,
}

impl Changes {
    /// Waits for its turn; the order is that of the first polls.
    pub(super) async fn begin(&self, ranges: Vec<Range<u64>>) -> Change<'_> {
        let (change, go) = self.enter(ranges);
        if let Some(go) = go {
            // The sender goes with this entry alone.
            go.await.ok();
        }
        change
    }

    fn enter(&self, ranges: Vec<Range<u64>>) -> (Change<'_>, Option<oneshot::Receiver<()>>) {
        let ranges = merged(ranges);
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        let is_ahead = |entry: &&Entry| overlap(&entry.ranges, &ranges);
        let ahead = state.under_way.iter().filter(is_ahead).count();
        let (go, wait) = match ahead {
            0 => (None, None),
            _ => {
                let (go, wait) = oneshot::channel();
                (Some(go), Some(wait))
            }
        };
        state.under_way.push(Entry {
            number,
            ranges,
            ahead,
            go,
        });
        drop(state);
        let change = Change {
            changes: self,
            number,
        };
        (change, wait)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics half way through a change of it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut state = self.changes.state();
        let is_it = |entry: &Entry| entry.number == self.number;
        let Some(at) = state.under_way.iter().position(is_it) else {
            return;
        };
        let ended = state.under_way.swap_remove(at);
        for entry in &mut state.under_way {
            if entry.number > ended.number && overlap(&entry.ranges, &ended.ranges) {
                entry.ahead -= 1;
                if entry.ahead == 0
                    && let Some(go) = entry.go.take()
                {
                    // Whoever waited may be gone.
                    go.send(()).ok();
                }
            }
        }
    }
}

/// In ascending order, with those that overlap or touch joined and empty ones left out.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
    ranges
}

fn overlap(left: &[Range<u64>], right: &[Range<u64>]) -> bool {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        if one.end <= other.start {
            left.next();
        } else if other.end <= one.start {
            right.next();
        } else {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::task::Poll;

    use super::*;

    fn one(range: Range<u64>) -> Vec<Range<u64>> {
        std::iter::once(range).collect()
    }

    async fn is_ready<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn overlapping_changes_keep_their_order_and_others_do_not_wait() {
        let changes = Changes::default();
        let first = changes.begin(vec![0..8, 100..108]).await;
        let mut second = pin!(changes.begin(one(107..120)));
        assert!(is_ready(second.as_mut()).await.is_none());
        // Behind both, though only the second one overlaps the place they share.
        let mut third = pin!(changes.begin(vec![4..6, 119..121]));
        assert!(is_ready(third.as_mut()).await.is_none());
        let other = changes.begin(vec![8..100, 121..122]).await;
        drop(first);
        let second = is_ready(second).await.unwrap();
        assert!(is_ready(third.as_mut()).await.is_none());
        drop(second);
        let third = is_ready(third).await.unwrap();
        drop((other, third));
        assert!(changes.state().under_way.is_empty());
    }

    #[tokio::test]
    async fn who_gives_up_waiting_lets_the_next_one_wait_for_the_first() {
        let changes = Changes::default();
        let first = changes.begin(one(0..8)).await;
        {
            let mut given_up = pin!(changes.begin(one(0..16)));
            assert!(is_ready(given_up.as_mut()).await.is_none());
        }
        let mut next = pin!(changes.begin(one(7..9)));
        assert!(is_ready(next.as_mut()).await.is_none());
        let free = changes.begin(one(9..16)).await;
        drop(first);
        assert!(is_ready(next).await.is_some());
        drop(free);
    }

    #[test]
    fn ranges_of_one_change_are_joined() {
        assert_eq!(merged(vec![8..9, 0..4, 4..6, 5..5, 1..2]), [0..6, 8..9]);
        assert!(overlap(&[0..6, 8..9], &[6..7, 8..10]));
        assert!(!overlap(&[0..6, 8..9], &[6..8, 9..10]));
        assert!(!overlap(&[], &one(0..1)));
    }
}
