//! An open tree: made, opened, closed, and how a call runs.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::data::DataLocks;
use super::error::TreeError;
use super::header::{self, Header, TreeQuota};
use super::log::record::{KeptReply, Record};
use super::log::state::{Landed, State};
use super::node::Handle;
use super::place::{Place, TreePools};
use super::record::{Inode, Kind, ROOT, Time};
use super::row::{Row, Totals, Value};
use super::shared::{Shared, TreeOptions};
use super::view::{Stop, View};
use crate::claim::Claim;
use crate::error::{Error, ErrorKind};
use crate::object::{Guard, ObjectStore, WriteOp, WriteStep};
use crate::stripe::Layout;

/// Times that one call begins anew because rows are missing or a full store took changes back.
const ROUNDS_MAX: u32 = 1_000;

/// A tree to be made. `new` has the defaults.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewTree {
    /// Names the tree for good, in its objects and in every handle: drawn at random.
    pub id: u64,
    /// How the bytes of files are spread.
    pub layout: Layout,
    pub quota: TreeQuota,
    /// Of the root.
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
    pub now: Time,
}

/// A tree that this session serves. One handle for a tree and session; share it in an `Arc`.
#[derive(Debug)]
pub struct Tree {
    pub(super) shared: Arc<Shared>,
    pub(super) data_locks: Arc<DataLocks>,
    /// The one that logs comes first: the others may need it to end.
    tasks: std::sync::Mutex<Vec<JoinHandle<()>>>,
}

/// An answer that is kept with the change, so that the call is answered so, and not done, when it
/// comes again: after a crash too.
pub struct Keep<'a, T> {
    /// Who called, `CLIENT_BYTES_MAX` bytes at most.
    pub client: Bytes,
    pub xid: u32,
    /// Of the call's bytes.
    pub checksum: u32,
    /// The answer that says this, `RESULT_BYTES_MAX` bytes at most.
    pub encode: &'a (dyn Fn(&T) -> Bytes + Send + Sync),
}

impl<T> std::fmt::Debug for Keep<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keep")
            .field("client", &self.client)
            .field("xid", &self.xid)
            .finish_non_exhaustive()
    }
}

impl NewTree {
    /// Objects of 4 MiB without striping, no quota, and a root that is root's.
    ///
    /// # Errors
    /// `Unavailable` if the machine gives no random numbers.
    pub fn new(now: Time) -> Result<Self, Error> {
        const OBJECT_SIZE: u32 = 4 * 1024 * 1024;
        Ok(Self {
            id: u64::from_be_bytes(header::draw()?),
            layout: Layout::new(OBJECT_SIZE, 1, OBJECT_SIZE).expect("a layout"),
            quota: TreeQuota::default(),
            uid: 0,
            gid: 0,
            mode: 0o755,
            now,
        })
    }

    /// Makes a tree with an empty root. Doing it again for a tree that is there is fine: nothing
    /// of it is changed.
    ///
    /// # Errors
    /// What the store says.
    pub async fn make(&self, store: &dyn ObjectStore, pools: &TreePools) -> Result<(), Error> {
        let place = Place::new(pools, self.id);
        let root = Inode {
            mode: self.mode,
            link_count: 2,
            uid: self.uid,
            gid: self.gid,
            accessed: self.now,
            modified: self.now,
            changed: self.now,
            born: self.now,
            parent: ROOT,
            ..Inode::new(Kind::Directory)
        };
        // By the header the tree exists, so it comes last.
        let (object, key) = place.row(Row::Inode(ROOT), 1);
        let entries = vec![(key, root.encode())];
        let op = WriteOp::new([WriteStep::OmapSet { entries }]).guarded(Guard::Absent);
        absent(store.write(&object, op).await.map(|_| ()))?;
        let header = Header {
            hash_key: header::draw()?,
            layout: self.layout,
            quota: self.quota,
        };
        let totals = Totals {
            inode_next: ROOT + 1,
            inode_count: 1,
            used_bytes: 0,
        };
        let (object, key) = place.row(Row::Totals, 1);
        let entries = vec![
            (Header::key(), header.encode()),
            (key, Value::Totals(totals).encode()),
        ];
        let op = WriteOp::new([WriteStep::OmapSet { entries }]).guarded(Guard::Absent);
        absent(store.write(&object, op).await.map(|_| ()))
    }
}

impl Tree {
    /// Opens a tree for serving: takes its claim, fences the session that had it, and recovers what
    /// that one logged. Gives as well the answers to be kept for calls that come again, the oldest
    /// first.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree; `Unsupported` if the pool for metadata has no omap;
    /// `Corrupt` if the log does not read.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        pools: &TreePools,
        id: u64,
        options: TreeOptions,
    ) -> Result<(Self, Vec<KeptReply>), Error> {
        if !store.limits(&pools.meta).omap {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("pool {}: a tree needs a pool with an omap", pools.meta),
            ));
        }
        let place = Place::new(pools, id);
        Header::read(&*store, &place).await?;
        let claim = Claim::take(&*store, &place.header()).await?;
        claim.fence_former(&*store, &place.header()).await?;
        let header = Header::read(&*store, &place).await?;
        let (state, replies) = State::recover(&*store, &place, &claim).await?;
        let shared = Shared::new(store, place, header, claim, options, state);
        let tree = Self::start(Arc::new(shared));
        tree.log_opening().await?;
        Ok((tree, replies))
    }

    fn start(shared: Arc<Shared>) -> Self {
        let data_locks = Arc::new(DataLocks::default());
        let logging = Arc::clone(&shared);
        let applying = Arc::clone(&shared);
        let reaping = (Arc::clone(&shared), Arc::clone(&data_locks));
        let tasks = vec![
            tokio::spawn(async move { logging.log_all().await }),
            tokio::spawn(async move { applying.apply_all().await }),
            tokio::spawn(async move { reaping.0.reap_all(&reaping.1).await }),
        ];
        Self {
            shared,
            data_locks,
            tasks: std::sync::Mutex::new(tasks),
        }
    }

    /// The first record of each opening. So what this session applies has a higher mark than all
    /// that was applied before.
    async fn log_opening(&self) -> Result<(), Error> {
        let record = Record {
            reply: None,
            rows: Vec::new(),
        };
        let (_, landed) = self.shared.state().stage(record, true);
        self.shared.staged.notify_one();
        match landed.await {
            Ok(Landed::Done) => Ok(()),
            Ok(Landed::Full | Landed::Again) => {
                Err(Error::new(ErrorKind::NoSpace, "tree: opening the log"))
            }
            Ok(Landed::Stopped) | Err(_) => {
                self.shared.state().check_served()?;
                Err(Error::new(ErrorKind::Unavailable, "tree: opening the log"))
            }
        }
    }

    /// Applies everything and gives the tree back, so that whoever opens it next has nothing to
    /// recover and nobody to fence. Calls on their way must have ended.
    ///
    /// # Errors
    /// What the store says; the tree is closed all the same.
    pub async fn close(&self) -> Result<(), Error> {
        let shared = &self.shared;
        shared.state().is_closing = true;
        shared.wake_all();
        let mut tasks = self.take_tasks().into_iter();
        let logging = tasks.next();
        for task in tasks {
            // It ends after its round, and leaves nothing on its way.
            task.await.ok();
        }
        let settled = self.settle().await;
        let trimmed = match settled {
            Ok(()) => shared.trim_all().await,
            Err(error) => Err(error),
        };
        shared
            .state()
            .stop(ErrorKind::Unavailable, "the tree is closed");
        shared.wake_all();
        if let Some(logging) = logging {
            logging.await.ok();
        }
        trimmed?;
        shared.store.flush().await?;
        let header = shared.place.header();
        shared.claim.release(&*shared.store, &header).await
    }

    /// Waits until all changes so far are in their objects.
    ///
    /// # Errors
    /// What the store says.
    pub async fn settle(&self) -> Result<(), Error> {
        let waits = {
            let mut state = self.shared.state();
            state.check_served()?;
            let last = state.last();
            if state.is_queue_empty() {
                None
            } else {
                state.wait(last)
            }
        };
        if let Some(landed) = waits {
            // Whether it was logged or taken back, nothing waits any more.
            landed.await.ok();
            self.shared.state().check_served()?;
        }
        self.shared.apply_round().await
    }

    /// The node at the top.
    ///
    /// # Errors
    /// What the store says.
    pub async fn root(&self) -> Result<Handle, TreeError> {
        let root = self
            .look(|view| view.inode(ROOT)?.ok_or_else(|| missing_root().into()))
            .await?;
        Ok(Handle {
            tree: self.shared.place.id,
            inode: ROOT,
            generation: root.generation,
        })
    }

    /// Resolves when the tree is served no more: by another session, a store that is gone, or a
    /// record that does not read.
    pub async fn stopped(&self) {
        let mut applied = self.shared.applied.subscribe();
        while self.shared.state().check_served().is_ok() {
            if applied.changed().await.is_err() {
                return;
            }
        }
    }

    /// The claim under which this session serves; greater for each later one.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.shared.claim.epoch()
    }

    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.place.id
    }

    fn take_tasks(&self) -> Vec<JoinHandle<()>> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *tasks)
    }

    /// Runs what only reads.
    pub(super) async fn look<T>(
        &self,
        call: impl Fn(&mut View<'_>) -> Result<T, Stop>,
    ) -> Result<T, TreeError> {
        self.shared.call(call, None).await
    }

    /// Runs what may change something. The answer comes when that is logged.
    pub(super) async fn change<T>(
        &self,
        call: impl Fn(&mut View<'_>) -> Result<T, Stop>,
        keep: Option<&Keep<'_, T>>,
    ) -> Result<T, TreeError> {
        self.shared.room().await?;
        self.shared.call(call, keep).await
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for task in self.take_tasks() {
            task.abort();
        }
    }
}

/// What one round of a call leaves to do.
enum Step<T> {
    Load(Vec<Row>),
    /// The answer, and what it waits for.
    Answer(Result<T, TreeError>, Option<oneshot::Receiver<Landed>>),
}

impl Shared {
    /// Waits until the log has room for a change.
    pub(super) async fn room(&self) -> Result<(), Error> {
        let mut applied = self.applied.subscribe();
        loop {
            {
                let state = self.state();
                state.check_served()?;
                if state.has_room() {
                    return Ok(());
                }
            }
            self.apply_due.notify_one();
            if applied.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    pub(super) async fn call<T>(
        &self,
        call: impl Fn(&mut View<'_>) -> Result<T, Stop>,
        keep: Option<&Keep<'_, T>>,
    ) -> Result<T, TreeError> {
        for _ in 0..ROUNDS_MAX {
            let (answer, landed) = match self.round(&call, keep)? {
                Step::Load(rows) => {
                    self.load(&rows).await?;
                    continue;
                }
                Step::Answer(answer, None) => return answer,
                Step::Answer(answer, Some(landed)) => (answer, landed.await),
            };
            match landed {
                Ok(Landed::Done) => return answer,
                Ok(Landed::Again) => {}
                Ok(Landed::Full) => return Err(TreeError::NoSpace),
                Ok(Landed::Stopped) | Err(_) => {
                    self.state().check_served()?;
                    return Err(closed().into());
                }
            }
        }
        Err(Error::new(ErrorKind::Busy, "tree: a call found no steady state").into())
    }

    fn round<T>(
        &self,
        call: &impl Fn(&mut View<'_>) -> Result<T, Stop>,
        keep: Option<&Keep<'_, T>>,
    ) -> Result<Step<T>, TreeError> {
        let mut state = self.state();
        state.check_served()?;
        let epoch = self.claim.epoch();
        let mut view = View::new(&state.overlay, self.place.id, &self.header, epoch);
        let answer = call(&mut view);
        let (rows, missing, barrier, removes) = view.finish();
        let answer = match answer {
            Err(Stop::Missing) => return Ok(Step::Load(missing)),
            Err(Stop::Refused(error)) => Err(error),
            Ok(answer) => Ok(answer),
        };
        // What the answer tells has to be logged before it leaves, be it an error.
        let has_changed = answer.is_ok() && !rows.is_empty();
        if !has_changed {
            return Ok(Step::Answer(answer, state.wait(barrier)));
        }
        let reply = match (keep, &answer) {
            (Some(keep), Ok(answer)) => Some(KeptReply {
                client: keep.client.clone(),
                xid: keep.xid,
                checksum: keep.checksum,
                result: (keep.encode)(answer),
            }),
            _ => None,
        };
        let is_orphaned =
            |(row, value): &(Row, Option<_>)| matches!(row, Row::Orphan(_)) && value.is_some();
        let has_orphans = rows.iter().any(is_orphaned);
        let (_, landed) = state.stage(Record { reply, rows }, removes);
        drop(state);
        self.staged.notify_one();
        if has_orphans {
            self.reap_due.notify_one();
        }
        Ok(Step::Answer(answer, Some(landed)))
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "tree: it is closed")
}

fn missing_root() -> TreeError {
    TreeError::corrupt("a tree without a root")
}

/// What is there already was made before.
fn absent(made: Result<(), Error>) -> Result<(), Error> {
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}
