//! Everything a client can ask for, by name: one table, which is the support matrix too.
//!
//! A row says which requests it means (method, scope, and the sub-resources, parameters or headers
//! that select it) and what this program answers. The document `docs/protocols/s3.md` is checked
//! against it.

mod table;

use http::Method;

pub use table::ACTIONS;

/// A verb that is built. The handlers match on it totally.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    AbortMultipartUpload,
    CompleteMultipartUpload,
    CopyObject,
    CreateBucket,
    CreateMultipartUpload,
    DeleteBucket,
    DeleteBucketTagging,
    DeleteObject,
    DeleteObjectTagging,
    DeleteObjects,
    GetBucketAcl,
    GetBucketLocation,
    GetBucketTagging,
    GetObject,
    GetObjectAcl,
    GetObjectAttributes,
    GetObjectTagging,
    HeadBucket,
    HeadObject,
    ListBuckets,
    ListMultipartUploads,
    ListObjectVersions,
    ListObjects,
    ListObjectsV2,
    ListParts,
    PostObject,
    PutBucketAcl,
    PutBucketTagging,
    PutObject,
    PutObjectAcl,
    PutObjectTagging,
    UploadPart,
    UploadPartCopy,
    /// Reads a configuration that no one can set here.
    Unset(Unset),
}

/// A configuration that cannot be set here. Reading it answers what the API answers where it was
/// never set: an error of its own or an empty document.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Unset {
    Accelerate,
    Cors,
    Encryption,
    Lifecycle,
    Logging,
    Notification,
    ObjectLock,
    OwnershipControls,
    Policy,
    PolicyStatus,
    PublicAccessBlock,
    Replication,
    RequestPayment,
    Torrent,
    Versioning,
    Website,
}

/// What a request addresses.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Scope {
    Service,
    Bucket,
    Object,
}

/// The methods of HTTP that the API uses.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verb {
    Delete,
    Get,
    Head,
    Post,
    Put,
}

impl Verb {
    /// `None` for a method that the API does not use.
    #[must_use]
    pub fn of(method: &Method) -> Option<Self> {
        match method.as_str() {
            "DELETE" => Some(Self::Delete),
            "GET" => Some(Self::Get),
            "HEAD" => Some(Self::Head),
            "POST" => Some(Self::Post),
            "PUT" => Some(Self::Put),
            _ => None,
        }
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "DELETE",
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }
}

/// One mark that a request must carry to be meant by a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Term {
    /// The query has this parameter, with whatever value.
    Query(&'static str),
    /// The query has this parameter with this value.
    QueryIs(&'static str, &'static str),
    /// The request has this header.
    Header(&'static str),
}

/// What this program does with a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    Built(Action),
    /// `NotImplemented`, by name.
    NotBuilt,
    /// Only the state "never set" is built.
    Unset(Unset),
}

/// One action of the S3 API.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Row {
    /// The name in the API reference.
    pub name: &'static str,
    pub verb: Verb,
    pub scope: Scope,
    /// All of them. Among rows that fit, the one with the most terms is meant.
    pub terms: &'static [Term],
    pub answer: Answer,
}

const fn row(
    name: &'static str,
    verb: Verb,
    scope: Scope,
    terms: &'static [Term],
    answer: Answer,
) -> Row {
    Row {
        name,
        verb,
        scope,
        terms,
        answer,
    }
}

/// Parameters that belong to sub-resources without naming one: their presence alone never makes a
/// parameter a sub-resource.
const PLAIN: &[&str] = &["id", "list-type", "partNumber", "x-id"];

/// Whether a query parameter of this name selects an action, of whichever method and scope.
#[must_use]
pub fn is_sub_resource(name: &str) -> bool {
    !PLAIN.contains(&name)
        && ACTIONS.iter().any(|row| {
            row.terms.iter().any(|term| match term {
                Term::Query(query) | Term::QueryIs(query, _) => *query == name,
                Term::Header(_) => false,
            })
        })
}
