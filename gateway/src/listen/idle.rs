//! Which connections of a listener wait for a request, so that the one that has waited longest can
//! make room when all places are taken. Otherwise whoever connects and says nothing keeps others
//! out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The connections of one listener.
#[derive(Debug, Default)]
pub(super) struct Idle(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// By the order in which they began to wait.
    seats: BTreeMap<u64, Arc<Notify>>,
}

/// The place of one connection. It waits for a request at first.
#[derive(Debug)]
pub(super) struct Seat {
    idle: Arc<Idle>,
    end: Arc<Notify>,
    /// Its number while it waits.
    number: Mutex<Option<u64>>,
}

impl Idle {
    pub(super) fn seat(self: &Arc<Self>) -> Arc<Seat> {
        let seat = Seat {
            idle: Arc::clone(self),
            end: Arc::new(Notify::new()),
            number: Mutex::new(None),
        };
        seat.wait();
        Arc::new(seat)
    }

    /// Ends the connection that has waited longest, if one waits at all.
    pub(super) fn end_oldest(&self) {
        if let Some((_, end)) = self.waiting().seats.pop_first() {
            end.notify_one();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// A request has come.
    pub(super) fn work(&self) {
        if let Some(number) = self.number().take() {
            self.idle.waiting().seats.remove(&number);
        }
    }

    /// The reply is made; the next request may come.
    pub(super) fn wait(&self) {
        let mut waiting = self.idle.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.seats.insert(number, Arc::clone(&self.end));
        drop(waiting);
        *self.number() = Some(number);
    }

    /// Returns when the place is given to another connection.
    pub(super) async fn given_away(&self) {
        self.end.notified().await;
    }

    fn number(&self) -> MutexGuard<'_, Option<u64>> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.work();
    }
}
