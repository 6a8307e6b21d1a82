//! Advisory locks on objects: a request and who holds one.

use std::time::Duration;

use bytes::Bytes;

use super::SessionId;

/// The name of a lock; one object may carry several.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LockName(pub &'static str);

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LockKind {
    Exclusive,
    Shared,
}

/// Asks for a lock. The owner is (session, cookie).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LockRequest {
    pub name: LockName,
    pub kind: LockKind,
    /// Tells owners of one session apart.
    pub cookie: Bytes,
    /// How long the lock lasts by the store's clock unless renewed; `None` until given back. Such a
    /// lock is never a lease: its holder does not know the store's clock.
    pub expiry: Option<Duration>,
    /// With `true`, a lock already held by this owner is renewed; with `false` it is `Locked`.
    pub renew: bool,
}

/// One holder of a lock.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LockHolder {
    pub session: SessionId,
    pub cookie: Bytes,
    pub kind: LockKind,
}
