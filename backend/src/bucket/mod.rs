//! Buckets: keys with data, in S3's semantics but in no protocol's terms.

pub mod error;
pub mod record;

pub use error::Error;
pub use record::{
    BucketUsage, Checksum, ChecksumAlgorithm, ChecksumKind, DeleteOutcome, EtagMatch, Key,
    ListAfter, ListItem, ListPage, ListQuery, ObjectAbout, ObjectRecord, PartRecord, Precondition,
    PreconditionFailure, UploadId, UploadItem, UploadPage, UploadQuery, UploadRecord, VersionId,
};
