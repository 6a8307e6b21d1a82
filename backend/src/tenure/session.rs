//! A session that closes a gate when it is told that it was fenced, and changes nothing else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::gate::GateControl;
use crate::object::{
    Limits, ListCursor, ListPage, LockHolder, LockName, LockRequest, NotifyOutcome, ObjectId,
    ObjectStore, Pool, ReadOp, ReadOutput, Reply, SessionId, SnapId, Usage, Version, Watch,
    WriteOp,
};

#[derive(Debug)]
pub(super) struct WatchedSession {
    inner: Arc<dyn ObjectStore>,
    open: GateControl,
}

impl WatchedSession {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, open: GateControl) -> Self {
        Self { inner, open }
    }

    fn noting<'a, T: Send + 'a>(&'a self, reply: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move { note(&self.open, reply.await) })
    }
}

fn note<T>(open: &GateControl, answer: Result<T, Error>) -> Result<T, Error> {
    if let Err(error) = &answer
        && error.kind() == ErrorKind::Fenced
    {
        open.set_open(false);
    }
    answer
}

impl ObjectStore for WatchedSession {
    fn limits(&self, pool: &Pool) -> Limits {
        self.inner.limits(pool)
    }

    fn read<'a>(&'a self, object: &'a ObjectId, op: ReadOp) -> Reply<'a, ReadOutput> {
        self.noting(self.inner.read(object, op))
    }

    fn try_read_cached(&self, object: &ObjectId, op: &ReadOp) -> Option<Result<ReadOutput, Error>> {
        let answer = self.inner.try_read_cached(object, op)?;
        Some(note(&self.open, answer))
    }

    fn write<'a>(&'a self, object: &'a ObjectId, op: WriteOp) -> Reply<'a, Version> {
        self.noting(self.inner.write(object, op))
    }

    fn list<'a>(
        &'a self,
        pool: &'a Pool,
        cursor: ListCursor,
        count_max: u32,
    ) -> Reply<'a, ListPage> {
        self.noting(self.inner.list(pool, cursor, count_max))
    }

    fn lock<'a>(&'a self, object: &'a ObjectId, request: LockRequest) -> Reply<'a, ()> {
        self.noting(self.inner.lock(object, request))
    }

    fn unlock<'a>(&'a self, object: &'a ObjectId, name: LockName, cookie: Bytes) -> Reply<'a, ()> {
        self.noting(self.inner.unlock(object, name, cookie))
    }

    fn lock_holders<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
    ) -> Reply<'a, Vec<LockHolder>> {
        self.noting(self.inner.lock_holders(object, name))
    }

    fn lock_break<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
        holder: LockHolder,
    ) -> Reply<'a, ()> {
        self.noting(self.inner.lock_break(object, name, holder))
    }

    /// Whose watch ends watches again, and is told so.
    fn watch<'a>(&'a self, object: &'a ObjectId) -> Reply<'a, Box<dyn Watch>> {
        self.noting(self.inner.watch(object))
    }

    fn notify<'a>(
        &'a self,
        object: &'a ObjectId,
        payload: Bytes,
        timeout: Duration,
    ) -> Reply<'a, NotifyOutcome> {
        self.noting(self.inner.notify(object, payload, timeout))
    }

    fn session(&self) -> SessionId {
        self.inner.session()
    }

    /// The other session is watched by whoever wants it watched.
    fn open_session<'a>(&'a self, purpose: &'a str) -> Reply<'a, Arc<dyn ObjectStore>> {
        self.noting(self.inner.open_session(purpose))
    }

    fn fence<'a>(&'a self, victim: &'a SessionId) -> Reply<'a, ()> {
        self.noting(self.inner.fence(victim))
    }

    fn may_write<'a>(&'a self, session: &'a SessionId) -> Reply<'a, bool> {
        self.noting(self.inner.may_write(session))
    }

    fn snapshot_create<'a>(&'a self, pool: &'a Pool) -> Reply<'a, SnapId> {
        self.noting(self.inner.snapshot_create(pool))
    }

    fn snapshot_remove<'a>(&'a self, pool: &'a Pool, snapshot: SnapId) -> Reply<'a, ()> {
        self.noting(self.inner.snapshot_remove(pool, snapshot))
    }

    fn flush(&self) -> Reply<'_, ()> {
        self.noting(self.inner.flush())
    }

    fn usage<'a>(&'a self, pool: &'a Pool) -> Reply<'a, Usage> {
        self.noting(self.inner.usage(pool))
    }
}
