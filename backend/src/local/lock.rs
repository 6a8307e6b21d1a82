//! Advisory locks: holders are records, so they outlive the process; when they expire is known in
//! memory alone, so after opening it counts anew.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::object::{LockHolder, LockKind, LockName, LockRequest, SessionId};

use super::change::Change;
use super::record::{ObjectKeys, StoredHolder, decode_holders, encode_holders};

/// A change of one lock.
#[derive(Clone, Debug)]
pub(super) enum LockChange {
    Take {
        request: LockRequest,
        now: Instant,
    },
    /// By its holder, or by somebody who breaks it.
    GiveBack {
        name: LockName,
        session: SessionId,
        cookie: Bytes,
        now: Instant,
    },
}

/// When holders lose their locks.
#[derive(Debug)]
pub(super) struct LockTable {
    opened: Instant,
    /// Renewed since the store was opened, by key of the record, session and cookie.
    renewed: Mutex<HashMap<(Bytes, SessionId, Bytes), Instant>>,
}

impl LockTable {
    pub(super) fn new(opened: Instant) -> Self {
        Self {
            opened,
            renewed: Mutex::default(),
        }
    }

    fn renewed(&self) -> MutexGuard<'_, HashMap<(Bytes, SessionId, Bytes), Instant>> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of the stored holders who hold the lock now.
    pub(super) fn current(
        &self,
        key: &Bytes,
        holders: Vec<StoredHolder>,
        now: Instant,
    ) -> Vec<StoredHolder> {
        let renewed = self.renewed();
        let holds = |stored: &StoredHolder| {
            let Some(expiry_ms) = stored.expiry_ms else {
                return true;
            };
            let since = renewed.get(&owner(key, &stored.holder));
            let since = since.copied().unwrap_or(self.opened);
            now < since + Duration::from_millis(expiry_ms)
        };
        holders.into_iter().filter(holds).collect()
    }

    /// The new holders of the lock as a change of records.
    pub(super) fn apply(
        &self,
        change: &mut Change<'_>,
        keys: &ObjectKeys,
        session: &SessionId,
        what: &LockChange,
    ) -> Result<(), Error> {
        if change.header.is_none() {
            return Err(Error::new(ErrorKind::NotFound, "looking for a lock"));
        }
        let (name, now) = match what {
            LockChange::Take { request, now } => (request.name, *now),
            LockChange::GiveBack { name, now, .. } => (*name, *now),
        };
        let key = keys.lock(name.0);
        let stored = match change.value(&key)? {
            Some(value) => decode_holders(&key, &value)?,
            None => Vec::new(),
        };
        let mut holders = self.current(&key, stored, now);
        match what {
            LockChange::Take { request, .. } => {
                self.take(&key, &mut holders, session, (request, now))?;
            }
            LockChange::GiveBack {
                session, cookie, ..
            } => {
                let count = holders.len();
                holders.retain(|stored| !is_owner(&stored.holder, session, cookie));
                if holders.len() == count {
                    return Err(Error::new(ErrorKind::NotFound, "giving back a lock"));
                }
            }
        }
        let value = (!holders.is_empty()).then(|| encode_holders(&key, &holders));
        change.delta.insert(key, value);
        Ok(())
    }

    fn take(
        &self,
        key: &Bytes,
        holders: &mut Vec<StoredHolder>,
        session: &SessionId,
        (request, now): (&LockRequest, Instant),
    ) -> Result<(), Error> {
        let is_mine = |stored: &StoredHolder| is_owner(&stored.holder, session, &request.cookie);
        let shared = request.kind == LockKind::Shared;
        let blocked = holders.iter().any(|stored| {
            if is_mine(stored) {
                !request.renew
            } else {
                !(shared && stored.holder.kind == LockKind::Shared)
            }
        });
        if blocked {
            return Err(Error::new(ErrorKind::Locked, "taking a lock"));
        }
        holders.retain(|stored| !is_mine(stored));
        let holder = LockHolder {
            session: session.clone(),
            cookie: request.cookie.clone(),
            kind: request.kind,
        };
        let mut renewed = self.renewed();
        // Bounded by those who still hold something, or could.
        renewed.retain(|_, since| now.saturating_duration_since(*since) < REMEMBERED);
        renewed.insert(owner(key, &holder), now);
        let expiry_ms = request
            .expiry
            .map(|expiry| u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX))
            .map(|expiry_ms| expiry_ms.min(EXPIRY_MS_MAX));
        holders.push(StoredHolder { holder, expiry_ms });
        Ok(())
    }
}

fn is_owner(holder: &LockHolder, session: &SessionId, cookie: &Bytes) -> bool {
    holder.session == *session && holder.cookie == *cookie
}

fn owner(key: &Bytes, holder: &LockHolder) -> (Bytes, SessionId, Bytes) {
    (key.clone(), holder.session.clone(), holder.cookie.clone())
}

/// A hundred years: an instant that far away can be told.
const EXPIRY_MS_MAX: u64 = 100 * 365 * 24 * 3_600_000;
/// Longer than any expiry that is asked for.
const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 3600);
