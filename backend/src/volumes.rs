//! Making and deleting volumes, which takes the catalog and the volume's own objects; and finishing
//! what somebody began and did not end.
//!
//! No object spans both, so a bucket's name is taken first and its objects are made next; it is
//! marked before its objects go, and its name is freed last. Whoever finds it in between can go on.

use std::fmt;
use std::sync::Arc;

use crate::bucket::{
    Bucket, Buckets, Error as BucketError, ListAfter, ListQuery, UploadItem, UploadQuery,
};
use crate::catalog::{BucketName, BucketRecord, BucketState, Catalog, CatalogError};
use crate::error::chain;

/// A bucket in the making is left to its maker for so long.
const MAKING_MS_MAX: u64 = 60_000;

/// Uploads that are ended between two looks at which there are.
const UPLOADS_PAGE: u32 = 1_000;

/// The catalog, and what it lists. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Volumes {
    pub catalog: Arc<Catalog>,
    pub buckets: Arc<Buckets>,
}

/// Either half failed, and says how.
#[derive(Debug)]
pub enum Error {
    Bucket(BucketError),
    Catalog(CatalogError),
}

impl Volumes {
    /// Makes a bucket. One that its owner began to make and did not finish is finished.
    ///
    /// # Errors
    /// `BucketExists` if the name is taken, `NoSuchUser` for the owner.
    pub async fn bucket_create(
        &self,
        name: &BucketName,
        owner: &str,
        region: &str,
    ) -> Result<BucketRecord, Error> {
        let record = match self.catalog.bucket_create(name, owner, region).await {
            Err(CatalogError::BucketExists(found))
                if found.owner == owner && found.state == BucketState::Creating =>
            {
                *found
            }
            made => made?,
        };
        self.finish_making(&record).await
    }

    /// Deletes an empty bucket; one whose deletion was begun is deleted to the end. Uploads in
    /// progress do not keep a bucket alive: what nobody has completed was never there.
    ///
    /// # Errors
    /// `BucketNotEmpty`; `Conflict` if others keep changing it, and then it is finished later.
    pub async fn bucket_delete(&self, record: &BucketRecord) -> Result<(), Error> {
        // A bucket with keys is not even marked, since a mark is seen by those who use it.
        if self.holds_something(record).await? {
            return Err(BucketError::BucketNotEmpty.into());
        }
        let record = self.catalog.bucket_delete_begin(record).await?;
        self.finish_deleting(&record).await
    }

    /// Finishes what was begun and given up; says how many buckets that were. One that cannot be
    /// finished is logged and waits for the next call.
    ///
    /// # Errors
    /// If the catalog does not tell which there are.
    pub async fn buckets_finish(&self, now_ms: u64) -> Result<u64, Error> {
        let mut count = 0;
        for record in self.catalog.buckets_unfinished().await? {
            let name = &record.name;
            match self.finish_one(&record, now_ms).await {
                Ok(false) => {}
                Ok(true) => {
                    let state = record.state;
                    tracing::info!(bucket = %name, ?state, "finished a bucket's change");
                    count += 1;
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(bucket = %name, error, "a bucket's change is finished later");
                }
            }
        }
        Ok(count)
    }

    /// `false` if somebody else is at it.
    async fn finish_one(&self, record: &BucketRecord, now_ms: u64) -> Result<bool, Error> {
        let is_recent = record.created_ms.saturating_add(MAKING_MS_MAX) > now_ms;
        match record.state {
            BucketState::Live => return Ok(false),
            BucketState::Creating if is_recent => return Ok(false),
            BucketState::Creating if self.catalog.user(&record.owner).is_some() => {
                self.finish_making(record).await?;
            }
            // Without an owner, or on its way out.
            BucketState::Creating | BucketState::Deleting => {
                match self.finish_deleting(record).await {
                    Ok(()) | Err(Error::Bucket(BucketError::BucketNotEmpty)) => {}
                    Err(Error::Bucket(BucketError::Conflict)) => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(true)
    }

    async fn finish_making(&self, record: &BucketRecord) -> Result<BucketRecord, Error> {
        self.buckets.create(record.id).await?;
        Ok(self.catalog.bucket_live(record).await?)
    }

    async fn finish_deleting(&self, record: &BucketRecord) -> Result<(), Error> {
        match self.delete_objects(record).await {
            // Gone before: somebody was here and did not come to the end.
            Ok(()) | Err(BucketError::NoSuchBucket) => {}
            Err(BucketError::BucketNotEmpty) => {
                self.catalog.bucket_delete_cancel(record).await?;
                return Err(BucketError::BucketNotEmpty.into());
            }
            Err(error) => return Err(error.into()),
        }
        Ok(self.catalog.bucket_delete_end(record).await?)
    }

    async fn delete_objects(&self, record: &BucketRecord) -> Result<(), BucketError> {
        // Written to after it was marked: its uploads go on too.
        if self.holds_something(record).await? {
            return Err(BucketError::BucketNotEmpty);
        }
        end_uploads(&self.buckets.bucket(record.id).await?).await?;
        self.buckets.delete(record.id).await
    }

    async fn holds_something(&self, record: &BucketRecord) -> Result<bool, BucketError> {
        let first = ListQuery {
            prefix: String::new(),
            delimiter: None,
            after: ListAfter::Start,
            count_max: 1,
            versions: true,
        };
        let page = match self.buckets.bucket(record.id).await {
            Ok(bucket) => bucket.list(&first).await,
            Err(error) => Err(error),
        };
        match page {
            Ok(page) => Ok(!page.items.is_empty()),
            Err(BucketError::NoSuchBucket) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

async fn end_uploads(bucket: &Bucket) -> Result<(), BucketError> {
    let query = UploadQuery {
        prefix: String::new(),
        delimiter: None,
        after: None,
        count_max: UPLOADS_PAGE,
    };
    loop {
        let page = bucket.uploads(&query).await?;
        for item in &page.items {
            let UploadItem::Upload(upload) = item else {
                continue;
            };
            match bucket.upload_abort(&upload.key, upload.upload).await {
                Ok(()) | Err(BucketError::NoSuchUpload) => {}
                Err(error) => return Err(error),
            }
        }
        if !page.truncated {
            return Ok(());
        }
    }
}

impl From<BucketError> for Error {
    fn from(error: BucketError) -> Self {
        Self::Bucket(error)
    }
}

impl From<CatalogError> for Error {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket(error) => error.fmt(f),
            Self::Catalog(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bucket(error) => error.source(),
            Self::Catalog(error) => error.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::{BucketOptions, Key, ObjectAbout, Precondition};
    use crate::catalog::Keyring;
    use crate::clock::{Clock, FixedClock};
    use crate::memory::{MemoryCluster, MemoryOptions};
    use crate::object::Pool;

    async fn volumes(clock: &FixedClock) -> Volumes {
        let store = MemoryCluster::new(MemoryOptions::default()).session("test");
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let keyring = Arc::new(Keyring::generate("k1").unwrap());
        let (meta, data) = (Pool::new("meta", ""), Pool::new("data", ""));
        let options = BucketOptions::default();
        Volumes {
            catalog: Catalog::open(store.clone(), meta.clone(), clock.clone(), keyring)
                .await
                .unwrap(),
            buckets: Buckets::open(store, meta, data, clock, options)
                .await
                .unwrap(),
        }
    }

    fn name(text: &str) -> BucketName {
        BucketName::new(text).unwrap()
    }

    #[tokio::test]
    async fn what_was_begun_is_finished() {
        let clock = FixedClock::new(1_000_000);
        let volumes = volumes(&clock).await;
        let catalog = &volumes.catalog;
        let owner = catalog.user_create("alice", "").await.unwrap().id;
        catalog
            .bucket_create(&name("made"), &owner, "")
            .await
            .unwrap();
        let gone = volumes
            .bucket_create(&name("gone"), &owner, "")
            .await
            .unwrap();
        catalog.bucket_delete_begin(&gone).await.unwrap();
        let half = volumes
            .bucket_create(&name("half"), &owner, "")
            .await
            .unwrap();
        catalog.bucket_delete_begin(&half).await.unwrap();
        volumes.buckets.delete(half.id).await.unwrap();

        // The one in the making may still have its maker.
        assert_eq!(volumes.buckets_finish(clock.now_ms()).await.unwrap(), 2);
        assert_eq!(catalog.buckets(None).await.unwrap(), []);
        clock.advance(MAKING_MS_MAX);
        assert_eq!(volumes.buckets_finish(clock.now_ms()).await.unwrap(), 1);
        assert_eq!(volumes.buckets_finish(clock.now_ms()).await.unwrap(), 0);
        let made = catalog.bucket(&name("made")).await.unwrap().unwrap();
        volumes.buckets.bucket(made.id).await.unwrap();
        assert_eq!(
            catalog.buckets(None).await.unwrap(),
            [BucketRecord::clone(&made)]
        );
    }

    #[tokio::test]
    async fn a_bucket_with_keys_is_neither_deleted_nor_left_marked() {
        let clock = FixedClock::new(1_000_000);
        let volumes = volumes(&clock).await;
        let catalog = &volumes.catalog;
        let owner = catalog.user_create("alice", "").await.unwrap().id;
        let full = volumes
            .bucket_create(&name("full"), &owner, "")
            .await
            .unwrap();
        put(&volumes, &full).await;
        let refused = volumes.bucket_delete(&full).await.unwrap_err();
        assert!(matches!(
            refused,
            Error::Bucket(BucketError::BucketNotEmpty)
        ));
        // As left by somebody who stopped in between.
        catalog.bucket_delete_begin(&full).await.unwrap();
        volumes.buckets_finish(clock.now_ms()).await.unwrap();
        let lives = catalog.bucket(&name("full")).await.unwrap().unwrap();
        assert_eq!(lives.state, BucketState::Live);
    }

    #[tokio::test]
    async fn uploads_end_with_their_bucket_and_go_on_in_one_that_lives_on() {
        let clock = FixedClock::new(1_000_000);
        let volumes = volumes(&clock).await;
        let catalog = &volumes.catalog;
        let owner = catalog.user_create("alice", "").await.unwrap().id;
        let record = volumes.bucket_create(&name("some"), &owner, "").await;
        let record = record.unwrap();
        let bucket = volumes.buckets.bucket(record.id).await.unwrap();
        let key = Key::new("upload").unwrap();
        let begun = bucket.upload_begin(key.clone(), ObjectAbout::default(), None);
        let upload = begun.await.unwrap().upload;

        catalog.bucket_delete_begin(&record).await.unwrap();
        put(&volumes, &record).await;
        volumes.buckets_finish(clock.now_ms()).await.unwrap();
        bucket.upload(&key, upload).await.unwrap();

        let written = Key::new("key").unwrap();
        let always = Precondition::default();
        bucket.delete(&written, None, &always).await.unwrap();
        volumes.bucket_delete(&record).await.unwrap();
        assert!(catalog.bucket(&record.name).await.unwrap().is_none());
    }

    async fn put(volumes: &Volumes, record: &BucketRecord) {
        let bucket = volumes.buckets.bucket(record.id).await.unwrap();
        let key = Key::new("key").unwrap();
        let mut writer = bucket.put(key);
        writer
            .write(bytes::Bytes::from_static(b"data"))
            .await
            .unwrap();
        let about = ObjectAbout::default();
        writer
            .finish(about, &Precondition::default())
            .await
            .unwrap();
    }
}
