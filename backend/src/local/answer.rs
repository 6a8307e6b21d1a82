//! The answer to a job. It is given first and told later, so that whoever waits for several at once
//! finds all of them when it wakes for the first.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::{Error, ErrorKind};

/// Who answers. Dropped without an answer it says that the store ended.
#[derive(Debug)]
pub(super) struct Answer<T>(Arc<Shared<T>>);

/// Who waits for the answer.
#[derive(Debug)]
pub(super) struct Answered<T>(Arc<Shared<T>>);

/// Whom to wake now that answers are there; nobody, where nobody waits yet.
#[derive(Debug, Default)]
#[must_use = "whoever waits has to be woken"]
pub(super) struct Told(Vec<Waker>);

#[derive(Debug)]
struct Shared<T>(Mutex<State<T>>);

#[derive(Debug)]
enum State<T> {
    Open(Option<Waker>),
    Given(Result<T, Error>),
    Taken,
}

/// The two ends of one answer.
pub(super) fn answer<T>() -> (Answer<T>, Answered<T>) {
    let shared = Arc::new(Shared(Mutex::new(State::Open(None))));
    (Answer(Arc::clone(&shared)), Answered(shared))
}

impl<T> Answer<T> {
    /// Gives the answer; `told` wakes whoever waits for it.
    pub(super) fn give(self, result: Result<T, Error>, told: &mut Told) {
        told.0.extend(self.0.give(|| result));
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        let ended = || {
            let context = "the store ended before it answered";
            Err(Error::new(ErrorKind::Unavailable, context))
        };
        if let Some(waker) = self.0.give(ended) {
            waker.wake();
        }
    }
}

impl Told {
    pub(super) fn tell(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first answer counts.
    fn give(&self, result: impl FnOnce() -> Result<T, Error>) -> Option<Waker> {
        let mut state = self.state();
        match &mut *state {
            State::Open(waker) => {
                let waker = waker.take();
                *state = State::Given(result());
                waker
            }
            State::Given(_) | State::Taken => None,
        }
    }
}

impl<T> Future for Answered<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        match &mut *state {
            State::Open(Some(waker)) => waker.clone_from(cx.waker()),
            State::Open(none) => *none = Some(cx.waker().clone()),
            State::Given(_) => {
                if let State::Given(result) = std::mem::replace(&mut *state, State::Taken) {
                    return Poll::Ready(result);
                }
            }
            State::Taken => panic!("polled after its answer"),
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_is_woken_before_all_answers_are_there() {
        let (one, first) = answer();
        let (two, second) = answer();
        let both = tokio::spawn(async move { (first.await, second.await) });
        tokio::task::yield_now().await;
        let mut told = Told::default();
        one.give(Ok(1), &mut told);
        two.give(Ok(2), &mut told);
        tokio::task::yield_now().await;
        assert!(!both.is_finished());
        told.tell();
        let (first, second) = both.await.unwrap();
        assert_eq!((first.unwrap(), second.unwrap()), (1, 2));
    }

    #[tokio::test]
    async fn whoever_is_not_answered_hears_that_the_store_ended() {
        let (forgotten, waiting) = answer::<u8>();
        let waiting = tokio::spawn(waiting);
        tokio::task::yield_now().await;
        drop(forgotten);
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
