//! Buckets: which names exist, whose they are, and how far their making or unmaking has come.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::time::Instant;

use super::error::CatalogError;
use super::follow::Shared;
use super::name::BucketName;
use super::record::{BucketRecord, BucketState};
use super::root::{Counter, TableKind};
use super::table::{Edit, corrupt};
use super::{ATTEMPTS_MAX, Catalog};
use crate::bucket::BucketId;
use crate::error::Error;

/// Partitions read at the same time for a list.
const READS_MAX: usize = 8;

impl Catalog {
    /// Takes the name for a bucket in state `Creating`. The caller makes the bucket's objects, then
    /// calls [`Catalog::bucket_live`].
    ///
    /// # Errors
    /// `BucketExists` with the record if the name is taken. If its state is `Creating` and its
    /// owner the same, the caller may go on where the other one stopped, or beside it. If its state
    /// is `Deleting`, the caller may finish that and try again. `NoSuchUser` for the owner.
    pub async fn bucket_create(
        &self,
        name: &BucketName,
        owner: &str,
        region: &str,
    ) -> Result<BucketRecord, CatalogError> {
        let owner = self.shared.user_by_id(owner).await?;
        if let Some((existing, _)) = self.shared.bucket_read(name).await? {
            return Err(CatalogError::BucketExists(Box::new(existing)));
        }
        let bucket = BucketRecord {
            id: BucketId(self.shared.root.count(Counter::Bucket).await?),
            name: name.clone(),
            owner: owner.id.clone(),
            region: region.to_owned(),
            created_ms: self.shared.clock.now_ms(),
            state: BucketState::Creating,
            tags: Vec::new(),
            acl: String::new(),
        };
        // Nobody keeps a bucket in memory before it is live, so there is nobody to tell.
        let made = edit(name, None, Some(bucket.encode()));
        let mut is_made = false;
        for _ in 0..ATTEMPTS_MAX {
            is_made = self
                .shared
                .buckets
                .edit(std::slice::from_ref(&made))
                .await?;
            if is_made {
                break;
            }
            if let Some((existing, _)) = self.shared.bucket_read(name).await? {
                return Err(CatalogError::BucketExists(Box::new(existing)));
            }
        }
        if !is_made {
            return Err(CatalogError::Conflict);
        }
        if self.shared.user_is_there(&owner).await? {
            return Ok(bucket);
        }
        // In whichever state: somebody may have finished it meanwhile.
        self.bucket_delete_end(&bucket).await?;
        Err(CatalogError::NoSuchUser(owner.id))
    }

    /// The bucket's objects exist. Fine if it is live already.
    ///
    /// # Errors
    /// `NoSuchBucket` if it is being deleted or gone.
    pub async fn bucket_live(&self, bucket: &BucketRecord) -> Result<BucketRecord, CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let (mut current, record) = self.shared.bucket_current(bucket).await?;
            match current.state {
                BucketState::Live => return Ok(current),
                BucketState::Deleting => return Err(CatalogError::NoSuchBucket(bucket.id)),
                BucketState::Creating => current.state = BucketState::Live,
            }
            let edit = edit(&bucket.name, Some(record), Some(current.encode()));
            // As with `Creating`: not in memory anywhere yet.
            if self.shared.buckets.edit(&[edit]).await? {
                return Ok(current);
            }
        }
        Err(CatalogError::Conflict)
    }

    /// The bucket of this name, live or being deleted. A hit may come from memory, at most a second
    /// behind the store; a miss comes from the store. Whether a bucket that is being deleted still
    /// answers is for the bucket itself to say.
    ///
    /// # Errors
    /// What the store says.
    pub async fn bucket(
        &self,
        name: &BucketName,
    ) -> Result<Option<Arc<BucketRecord>>, CatalogError> {
        let generation = {
            let mut cache = self.shared.bucket_cache();
            if let Some(bucket) = cache.get(name, Instant::now()) {
                return Ok(Some(bucket));
            }
            cache.generation()
        };
        match self.shared.bucket_read(name).await? {
            Some((bucket, _)) if bucket.state != BucketState::Creating => {
                let bucket = Arc::new(bucket);
                self.shared
                    .bucket_cache()
                    .insert(Arc::clone(&bucket), generation);
                Ok(Some(bucket))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// All buckets, live or being deleted, of one owner (a user id) or of all, by name.
    ///
    /// # Errors
    /// What the store says.
    pub async fn buckets(&self, owner: Option<&str>) -> Result<Vec<BucketRecord>, CatalogError> {
        let wanted = |bucket: &BucketRecord| {
            bucket.state != BucketState::Creating && owner.is_none_or(|owner| bucket.owner == owner)
        };
        Ok(self.shared.buckets_where(wanted).await?)
    }

    /// Buckets whose making or deletion was begun and not finished, by name. One that is just being
    /// made by somebody is among them.
    ///
    /// # Errors
    /// What the store says.
    pub async fn buckets_unfinished(&self) -> Result<Vec<BucketRecord>, CatalogError> {
        let wanted = |bucket: &BucketRecord| bucket.state != BucketState::Live;
        Ok(self.shared.buckets_where(wanted).await?)
    }

    /// Replaces the tags; an empty list removes them.
    ///
    /// # Errors
    /// `NoSuchBucket` if it is not live.
    pub async fn bucket_set_tags(
        &self,
        bucket: &BucketRecord,
        tags: Vec<(String, String)>,
    ) -> Result<BucketRecord, CatalogError> {
        self.bucket_change(bucket, |current| {
            current.tags.clone_from(&tags);
            current.state == BucketState::Live
        })
        .await
    }

    /// Replaces the access control list; an empty text leaves the bucket to its owner.
    ///
    /// # Errors
    /// `NoSuchBucket` if it is not live.
    pub async fn bucket_set_acl(
        &self,
        bucket: &BucketRecord,
        acl: &str,
    ) -> Result<BucketRecord, CatalogError> {
        self.bucket_change(bucket, |current| {
            acl.clone_into(&mut current.acl);
            current.state == BucketState::Live
        })
        .await
    }

    /// Marks the bucket as being deleted. The caller removes its objects, then calls
    /// [`Catalog::bucket_delete_end`], or [`Catalog::bucket_delete_cancel`] if it is not empty.
    /// Fine if somebody is at it already.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub async fn bucket_delete_begin(
        &self,
        bucket: &BucketRecord,
    ) -> Result<BucketRecord, CatalogError> {
        self.bucket_change(bucket, |current| {
            current.state = BucketState::Deleting;
            true
        })
        .await
    }

    /// The bucket's objects are gone: frees its name, whatever its state. Fine if it is free
    /// already, or taken by another bucket.
    ///
    /// # Errors
    /// What the store says.
    pub async fn bucket_delete_end(&self, bucket: &BucketRecord) -> Result<(), CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let record = match self.shared.bucket_current(bucket).await {
                Ok((_, record)) => record,
                Err(CatalogError::NoSuchBucket(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
            let edit = edit(&bucket.name, Some(record), None);
            if self.shared.commit(TableKind::Bucket, &[edit]).await? {
                return Ok(());
            }
        }
        Err(CatalogError::Conflict)
    }

    /// The bucket is not empty and lives on. Fine if it is live already.
    ///
    /// # Errors
    /// `NoSuchBucket` if somebody else finished the deletion.
    pub async fn bucket_delete_cancel(
        &self,
        bucket: &BucketRecord,
    ) -> Result<BucketRecord, CatalogError> {
        self.bucket_change(bucket, |current| {
            let is_there = current.state != BucketState::Creating;
            current.state = BucketState::Live;
            is_there
        })
        .await
    }

    /// Changes a bucket's record and tells everybody. `change` says whether its state allows it.
    async fn bucket_change(
        &self,
        bucket: &BucketRecord,
        change: impl Fn(&mut BucketRecord) -> bool,
    ) -> Result<BucketRecord, CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let (mut current, record) = self.shared.bucket_current(bucket).await?;
            if !change(&mut current) {
                return Err(CatalogError::NoSuchBucket(bucket.id));
            }
            let new = current.encode();
            if new == record {
                return Ok(current);
            }
            let edit = edit(&bucket.name, Some(record), Some(new));
            if self.shared.commit(TableKind::Bucket, &[edit]).await? {
                return Ok(current);
            }
        }
        Err(CatalogError::Conflict)
    }
}

impl Shared {
    /// All buckets that are `wanted`, by name.
    pub(super) async fn buckets_where(
        &self,
        wanted: impl Fn(&BucketRecord) -> bool,
    ) -> Result<Vec<BucketRecord>, Error> {
        let loads = self
            .buckets
            .partitions()
            .map(|partition| self.buckets.load(partition));
        let mut loads = stream::iter(loads).buffer_unordered(READS_MAX);
        let mut buckets = Vec::new();
        while let Some(partition) = loads.try_next().await? {
            for (key, record) in &partition.entries {
                match BucketRecord::decode(record) {
                    Ok(bucket) if wanted(&bucket) => buckets.push(bucket),
                    Ok(_) => {}
                    Err(error) => return Err(corrupt("bucket", key, error)),
                }
            }
        }
        buckets.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(buckets)
    }

    async fn bucket_read(&self, name: &BucketName) -> Result<Option<(BucketRecord, Bytes)>, Error> {
        let key = name.as_str().as_bytes();
        let Some(record) = self.buckets.read(key).await? else {
            return Ok(None);
        };
        let bucket =
            BucketRecord::decode(&record).map_err(|error| corrupt("bucket", key, error))?;
        Ok(Some((bucket, record)))
    }

    /// The record of this very bucket, not of another of the same name.
    async fn bucket_current(
        &self,
        bucket: &BucketRecord,
    ) -> Result<(BucketRecord, Bytes), CatalogError> {
        self.bucket_read(&bucket.name)
            .await?
            .filter(|(current, _)| current.id == bucket.id)
            .ok_or(CatalogError::NoSuchBucket(bucket.id))
    }
}

fn edit(name: &BucketName, old: Option<Bytes>, new: Option<Bytes>) -> Edit {
    Edit {
        key: Bytes::copy_from_slice(name.as_str().as_bytes()),
        old,
        new,
    }
}
