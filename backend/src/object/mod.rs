//! The object model: what an engine offers and a volume builds on.
//!
//! RADOS is the model; the other engines imitate it. An object lives in a pool and has bytes,
//! extended attributes (xattrs), an ordered map of keys to values (omap) and a version. One
//! operation addresses one object and is a list of guards and a list of steps: all guards hold and
//! all steps happen, or none. Operations are plain data.
//!
//! The memory engine is the executable specification of every sentence here. Read on in [`op`].

pub mod id;
pub mod lock;
pub mod op;
pub mod output;
pub mod watch;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use id::{ListCursor, ObjectId, ObjectName, Pool, SessionId, SnapId, Version, XattrName};
pub use lock::{LockHolder, LockKind, LockName, LockRequest};
pub use op::{
    Durability, Guard, Payload, Priority, ReadOp, ReadStep, SnapContext, WhenFull, WriteOp,
    WriteStep,
};
pub use output::{Extent, ListPage, OmapPage, ReadOutput, ReadResult, Usage};
pub use watch::{Notification, NotifyAck, NotifyOutcome, Watch};

use crate::error::Error;

/// One future type, boxed: an allocation is noise beside an object operation. Dropping it never
/// cancels the operation: once polled, a write may take effect all the same.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// One session on a store of objects. All methods may be called from any number of tasks at once.
///
/// Two operations on one object that overlap in time have no order; one that is called after
/// another returned sees its effect, from whichever session.
pub trait ObjectStore: Debug + Send + Sync + 'static {
    /// What one operation may carry and what the pool can do. Constant while the store is open.
    fn limits(&self, pool: &Pool) -> Limits;

    /// Guards and steps see one version of the object. A missing object is `NotFound`, unless a
    /// guard says `Absent`.
    fn read<'a>(&'a self, object: &'a ObjectId, op: ReadOp) -> Reply<'a, ReadOutput>;

    /// The same as `read` where the engine can answer at once from memory; `None` says nothing but
    /// "ask `read`".
    fn try_read_cached(&self, object: &ObjectId, op: &ReadOp) -> Option<Result<ReadOutput, Error>>;

    /// All steps or none. Steps see the effect of earlier steps. Stable when it returns if
    /// `op.durability` is `Durable`; `Buffered` (plain data steps only) is visible at once and
    /// stable after the next `flush`.
    fn write<'a>(&'a self, object: &'a ObjectId, op: WriteOp) -> Reply<'a, Version>;

    /// Names in no promised order. What exists during the whole listing is listed exactly once.
    /// `count_max` is at least 1.
    fn list<'a>(
        &'a self,
        pool: &'a Pool,
        cursor: ListCursor,
        count_max: u32,
    ) -> Reply<'a, ListPage>;

    /// Takes or renews an advisory lock of an existing object. `Locked` if another owner holds it.
    /// Locks outlive their session.
    fn lock<'a>(&'a self, object: &'a ObjectId, request: LockRequest) -> Reply<'a, ()>;

    /// Gives back a lock of this session. `NotFound` if it does not hold it.
    fn unlock<'a>(&'a self, object: &'a ObjectId, name: LockName, cookie: Bytes) -> Reply<'a, ()>;

    /// Who holds the lock now, by the store's clock. A missing object or lock has no holders.
    fn lock_holders<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
    ) -> Reply<'a, Vec<LockHolder>>;

    /// Takes the lock away from a holder, of whichever session. `NotFound` if it does not hold it.
    fn lock_break<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
        holder: LockHolder,
    ) -> Reply<'a, ()>;

    /// Starts to watch an existing object. The watch ends when the handle is dropped.
    fn watch<'a>(&'a self, object: &'a ObjectId) -> Reply<'a, Box<dyn Watch>>;

    /// Tells everybody who watches the object, and waits until all have acknowledged or `timeout`
    /// is over. The object must exist.
    fn notify<'a>(
        &'a self,
        object: &'a ObjectId,
        payload: Bytes,
        timeout: Duration,
    ) -> Reply<'a, NotifyOutcome>;

    /// The name under which the store knows this session, to be given to others for `fence`.
    fn session(&self) -> SessionId;

    /// Another session on the same store. Fencing kills a whole session, so what fails over
    /// separately needs one of its own. `purpose` is for the operator's eyes.
    fn open_session<'a>(&'a self, purpose: &'a str) -> Reply<'a, Arc<dyn ObjectStore>>;

    /// When this returns, no write of `victim` can take effect on an object after an operation of
    /// ours on that object. Fencing twice, or a session that ended, is fine.
    fn fence<'a>(&'a self, victim: &'a SessionId) -> Reply<'a, ()>;

    /// Whether `session` can still write. `true` is the answer whenever the store does not know;
    /// `false` is final, and means the same as a `fence` that returned.
    fn may_write<'a>(&'a self, session: &'a SessionId) -> Reply<'a, bool>;

    /// A new snapshot id of the pool, greater than all before. What is written with a snapshot
    /// context that contains it keeps the state before as of this snapshot.
    fn snapshot_create<'a>(&'a self, pool: &'a Pool) -> Reply<'a, SnapId>;

    /// Gives up a snapshot; its space returns in the background. `NotFound` if it does not exist.
    fn snapshot_remove<'a>(&'a self, pool: &'a Pool, snapshot: SnapId) -> Reply<'a, ()>;

    /// When this returns, every `Buffered` write that returned before the call is stable.
    /// Concurrent calls share one.
    fn flush(&self) -> Reply<'_, ()>;

    /// Space of the pool's device and what is used of it.
    fn usage<'a>(&'a self, pool: &'a Pool) -> Reply<'a, Usage>;
}

/// What one operation may carry and what a pool can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of one object.
    pub object_bytes_max: u64,
    /// Payload bytes of one operation, data and omap together.
    pub op_bytes_max: u64,
    /// Keys that one operation sets, removes or reads; see `correctness` of index shards.
    pub omap_keys_max: u32,
    /// Bytes of one omap value.
    pub omap_value_bytes_max: u32,
    /// Whether objects of this pool have an omap at all (erasure-coded pools of Ceph have none).
    pub omap: bool,
    /// Whether `snapshot_create`, snapshot contexts, `ReadOp::at` and `Rollback` work.
    pub snapshots: bool,
    /// How `CloneRange` works.
    pub clone_range: CloneRange,
    /// Whether `Extents` leaves out ranges that hold no data.
    pub sparse_reads: bool,
    /// Whether `Buffered` differs from `Durable`. Where it does not, `flush` has nothing to do.
    pub buffered: bool,
    /// Bytes of one read that serve a long reading of many objects best.
    pub stream_read_bytes: u32,
    /// Bytes of one write that serve a long writing of many objects best.
    pub stream_write_bytes: u32,
    /// Zeroing or truncating a range aligned to this many bytes returns its space.
    pub discard_bytes: u32,
}

/// How an engine clones a range of one object into another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CloneRange {
    /// By reading and writing.
    Copy,
    /// By sharing the stored extents: time and space do not depend on the length.
    Shared,
    Unsupported,
}
