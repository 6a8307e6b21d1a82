//! How an operation on a bucket fails.

use std::fmt;

use super::record::PreconditionFailure;
use crate::error::Error as StoreError;

#[derive(Debug)]
pub enum Error {
    /// The bucket still has objects, versions or uploads.
    BucketNotEmpty,
    /// Another change of the same key won while this one was being decided; worth another try.
    Conflict,
    /// The object would be larger than 5 TiB, or the part larger than 5 GiB.
    EntityTooLarge,
    /// A part named for completion does not exist any more, or was replaced.
    InvalidPart {
        number: u16,
    },
    /// The bucket does not exist (any more).
    NoSuchBucket,
    /// The key has no current object.
    NoSuchKey,
    NoSuchUpload,
    NoSuchVersion,
    PreconditionFailed(PreconditionFailure),
    /// What the store said.
    Store(StoreError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BucketNotEmpty => f.write_str("the bucket is not empty"),
            Self::Conflict => f.write_str("a concurrent change of the same key won"),
            Self::EntityTooLarge => f.write_str("the object or part is too large"),
            Self::InvalidPart { number } => write!(f, "part {number} does not exist"),
            Self::NoSuchBucket => f.write_str("the bucket does not exist"),
            Self::NoSuchKey => f.write_str("the key does not exist"),
            Self::NoSuchUpload => f.write_str("the upload does not exist"),
            Self::NoSuchVersion => f.write_str("the version does not exist"),
            Self::PreconditionFailed(_) => f.write_str("a precondition did not hold"),
            Self::Store(_) => f.write_str("the store failed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::BucketNotEmpty
            | Self::Conflict
            | Self::EntityTooLarge
            | Self::InvalidPart { .. }
            | Self::NoSuchBucket
            | Self::NoSuchKey
            | Self::NoSuchUpload
            | Self::NoSuchVersion
            | Self::PreconditionFailed(_) => None,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
