//! Watches of one object and the notifications under way.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, ErrorKind};
use crate::object::{Notification, NotifyAck, NotifyOutcome, Reply, SessionId, Watch};

/// Notifications that a watcher may leave unread before its watch ends.
const UNREAD_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Watchers(Vec<Watcher>);

#[derive(Debug)]
struct Watcher {
    session: SessionId,
    sender: mpsc::Sender<(Notification, oneshot::Sender<Bytes>)>,
}

/// The answers that a notifier waits for.
#[derive(Debug)]
pub(crate) struct Pending(Vec<(SessionId, Option<oneshot::Receiver<Bytes>>)>);

#[derive(Debug)]
pub(crate) struct LocalWatch {
    receiver: mpsc::Receiver<(Notification, oneshot::Sender<Bytes>)>,
    unanswered: Vec<(u64, oneshot::Sender<Bytes>)>,
}

impl Watchers {
    pub(crate) fn add(&mut self, session: &SessionId) -> LocalWatch {
        let (sender, receiver) = mpsc::channel(UNREAD_MAX);
        self.0.push(Watcher {
            session: session.clone(),
            sender,
        });
        LocalWatch {
            receiver,
            unanswered: Vec::new(),
        }
    }

    pub(crate) fn remove_session(&mut self, session: &SessionId) {
        self.0.retain(|watcher| watcher.session != *session);
    }

    /// Tells all; who lags too far behind is told no more.
    pub(crate) fn notify(&mut self, notification: &Notification) -> Pending {
        self.0.retain(|watcher| !watcher.sender.is_closed());
        let mut pending = Vec::with_capacity(self.0.len());
        self.0.retain(|watcher| {
            let (answer, answered) = oneshot::channel();
            let told = watcher
                .sender
                .try_send((notification.clone(), answer))
                .is_ok();
            pending.push((watcher.session.clone(), told.then_some(answered)));
            told
        });
        Pending(pending)
    }
}

impl Pending {
    pub(crate) async fn wait(self, until: Instant) -> NotifyOutcome {
        let mut outcome = NotifyOutcome::default();
        for (session, answered) in self.0 {
            let answer = match answered {
                Some(answered) => timeout_at(until, answered).await.ok(),
                None => None,
            };
            match answer {
                Some(Ok(payload)) => outcome.acks.push(NotifyAck { session, payload }),
                Some(Err(_)) | None => outcome.missed.push(session),
            }
        }
        outcome
    }
}

impl Watch for LocalWatch {
    fn next(&mut self) -> Reply<'_, Notification> {
        Box::pin(async {
            let Some((notification, answer)) = self.receiver.recv().await else {
                return Err(Error::new(ErrorKind::Unavailable, "watching an object"));
            };
            self.unanswered.retain(|(_, answer)| !answer.is_closed());
            self.unanswered.push((notification.id, answer));
            Ok(notification)
        })
    }

    fn acknowledge(&mut self, notification: &Notification, payload: Bytes) {
        let is_meant = |(id, _): &(u64, oneshot::Sender<Bytes>)| *id == notification.id;
        if let Some(at) = self.unanswered.iter().position(is_meant) {
            let (_, answer) = self.unanswered.swap_remove(at);
            // A notifier that no longer waits does not hear it.
            drop(answer.send(payload));
        }
    }
}
