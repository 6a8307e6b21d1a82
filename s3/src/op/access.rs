//! Who may do what: the one place that decides it.
//!
//! The owner of a bucket may do all with it and its objects; others what its access control
//! list or that of the object grants; the writer of an object may do all with that one.

use portico_backend::bucket::ObjectRecord;
use portico_backend::catalog::BucketRecord;

use crate::auth::Identity;
use crate::error::{Code, S3Error};
use crate::op::acl::{Acl, Right};
use crate::wire::action::{Action, Unset};

/// What somebody needs to be allowed for an action.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Permission {
    /// To list the bucket.
    BucketRead,
    /// To read the bucket's access control list.
    BucketReadAcp,
    /// To write into the bucket.
    BucketWrite,
    /// To replace the bucket's access control list.
    BucketWriteAcp,
    /// To do something with one object; decided when its record is known: see [`may_on_object`].
    Object,
    /// To be the owner of the bucket.
    Owner,
    /// To have signed.
    SignedIn,
}

/// What `action` needs.
pub(crate) fn permission(action: Action) -> Permission {
    match action {
        Action::CreateBucket | Action::ListBuckets => Permission::SignedIn,
        Action::HeadBucket
        | Action::ListMultipartUploads
        | Action::ListObjectVersions
        | Action::ListObjects
        | Action::ListObjectsV2 => Permission::BucketRead,
        Action::AbortMultipartUpload
        | Action::CompleteMultipartUpload
        | Action::CopyObject
        | Action::CreateMultipartUpload
        | Action::DeleteObject
        | Action::DeleteObjects
        | Action::ListParts
        | Action::PostObject
        | Action::PutObject
        | Action::UploadPart
        | Action::UploadPartCopy => Permission::BucketWrite,
        Action::GetBucketAcl => Permission::BucketReadAcp,
        Action::PutBucketAcl => Permission::BucketWriteAcp,
        Action::GetObject
        | Action::GetObjectAcl
        | Action::GetObjectAttributes
        | Action::HeadObject
        | Action::PutObjectAcl => Permission::Object,
        Action::DeleteBucket
        | Action::DeleteBucketTagging
        | Action::DeleteObjectTagging
        | Action::GetBucketLocation
        | Action::GetBucketTagging
        | Action::GetObjectTagging
        | Action::PutBucketTagging
        | Action::PutObjectTagging
        | Action::Unset(
            Unset::Accelerate
            | Unset::Cors
            | Unset::Encryption
            | Unset::Lifecycle
            | Unset::Logging
            | Unset::Notification
            | Unset::ObjectLock
            | Unset::OwnershipControls
            | Unset::Policy
            | Unset::PolicyStatus
            | Unset::PublicAccessBlock
            | Unset::Replication
            | Unset::RequestPayment
            | Unset::Torrent
            | Unset::Versioning
            | Unset::Website,
        ) => Permission::Owner,
    }
}

/// Decides about an action on a bucket.
///
/// # Errors
/// `AccessDenied`.
pub(crate) fn check_bucket(
    permission: Permission,
    identity: &Identity,
    bucket: &BucketRecord,
) -> Result<(), S3Error> {
    let acl = Acl::from_stored(&bucket.acl);
    let allows = |right| acl.allows(user_id(identity), right);
    let granted = match permission {
        Permission::BucketRead => allows(Right::Read),
        Permission::BucketReadAcp => allows(Right::ReadAcp),
        Permission::BucketWrite => allows(Right::Write),
        Permission::BucketWriteAcp => allows(Right::WriteAcp),
        Permission::Object => true,
        Permission::Owner => false,
        Permission::SignedIn => user_id(identity).is_some(),
    };
    allow_if(granted || is_user(identity, &bucket.owner))
}

/// Decides about doing something with an object that exists.
pub(crate) fn may_on_object(
    identity: &Identity,
    bucket: &BucketRecord,
    object: &ObjectRecord,
    right: Right,
) -> bool {
    is_user(identity, &bucket.owner)
        || is_user(identity, &object.about.owner)
        || Acl::from_stored(&object.about.acl).allows(user_id(identity), right)
}

/// Decides whether somebody may learn that an object does not exist.
pub(crate) fn may_miss_object(identity: &Identity, bucket: &BucketRecord) -> bool {
    check_bucket(Permission::BucketRead, identity, bucket).is_ok()
}

/// Decides about an action of the service.
///
/// # Errors
/// `AccessDenied` without a signature.
pub(crate) fn check_signed_in(identity: &Identity) -> Result<(), S3Error> {
    allow_if(user_id(identity).is_some())
}

/// The id of the user who asks; `None` for nobody in particular.
pub(crate) fn user_id(identity: &Identity) -> Option<&str> {
    match identity {
        Identity::Anonymous => None,
        Identity::User(credential) => Some(&credential.user.id),
    }
}

/// Whether the user with this id asks.
pub(crate) fn is_user(identity: &Identity, id: &str) -> bool {
    user_id(identity) == Some(id)
}

fn allow_if(granted: bool) -> Result<(), S3Error> {
    if granted {
        Ok(())
    } else {
        Err(Code::AccessDenied.into())
    }
}
