//! Buckets: keys with data, in S3's semantics but in no protocol's terms.
//!
//! `docs/bucket-format.md` says what lies where and what must hold. [`Buckets`] is one node's
//! share in all buckets of a store, [`Bucket`] one of them.

mod change;
mod commit;
mod data;
mod entry;
pub mod error;
mod filling;
mod growth;
mod handle;
mod list;
mod map;
mod multipart;
mod object;
mod orphan;
mod reclaim;
pub mod record;
mod removal;
mod row;
mod scan;
mod shard;
mod split;
mod sweep;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use crate::clock::Clock;
use crate::error::{Error as StoreError, ErrorKind};
use crate::object::{Limits, ObjectId, ObjectStore, Pool, ReadOp, ReadOutput, Version, WriteOp};
use crate::stats::{Counter, Gauge, LatencyHistogram};

pub use error::Error;
pub use handle::Bucket;
pub use multipart::PartWriter;
pub use object::{Object, ObjectReader, ObjectWriter};
pub use record::{
    BucketUsage, Checksum, ChecksumAlgorithm, ChecksumKind, DeleteOutcome, EtagMatch, Key,
    ListAfter, ListItem, ListPage, ListQuery, ObjectAbout, ObjectRecord, PartRecord, Precondition,
    PreconditionFailure, UploadId, UploadItem, UploadPage, UploadQuery, UploadRecord, VersionId,
};

/// The number of a bucket, given by the catalog and never used again for another bucket.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BucketId(pub u64);

/// How buckets lay out and reclaim their data. `default()` is what a node uses; tests make the
/// numbers small.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BucketOptions {
    /// Objects of up to this many bytes lie in the index itself.
    pub inline_bytes_max: u32,
    /// Bytes of one object of the data pool.
    pub object_bytes: u32,
    /// Rows of an index shard, one to three for each key. A split starts when about half of them are
    /// there; whoever fills the rest first waits for it.
    pub shard_keys_max: u32,
    /// How long unlinked data stays readable for those who began to read before.
    pub grace_ms: u64,
    /// After this time without progress, whoever waits for a split or a deletion takes it over.
    pub takeover_ms: u64,
}

impl Default for BucketOptions {
    fn default() -> Self {
        Self {
            inline_bytes_max: 16 * 1024,
            object_bytes: 4 * 1024 * 1024,
            shard_keys_max: 50_000,
            grace_ms: 3_600_000,
            takeover_ms: 2_000,
        }
    }
}

/// What one step of background work did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReclaimOutcome {
    /// Objects of the store that were removed.
    pub removed: u64,
    /// Whether this step ended a round over all buckets and writers.
    pub round_ended: bool,
}

/// Counters of one node's share in buckets.
#[derive(Debug, Default)]
pub struct BucketStats {
    /// Batches written to shards.
    pub batches: Counter,
    /// Changes in these.
    pub changes: Counter,
    /// Batches that lost against another session and were decided anew.
    pub conflicts: Counter,
    /// Rows that listings read.
    pub rows_scanned: Counter,
    /// Rows that the fullest shard ever held when this node wrote to it.
    pub fullest_shard: Gauge,
    /// Shards split.
    pub splits: Counter,
    /// How long shards were frozen by splits of this node.
    pub freezes: LatencyHistogram,
}

/// One node's share in all buckets of a store: the session it writes with, its number as a writer
/// and the changes that wait for their shard.
#[derive(Debug)]
pub struct Buckets {
    shared: Arc<Shared>,
}

/// What all handles of one node share.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn ObjectStore>,
    meta: Pool,
    data: Pool,
    clock: Arc<dyn Clock>,
    options: BucketOptions,
    /// Of the meta pool.
    limits: Limits,
    data_limits: Limits,
    map_prefix: Arc<str>,
    writer: writer::Writer,
    queues: Mutex<HashMap<(BucketId, u64), commit::Queue>>,
    maps: Mutex<HashMap<BucketId, Arc<map::ShardMap>>>,
    /// Shards that are, or should be, split.
    splitting: Mutex<HashMap<(BucketId, u64), growth::SplitNote>>,
    /// One for each split that this node may begin.
    splits: tokio::sync::Semaphore,
    failures: data::Failures,
    /// Set when a write may still happen that nobody waits for.
    uncertain: AtomicBool,
    /// Taken shared for each write; taken whole to close.
    closed: tokio::sync::RwLock<bool>,
    /// Tells the batches of this writer apart.
    next_batch: AtomicU64,
    /// What is left of the present round of reclaim.
    round: tokio::sync::Mutex<reclaim::Round>,
    stats: Arc<BucketStats>,
    random: SystemRandom,
}

/// Why a lock of this module is never poisoned.
const LOCK: &str = "no code that may panic runs under the lock";

/// How often an operation is tried whose failure may pass.
const TRIES_MAX: u32 = 6;

impl Buckets {
    /// Registers the store's session as a writer. `meta` needs an omap, `data` does not.
    ///
    /// # Errors
    /// `Store` if the store fails.
    ///
    /// # Panics
    /// If the options make no sense: they come from a checked configuration.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        meta: Pool,
        data: Pool,
        clock: Arc<dyn Clock>,
        options: BucketOptions,
    ) -> Result<Arc<Self>, Error> {
        let stats = Arc::default();
        Self::open_counting(store, meta, data, clock, options, stats).await
    }

    /// As [`Buckets::open`], and goes on with counters of an earlier one.
    ///
    /// # Errors
    /// As [`Buckets::open`].
    ///
    /// # Panics
    /// As [`Buckets::open`].
    pub async fn open_counting(
        store: Arc<dyn ObjectStore>,
        meta: Pool,
        data: Pool,
        clock: Arc<dyn Clock>,
        options: BucketOptions,
        stats: Arc<BucketStats>,
    ) -> Result<Arc<Self>, Error> {
        let data_limits = store.limits(&data);
        options.check(&data_limits);
        let writer = writer::Writer::register(&store, &meta).await?;
        let shared = Arc::new(Shared {
            limits: store.limits(&meta),
            data_limits,
            store,
            meta,
            data,
            clock,
            options,
            map_prefix: Arc::from("bucket.map"),
            writer,
            queues: Mutex::default(),
            maps: Mutex::default(),
            splitting: Mutex::default(),
            splits: tokio::sync::Semaphore::new(growth::SPLITS_AT_ONCE),
            failures: data::Failures::default(),
            uncertain: AtomicBool::new(false),
            closed: tokio::sync::RwLock::new(false),
            next_batch: AtomicU64::new(1),
            round: tokio::sync::Mutex::default(),
            stats,
            random: SystemRandom::new(),
        });
        Ok(Arc::new(Self { shared }))
    }

    /// Makes an empty bucket. One that is there already stays as it is.
    ///
    /// # Errors
    /// `NoSuchBucket` if the bucket was deleted before; `Store` if the store fails.
    pub async fn create(&self, id: BucketId) -> Result<(), Error> {
        match self.shared.fresh_map(id).await {
            Ok(_) => Ok(()),
            Err(Error::NoSuchBucket) => self.shared.make_bucket(id).await,
            Err(error) => Err(error),
        }
    }

    /// A handle on a bucket. Cheap: one read at most.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Store` if the store fails.
    pub async fn bucket(self: &Arc<Self>, id: BucketId) -> Result<Bucket, Error> {
        self.shared.map(id).await?;
        Ok(Bucket::new(Arc::clone(&self.shared), id))
    }

    /// Deletes an empty bucket. When it returns, no write to the bucket can succeed anywhere.
    ///
    /// # Errors
    /// `BucketNotEmpty`, `NoSuchBucket`; `Conflict` while another deletion of it goes on; `Store`
    /// if the store fails.
    pub async fn delete(&self, id: BucketId) -> Result<(), Error> {
        self.shared.delete_bucket(id).await
    }

    /// One bounded step of background work: unlinked data whose grace is over, what ended writers
    /// left behind, unfinished splits, parts of uploads that ended.
    ///
    /// # Errors
    /// `Store` if the store fails; the next call goes on.
    pub async fn reclaim_step(&self) -> Result<ReclaimOutcome, Error> {
        self.shared.reclaim_step().await
    }

    /// Ends this writer after its last change; what comes later is refused.
    ///
    /// # Errors
    /// `Store` if the store fails; the writer then ends when its session does.
    pub async fn close(&self) -> Result<(), Error> {
        self.shared.close().await
    }

    #[must_use]
    pub fn stats(&self) -> &BucketStats {
        &self.shared.stats
    }
}

impl BucketOptions {
    fn check(&self, data: &Limits) {
        assert!(self.object_bytes > 0, "data objects hold bytes");
        let unit_bytes = self.object_bytes.min(data.stream_write_bytes);
        assert!(
            self.object_bytes.is_multiple_of(unit_bytes),
            "data objects are written in whole units"
        );
        assert!(self.inline_bytes_max <= 64 * 1024, "inline data is small");
        assert!(self.shard_keys_max >= 8, "a shard holds some keys");
    }
}

impl Shared {
    /// A read that may be repeated: failures that pass are waited out for a while.
    async fn read_retried(&self, object: &ObjectId, op: ReadOp) -> Result<ReadOutput, StoreError> {
        for round in 0.. {
            match self.store.read(object, op.clone()).await {
                Err(error) if may_pass(&error) && round < TRIES_MAX => pause(round).await,
                other => return other,
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// A write that does no harm when it happens twice.
    async fn write_settled(&self, object: &ObjectId, op: WriteOp) -> Result<Version, StoreError> {
        for round in 0.. {
            let result = self.write(object, op.clone()).await;
            match result {
                Err(error) if may_pass(&error) && round < TRIES_MAX => pause(round).await,
                other => return other,
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Every write of this module passes here.
    async fn write(&self, object: &ObjectId, op: WriteOp) -> Result<Version, StoreError> {
        let closed = self.closed.read().await;
        if *closed {
            return Err(StoreError::new(ErrorKind::Fenced, "the writer was closed"));
        }
        let result = self.store.write(object, op).await;
        if result
            .as_ref()
            .is_err_and(|e| e.kind().is_perhaps_applied())
        {
            self.uncertain.store(true, Ordering::SeqCst);
        }
        result
    }

    /// Rows of one scan, with room for the rows that are read beside it.
    fn scan_rows_max(&self) -> u32 {
        self.limits.omap_keys_max.saturating_sub(16).max(1)
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// A number that nobody can guess.
    fn random(&self) -> Result<u128, Error> {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes).map_err(|_| {
            StoreError::new(ErrorKind::Unavailable, "the machine gives no random bytes")
        })?;
        Ok(u128::from_le_bytes(bytes))
    }
}

fn may_pass(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unavailable)
}

/// Waits a little longer each round, 64 ms at most.
async fn pause(round: u32) {
    tokio::time::sleep(Duration::from_millis(1 << round.min(6))).await;
}

fn corrupt(object: &ObjectId, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let context = format!("a record of {object} does not read");
    StoreError::new(ErrorKind::Corrupt, context)
        .with_source(error)
        .into()
}

fn odd_answer(object: &ObjectId) -> StoreError {
    let context = format!("the answer about {object} has another shape than the question");
    StoreError::new(ErrorKind::Corrupt, context)
}

/// The same error for one more of those who wait for it.
fn copy_error(error: &StoreError) -> StoreError {
    StoreError::new(error.kind(), error.context())
}
