//! One bucket: the operations on its keys.

use std::sync::Arc;

use bytes::Bytes;

use super::change::{Answer, Change, Label, find, inline_data};
use super::entry::{Entry, Location};
use super::error::Error;
use super::multipart::{Completing, PartWriter};
use super::object::{Object, ObjectWriter};
use super::record::{
    BucketUsage, ChecksumAlgorithm, ChecksumKind, DeleteOutcome, Key, ListPage, ListQuery,
    ObjectAbout, ObjectRecord, PartRecord, Precondition, UploadId, UploadPage, UploadQuery,
    UploadRecord, VersionId,
};
use super::row::{self, ENTRY, INLINE};
use super::{BucketId, Shared, corrupt};
use crate::object::ReadStep;

/// A handle on one bucket. Cheap to clone; any number of tasks may use it.
#[derive(Clone, Debug)]
pub struct Bucket {
    shared: Arc<Shared>,
    id: BucketId,
}

impl Bucket {
    pub(super) fn new(shared: Arc<Shared>, id: BucketId) -> Self {
        Self { shared, id }
    }

    /// Starts to write an object. Nothing is visible before [`ObjectWriter::finish`] returned.
    #[must_use]
    pub fn put(&self, key: Key) -> ObjectWriter {
        ObjectWriter::new(&self.shared, self.id, key)
    }

    /// What is known of an object. A current delete marker is `NoSuchKey` where no version is
    /// asked for.
    ///
    /// # Errors
    /// `NoSuchKey`, `NoSuchVersion`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn head(&self, key: &Key, version: Option<VersionId>) -> Result<ObjectRecord, Error> {
        let entry = self.shared.find_entry(self.id, key, version).await?;
        Ok(entry.record)
    }

    /// An object to read from. It stays readable for the grace after it was overwritten.
    ///
    /// # Errors
    /// As [`Bucket::head`].
    pub async fn get(&self, key: &Key, version: Option<VersionId>) -> Result<Object, Error> {
        let (entry, inline) = self.shared.find_object(self.id, key, version).await?;
        Object::new(&self.shared, entry.record, entry.location, inline)
    }

    /// Deletes an object; deleting what is not there is fine.
    ///
    /// # Errors
    /// `PreconditionFailed`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn delete(
        &self,
        key: &Key,
        version: Option<VersionId>,
        precondition: &Precondition,
    ) -> Result<DeleteOutcome, Error> {
        let change = Change::Delete {
            version,
            precondition: precondition.clone(),
        };
        let Answer::Deleted(outcome) = self.shared.change(self.id, key, change, None).await? else {
            unreachable!("a deletion answers with one")
        };
        Ok(outcome)
    }

    /// Replaces the tags of an object and says of which version.
    ///
    /// # Errors
    /// As [`Bucket::head`].
    pub async fn set_tags(
        &self,
        key: &Key,
        version: Option<VersionId>,
        tags: Vec<(String, String)>,
    ) -> Result<VersionId, Error> {
        self.set_label(key, version, Label::Tags(tags)).await
    }

    /// Replaces the access control list of an object and says of which version.
    ///
    /// # Errors
    /// As [`Bucket::head`].
    pub async fn set_acl(
        &self,
        key: &Key,
        version: Option<VersionId>,
        acl: &str,
    ) -> Result<VersionId, Error> {
        self.set_label(key, version, Label::Acl(acl.to_owned()))
            .await
    }

    async fn set_label(
        &self,
        key: &Key,
        version: Option<VersionId>,
        label: Label,
    ) -> Result<VersionId, Error> {
        let change = Change::SetLabel { version, label };
        let Answer::Labelled(version) = self.shared.change(self.id, key, change, None).await?
        else {
            unreachable!("a label answers with a version")
        };
        Ok(version)
    }

    /// The parts that a multipart object was completed from, in ascending order of numbers; their
    /// sizes add up to the object's. Empty for an object without parts.
    ///
    /// # Errors
    /// `Store` if the store fails, `Corrupt` if the part table is missing.
    pub async fn parts(&self, object: &Object) -> Result<Vec<PartRecord>, Error> {
        let parts = object.parts().await?.iter();
        Ok(parts.map(|part| part.record.clone()).collect())
    }

    /// A page of the keys. Its cost depends on the page, not on the bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Store` if the store fails.
    pub async fn list(&self, query: &ListQuery) -> Result<ListPage, Error> {
        self.shared.list(self.id, query).await
    }

    /// Objects and bytes, uploads in progress left out.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Store` if the store fails.
    pub async fn usage(&self) -> Result<BucketUsage, Error> {
        self.shared.usage(self.id).await
    }

    /// Starts a multipart upload.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Store` if the store fails.
    pub async fn upload_begin(
        &self,
        key: Key,
        about: ObjectAbout,
        checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    ) -> Result<UploadRecord, Error> {
        let record = UploadRecord {
            key: key.clone(),
            upload: UploadId(self.shared.random()?),
            initiated_ms: self.shared.now_ms(),
            about,
            checksum,
        };
        let change = Change::UploadBegin(Box::new(record));
        let Answer::Upload(record) = self.shared.change(self.id, &key, change, None).await? else {
            unreachable!("a new upload answers with one")
        };
        Ok(*record)
    }

    /// # Errors
    /// `NoSuchUpload`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn upload(&self, key: &Key, upload: UploadId) -> Result<UploadRecord, Error> {
        let found = self.shared.read_parts(self.id, key, upload, 0, 0).await?;
        Ok(found.0.record)
    }

    /// Starts to write a part. The part that finishes last replaces one of the same number whole.
    #[must_use]
    pub fn put_part(&self, key: Key, upload: UploadId, number: u16) -> PartWriter {
        PartWriter::new(&self.shared, self.id, key, upload, number)
    }

    /// Parts with numbers greater than `after`, and whether more follow.
    ///
    /// # Errors
    /// `NoSuchUpload`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn upload_parts(
        &self,
        key: &Key,
        upload: UploadId,
        after: u16,
        count_max: u32,
    ) -> Result<(Vec<PartRecord>, bool), Error> {
        let found = self
            .shared
            .read_parts(self.id, key, upload, after, count_max)
            .await?;
        let (_, parts, truncated) = found;
        let parts = parts.into_iter().map(|part| part.record).collect();
        Ok((parts, truncated))
    }

    /// A page of the uploads in progress.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Store` if the store fails.
    pub async fn uploads(&self, query: &UploadQuery) -> Result<UploadPage, Error> {
        self.shared.list_uploads(self.id, query).await
    }

    /// Makes an object of `parts`, as [`Bucket::upload_parts`] gave them and in ascending order of
    /// numbers, and ends the upload. Repeating it answers the same while that object is current.
    ///
    /// # Errors
    /// `InvalidPart`, `NoSuchUpload`, `PreconditionFailed`, `EntityTooLarge`, `NoSuchBucket`;
    /// `Store` if the store fails.
    pub async fn upload_complete(
        &self,
        key: &Key,
        upload: UploadId,
        parts: &[PartRecord],
        about: ObjectAbout,
        precondition: &Precondition,
    ) -> Result<ObjectRecord, Error> {
        let completion = Completing {
            key,
            upload,
            parts,
            about: &about,
            precondition,
        };
        self.shared.complete_upload(self.id, &completion).await
    }

    /// Ends an upload without an object.
    ///
    /// # Errors
    /// `NoSuchUpload`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn upload_abort(&self, key: &Key, upload: UploadId) -> Result<(), Error> {
        let change = Change::Abort { upload };
        self.shared
            .change(self.id, key, change, None)
            .await
            .map(drop)
    }
}

impl Shared {
    pub(super) async fn find_entry(
        &self,
        id: BucketId,
        key: &Key,
        version: Option<VersionId>,
    ) -> Result<Entry, Error> {
        Ok(self.find_rows(id, key, version, false).await?.0)
    }

    /// An entry and its inline data, as of one moment.
    async fn find_object(
        &self,
        id: BucketId,
        key: &Key,
        version: Option<VersionId>,
    ) -> Result<(Entry, Option<Bytes>), Error> {
        self.find_rows(id, key, version, true).await
    }

    async fn find_rows(
        &self,
        id: BucketId,
        key: &Key,
        version: Option<VersionId>,
        with_data: bool,
    ) -> Result<(Entry, Option<Bytes>), Error> {
        let kinds: &[u8] = if with_data {
            &[ENTRY, INLINE]
        } else {
            &[ENTRY]
        };
        let steps = kinds.iter().map(|kind| match version {
            Some(VersionId::Numbered(sequence)) => ReadStep::OmapGet {
                keys: vec![match *kind {
                    ENTRY => row::entry(key, sequence),
                    _ => row::inline(key, sequence),
                }],
            },
            None | Some(VersionId::Null) => {
                let range = row::key_range(*kind, key);
                ReadStep::OmapScan {
                    start: range.start,
                    end: Some(range.end),
                    keys_only: false,
                    count_max: 1,
                }
            }
        });
        let start = row::key_range(ENTRY, key).start;
        let (object, _, view) = self.read_at(id, row::place(&start), steps).await?;
        let missing = match version {
            None => Error::NoSuchKey,
            Some(_) => Error::NoSuchVersion,
        };
        let found = find(key, version, &view).map_err(|e| corrupt(&object, e))?;
        let entry = found
            .filter(|entry| version.is_some() || !entry.record.delete_marker)
            .ok_or(missing)?;
        let inline = if entry.location == Location::Inline {
            view.row(&row::inline(key, entry.record.sequence))
                .map(inline_data)
                .transpose()
                .map_err(|e| corrupt(&object, e))?
        } else {
            None
        };
        Ok((entry, inline))
    }

    /// The totals of all shards.
    async fn usage(&self, id: BucketId) -> Result<BucketUsage, Error> {
        let mut usage = BucketUsage::default();
        let mut place = Bytes::new();
        loop {
            let (_, _, view) = self.read_at(id, &place, []).await?;
            usage.object_count += view.state.totals.objects;
            usage.bytes += view.state.totals.bytes;
            match view.state.end {
                Some(end) => place = end,
                None => return Ok(usage),
            }
        }
    }
}
