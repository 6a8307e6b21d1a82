//! Snapshots: numbers from the monitors, and a register of those that exist.
//!
//! RADOS answers a read at a removed snapshot with whatever is left, and removing one twice with
//! success. So each pool and namespace has an object with an attribute for each snapshot that
//! exists: made after the number, removed before it.

use std::ffi::CString;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::librados::{Code, FULL_FORCE, FULL_TRY, IoCtx};
use super::plan::{Check, Kept, LOCK_PREFIX, Planned};
use super::read::Questions;
use super::session::{Attempt, Session};
use crate::engine::admission;
use crate::error::{Error, ErrorKind};
use crate::limits::{OMAP_KEYS_PER_OBJECT_MAX, OMAP_KEYS_PER_OP_MAX};
use crate::object::{ObjectId, ObjectName, Pool, Priority, SnapId};

/// The register. Not listed.
pub(super) const SNAPSHOTS: &str = "portico_snapshots";

/// Listed objects that are looked at side by side.
const LOOKS_MAX: usize = 32;

const EXISTS: Bytes = Bytes::from_static(b"1");

impl Session {
    pub(super) async fn snapshot_create_now(&self, pool: &Pool) -> Result<SnapId, Error> {
        admission::check_snapshots(&self.facts(pool)?.limits)?;
        self.check_open()?;
        let io = self.head(pool)?;
        let made = {
            let io = Arc::clone(&io);
            self.shared
                .mon_calls
                .run(move || io.snapshot_create())
                .await?
        };
        let id = made.map_err(|code| self.error(code, "making a snapshot for", &register(pool)))?;
        let set = Planned::SetXattr(name(SnapId(id)).into_bytes(), EXISTS);
        let noted = self.change_register(&io, pool, vec![set]).await?;
        noted.map_err(|code| self.error(code, "noting a snapshot in", &register(pool)))?;
        Ok(SnapId(id))
    }

    pub(super) async fn snapshot_remove_now(
        &self,
        pool: &Pool,
        snapshot: SnapId,
    ) -> Result<(), Error> {
        admission::check_snapshots(&self.facts(pool)?.limits)?;
        self.check_open()?;
        let io = self.head(pool)?;
        let key = name(snapshot);
        let list = vec![
            Planned::Check(Check::Exists),
            Planned::Check(Check::Xattr(key.clone().into(), EXISTS)),
            Planned::RemoveXattr(key.into_bytes()),
        ];
        match self.change_register(&io, pool, list).await? {
            Ok(_) => {}
            Err(code) => return Err(self.no_snapshot(code, pool, snapshot)),
        }
        let removed = self
            .shared
            .mon_calls
            .run(move || io.snapshot_remove(snapshot.0));
        let removed = removed.await?;
        removed.map_err(|code| self.error(code, "removing a snapshot from", &register(pool)))
    }

    /// # Errors
    /// `NotFound` if there is no such snapshot now.
    pub(super) async fn check_snapshot(
        &self,
        pool: &Pool,
        snapshot: SnapId,
        attempt: &Attempt,
    ) -> Result<(), Error> {
        let io = self.head(pool)?;
        let mut questions = Questions::of_guards(Vec::new());
        let slot = questions.xattrs();
        let (result, mut answers) = self.ask(&io, &register(pool), &questions, attempt).await?;
        result.map_err(|code| self.no_snapshot(code, pool, snapshot))?;
        let key = name(snapshot);
        let known = answers.xattrs(slot);
        match known.iter().any(|(name, _)| name == key.as_bytes()) {
            true => Ok(()),
            false => Err(self.no_snapshot(Code(-2), pool, snapshot)),
        }
    }

    /// Of the names that the cluster lists, those of objects that exist: one that was removed is
    /// listed for as long as a snapshot has it.
    pub(super) async fn without_ghosts(
        &self,
        pool: &Pool,
        names: Vec<ObjectName>,
    ) -> Result<Vec<ObjectName>, Error> {
        let attempt = Attempt::new(Priority::Client);
        let io = self.head(pool)?;
        let id = register(pool);
        let ever = self.facts_of(&io, &id, false, &attempt);
        let ever = self.within(&id, None, &attempt, ever).await?;
        if ever.is_none() {
            return Ok(names);
        }
        let (io, attempt) = (&io, &attempt);
        let looked_at = names.into_iter().map(|name| async move {
            let id = ObjectId::new(pool, name);
            let found = self.facts_of(io, &id, false, attempt);
            let found = self.within(&id, None, attempt, found).await?;
            Ok::<_, Error>(found.map(|_| id.name))
        });
        let found = stream::iter(looked_at).buffered(LOOKS_MAX);
        let found: Vec<Option<ObjectName>> = found.try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn change_register(
        &self,
        io: &Arc<IoCtx>,
        pool: &Pool,
        list: Vec<Planned>,
    ) -> Result<Result<u64, Code>, Error> {
        let (id, attempt) = (register(pool), Attempt::new(Priority::Client));
        let work = self.submit(io, &id, list, FULL_TRY | FULL_FORCE, &attempt);
        self.within(&id, None, &attempt, work).await
    }

    fn no_snapshot(&self, code: Code, pool: &Pool, snapshot: SnapId) -> Error {
        let error = self.error(code, "looking for a snapshot in", &register(pool));
        let is_gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::GuardFailed);
        match is_gone {
            true => {
                let text = format!("snapshot {} of {pool}", snapshot.0);
                Error::new(ErrorKind::NotFound, text)
            }
            false => error,
        }
    }

    /// All of an object as a context at a snapshot shows it, where nothing changes any more. `None`
    /// if it did not exist.
    pub(super) async fn kept(
        &self,
        io: &Arc<IoCtx>,
        id: &ObjectId,
        attempt: &Attempt,
    ) -> Result<Option<Kept>, Error> {
        let limits = self.facts(&id.pool)?.limits;
        let Some(facts) = self.facts_of(io, id, false, attempt).await? else {
            return Ok(None);
        };
        if facts.size > limits.op_bytes_max {
            let text = format!("rolling back {id}, which has {} bytes", facts.size);
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        let mut questions = Questions::default();
        let xattrs = questions.xattrs();
        let data = (facts.size > 0).then(|| questions.bytes(0, facts.size));
        let (result, mut answers) = self.ask(io, id, &questions, attempt).await?;
        result.map_err(|code| self.error(code, "reading", id))?;
        let pairs = answers.xattrs(xattrs).into_iter();
        let own = pairs.filter(|(name, _)| !name.starts_with(LOCK_PREFIX));
        Ok(Some(Kept {
            data: data
                .map(|slot| answers.take_bytes(slot))
                .unwrap_or_default(),
            xattrs: own
                .map(|(name, value)| (name, Bytes::from(value)))
                .collect(),
            omap: match limits.omap {
                true => self.kept_omap(io, id, attempt).await?,
                false => Vec::new(),
            },
        }))
    }

    async fn kept_omap(
        &self,
        io: &Arc<IoCtx>,
        id: &ObjectId,
        attempt: &Attempt,
    ) -> Result<Vec<(Vec<u8>, Bytes)>, Error> {
        let mut omap: Vec<(Vec<u8>, Bytes)> = Vec::new();
        let keys_max = usize::try_from(OMAP_KEYS_PER_OBJECT_MAX).expect("32 bits fit");
        loop {
            let after = omap.last().map_or(&b""[..], |(key, _)| key);
            let after = CString::new(after)
                .map_err(|_| Error::new(ErrorKind::Unsupported, "an omap key holds a NUL"))?;
            let mut questions = Questions::default();
            let slot = questions.scan(after, CString::default(), OMAP_KEYS_PER_OP_MAX);
            let (result, mut answers) = self.ask(io, id, &questions, attempt).await?;
            result.map_err(|code| self.error(code, "reading", id))?;
            let more = answers.more(slot);
            let found = answers.omap(slot).into_iter();
            omap.extend(found.map(|(key, value)| (key, Bytes::from(value))));
            if !more {
                return Ok(omap);
            }
            if omap.len() > keys_max {
                let text = format!("rolling back {id}, which has more than {keys_max} keys");
                return Err(Error::new(ErrorKind::TooLarge, text));
            }
        }
    }
}

fn register(pool: &Pool) -> ObjectId {
    ObjectId::new(pool, ObjectName::new(SNAPSHOTS))
}

fn name(snapshot: SnapId) -> String {
    format!("snap.{:016x}", snapshot.0)
}
