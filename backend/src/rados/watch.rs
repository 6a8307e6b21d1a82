//! Watches and notifications.
//!
//! Ceph names watchers and notifiers by a number. A session that watches or notifies leaves its
//! name in a small object of the pool, `portico_session.NUMBER`, where others look it up. It takes
//! it out again when it ends; whoever fences it does so in its place.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::code::{NOT_FOUND, TIMED_OUT};
use super::flow::Kind;
use super::librados::{
    FULL_FORCE, FULL_TRY, IoCtx, Notified, WatchHandle, Write, WriteOp as Change,
};
use super::plan::Planned;
use super::read::Questions;
use super::session::{Attempt, Session, locked, object_text};
use super::stats::RadosStats;
use crate::error::{Error, ErrorKind};
use crate::object::{
    Notification, NotifyAck, NotifyOutcome, ObjectId, ObjectName, Pool, Priority, Reply, SessionId,
    Watch,
};

pub(super) const SESSION_PREFIX: &str = "portico_session.";

/// Notifications that a watcher may leave unread before its watch ends.
const UNREAD_MAX: usize = 16;

/// After how many seconds without a sign of its client a watch is dropped by the cluster.
const WATCH_TIMEOUT_S: u32 = 30;

/// Names of sessions that are remembered.
const KNOWN_MAX: usize = 4_096;

/// Bytes of a session's name, with room.
const NAME_BYTES_MAX: u64 = 256;

/// Number, notifier and payload of a notification.
type Heard = (u64, u64, Bytes);

/// The watches of this process by number. librados' threads know nothing but the number.
static WATCHES: LazyLock<Mutex<HashMap<u64, mpsc::Sender<Heard>>>> = LazyLock::new(Mutex::default);
static LAST_WATCH: AtomicU64 = AtomicU64::new(0);

/// Called by librados.
pub(super) fn heard(number: u64, id: u64, notifier: u64, payload: Bytes) {
    let mut watches = locked(&WATCHES);
    let sent = watches
        .get(&number)
        .map(|sender| sender.try_send((id, notifier, payload)));
    if matches!(sent, Some(Err(_))) {
        // Who lags too far behind is told that something was missed.
        watches.remove(&number);
    }
}

/// Called by librados: the watch is gone, and what was told since is lost.
pub(super) fn failed(number: u64) {
    locked(&WATCHES).remove(&number);
}

/// A watch's place in the table.
#[derive(Debug)]
struct Registration(u64);

impl Drop for Registration {
    fn drop(&mut self) {
        locked(&WATCHES).remove(&self.0);
    }
}

struct RadosWatch {
    id: ObjectId,
    object: CString,
    session: Arc<Session>,
    receiver: mpsc::Receiver<Heard>,
    /// `None` after the watch has ended.
    handle: Option<WatchHandle>,
    stats: Arc<RadosStats>,
    _registration: Registration,
}

impl fmt::Debug for RadosWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RadosWatch")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(super) async fn watch_now(
        &self,
        id: &ObjectId,
        attempt: &Attempt,
    ) -> Result<Box<dyn Watch>, Error> {
        self.check_open()?;
        let io = self.head(&id.pool)?;
        self.announce(&io, &id.pool, attempt).await?;
        let object = object_text(id)?;
        let number = LAST_WATCH.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = mpsc::channel(UNREAD_MAX);
        locked(&WATCHES).insert(number, sender);
        let registration = Registration(number);
        let place = self
            .enter(id, Kind::Notify, attempt, NAME_BYTES_MAX)
            .await?;
        let submitted = WatchHandle::register(&io, &object, number, WATCH_TIMEOUT_S);
        let underway = submitted.map_err(|code| self.error(code, "watching", id))?;
        // Whoever gave up meanwhile must not leave a watch behind.
        let registering = tokio::spawn(async move {
            let done = underway.wait().await;
            drop(place);
            done.result.map(|()| WatchHandle::new(&io, *done.cargo))
        });
        let registered = registering.await.map_err(|_| {
            Error::new(
                ErrorKind::Unavailable,
                format!("watching {id}: the task did not end"),
            )
        })?;
        Ok(Box::new(RadosWatch {
            id: id.clone(),
            object,
            session: self.me.upgrade().expect("whoever calls holds the session"),
            receiver,
            handle: Some(registered.map_err(|code| self.error(code, "watching", id))?),
            stats: Arc::clone(&self.shared.stats),
            _registration: registration,
        }))
    }

    pub(super) async fn notify_now(
        &self,
        id: &ObjectId,
        payload: Bytes,
        timeout: Duration,
        attempt: &Attempt,
    ) -> Result<NotifyOutcome, Error> {
        self.check_open()?;
        let io = self.head(&id.pool)?;
        self.announce(&io, &id.pool, attempt).await?;
        let object = object_text(id)?;
        // The cluster counts whole seconds, and takes 0 for its default.
        let timeout_s = timeout.as_millis().div_ceil(1_000).max(1);
        let timeout_ms = u64::try_from(timeout_s)
            .unwrap_or(u64::MAX)
            .saturating_mul(1_000);
        let place = self
            .enter(id, Kind::Notify, attempt, payload.len() as u64)
            .await?;
        let submitted = Notified::submit(&io, &object, payload, timeout_ms);
        let underway = submitted.map_err(|code| self.error(code, "notifying", id))?;
        let mut done = underway.wait().await;
        drop(place);
        match done.result {
            Ok(()) | Err(TIMED_OUT) => {}
            Err(code) => return Err(self.error(code, "notifying", id)),
        }
        let reply = done.cargo.take_reply();
        let (acks, missed) = decode_reply(&reply).ok_or_else(|| {
            // A time-out without who answered is the cluster's own.
            let text = format!("notifying {id}: no answer in time");
            Error::new(ErrorKind::Unavailable, text)
        })?;
        let mut outcome = NotifyOutcome::default();
        for (watcher, payload) in acks {
            let session = self.session_of(&io, &id.pool, watcher, attempt).await?;
            outcome.acks.push(NotifyAck { session, payload });
        }
        for watcher in missed {
            let session = self.session_of(&io, &id.pool, watcher, attempt).await?;
            outcome.missed.push(session);
        }
        Ok(outcome)
    }

    /// Leaves this session's name in the pool, once.
    async fn announce(&self, io: &Arc<IoCtx>, pool: &Pool, attempt: &Attempt) -> Result<(), Error> {
        if locked(&self.announced).contains(pool) {
            return Ok(());
        }
        let id = announcement(pool, self.cluster.instance());
        let name = Bytes::copy_from_slice(self.id.0.as_bytes());
        let list = vec![Planned::WriteFull(name)];
        // Without it nobody could hear of a change, which also helps to free space.
        let written = self
            .submit(io, &id, list, FULL_TRY | FULL_FORCE, attempt)
            .await?;
        written.map_err(|code| self.error(code, "announcing the session in", &id))?;
        locked(&self.announced).insert(pool.clone());
        Ok(())
    }

    /// Takes the name of a session that has ended out of pools. Nobody waits: what stays behind is
    /// small, and does no harm.
    pub(super) fn forget(&self, instance: u64, pools: HashSet<Pool>) {
        for pool in pools {
            let id = announcement(&pool, instance);
            if let Err(error) = self.remove_unwatched(&id) {
                tracing::debug!(%error, "the name of an ended session stays behind");
            }
        }
    }

    fn remove_unwatched(&self, id: &ObjectId) -> Result<(), Error> {
        let io = self.head(&id.pool)?;
        let mut change = Change::new(&io);
        change.push(&Write::Remove);
        let submitted = change.submit(&io, &object_text(id)?, FULL_TRY | FULL_FORCE, ());
        submitted
            .map(drop)
            .map_err(|code| self.error(code, "removing", id))
    }

    /// The name of the session with this number; a client that is none of ours gets one that
    /// nobody can fence.
    async fn session_of(
        &self,
        io: &Arc<IoCtx>,
        pool: &Pool,
        instance: u64,
        attempt: &Attempt,
    ) -> Result<SessionId, Error> {
        if instance == self.cluster.instance() {
            return Ok(self.id.clone());
        }
        if let Some(known) = locked(&self.known).get(&instance) {
            return Ok(known.clone());
        }
        let id = announcement(pool, instance);
        let mut questions = Questions::default();
        let slot = questions.bytes(0, NAME_BYTES_MAX);
        let (result, mut answers) = self.ask(io, &id, &questions, attempt).await?;
        let session = match result {
            Ok(_) => {
                let name = answers.take_bytes(slot);
                SessionId(Arc::from(String::from_utf8_lossy(&name)))
            }
            Err(NOT_FOUND) => return Ok(SessionId(Arc::from(format!("client.{instance}")))),
            Err(code) => return Err(self.error(code, "reading", &id)),
        };
        let mut known = locked(&self.known);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(instance, session.clone());
        Ok(session)
    }
}

impl Watch for RadosWatch {
    fn next(&mut self) -> Reply<'_, Notification> {
        Box::pin(async {
            let Some((id, notifier, payload)) = self.receiver.recv().await else {
                if self.handle.take().is_some() {
                    self.stats.watches_lost.add(1);
                }
                self.session.check_open()?;
                let text = format!("watching {}: notifications may be lost", self.id);
                return Err(Error::new(ErrorKind::Unavailable, text));
            };
            let io = self.session.head(&self.id.pool)?;
            let attempt = Attempt::new(Priority::Client);
            let named = self
                .session
                .session_of(&io, &self.id.pool, notifier, &attempt);
            Ok(Notification {
                id,
                notifier: self.session.within(&self.id, None, &attempt, named).await?,
                payload,
            })
        })
    }

    fn acknowledge(&mut self, notification: &Notification, payload: Bytes) {
        if let Some(handle) = &self.handle {
            handle.acknowledge(&self.object, notification.id, &payload);
        }
    }
}

fn announcement(pool: &Pool, instance: u64) -> ObjectId {
    let name = format!("{SESSION_PREFIX}{instance:016x}");
    ObjectId::new(pool, ObjectName::new(&name))
}

/// Who answered with what, and who did not.
type NotifyReply = (Vec<(u64, Bytes)>, Vec<u64>);

/// A map from (client, cookie) to an answer, and a list of (client, cookie), little-endian.
fn decode_reply(reply: &[u8]) -> Option<NotifyReply> {
    let mut rest = reply;
    let mut acks = Vec::new();
    for _ in 0..number(&mut rest)? {
        let client = long(&mut rest)?;
        long(&mut rest)?;
        let length = usize::try_from(number(&mut rest)?).ok()?;
        let (payload, behind) = rest.split_at_checked(length)?;
        rest = behind;
        acks.push((client, Bytes::copy_from_slice(payload)));
    }
    let mut missed = Vec::new();
    for _ in 0..number(&mut rest)? {
        missed.push(long(&mut rest)?);
        long(&mut rest)?;
    }
    Some((acks, missed))
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u32::from_le_bytes(*first))
}

fn long(rest: &mut &[u8]) -> Option<u64> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u64::from_le_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_say_who_answered_and_who_did_not() {
        let mut reply = Vec::new();
        reply.extend(1_u32.to_le_bytes());
        reply.extend(7_u64.to_le_bytes());
        reply.extend(1_u64.to_le_bytes());
        reply.extend(2_u32.to_le_bytes());
        reply.extend(b"ok");
        reply.extend(1_u32.to_le_bytes());
        reply.extend(9_u64.to_le_bytes());
        reply.extend(2_u64.to_le_bytes());
        let expected = (vec![(7, Bytes::from_static(b"ok"))], vec![9]);
        assert_eq!(decode_reply(&reply), Some(expected));
        for length in 0..reply.len() {
            assert_eq!(decode_reply(&reply[..length]), None, "{length} bytes");
        }
    }
}
