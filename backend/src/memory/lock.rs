//! Advisory locks of one object.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::object::{LockHolder, LockKind, LockName, LockRequest, SessionId};

#[derive(Debug, Default)]
pub(super) struct Locks(BTreeMap<LockName, Vec<Held>>);

#[derive(Debug)]
struct Held {
    holder: LockHolder,
    expires: Option<Instant>,
}

impl Locks {
    pub(super) fn take(&mut self, session: &SessionId, request: LockRequest) -> Result<(), Error> {
        let held = self.current(request.name);
        let is_mine = |one: &Held| is_owner(one, session, &request.cookie);
        let shared = request.kind == LockKind::Shared;
        let blocked = held.iter().any(|one| match is_mine(one) {
            true => !request.renew,
            false => !(shared && one.holder.kind == LockKind::Shared),
        });
        if blocked {
            return Err(Error::new(ErrorKind::Locked, "taking a lock"));
        }
        held.retain(|one| !is_mine(one));
        held.push(Held {
            holder: LockHolder {
                session: session.clone(),
                cookie: request.cookie,
                kind: request.kind,
            },
            expires: request.expiry.map(|expiry| Instant::now() + expiry),
        });
        Ok(())
    }

    pub(super) fn give_back(
        &mut self,
        session: &SessionId,
        name: LockName,
        cookie: &Bytes,
    ) -> Result<(), Error> {
        let held = self.current(name);
        let count = held.len();
        held.retain(|one| !is_owner(one, session, cookie));
        match held.len() < count {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotFound, "giving back a lock")),
        }
    }

    pub(super) fn holders(&mut self, name: LockName) -> Vec<LockHolder> {
        let held = self.current(name).iter();
        held.map(|one| one.holder.clone()).collect()
    }

    fn current(&mut self, name: LockName) -> &mut Vec<Held> {
        let now = Instant::now();
        let held = self.0.entry(name).or_default();
        held.retain(|one| one.expires.is_none_or(|expires| now < expires));
        held
    }
}

fn is_owner(held: &Held, session: &SessionId, cookie: &Bytes) -> bool {
    held.holder.session == *session && held.holder.cookie == *cookie
}
