//! One session: checks that it may still do something, then does it under the mutex.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

use super::{MemoryCluster, Standing, State};
use crate::error::{Error, ErrorKind};
use crate::object::{
    Limits, ListCursor, ListPage, LockHolder, LockName, LockRequest, Notification, NotifyOutcome,
    ObjectId, ObjectStore, Pool, ReadOp, ReadOutput, Reply, SessionId, SnapId, Usage, Version,
    Watch, WriteOp,
};

#[derive(Debug)]
pub(super) struct MemorySession {
    cluster: MemoryCluster,
    id: SessionId,
}

impl MemorySession {
    pub(super) fn open(cluster: MemoryCluster, purpose: &str) -> Self {
        let mut state = cluster.state();
        state.session_count += 1;
        let id = SessionId(Arc::from(format!("{purpose}-{}", state.session_count)));
        state.sessions.insert(id.clone(), Standing::Open);
        drop(state);
        Self { cluster, id }
    }

    /// Lets other tasks go first now and then, as an engine that waits for something does.
    async fn run<T>(
        &self,
        deadline: Option<Instant>,
        operation: impl FnOnce(&mut State) -> Result<T, Error>,
    ) -> Result<T, Error> {
        consume_budget().await;
        self.run_now(deadline, operation)
    }

    fn run_now<T>(
        &self,
        deadline: Option<Instant>,
        operation: impl FnOnce(&mut State) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Error::new(ErrorKind::Unavailable, "starting in time"));
        }
        let mut state = self.cluster.state();
        match state.sessions.get(&self.id) {
            Some(Standing::Open) => operation(&mut state),
            Some(Standing::Fenced) => Err(Error::new(ErrorKind::Fenced, self.id.to_string())),
            Some(Standing::Ended) | None => {
                Err(Error::new(ErrorKind::Unavailable, self.id.to_string()))
            }
        }
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        if let Some(standing) = self.cluster.state().sessions.get_mut(&self.id) {
            standing.end();
        }
    }
}

impl ObjectStore for MemorySession {
    fn limits(&self, _pool: &Pool) -> Limits {
        self.cluster.state().options.limits
    }

    fn read<'a>(&'a self, object: &'a ObjectId, op: ReadOp) -> Reply<'a, ReadOutput> {
        Box::pin(async move { self.run(op.deadline, |state| state.read(object, &op)).await })
    }

    fn try_read_cached(&self, object: &ObjectId, op: &ReadOp) -> Option<Result<ReadOutput, Error>> {
        Some(self.run_now(op.deadline, |state| state.read(object, op)))
    }

    fn write<'a>(&'a self, object: &'a ObjectId, op: WriteOp) -> Reply<'a, Version> {
        Box::pin(async move {
            self.run(op.deadline, |state| state.write(object, &op))
                .await
        })
    }

    fn list<'a>(
        &'a self,
        pool: &'a Pool,
        cursor: ListCursor,
        count_max: u32,
    ) -> Reply<'a, ListPage> {
        assert!(count_max > 0, "a page holds a name");
        Box::pin(async move {
            self.run(None, |state| Ok(state.list(pool, &cursor, count_max)))
                .await
        })
    }

    fn lock<'a>(&'a self, object: &'a ObjectId, request: LockRequest) -> Reply<'a, ()> {
        Box::pin(async move {
            self.run(None, |state| {
                let slot = state.existing(object)?;
                slot.locks.take(&self.id, request)
            })
            .await
        })
    }

    fn unlock<'a>(&'a self, object: &'a ObjectId, name: LockName, cookie: Bytes) -> Reply<'a, ()> {
        Box::pin(async move {
            self.run(None, |state| {
                let slot = state.existing(object)?;
                slot.locks.give_back(&self.id, name, &cookie)
            })
            .await
        })
    }

    fn lock_holders<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
    ) -> Reply<'a, Vec<LockHolder>> {
        Box::pin(async move {
            self.run(None, |state| {
                let slot = state.slot(object);
                Ok(slot.map_or_else(Vec::new, |slot| slot.locks.holders(name)))
            })
            .await
        })
    }

    fn lock_break<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
        holder: LockHolder,
    ) -> Reply<'a, ()> {
        Box::pin(async move {
            self.run(None, |state| {
                let slot = state.existing(object)?;
                slot.locks.give_back(&holder.session, name, &holder.cookie)
            })
            .await
        })
    }

    fn watch<'a>(&'a self, object: &'a ObjectId) -> Reply<'a, Box<dyn Watch>> {
        Box::pin(async move {
            self.run(None, |state| {
                let slot = state.existing(object)?;
                let watch: Box<dyn Watch> = Box::new(slot.watchers.add(&self.id));
                Ok(watch)
            })
            .await
        })
    }

    fn notify<'a>(
        &'a self,
        object: &'a ObjectId,
        payload: Bytes,
        timeout: Duration,
    ) -> Reply<'a, NotifyOutcome> {
        Box::pin(async move {
            let until = Instant::now() + timeout;
            let pending = self
                .run(None, |state| {
                    let notification = Notification {
                        id: state.next_number(),
                        notifier: self.id.clone(),
                        payload,
                    };
                    Ok(state.existing(object)?.watchers.notify(&notification))
                })
                .await?;
            Ok(pending.wait(until).await)
        })
    }

    fn session(&self) -> SessionId {
        self.id.clone()
    }

    fn open_session<'a>(&'a self, purpose: &'a str) -> Reply<'a, Arc<dyn ObjectStore>> {
        Box::pin(async move {
            self.run(None, |_| Ok(())).await?;
            Ok(self.cluster.session(purpose))
        })
    }

    fn fence<'a>(&'a self, victim: &'a SessionId) -> Reply<'a, ()> {
        Box::pin(async move {
            self.run(None, |state| {
                state.fence(victim);
                Ok(())
            })
            .await
        })
    }

    fn may_write<'a>(&'a self, session: &'a SessionId) -> Reply<'a, bool> {
        Box::pin(async move {
            self.run(None, |state| {
                let standing = state.sessions.get(session);
                Ok(standing.is_none_or(|standing| *standing == Standing::Open))
            })
            .await
        })
    }

    fn snapshot_create<'a>(&'a self, pool: &'a Pool) -> Reply<'a, SnapId> {
        Box::pin(async move { self.run(None, |state| state.snapshot_create(pool)).await })
    }

    fn snapshot_remove<'a>(&'a self, pool: &'a Pool, snapshot: SnapId) -> Reply<'a, ()> {
        Box::pin(async move {
            self.run(None, |state| state.snapshot_remove(pool, snapshot))
                .await
        })
    }

    fn flush(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            self.run(None, |state| {
                state.flush();
                Ok(())
            })
            .await
        })
    }

    fn usage<'a>(&'a self, pool: &'a Pool) -> Reply<'a, Usage> {
        Box::pin(async move { self.run(None, |state| Ok(state.usage(pool))).await })
    }
}
