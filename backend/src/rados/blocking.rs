//! A few threads for the calls of librados that block, and a bounded queue before them.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind};

/// Calls that wait; more are refused.
const QUEUE_MAX: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// The threads end when the last handle is dropped and their calls have returned.
#[derive(Clone, Debug)]
pub(super) struct Blocking(SyncSender<Job>);

impl Blocking {
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(name: &str, thread_count: usize) -> Result<Self, Error> {
        let (sender, receiver) = sync_channel::<Job>(QUEUE_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..thread_count {
            let receiver = Arc::clone(&receiver);
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn(move || work(&receiver)).map_err(|error| {
                Error::new(ErrorKind::Unavailable, "start a thread").with_source(error)
            })?;
        }
        Ok(Self(sender))
    }

    /// Runs `call` on one of the threads. Dropping the future does not stop it.
    ///
    /// # Errors
    /// `Busy` if too many wait already.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, answered) = oneshot::channel();
        let job = Box::new(move || {
            // Nobody may be waiting any more.
            drop(sender.send(call()));
        });
        match self.0.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                let text = "too many calls of the cluster wait for their turn";
                return Err(Error::new(ErrorKind::Busy, text));
            }
            Err(TrySendError::Disconnected(_)) => return Err(lost()),
        }
        answered.await.map_err(|_| lost())
    }
}

fn work(receiver: &Mutex<Receiver<Job>>) {
    loop {
        let job = {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv()
        };
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, "a call of the cluster did not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_run_and_too_many_are_refused() {
        let blocking = Blocking::start("test", 1).unwrap();
        assert_eq!(blocking.run(|| 7).await.unwrap(), 7);
        let (release, wait) = sync_channel::<()>(0);
        let mut waiting = vec![tokio::spawn({
            let blocking = blocking.clone();
            async move { blocking.run(move || wait.recv().is_ok()).await }
        })];
        // One may be on the thread, the rest waits.
        let mut refused = 0;
        for _ in 0..QUEUE_MAX + 2 {
            let blocking = blocking.clone();
            waiting.push(tokio::spawn(async move { blocking.run(|| true).await }));
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        for call in waiting {
            match call.await.unwrap() {
                Ok(done) => assert!(done),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Busy);
                    refused += 1;
                }
            }
        }
        assert!(refused > 0);
    }
}
