//! Buckets: keys with data, in S3's semantics but in no protocol's terms.
//!
//! `docs/bucket-format.md` says what lies where and what must hold. [`Buckets`] is one node's
//! share in all buckets of a store, [`Bucket`] one of them.

#![expect(clippy::todo, reason = "signatures first; the bodies follow")]

pub mod error;
mod handle;
mod multipart;
mod object;
pub mod record;

use std::sync::Arc;

use crate::clock::Clock;
use crate::object::{ObjectStore, Pool};

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
    /// Keys of an index shard; a split starts before.
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

/// One node's share in all buckets of a store: the session it writes with, its number as a writer
/// and the changes that wait for their shard.
#[derive(Debug)]
pub struct Buckets {}

impl Buckets {
    /// Registers the store's session as a writer. `meta` needs an omap, `data` does not.
    ///
    /// # Errors
    /// `Store` if the store fails.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        meta: Pool,
        data: Pool,
        clock: Arc<dyn Clock>,
        options: BucketOptions,
    ) -> Result<Arc<Self>, Error> {
        let _unused = (store, meta, data, clock, options);
        todo!()
    }

    /// Makes an empty bucket. One that is there already stays as it is.
    ///
    /// # Errors
    /// `NoSuchBucket` if the bucket was deleted before; `Store` if the store fails.
    pub async fn create(&self, id: BucketId) -> Result<(), Error> {
        let _unused = id;
        todo!()
    }

    /// A handle on a bucket. Cheap: one read at most.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Store` if the store fails.
    pub async fn bucket(self: &Arc<Self>, id: BucketId) -> Result<Bucket, Error> {
        let _unused = id;
        todo!()
    }

    /// Deletes an empty bucket. When it returns, no write to the bucket can succeed anywhere.
    ///
    /// # Errors
    /// `BucketNotEmpty`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn delete(&self, id: BucketId) -> Result<(), Error> {
        let _unused = id;
        todo!()
    }

    /// One bounded step of background work: unlinked data whose grace is over, what ended writers
    /// left behind, unfinished splits, parts of uploads that ended.
    ///
    /// # Errors
    /// `Store` if the store fails; the next call goes on.
    pub async fn reclaim_step(&self) -> Result<ReclaimOutcome, Error> {
        todo!()
    }

    /// Ends this writer after its last change; what comes later is refused.
    ///
    /// # Errors
    /// `Store` if the store fails; the writer then ends when its session does.
    pub async fn close(&self) -> Result<(), Error> {
        todo!()
    }
}
