//! Who may do what: the one place that decides it.
//!
//! The owner of a bucket may do all with it and its objects; others what its canned list or that
//! of the object grants; the writer of an object may read it.

use portico_backend::bucket::ObjectRecord;
use portico_backend::catalog::BucketRecord;

use crate::auth::Identity;
use crate::error::{Code, S3Error};
use crate::op::acl::{CannedAcl, Grantee};
use crate::wire::action::{Action, Unset};

/// What somebody needs to be allowed for an action.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Permission {
    /// To list the bucket.
    BucketRead,
    /// To write into the bucket.
    BucketWrite,
    /// To read one object; decided when its record is known: see [`may_read_object`].
    ObjectRead,
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
        Action::GetObject | Action::GetObjectAttributes | Action::HeadObject => {
            Permission::ObjectRead
        }
        Action::DeleteBucket
        | Action::DeleteBucketTagging
        | Action::DeleteObjectTagging
        | Action::GetBucketAcl
        | Action::GetBucketLocation
        | Action::GetBucketTagging
        | Action::GetObjectAcl
        | Action::GetObjectTagging
        | Action::PutBucketAcl
        | Action::PutBucketTagging
        | Action::PutObjectAcl
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
    let acl = CannedAcl::from_stored(&bucket.acl);
    let granted = match permission {
        Permission::BucketRead => acl.may_read(grantee(identity)),
        Permission::BucketWrite => acl.may_write(),
        Permission::ObjectRead => true,
        Permission::Owner => false,
        Permission::SignedIn => user_id(identity).is_some(),
    };
    allow_if(granted || is_user(identity, &bucket.owner))
}

/// Decides about reading an object that exists.
pub(crate) fn may_read_object(
    identity: &Identity,
    bucket: &BucketRecord,
    object: &ObjectRecord,
) -> bool {
    is_user(identity, &bucket.owner)
        || is_user(identity, &object.about.owner)
        || CannedAcl::from_stored(&object.about.acl).may_read(grantee(identity))
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

fn grantee(identity: &Identity) -> Grantee {
    match identity {
        Identity::Anonymous => Grantee::Anonymous,
        Identity::User(_) => Grantee::Authenticated,
    }
}

fn allow_if(granted: bool) -> Result<(), S3Error> {
    if granted {
        Ok(())
    } else {
        Err(Code::AccessDenied.into())
    }
}
