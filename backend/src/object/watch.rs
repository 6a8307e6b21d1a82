//! Watch and notify: how one session hears of another's change.

use std::fmt::Debug;

use bytes::Bytes;

use super::{Reply, SessionId};

/// A watch on one object; dropping it ends the watch.
pub trait Watch: Debug + Send {
    /// The next notification. `Unavailable` means that some may have been missed: read the object
    /// again, then watch it again. A removed object ends its watches that way.
    fn next(&mut self) -> Reply<'_, Notification>;

    /// Lets the notifier go on. A notification not acknowledged holds it up until its time-out.
    fn acknowledge(&mut self, notification: &Notification, payload: Bytes);
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notification {
    /// Unique for the object.
    pub id: u64,
    pub notifier: SessionId,
    pub payload: Bytes,
}

/// The answer of one watcher.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NotifyAck {
    pub session: SessionId,
    pub payload: Bytes,
}

/// Who answered a notification in time and who did not.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NotifyOutcome {
    pub acks: Vec<NotifyAck>,
    pub missed: Vec<SessionId>,
}
