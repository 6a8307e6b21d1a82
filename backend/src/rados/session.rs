//! One session: a client of the cluster, and the calls of the object model on it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CString;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::Shared;
use super::connect::{connect, text};
use super::fence::{parse, session_name};
use super::flow::{Kind, Place};
use super::librados::{Cluster, Code, Cursor, IoCtx, View};
use super::monitor::{self, NO_LIMITS, PoolFacts};
use super::snapshot::SNAPSHOTS;
use super::watch::SESSION_PREFIX;
use crate::error::{Error, ErrorKind};
use crate::limits::OBJECT_NAME_BYTES_MAX;
use crate::object::{
    Limits, ListCursor, ListPage, LockHolder, LockName, LockRequest, NotifyOutcome, ObjectId,
    ObjectName, ObjectStore, Pool, Priority, ReadOp, ReadOutput, Reply, SessionId, SnapId, Usage,
    Version, Watch, WriteOp,
};

/// Contexts kept open: one for each pool, namespace and set of snapshots in use.
const CONTEXTS_MAX: usize = 256;

/// Listings that may go on; the oldest is forgotten first.
const CURSORS_MAX: usize = 256;

/// How long an operation waits before the session asks whether it was fenced, and how often it asks.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Names that one question for a listing asks for.
const LIST_COUNT_MAX: u32 = 1_024;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) id: SessionId,
    pub(super) purpose: String,
    pub(super) fenced: AtomicBool,
    /// When the session last asked whether it was fenced.
    pub(super) looked: Mutex<Option<Instant>>,
    /// For watches, which keep their session.
    pub(super) me: Weak<Self>,
    contexts: Mutex<HashMap<(Pool, View), Arc<IoCtx>>>,
    cursors: Mutex<(u64, BTreeMap<u64, Arc<Cursor>>)>,
    /// Where others find the name that belongs to this client's number.
    pub(super) announced: Mutex<HashSet<Pool>>,
    pub(super) known: Mutex<HashMap<u64, SessionId>>,
}

/// One call, and whether the cluster was asked for something by it.
#[derive(Debug)]
pub(super) struct Attempt {
    priority: Priority,
    asked: AtomicBool,
}

impl Attempt {
    pub(super) fn new(priority: Priority) -> Self {
        Self {
            priority,
            asked: AtomicBool::new(false),
        }
    }
}

impl Session {
    /// Blocks until connected.
    pub(super) fn open(shared: &Arc<Shared>, purpose: &str) -> Result<Arc<Self>, Error> {
        let cluster = connect(&shared.options)?;
        let address = cluster
            .addresses()
            .map_err(|code| code.error("asking for the client's address"))?;
        let id = session_name(&String::from_utf8_lossy(&address), cluster.instance());
        if parse(&id).is_none() {
            let text = format!("the client's address {id} is not one that could be fenced");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        tracing::debug!(session = %id, purpose, "session opened");
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            shared: Arc::clone(shared),
            cluster: Arc::new(cluster),
            id,
            purpose: purpose.to_owned(),
            fenced: AtomicBool::new(false),
            looked: Mutex::default(),
            contexts: Mutex::default(),
            cursors: Mutex::default(),
            announced: Mutex::default(),
            known: Mutex::default(),
        }))
    }

    /// What the blocklist calls this session.
    pub(super) fn address(&self) -> &str {
        parse(&self.id).map_or("", |(address, _)| address)
    }

    pub(super) fn facts(&self, pool: &Pool) -> Result<&PoolFacts, Error> {
        self.shared.pool(pool)
    }

    /// The context of a pool with a view, made when it is first used.
    pub(super) fn context(&self, pool: &Pool, view: View) -> Result<Arc<IoCtx>, Error> {
        let facts = self.facts(pool)?;
        let key = (pool.clone(), view);
        let mut contexts = locked(&self.contexts);
        if let Some(context) = contexts.get(&key) {
            return Ok(Arc::clone(context));
        }
        let namespace = match (facts.pool.namespace.as_str(), pool.namespace()) {
            (base, "") => base.to_owned(),
            ("", namespace) => namespace.to_owned(),
            (base, namespace) => format!("{base}/{namespace}"),
        };
        let made = IoCtx::open(&self.cluster, facts.id, &text(&namespace)?, &key.1);
        let context = Arc::new(made.map_err(|code| code.error(format!("opening pool {pool}")))?);
        if contexts.len() >= CONTEXTS_MAX {
            // Operations under way hold theirs.
            contexts.clear();
        }
        contexts.insert(key, Arc::clone(&context));
        Ok(context)
    }

    /// The configured pools, and those among their namespaces that were used.
    pub(super) fn pools(&self) -> HashSet<Pool> {
        let configured = self.shared.options.pools.iter();
        let mut pools: HashSet<Pool> = configured.map(|pool| Pool::new(&pool.name, "")).collect();
        pools.extend(locked(&self.contexts).keys().map(|(pool, _)| pool.clone()));
        pools
    }

    /// The newest state, without snapshots.
    pub(super) fn head(&self, pool: &Pool) -> Result<Arc<IoCtx>, Error> {
        self.context(pool, View::Now(0, Vec::new()))
    }

    /// A place for an operation that is about to be submitted.
    pub(super) async fn enter(
        &self,
        id: &ObjectId,
        kind: Kind,
        attempt: &Attempt,
        bytes: u64,
    ) -> Result<Place, Error> {
        self.check_open()?;
        let flow = &self.shared.flow;
        let place = flow.enter(id, kind, attempt.priority, bytes).await;
        attempt.asked.store(true, Ordering::Relaxed);
        Ok(place)
    }

    /// An error of librados; notes that the session was fenced.
    pub(super) fn error(&self, code: Code, doing: &str, id: &ObjectId) -> Error {
        if code.is_fenced() {
            self.fenced_by_another();
        }
        let error = code.error(format!("{doing} {id}"));
        if error.kind() == ErrorKind::NoSpace {
            self.shared.stats.no_space.add(1);
        }
        error
    }

    /// Waits no longer than until the deadline. What the cluster has by then may still happen.
    pub(super) async fn within<T>(
        &self,
        id: &ObjectId,
        deadline: Option<Instant>,
        attempt: &Attempt,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let now = Instant::now();
        let until = deadline.unwrap_or(now + self.shared.options.op_timeout);
        let stats = &self.shared.stats;
        let late = |text: &str| Error::new(ErrorKind::Unavailable, format!("{id}: {text}"));
        if until <= now {
            return Err(late("the deadline had passed"));
        }
        let mut work = pin!(work);
        loop {
            let look = until.min(Instant::now() + LOOK_INTERVAL);
            if let Ok(answer) = timeout_at(look, &mut work).await {
                return answer;
            }
            if look == until {
                break;
            }
            // OSDs may leave a client that was fenced without an answer.
            tokio::select! {
                answer = &mut work => return answer,
                () = self.look_for_fence() => self.check_open()?,
                () = sleep_until(until) => break,
            }
        }
        if attempt.asked.load(Ordering::Relaxed) {
            stats.timeouts.add(1);
            tracing::warn!(object = %id, waited = ?now.elapsed(), "no answer from the cluster");
            return Err(late("the cluster did not answer in time"));
        }
        stats.refused.add(1);
        match deadline {
            Some(_) => Err(late("too much is in flight, and the deadline has passed")),
            None => Err(Error::new(
                ErrorKind::Busy,
                format!("{id}: too much waits for the cluster"),
            )),
        }
    }

    async fn list_now(
        &self,
        pool: &Pool,
        cursor: &ListCursor,
        count_max: u32,
    ) -> Result<ListPage, Error> {
        self.check_open()?;
        let io = self.head(pool)?;
        let mut at = match cursor.0.is_empty() {
            true => None,
            false => Some(self.cursor(cursor)?),
        };
        let count = usize::try_from(count_max.min(LIST_COUNT_MAX)).expect("32 bits fit");
        loop {
            let (io, from) = (Arc::clone(&io), at);
            let asked = self
                .shared
                .osd_calls
                .run(move || io.list(from.as_deref(), count));
            let (names, next) = asked.await?.map_err(|code| {
                if code.is_fenced() {
                    self.fenced_by_another();
                }
                code.error(format!("listing {pool}"))
            })?;
            let names = names.iter().filter_map(|name| shown(name)).collect();
            let names = self.without_ghosts(pool, names).await?;
            if next.is_none() || !names.is_empty() {
                let next = next.map(|next| self.remember(next));
                return Ok(ListPage { names, next });
            }
            at = next.map(Arc::new);
        }
    }

    fn cursor(&self, cursor: &ListCursor) -> Result<Arc<Cursor>, Error> {
        let number = <[u8; 8]>::try_from(&cursor.0[..]).map(u64::from_be_bytes);
        let cursors = locked(&self.cursors);
        let found = number.ok().and_then(|number| cursors.1.get(&number));
        found.cloned().ok_or_else(|| {
            let text = "a listing was left alone for too long; begin it again";
            Error::new(ErrorKind::Unavailable, text)
        })
    }

    fn remember(&self, cursor: Cursor) -> ListCursor {
        let mut cursors = locked(&self.cursors);
        cursors.0 += 1;
        let number = cursors.0;
        cursors.1.insert(number, Arc::new(cursor));
        if cursors.1.len() > CURSORS_MAX {
            cursors.1.pop_first();
        }
        ListCursor(Bytes::copy_from_slice(&number.to_be_bytes()))
    }

    async fn usage_now(&self, pool: &Pool) -> Result<Usage, Error> {
        self.check_open()?;
        let name = self.facts(pool)?.pool.ceph_pool.clone();
        let cluster = Arc::clone(&self.cluster);
        let asked = self
            .shared
            .mon_calls
            .run(move || monitor::usage(&cluster, &name));
        asked.await?
    }

    /// A call without a deadline of its own, of a client.
    async fn call<T>(
        &self,
        id: &ObjectId,
        work: impl AsyncFnOnce(&Attempt) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let attempt = Attempt::new(Priority::Client);
        self.within(id, None, &attempt, work(&attempt)).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.check_open().is_ok() {
            let announced = std::mem::take(&mut *locked(&self.announced));
            self.forget(self.cluster.instance(), announced);
        }
    }
}

/// The engine's own objects, and names that the object model cannot have, are not listed.
fn shown(name: &[u8]) -> Option<ObjectName> {
    let text = std::str::from_utf8(name).ok()?;
    let own = text == SNAPSHOTS || text.starts_with(SESSION_PREFIX);
    let valid = !text.is_empty() && text.len() <= OBJECT_NAME_BYTES_MAX && !own;
    valid.then(|| ObjectName::new(text))
}

/// The name of an object as librados takes it.
pub(super) fn object_text(id: &ObjectId) -> Result<CString, Error> {
    text(&id.name.to_string())
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ObjectStore for Session {
    fn limits(&self, pool: &Pool) -> Limits {
        self.facts(pool).map_or(NO_LIMITS, |facts| facts.limits)
    }

    fn read<'a>(&'a self, object: &'a ObjectId, op: ReadOp) -> Reply<'a, ReadOutput> {
        Box::pin(async move {
            let attempt = Attempt::new(op.priority);
            let work = self.read_now(object, &op, &attempt);
            self.within(object, op.deadline, &attempt, work).await
        })
    }

    fn try_read_cached(&self, _: &ObjectId, _: &ReadOp) -> Option<Result<ReadOutput, Error>> {
        None
    }

    fn write<'a>(&'a self, object: &'a ObjectId, op: WriteOp) -> Reply<'a, Version> {
        Box::pin(async move {
            let attempt = Attempt::new(op.priority);
            let work = self.write_now(object, &op, &attempt);
            self.within(object, op.deadline, &attempt, work).await
        })
    }

    fn list<'a>(
        &'a self,
        pool: &'a Pool,
        cursor: ListCursor,
        count_max: u32,
    ) -> Reply<'a, ListPage> {
        Box::pin(async move {
            let listed = self.list_now(pool, &cursor, count_max);
            let listed = timeout(self.shared.options.op_timeout, listed).await;
            listed.unwrap_or_else(|_| {
                let text = format!("listing {pool}: no answer in time");
                Err(Error::new(ErrorKind::Unavailable, text))
            })
        })
    }

    fn lock<'a>(&'a self, object: &'a ObjectId, request: LockRequest) -> Reply<'a, ()> {
        Box::pin(async move {
            let work = async |attempt: &Attempt| self.lock_now(object, &request, attempt).await;
            self.call(object, work).await
        })
    }

    fn unlock<'a>(&'a self, object: &'a ObjectId, name: LockName, cookie: Bytes) -> Reply<'a, ()> {
        Box::pin(async move {
            let work =
                async |attempt: &Attempt| self.unlock_now(object, name, &cookie, attempt).await;
            self.call(object, work).await
        })
    }

    fn lock_holders<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
    ) -> Reply<'a, Vec<LockHolder>> {
        Box::pin(async move { self.lock_holders_now(object, name).await })
    }

    fn lock_break<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
        holder: LockHolder,
    ) -> Reply<'a, ()> {
        Box::pin(async move {
            let work =
                async |attempt: &Attempt| self.lock_break_now(object, name, &holder, attempt).await;
            self.call(object, work).await
        })
    }

    fn watch<'a>(&'a self, object: &'a ObjectId) -> Reply<'a, Box<dyn Watch>> {
        Box::pin(async move {
            let work = async |attempt: &Attempt| self.watch_now(object, attempt).await;
            self.call(object, work).await
        })
    }

    fn notify<'a>(
        &'a self,
        object: &'a ObjectId,
        payload: Bytes,
        timeout: Duration,
    ) -> Reply<'a, NotifyOutcome> {
        Box::pin(async move {
            let attempt = Attempt::new(Priority::Client);
            let until = Instant::now() + timeout + self.shared.options.op_timeout;
            let work = self.notify_now(object, payload, timeout, &attempt);
            self.within(object, Some(until), &attempt, work).await
        })
    }

    fn session(&self) -> SessionId {
        self.id.clone()
    }

    fn open_session<'a>(&'a self, purpose: &'a str) -> Reply<'a, Arc<dyn ObjectStore>> {
        Box::pin(async move {
            self.check_open()?;
            let (shared, purpose) = (Arc::clone(&self.shared), purpose.to_owned());
            let opened = self
                .shared
                .mon_calls
                .run(move || Self::open(&shared, &purpose));
            let session: Arc<dyn ObjectStore> = opened.await??;
            Ok(session)
        })
    }

    fn fence<'a>(&'a self, victim: &'a SessionId) -> Reply<'a, ()> {
        Box::pin(async move { self.fence_now(victim).await })
    }

    fn may_write<'a>(&'a self, session: &'a SessionId) -> Reply<'a, bool> {
        Box::pin(async move { self.may_write_now(session).await })
    }

    fn snapshot_create<'a>(&'a self, pool: &'a Pool) -> Reply<'a, SnapId> {
        Box::pin(async move { self.snapshot_create_now(pool).await })
    }

    fn snapshot_remove<'a>(&'a self, pool: &'a Pool, snapshot: SnapId) -> Reply<'a, ()> {
        Box::pin(async move { self.snapshot_remove_now(pool, snapshot).await })
    }

    /// A write is on stable storage of all copies when it returns.
    fn flush(&self) -> Reply<'_, ()> {
        Box::pin(async move { self.check_open() })
    }

    fn usage<'a>(&'a self, pool: &'a Pool) -> Reply<'a, Usage> {
        Box::pin(async move { self.usage_now(pool).await })
    }
}
