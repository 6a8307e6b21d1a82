//! One bucket: the operations on its keys.

use super::error::Error;
use super::multipart::PartWriter;
use super::object::{Object, ObjectWriter};
use super::record::{
    BucketUsage, ChecksumAlgorithm, ChecksumKind, DeleteOutcome, Key, ListPage, ListQuery,
    ObjectAbout, ObjectRecord, PartRecord, Precondition, UploadId, UploadPage, UploadQuery,
    UploadRecord, VersionId,
};

/// A handle on one bucket. Cheap to clone; any number of tasks may use it.
#[derive(Clone, Debug)]
pub struct Bucket {}

impl Bucket {
    /// Starts to write an object. Nothing is visible before [`ObjectWriter::finish`] returned.
    #[must_use]
    pub fn put(&self, key: Key) -> ObjectWriter {
        let _unused = key;
        todo!()
    }

    /// What is known of an object. A current delete marker is `NoSuchKey` where no version is
    /// asked for.
    ///
    /// # Errors
    /// `NoSuchKey`, `NoSuchVersion`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn head(&self, key: &Key, version: Option<VersionId>) -> Result<ObjectRecord, Error> {
        let _unused = (key, version);
        todo!()
    }

    /// An object to read from. It stays readable for the grace after it was overwritten.
    ///
    /// # Errors
    /// As [`Bucket::head`].
    pub async fn get(&self, key: &Key, version: Option<VersionId>) -> Result<Object, Error> {
        let _unused = (key, version);
        todo!()
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
        let _unused = (key, version, precondition);
        todo!()
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
        let _unused = (key, version, tags);
        todo!()
    }

    /// The parts that a multipart object was completed from, in ascending order of numbers; their
    /// sizes add up to the object's. Empty for an object without parts.
    ///
    /// # Errors
    /// `Store` if the store fails, `Corrupt` if the part table is missing.
    pub async fn parts(&self, object: &Object) -> Result<Vec<PartRecord>, Error> {
        let _unused = object;
        todo!()
    }

    /// A page of the keys. Its cost depends on the page, not on the bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Store` if the store fails.
    pub async fn list(&self, query: &ListQuery) -> Result<ListPage, Error> {
        let _unused = query;
        todo!()
    }

    /// Objects and bytes, uploads in progress left out.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Store` if the store fails.
    pub async fn usage(&self) -> Result<BucketUsage, Error> {
        todo!()
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
        let _unused = (key, about, checksum);
        todo!()
    }

    /// # Errors
    /// `NoSuchUpload`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn upload(&self, key: &Key, upload: UploadId) -> Result<UploadRecord, Error> {
        let _unused = (key, upload);
        todo!()
    }

    /// Starts to write a part. The part that finishes last replaces one of the same number whole.
    #[must_use]
    pub fn put_part(&self, key: Key, upload: UploadId, number: u16) -> PartWriter {
        let _unused = (key, upload, number);
        todo!()
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
        let _unused = (key, upload, after, count_max);
        todo!()
    }

    /// A page of the uploads in progress.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Store` if the store fails.
    pub async fn uploads(&self, query: &UploadQuery) -> Result<UploadPage, Error> {
        let _unused = query;
        todo!()
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
        let _unused = (key, upload, parts, about, precondition);
        todo!()
    }

    /// Ends an upload without an object.
    ///
    /// # Errors
    /// `NoSuchUpload`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn upload_abort(&self, key: &Key, upload: UploadId) -> Result<(), Error> {
        let _unused = (key, upload);
        todo!()
    }
}
