//! What a bucket keeps and answers: plain data, in no protocol's terms.

use std::fmt;
use std::sync::Arc;

/// The name of an object in a bucket: 1 to 1,024 bytes of UTF-8.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key(Arc<str>);

/// Bytes of a key (S3 API, "Object key naming guidelines").
pub const KEY_BYTES_MAX: usize = 1_024;

impl Key {
    /// `None` if `text` is empty or longer than [`KEY_BYTES_MAX`].
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty() && text.len() <= KEY_BYTES_MAX).then(|| Self(Arc::from(text)))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which version of a key: the one without a version id, or one that versioning made.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum VersionId {
    Null,
    /// The version's sequence.
    Numbered(u64),
}

/// A multipart upload in progress: unique in the bucket, not guessable from another.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct UploadId(pub u128);

/// One version of one key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectRecord {
    pub key: Key,
    /// Order of commit among the versions of a key: greater is newer, whatever the clocks say.
    pub sequence: u64,
    pub version: VersionId,
    pub delete_marker: bool,
    pub size: u64,
    /// Milliseconds since the epoch; never less than that of an older version of the key.
    pub modified_ms: u64,
    /// 0 if the object was not made by a multipart upload.
    pub part_count: u32,
    /// The upload this object was completed from, so that a repeated completion is recognised.
    pub completed_upload: Option<UploadId>,
    pub about: ObjectAbout,
}

/// What the writer of an object says about it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObjectAbout {
    /// Without quotes.
    pub etag: String,
    pub checksum: Option<Checksum>,
    /// The id of the user who owns the object.
    pub owner: String,
    /// Standard headers that a reader gets back (`Content-Type`, `Cache-Control`, ...), lower-case
    /// names.
    pub headers: Vec<(String, String)>,
    /// `x-amz-meta-` headers without that prefix, lower-case names.
    pub user_metadata: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
    /// Empty for the standard class.
    pub storage_class: String,
    /// Who besides the owner may do what, in the protocol's own form (S3: a canned ACL); empty for
    /// nobody.
    pub acl: String,
}

/// A checksum of a whole object or a part as the S3 API counts it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checksum {
    pub algorithm: ChecksumAlgorithm,
    pub kind: ChecksumKind,
    /// Raw bytes, in the order in which the API's base64 holds them.
    pub value: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ChecksumAlgorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ChecksumKind {
    /// Over the checksums of the parts.
    Composite,
    FullObject,
}

/// An upload in progress.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UploadRecord {
    pub key: Key,
    pub upload: UploadId,
    pub initiated_ms: u64,
    /// Goes over to the object at completion; `etag` is empty and `checksum` is `None` until then.
    pub about: ObjectAbout,
    /// The checksum that the parts carry and the object will carry.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// A part that was uploaded; of an upload in progress or of a finished object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartRecord {
    /// 1 to 10,000.
    pub number: u16,
    pub size: u64,
    pub modified_ms: u64,
    /// Without quotes.
    pub etag: String,
    pub checksum: Option<Checksum>,
    /// Changes whenever the part of this number is replaced.
    pub generation: u64,
}

/// What must hold of a key's current version, decided in the same atomic step as the change. A
/// delete marker counts as no version.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Precondition {
    /// Some version exists and has one of these ETags.
    pub if_match: Option<EtagMatch>,
    /// No version exists that has one of these ETags.
    pub if_none_match: Option<EtagMatch>,
    /// The version's size in bytes (conditional delete).
    pub size_is: Option<u64>,
    /// The version's modification time, compared in whole seconds (conditional delete).
    pub modified_is_ms: Option<u64>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EtagMatch {
    Any,
    /// Without quotes.
    OneOf(Vec<String>),
}

impl EtagMatch {
    #[must_use]
    pub fn matches(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(etags) => etags.iter().any(|one| one == etag),
        }
    }
}

/// How a precondition fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PreconditionFailure {
    /// `if_match` and the like on a key without a version: S3 answers 404 here.
    NoVersion,
    /// S3 answers 412.
    NotMet,
}

impl Precondition {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Compares with the current version of the key.
    ///
    /// # Errors
    /// Says how it fails.
    pub fn check(&self, current: Option<&ObjectRecord>) -> Result<(), PreconditionFailure> {
        let current = current.filter(|record| !record.delete_marker);
        let Some(record) = current else {
            let needs_version =
                self.if_match.is_some() || self.size_is.is_some() || self.modified_is_ms.is_some();
            return if needs_version {
                Err(PreconditionFailure::NoVersion)
            } else {
                Ok(())
            };
        };
        let etag = record.about.etag.as_str();
        let holds = self
            .if_match
            .as_ref()
            .is_none_or(|etags| etags.matches(etag))
            && !self
                .if_none_match
                .as_ref()
                .is_some_and(|etags| etags.matches(etag))
            && self.size_is.is_none_or(|size| size == record.size)
            && self
                .modified_is_ms
                .is_none_or(|at| at / 1_000 == record.modified_ms / 1_000);
        if holds {
            Ok(())
        } else {
            Err(PreconditionFailure::NotMet)
        }
    }
}

/// Asks for a page of a bucket's keys in ascending order of bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListQuery {
    pub prefix: String,
    /// Keys with this text behind the prefix are rolled up into one common prefix each. Not empty.
    pub delimiter: Option<String>,
    pub after: ListAfter,
    pub count_max: u32,
    /// All versions and delete markers instead of current objects only.
    pub versions: bool,
}

/// Where a page starts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ListAfter {
    Start,
    /// Behind all versions of this key. A common prefix that is not greater than `key` is left
    /// out, so the last common prefix of a page goes on to the next one.
    Key(String),
    /// Behind this version of the key (only with `versions`).
    Version(String, VersionId),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ListItem {
    CommonPrefix(String),
    /// The flag says whether it is the key's newest version.
    Object(Box<ObjectRecord>, bool),
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ListPage {
    /// Ascending; common prefixes and objects mixed; `count_max` at most.
    pub items: Vec<ListItem>,
    pub truncated: bool,
}

/// Asks for a page of uploads in progress, ordered by key, then upload id.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UploadQuery {
    pub prefix: String,
    pub delimiter: Option<String>,
    /// Behind this key, or behind this upload of the key.
    pub after: Option<(String, Option<UploadId>)>,
    pub count_max: u32,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum UploadItem {
    CommonPrefix(String),
    Upload(Box<UploadRecord>),
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UploadPage {
    pub items: Vec<UploadItem>,
    pub truncated: bool,
}

/// What a deletion did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DeleteOutcome {
    /// The version that is gone; `None` if there was none.
    pub deleted: Option<VersionId>,
    /// The delete marker that was made, or the one that was removed.
    pub delete_marker: Option<VersionId>,
}

/// What a bucket holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BucketUsage {
    pub object_count: u64,
    pub bytes: u64,
}
