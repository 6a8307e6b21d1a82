//! The claim of a volume: who may change its metadata, told by a number that only grows.
//!
//! A volume's header carries an epoch. Taking the volume raises it by one in a guarded write, and
//! every metadata write of the taker then guards and sets the epoch on the object it changes. So a
//! former claimant's writes fail on every object that the new one has written; what it has not
//! written yet is protected by [`Claim::fence_former`]. The header names every session that took
//! the volume and was not fenced since: one that took it and died, or never heard that it had it,
//! does not hide the one before.
//!
//! A removed object forgets its epoch. A volume therefore fences before it relies on a name that it
//! removed, or never uses such a name again.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::object::{
    Guard, ObjectId, ObjectStore, ReadOp, ReadResult, ReadStep, SessionId, WriteOp, WriteStep,
    XattrName,
};

/// Holds the epoch, 8 bytes big-endian.
const EPOCH: XattrName = XattrName::new("portico.epoch");

/// Holds the session that claimed last.
const CLAIMANT: XattrName = XattrName::new("portico.claimant");

/// Holds sessions that claimed before and may still write, one a line.
const FORMER: XattrName = XattrName::new("portico.former");

/// Attempts to win against others who take the same volume at the same time.
const ATTEMPTS_MAX: u32 = 64;

/// The right to change a volume's metadata, until somebody takes the volume again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Claim {
    epoch: u64,
    former: Vec<SessionId>,
}

impl Claim {
    /// Takes the volume whose header is `object`: raises its epoch above all before. Nothing is
    /// read from the volume before [`Claim::fence_former`] has returned.
    ///
    /// # Errors
    /// `NotFound` if the header does not exist, `Corrupt` if its epoch is no number, `Busy` if
    /// others kept taking it at the same time. After `Unavailable` and `Fenced` the epoch may have
    /// been raised; taking it again is safe.
    pub async fn take(store: &dyn ObjectStore, object: &ObjectId) -> Result<Self, Error> {
        for _ in 0..ATTEMPTS_MAX {
            let (current, former) = read_claim(store, object).await?;
            let epoch = current.checked_add(1).ok_or_else(|| {
                Error::new(
                    ErrorKind::Corrupt,
                    format!("claim {object}: the epoch is at its end"),
                )
            })?;
            let session = Bytes::copy_from_slice(store.session().0.as_bytes());
            let lines: Vec<&str> = former.iter().map(|session| &*session.0).collect();
            let former_step = if lines.is_empty() {
                WriteStep::XattrRemove { name: FORMER }
            } else {
                WriteStep::XattrSet {
                    name: FORMER,
                    value: Bytes::from(lines.join("\n")),
                }
            };
            let op = WriteOp::default()
                .guarded(Guard::Exists)
                .guarded(Guard::XattrAtMost {
                    name: EPOCH,
                    value: current,
                })
                .step(WriteStep::epoch_set(EPOCH, epoch))
                .step(WriteStep::XattrSet {
                    name: CLAIMANT,
                    value: session,
                })
                .step(former_step);
            match store.write(object, op).await {
                Ok(_) => return Ok(Self { epoch, former }),
                Err(error) if error.kind() == ErrorKind::GuardFailed => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Busy,
            format!("claim {object}: others keep taking it"),
        ))
    }

    /// Gives the volume back: who takes it next has nobody to fence. Nothing that was written under
    /// the claim may be on its way any more.
    ///
    /// # Errors
    /// `GuardFailed` if somebody took the volume since.
    pub async fn release(&self, store: &dyn ObjectStore, object: &ObjectId) -> Result<(), Error> {
        let op = WriteOp::new([WriteStep::XattrRemove { name: CLAIMANT }])
            .guarded(Guard::Exists)
            .guarded(self.guard());
        store.write(object, op).await.map(|_| ())
    }

    /// Greater than that of every claim of the volume before.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes sure that no session that held the volume before writes any more, but the caller's
    /// own.
    ///
    /// # Errors
    /// `GuardFailed` if somebody took the volume since.
    pub async fn fence_former(
        &self,
        store: &dyn ObjectStore,
        object: &ObjectId,
    ) -> Result<(), Error> {
        if self.former.is_empty() {
            return Ok(());
        }
        let own = store.session();
        for session in self.former.iter().filter(|session| **session != own) {
            if store.may_write(session).await? {
                store.fence(session).await?;
            }
        }
        let op = WriteOp::new([WriteStep::XattrRemove { name: FORMER }])
            .guarded(Guard::Exists)
            .guarded(self.guard());
        store.write(object, op).await.map(|_| ())
    }

    /// The sessions that held the volume before and were not known to be fenced, the latest last;
    /// none for a volume that was given back. The caller's own may be among them.
    #[must_use]
    pub fn former(&self) -> &[SessionId] {
        &self.former
    }

    /// Fails with `GuardFailed` on an object that a later claimant has written.
    #[must_use]
    pub fn guard(&self) -> Guard {
        Guard::XattrAtMost {
            name: EPOCH,
            value: self.epoch,
        }
    }

    /// Marks an object as written under this claim. Makes it if it is not there.
    #[must_use]
    pub fn step(&self) -> WriteStep {
        WriteStep::epoch_set(EPOCH, self.epoch)
    }

    /// The operation under this claim: with the guard, and with the step behind all others, unless
    /// it ends with `Remove`.
    #[must_use]
    pub fn apply(&self, op: WriteOp) -> WriteOp {
        let op = op.guarded(self.guard());
        if matches!(op.steps.last(), Some(WriteStep::Remove)) {
            op
        } else {
            op.step(self.step())
        }
    }
}

async fn read_claim(
    store: &dyn ObjectStore,
    object: &ObjectId,
) -> Result<(u64, Vec<SessionId>), Error> {
    let op = ReadOp::new([EPOCH, CLAIMANT, FORMER].map(|name| ReadStep::Xattr { name }));
    let output = store.read(object, op).await?;
    let corrupt = |what: &str| {
        Error::new(
            ErrorKind::Corrupt,
            format!("claim {object}: {what} is not readable"),
        )
    };
    let [
        ReadResult::Xattr(epoch),
        ReadResult::Xattr(claimant),
        ReadResult::Xattr(former),
    ] = output.results.as_slice()
    else {
        return Err(corrupt("the store's answer"));
    };
    let epoch = match epoch {
        None => 0,
        Some(bytes) => {
            let bytes = <[u8; 8]>::try_from(bytes.as_ref()).map_err(|_| corrupt("the epoch"))?;
            u64::from_be_bytes(bytes)
        }
    };
    let mut sessions: Vec<SessionId> = Vec::new();
    for list in [former, claimant].into_iter().flatten() {
        let text = std::str::from_utf8(list).map_err(|_| corrupt("the claimant"))?;
        for line in text.lines() {
            let session = SessionId(Arc::from(line));
            sessions.retain(|known| *known != session);
            sessions.push(session);
        }
    }
    Ok((epoch, sessions))
}
