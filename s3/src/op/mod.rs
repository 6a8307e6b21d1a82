//! The verbs: one file each, with one function `run` that takes a [`Context`].
//!
//! [`dispatch`] is the way to all of them. Before a verb runs, its bucket was found, the asker was
//! found to be allowed ([`access`]), and headers that ask for what is not built were refused. No
//! byte of the body was read: an error up to here costs the client nothing.

mod abort_multipart_upload;
mod about;
mod access;
mod acl;
mod bucket_tagging;
mod complete_multipart_upload;
mod copy_object;
mod create_bucket;
mod create_multipart_upload;
mod delete_bucket;
mod delete_object;
mod delete_objects;
mod get_acl;
mod get_bucket_location;
mod get_object;
mod get_object_attributes;
mod head_bucket;
mod list_buckets;
mod list_multipart_uploads;
mod list_object_versions;
mod list_objects;
mod list_objects_v2;
mod list_parts;
mod listing;
mod multipart;
mod object_tagging;
mod post_object;
mod put_acl;
mod put_object;
mod unset;
mod upload_part;
mod upload_part_copy;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portico_backend::bucket::{
    self, Bucket, ChecksumAlgorithm, Error as BucketError, Key, Object, ObjectRecord, VersionId,
};
use portico_backend::budget::Permit;
use portico_backend::catalog::{BucketName, BucketRecord};
use portico_backend::volumes::Volumes;
use tokio::time::Instant;

use crate::auth::Identity;
use crate::error::{Code, S3Error};
use crate::limits::XML_BYTES_MAX;
use crate::serve::Service;
use crate::serve::body::{DataIn, RawBody, RequestBody};
use crate::serve::reply::Reply;
use crate::wire::action::Action;
use crate::wire::{Query, Request, RequestHead, header};
use access::Permission;
use acl::Right;

/// The owner of what nobody in particular has written.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// All that a verb needs.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) service: &'a Service,
    /// Those of one tenure for the whole request.
    pub(crate) volumes: &'a Volumes,
    pub(crate) head: RequestHead<'a>,
    pub(crate) request: Request,
    pub(crate) identity: Identity,
    body: Option<RequestBody<'a>>,
    target: Option<Target>,
    permit: Option<Permit>,
    queued: Duration,
}

/// A bucket that the asker may use, at least for the action in hand.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) record: Arc<BucketRecord>,
    pub(crate) bucket: Bucket,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        service: &'a Service,
        volumes: &'a Volumes,
        head: RequestHead<'a>,
        request: Request,
        identity: Identity,
        body: RequestBody<'a>,
    ) -> Self {
        Self {
            service,
            volumes,
            head,
            request,
            identity,
            body: Some(body),
            target: None,
            permit: None,
            queued: Duration::ZERO,
        }
    }

    /// The first value of a header if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&'a str> {
        self.head.header(name)
    }

    pub(crate) fn query(&self) -> &Query {
        &self.request.query
    }

    /// The record of the bucket that the request names.
    ///
    /// # Panics
    /// For an action that has no bucket, or makes one.
    pub(crate) fn record(&self) -> &BucketRecord {
        &self.target().record
    }

    /// The bucket that the request names.
    ///
    /// # Panics
    /// As [`Context::record`].
    pub(crate) fn bucket(&self) -> &Bucket {
        &self.target().bucket
    }

    fn target(&self) -> &Target {
        self.target
            .as_ref()
            .expect("dispatch has opened the bucket of every action that has one")
    }

    /// The key that the request names.
    ///
    /// # Panics
    /// For an action that is not on an object.
    pub(crate) fn key(&self) -> &Key {
        self.request
            .key
            .as_ref()
            .expect("routing finds actions on objects by their key")
    }

    /// The version that the request names.
    ///
    /// # Errors
    /// `InvalidArgument` if it is none of ours.
    pub(crate) fn version(&self) -> Result<Option<VersionId>, S3Error> {
        match self.query().first("versionId") {
            None => Ok(None),
            Some(text) => about::version_from_text(text).map(Some),
        }
    }

    /// The owner of what the asker writes.
    pub(crate) fn owner(&self) -> &str {
        access::user_id(&self.identity).unwrap_or(ANONYMOUS)
    }

    /// Whether the asker owns the bucket, or is the user with the id `owner`: who may see and end
    /// what that user has begun.
    pub(crate) fn may_manage(&self, owner: &str) -> bool {
        access::is_user(&self.identity, &self.record().owner)
            || access::is_user(&self.identity, owner)
    }

    /// The name that documents show for a user id.
    pub(crate) fn display_name(&self, user_id: &str) -> String {
        match self.volumes.catalog.user(user_id) {
            Some(user) => user.display_name.clone(),
            None => user_id.to_owned(),
        }
    }

    /// Opens the object that the request names, if the asker may read it.
    ///
    /// # Errors
    /// `NoSuchKey`, `NoSuchVersion`, `AccessDenied`.
    pub(crate) async fn open_object(&self) -> Result<Object, S3Error> {
        open_object(&self.identity, self.target(), self.key(), self.version()?).await
    }

    /// The record of the object that the request names, if the asker may do `right` with it.
    ///
    /// # Errors
    /// As [`Context::open_object`].
    pub(crate) async fn head_object(&self, right: Right) -> Result<ObjectRecord, S3Error> {
        let found = self.bucket().head(self.key(), self.version()?).await;
        let found = seen(&self.identity, self.record(), self.key(), found)?;
        allowed(&self.identity, self.record(), &found, right)?;
        Ok(found)
    }

    /// Opens the source of a copy, if the asker may read it. Gives the bucket too.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `NoSuchVersion`, `AccessDenied`.
    pub(crate) async fn open_source(
        &self,
        bucket: &str,
        key: &Key,
        version: Option<&str>,
    ) -> Result<(Target, Object), S3Error> {
        let target = open_bucket(self.volumes, bucket).await?;
        expect_owner(
            &target.record,
            self.header("x-amz-source-expected-bucket-owner"),
        )?;
        let version = version.map(about::version_from_text).transpose()?;
        let object = open_object(&self.identity, &target, key, version).await?;
        Ok((target, object))
    }

    /// Starts to read the body as data of an object. Waits for bytes in flight; `algorithm` is a
    /// checksum to compute in any case.
    ///
    /// # Errors
    /// `SlowDown` if the wait is too long, and those of
    /// [`BodyDecoder::new`](crate::wire::BodyDecoder::new).
    ///
    /// # Panics
    /// If the body was taken before.
    pub(crate) async fn data(
        &mut self,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> Result<DataIn<'a>, S3Error> {
        let data = self.take_body().decode(algorithm)?;
        self.reserve(data.size_hint().unwrap_or(u64::MAX)).await?;
        Ok(data)
    }

    /// The body as a document.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded`, `SlowDown`, and whatever is wrong with the body.
    ///
    /// # Panics
    /// If the body was taken before.
    pub(crate) async fn document(&mut self) -> Result<Bytes, S3Error> {
        self.reserve_document().await?;
        self.take_body().document(XML_BYTES_MAX).await
    }

    /// As [`Context::document`] where headers with checksums speak of an object.
    ///
    /// # Errors
    /// As [`Context::document`].
    ///
    /// # Panics
    /// As [`Context::document`].
    pub(crate) async fn document_about_object(&mut self) -> Result<Bytes, S3Error> {
        self.reserve_document().await?;
        self.take_body().document_about_object(XML_BYTES_MAX).await
    }

    async fn reserve_document(&mut self) -> Result<(), S3Error> {
        let length = self
            .header("content-length")
            .and_then(|text| text.parse().ok());
        self.reserve(length.unwrap_or(XML_BYTES_MAX as u64)).await
    }

    /// The bytes of the body as they come. Waits for `bytes` in flight: what is kept of the body
    /// until it is known whether its sender may send it.
    ///
    /// # Errors
    /// `SlowDown`.
    ///
    /// # Panics
    /// If the body was taken before.
    pub(crate) async fn raw_body(&mut self, bytes: u64) -> Result<RawBody<'a>, S3Error> {
        self.reserve(bytes).await?;
        Ok(self.take_body().raw())
    }

    fn take_body(&mut self) -> RequestBody<'a> {
        self.body.take().expect("a verb reads the body once")
    }

    /// Takes what a transfer of `bytes` keeps in memory out of the budget, until the reply is
    /// written. A later call replaces what an earlier one took.
    ///
    /// # Errors
    /// `SlowDown` if that takes too long.
    pub(crate) async fn reserve(&mut self, bytes: u64) -> Result<(), S3Error> {
        let bytes = bytes.min(self.service.options.transfer_bytes);
        if let Some(permit) = self.service.budget.try_take(bytes) {
            self.permit = Some(permit);
            return Ok(());
        }
        let asked = Instant::now();
        let waited = tokio::time::timeout(
            self.service.options.queue_timeout,
            self.service.budget.take(bytes),
        )
        .await;
        self.queued += asked.elapsed();
        let permit = waited.map_err(|_| S3Error::new(Code::SlowDown))?;
        self.permit = Some(permit);
        Ok(())
    }

    pub(crate) fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    pub(crate) fn queued(&self) -> Duration {
        self.queued
    }
}

/// Runs the verb that the request means.
///
/// # Errors
/// What is to be answered.
pub(crate) async fn dispatch(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let action = cx.request.action;
    let permission = access::permission(action);
    if permission == Permission::SignedIn {
        access::check_signed_in(&cx.identity)?;
    } else if let Some(name) = cx.request.bucket.as_deref() {
        let target = open_bucket(cx.volumes, name).await?;
        expect_owner(&target.record, cx.header("x-amz-expected-bucket-owner"))?;
        if action != Action::PostObject {
            // A form carries its signature in the body.
            access::check_bucket(permission, &cx.identity, &target.record)?;
        }
        cx.target = Some(target);
    }
    refuse_unbuilt_headers(cx)?;
    run(action, cx).await
}

async fn run(action: Action, cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    match action {
        Action::AbortMultipartUpload => abort_multipart_upload::run(cx).await,
        Action::CompleteMultipartUpload => complete_multipart_upload::run(cx).await,
        Action::CopyObject => copy_object::run(cx).await,
        Action::CreateBucket => create_bucket::run(cx).await,
        Action::CreateMultipartUpload => create_multipart_upload::run(cx).await,
        Action::DeleteBucket => delete_bucket::run(cx).await,
        Action::DeleteBucketTagging => bucket_tagging::delete(cx).await,
        Action::DeleteObject => delete_object::run(cx).await,
        Action::DeleteObjectTagging => object_tagging::delete(cx).await,
        Action::DeleteObjects => delete_objects::run(cx).await,
        Action::GetBucketAcl => get_acl::bucket(cx).await,
        Action::GetBucketLocation => get_bucket_location::run(cx).await,
        Action::GetBucketTagging => bucket_tagging::get(cx).await,
        Action::GetObject => get_object::run(cx).await,
        Action::GetObjectAcl => get_acl::object(cx).await,
        Action::GetObjectAttributes => get_object_attributes::run(cx).await,
        Action::GetObjectTagging => object_tagging::get(cx).await,
        Action::HeadBucket => head_bucket::run(cx).await,
        Action::HeadObject => get_object::head(cx).await,
        Action::ListBuckets => list_buckets::run(cx).await,
        Action::ListMultipartUploads => list_multipart_uploads::run(cx).await,
        Action::ListObjectVersions => list_object_versions::run(cx).await,
        Action::ListObjects => list_objects::run(cx).await,
        Action::ListObjectsV2 => list_objects_v2::run(cx).await,
        Action::ListParts => list_parts::run(cx).await,
        Action::PostObject => post_object::run(cx).await,
        Action::PutBucketAcl => put_acl::bucket(cx).await,
        Action::PutBucketTagging => bucket_tagging::put(cx).await,
        Action::PutObject => put_object::run(cx).await,
        Action::PutObjectAcl => put_acl::object(cx).await,
        Action::PutObjectTagging => object_tagging::put(cx).await,
        Action::Unset(unset) => unset::run(cx, unset).await,
        Action::UploadPart => upload_part::run(cx).await,
        Action::UploadPartCopy => upload_part_copy::run(cx).await,
    }
}

async fn open_bucket(volumes: &Volumes, name: &str) -> Result<Target, S3Error> {
    let missing = || S3Error::new(Code::NoSuchBucket).with_field("BucketName", name);
    // A name that breaks the rules cannot have been given to a bucket.
    let valid = BucketName::new(name).map_err(|_| missing())?;
    let record = volumes.catalog.bucket(&valid).await?.ok_or_else(missing)?;
    let bucket = match volumes.buckets.bucket(record.id).await {
        Ok(bucket) => bucket,
        Err(bucket::Error::NoSuchBucket) => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    Ok(Target { record, bucket })
}

async fn open_object(
    identity: &Identity,
    target: &Target,
    key: &Key,
    version: Option<VersionId>,
) -> Result<Object, S3Error> {
    let found = target.bucket.get(key, version).await;
    let object = seen(identity, &target.record, key, found)?;
    allowed(identity, &target.record, object.record(), Right::Read)?;
    Ok(object)
}

/// What was found, unless the asker may not even see that there is nothing.
fn seen<T>(
    identity: &Identity,
    bucket: &BucketRecord,
    key: &Key,
    found: Result<T, BucketError>,
) -> Result<T, S3Error> {
    match found {
        Err(BucketError::NoSuchKey | BucketError::NoSuchVersion)
            if !access::may_miss_object(identity, bucket) =>
        {
            Err(Code::AccessDenied.into())
        }
        Err(error) => Err(S3Error::from(error).with_field("Key", key.as_str())),
        Ok(found) => Ok(found),
    }
}

fn allowed(
    identity: &Identity,
    bucket: &BucketRecord,
    object: &ObjectRecord,
    right: Right,
) -> Result<(), S3Error> {
    if access::may_on_object(identity, bucket, object, right) {
        Ok(())
    } else {
        Err(Code::AccessDenied.into())
    }
}

fn expect_owner(record: &BucketRecord, expected: Option<&str>) -> Result<(), S3Error> {
    match expected {
        Some(owner) if owner != record.owner => Err(Code::AccessDenied.into()),
        Some(_) | None => Ok(()),
    }
}

/// Headers that would change what is stored, or how long, in a way that is not built: they are
/// refused by name, never passed over.
fn refuse_unbuilt_headers(cx: &Context<'_>) -> Result<(), S3Error> {
    header::refuse_not_built(cx.head.headers)?;
    match cx.header("x-amz-bucket-object-lock-enabled") {
        Some(value) if value.eq_ignore_ascii_case("true") => {
            Err(S3Error::not_implemented("Object lock"))
        }
        Some(_) | None => Ok(()),
    }
}
