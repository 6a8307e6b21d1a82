//! The faulty engine: any other engine behind a bad link, repeatable from a seed.
//!
//! It delays calls, refuses them, loses their replies, holds them back until a test lets them go,
//! and dies at a chosen call. It never breaks the contract: whatever it answers, a real store may
//! answer too. Like a real one it goes on with a call whose future was dropped. All sessions opened
//! through one wrapper share its fate, as those of one process do.

mod plan;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

pub use self::plan::{CallKind, End, Faults, FaultyOptions};
use self::plan::{Fate, Plan};
use crate::error::{Error, ErrorKind};
use crate::object::{
    Limits, ListCursor, ListPage, LockHolder, LockName, LockRequest, Notification, NotifyOutcome,
    ObjectId, ObjectStore, Pool, ReadOp, ReadOutput, Reply, SessionId, SnapId, Usage, Version,
    Watch, WriteOp,
};

/// A session behind a bad link.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn ObjectStore>,
    link: Arc<Link>,
}

/// What all sessions of one wrapper share.
#[derive(Debug)]
struct Link {
    plan: Mutex<Plan>,
    /// The kind of calls that is held back now.
    hold: Sender<Option<CallKind>>,
    held: Sender<usize>,
}

/// A call on its way: owns what it needs, so that it outlives its caller.
type Call<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

impl Faulty {
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>, options: FaultyOptions) -> Arc<Self> {
        let link = Link {
            plan: Mutex::new(Plan::new(options)),
            hold: channel(None).0,
            held: channel(0).0,
        };
        Arc::new(Self {
            inner,
            link: Arc::new(link),
        })
    }

    /// From now on calls of this kind wait at the store's door. One kind is held at a time.
    pub fn hold(&self, kind: CallKind) {
        self.link.hold.send_replace(Some(kind));
    }

    /// Lets all held calls go on to the store.
    pub fn release(&self) {
        self.link.hold.send_replace(None);
    }

    /// Waits until at least `count` calls are held.
    pub async fn wait_held(&self, count: usize) {
        let mut held = self.link.held.subscribe();
        let reached = held.wait_for(|held| *held >= count).await;
        drop(reached.expect("the sender lives as long as `self`"));
    }

    /// Calls so far, all kinds together: what `FaultyOptions::end` counts.
    #[must_use]
    pub fn call_count(&self) -> u64 {
        self.link.plan().call_count()
    }

    /// Whether the end that was planned has come.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.link.plan().has_ended()
    }

    /// Starts a call that goes on when its future is dropped, and waits for it.
    fn call<'a, T: Send + 'static>(
        &'a self,
        kind: CallKind,
        deadline: Option<Instant>,
        start: impl FnOnce(Arc<dyn ObjectStore>) -> Call<T> + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(async move {
            let call = start(Arc::clone(&self.inner));
            let task = self.link.send(kind, call)?;
            let joined = match deadline {
                Some(deadline) => timeout_at(deadline, task)
                    .await
                    .map_err(|_| Error::new(ErrorKind::Unavailable, "waiting for a reply"))?,
                None => task.await,
            };
            joined
                .map_err(|e| Error::new(ErrorKind::Unavailable, "running a call").with_source(e))?
        })
    }
}

impl Link {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send<T: Send + 'static>(
        self: &Arc<Self>,
        kind: CallKind,
        call: Call<T>,
    ) -> Result<JoinHandle<Result<T, Error>>, Error> {
        let (delay, fate) = self.plan().decide(kind)?;
        let link = Arc::clone(self);
        Ok(tokio::spawn(async move {
            link.wait_at_door(kind).await;
            if delay > Duration::ZERO {
                sleep(delay).await;
            }
            match fate {
                Fate::Reach => call.await,
                Fate::Refuse(error) => Err(Error::new(error, "reaching the store")),
                Fate::LoseReply(error) => {
                    // Nobody hears how it went.
                    drop(call.await);
                    Err(Error::new(error, "hearing from the store"))
                }
            }
        }))
    }

    async fn wait_at_door(&self, kind: CallKind) {
        let mut hold: Receiver<Option<CallKind>> = self.hold.subscribe();
        if *hold.borrow() != Some(kind) {
            return;
        }
        self.held.send_modify(|held| *held += 1);
        let released = hold.wait_for(|held| *held != Some(kind)).await;
        drop(released.expect("the sender lives as long as `self`"));
        self.held.send_modify(|held| *held -= 1);
    }
}

impl ObjectStore for Faulty {
    fn limits(&self, pool: &Pool) -> Limits {
        self.inner.limits(pool)
    }

    fn read<'a>(&'a self, object: &'a ObjectId, mut op: ReadOp) -> Reply<'a, ReadOutput> {
        let object = object.clone();
        self.call(CallKind::Read, op.deadline.take(), |store| {
            Box::pin(async move { store.read(&object, op).await })
        })
    }

    /// Nothing comes at once over a bad link.
    fn try_read_cached(
        &self,
        _object: &ObjectId,
        _op: &ReadOp,
    ) -> Option<Result<ReadOutput, Error>> {
        None
    }

    fn write<'a>(&'a self, object: &'a ObjectId, mut op: WriteOp) -> Reply<'a, Version> {
        let object = object.clone();
        self.call(CallKind::Write, op.deadline.take(), |store| {
            Box::pin(async move { store.write(&object, op).await })
        })
    }

    fn list<'a>(
        &'a self,
        pool: &'a Pool,
        cursor: ListCursor,
        count_max: u32,
    ) -> Reply<'a, ListPage> {
        let pool = pool.clone();
        self.call(CallKind::List, None, move |store| {
            Box::pin(async move { store.list(&pool, cursor, count_max).await })
        })
    }

    fn lock<'a>(&'a self, object: &'a ObjectId, request: LockRequest) -> Reply<'a, ()> {
        let object = object.clone();
        self.call(CallKind::Lock, None, |store| {
            Box::pin(async move { store.lock(&object, request).await })
        })
    }

    fn unlock<'a>(&'a self, object: &'a ObjectId, name: LockName, cookie: Bytes) -> Reply<'a, ()> {
        let object = object.clone();
        self.call(CallKind::Lock, None, move |store| {
            Box::pin(async move { store.unlock(&object, name, cookie).await })
        })
    }

    fn lock_holders<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
    ) -> Reply<'a, Vec<LockHolder>> {
        let object = object.clone();
        self.call(CallKind::Lock, None, move |store| {
            Box::pin(async move { store.lock_holders(&object, name).await })
        })
    }

    fn lock_break<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
        holder: LockHolder,
    ) -> Reply<'a, ()> {
        let object = object.clone();
        self.call(CallKind::Lock, None, move |store| {
            Box::pin(async move { store.lock_break(&object, name, holder).await })
        })
    }

    fn watch<'a>(&'a self, object: &'a ObjectId) -> Reply<'a, Box<dyn Watch>> {
        let object = object.clone();
        let link = Arc::clone(&self.link);
        self.call(CallKind::Watch, None, |store| {
            Box::pin(async move {
                let inner = Some(store.watch(&object).await?);
                let watch: Box<dyn Watch> = Box::new(FaultyWatch { inner, link });
                Ok(watch)
            })
        })
    }

    fn notify<'a>(
        &'a self,
        object: &'a ObjectId,
        payload: Bytes,
        timeout: Duration,
    ) -> Reply<'a, NotifyOutcome> {
        let object = object.clone();
        self.call(CallKind::Notify, None, move |store| {
            Box::pin(async move { store.notify(&object, payload, timeout).await })
        })
    }

    fn session(&self) -> SessionId {
        self.inner.session()
    }

    fn open_session<'a>(&'a self, purpose: &'a str) -> Reply<'a, Arc<dyn ObjectStore>> {
        let purpose = purpose.to_owned();
        let link = Arc::clone(&self.link);
        self.call(CallKind::Session, None, |store| {
            Box::pin(async move {
                let inner = store.open_session(&purpose).await?;
                let session: Arc<dyn ObjectStore> = Arc::new(Self { inner, link });
                Ok(session)
            })
        })
    }

    fn fence<'a>(&'a self, victim: &'a SessionId) -> Reply<'a, ()> {
        let victim = victim.clone();
        self.call(CallKind::Session, None, |store| {
            Box::pin(async move { store.fence(&victim).await })
        })
    }

    fn may_write<'a>(&'a self, session: &'a SessionId) -> Reply<'a, bool> {
        let session = session.clone();
        self.call(CallKind::Session, None, |store| {
            Box::pin(async move { store.may_write(&session).await })
        })
    }

    fn snapshot_create<'a>(&'a self, pool: &'a Pool) -> Reply<'a, SnapId> {
        let pool = pool.clone();
        self.call(CallKind::Snapshot, None, |store| {
            Box::pin(async move { store.snapshot_create(&pool).await })
        })
    }

    fn snapshot_remove<'a>(&'a self, pool: &'a Pool, snapshot: SnapId) -> Reply<'a, ()> {
        let pool = pool.clone();
        self.call(CallKind::Snapshot, None, move |store| {
            Box::pin(async move { store.snapshot_remove(&pool, snapshot).await })
        })
    }

    fn flush(&self) -> Reply<'_, ()> {
        self.call(CallKind::Flush, None, |store| {
            Box::pin(async move { store.flush().await })
        })
    }

    fn usage<'a>(&'a self, pool: &'a Pool) -> Reply<'a, Usage> {
        let pool = pool.clone();
        self.call(CallKind::Usage, None, |store| {
            Box::pin(async move { store.usage(&pool).await })
        })
    }
}

/// A watch that may lose a notification, and then says so.
#[derive(Debug)]
struct FaultyWatch {
    /// `None` once something was missed.
    inner: Option<Box<dyn Watch>>,
    link: Arc<Link>,
}

impl Watch for FaultyWatch {
    fn next(&mut self) -> Reply<'_, Notification> {
        Box::pin(async {
            let missed = || Error::new(ErrorKind::Unavailable, "watching an object");
            let watch = self.inner.as_mut().ok_or_else(missed)?;
            let notification = watch.next().await?;
            if self.link.plan().loses_notification() {
                self.inner = None;
                return Err(missed());
            }
            Ok(notification)
        })
    }

    fn acknowledge(&mut self, notification: &Notification, payload: Bytes) {
        if let Some(watch) = &mut self.inner {
            watch.acknowledge(notification, payload);
        }
    }
}
