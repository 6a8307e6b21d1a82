//! Everything a client can ask for, by name: one table, which is the support matrix too.
//!
//! A row says which requests it means (method, scope, and the sub-resources, parameters or headers
//! that select it) and what this program answers. The document `docs/protocols/s3.md` is checked
//! against it.

use http::Method;

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

/// Every action known by name.
pub static ACTIONS: &[Row] = &[
    row(
        "ListBuckets",
        Verb::Get,
        Scope::Service,
        &[],
        Answer::Built(Action::ListBuckets),
    ),
    row(
        "ListDirectoryBuckets",
        Verb::Get,
        Scope::Service,
        &[Term::QueryIs("x-id", "ListDirectoryBuckets")],
        Answer::NotBuilt,
    ),
    row(
        "CreateBucket",
        Verb::Put,
        Scope::Bucket,
        &[],
        Answer::Built(Action::CreateBucket),
    ),
    row(
        "HeadBucket",
        Verb::Head,
        Scope::Bucket,
        &[],
        Answer::Built(Action::HeadBucket),
    ),
    row(
        "DeleteBucket",
        Verb::Delete,
        Scope::Bucket,
        &[],
        Answer::Built(Action::DeleteBucket),
    ),
    row(
        "GetBucketLocation",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("location")],
        Answer::Built(Action::GetBucketLocation),
    ),
    row(
        "ListObjects",
        Verb::Get,
        Scope::Bucket,
        &[],
        Answer::Built(Action::ListObjects),
    ),
    row(
        "ListObjectsV2",
        Verb::Get,
        Scope::Bucket,
        &[Term::QueryIs("list-type", "2")],
        Answer::Built(Action::ListObjectsV2),
    ),
    row(
        "ListObjectVersions",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("versions")],
        Answer::Built(Action::ListObjectVersions),
    ),
    row(
        "ListMultipartUploads",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("uploads")],
        Answer::Built(Action::ListMultipartUploads),
    ),
    row(
        "DeleteObjects",
        Verb::Post,
        Scope::Bucket,
        &[Term::Query("delete")],
        Answer::Built(Action::DeleteObjects),
    ),
    row(
        "PostObject",
        Verb::Post,
        Scope::Bucket,
        &[],
        Answer::Built(Action::PostObject),
    ),
    row(
        "CreateSession",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("session")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketAbac",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("abac")],
        Answer::NotBuilt,
    ),
    row(
        "PutBucketAbac",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("abac")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketAccelerateConfiguration",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("accelerate")],
        Answer::Unset(Unset::Accelerate),
    ),
    row(
        "PutBucketAccelerateConfiguration",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("accelerate")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketAcl",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("acl")],
        Answer::Built(Action::GetBucketAcl),
    ),
    row(
        "PutBucketAcl",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("acl")],
        Answer::Built(Action::PutBucketAcl),
    ),
    row(
        "GetBucketAnalyticsConfiguration",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("analytics"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "ListBucketAnalyticsConfigurations",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("analytics")],
        Answer::NotBuilt,
    ),
    row(
        "PutBucketAnalyticsConfiguration",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("analytics"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketAnalyticsConfiguration",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("analytics"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketIntelligentTieringConfiguration",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("intelligent-tiering"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "ListBucketIntelligentTieringConfigurations",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("intelligent-tiering")],
        Answer::NotBuilt,
    ),
    row(
        "PutBucketIntelligentTieringConfiguration",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("intelligent-tiering"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketIntelligentTieringConfiguration",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("intelligent-tiering"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketInventoryConfiguration",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("inventory"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "ListBucketInventoryConfigurations",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("inventory")],
        Answer::NotBuilt,
    ),
    row(
        "PutBucketInventoryConfiguration",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("inventory"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketInventoryConfiguration",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("inventory"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketMetricsConfiguration",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("metrics"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "ListBucketMetricsConfigurations",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("metrics")],
        Answer::NotBuilt,
    ),
    row(
        "PutBucketMetricsConfiguration",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("metrics"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketMetricsConfiguration",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("metrics"), Term::Query("id")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketCors",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("cors")],
        Answer::Unset(Unset::Cors),
    ),
    row(
        "PutBucketCors",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("cors")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketCors",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("cors")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketEncryption",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("encryption")],
        Answer::Unset(Unset::Encryption),
    ),
    row(
        "PutBucketEncryption",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("encryption")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketEncryption",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("encryption")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketLifecycleConfiguration",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("lifecycle")],
        Answer::Unset(Unset::Lifecycle),
    ),
    row(
        "PutBucketLifecycleConfiguration",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("lifecycle")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketLifecycle",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("lifecycle")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketLogging",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("logging")],
        Answer::Unset(Unset::Logging),
    ),
    row(
        "PutBucketLogging",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("logging")],
        Answer::NotBuilt,
    ),
    row(
        "CreateBucketMetadataConfiguration",
        Verb::Post,
        Scope::Bucket,
        &[Term::Query("metadataConfiguration")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketMetadataConfiguration",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("metadataConfiguration")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketMetadataConfiguration",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("metadataConfiguration")],
        Answer::NotBuilt,
    ),
    row(
        "CreateBucketMetadataTableConfiguration",
        Verb::Post,
        Scope::Bucket,
        &[Term::Query("metadataTable")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketMetadataTableConfiguration",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("metadataTable")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketMetadataTableConfiguration",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("metadataTable")],
        Answer::NotBuilt,
    ),
    row(
        "UpdateBucketMetadataInventoryTableConfiguration",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("metadataInventoryTable")],
        Answer::NotBuilt,
    ),
    row(
        "UpdateBucketMetadataJournalTableConfiguration",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("metadataJournalTable")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketNotificationConfiguration",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("notification")],
        Answer::Unset(Unset::Notification),
    ),
    row(
        "PutBucketNotificationConfiguration",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("notification")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketOwnershipControls",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("ownershipControls")],
        Answer::Unset(Unset::OwnershipControls),
    ),
    row(
        "PutBucketOwnershipControls",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("ownershipControls")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketOwnershipControls",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("ownershipControls")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketPolicy",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("policy")],
        Answer::Unset(Unset::Policy),
    ),
    row(
        "PutBucketPolicy",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("policy")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketPolicy",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("policy")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketPolicyStatus",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("policyStatus")],
        Answer::Unset(Unset::PolicyStatus),
    ),
    row(
        "GetBucketReplication",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("replication")],
        Answer::Unset(Unset::Replication),
    ),
    row(
        "PutBucketReplication",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("replication")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketReplication",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("replication")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketRequestPayment",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("requestPayment")],
        Answer::Unset(Unset::RequestPayment),
    ),
    row(
        "PutBucketRequestPayment",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("requestPayment")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketTagging",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("tagging")],
        Answer::Built(Action::GetBucketTagging),
    ),
    row(
        "PutBucketTagging",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("tagging")],
        Answer::Built(Action::PutBucketTagging),
    ),
    row(
        "DeleteBucketTagging",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("tagging")],
        Answer::Built(Action::DeleteBucketTagging),
    ),
    row(
        "GetBucketVersioning",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("versioning")],
        Answer::Unset(Unset::Versioning),
    ),
    row(
        "PutBucketVersioning",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("versioning")],
        Answer::NotBuilt,
    ),
    row(
        "GetBucketWebsite",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("website")],
        Answer::Unset(Unset::Website),
    ),
    row(
        "PutBucketWebsite",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("website")],
        Answer::NotBuilt,
    ),
    row(
        "DeleteBucketWebsite",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("website")],
        Answer::NotBuilt,
    ),
    row(
        "GetObjectLockConfiguration",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("object-lock")],
        Answer::Unset(Unset::ObjectLock),
    ),
    row(
        "PutObjectLockConfiguration",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("object-lock")],
        Answer::NotBuilt,
    ),
    row(
        "GetPublicAccessBlock",
        Verb::Get,
        Scope::Bucket,
        &[Term::Query("publicAccessBlock")],
        Answer::Unset(Unset::PublicAccessBlock),
    ),
    row(
        "PutPublicAccessBlock",
        Verb::Put,
        Scope::Bucket,
        &[Term::Query("publicAccessBlock")],
        Answer::NotBuilt,
    ),
    row(
        "DeletePublicAccessBlock",
        Verb::Delete,
        Scope::Bucket,
        &[Term::Query("publicAccessBlock")],
        Answer::NotBuilt,
    ),
    row(
        "WriteGetObjectResponse",
        Verb::Post,
        Scope::Bucket,
        &[Term::Header("x-amz-request-route")],
        Answer::NotBuilt,
    ),
    row(
        "GetObject",
        Verb::Get,
        Scope::Object,
        &[],
        Answer::Built(Action::GetObject),
    ),
    row(
        "HeadObject",
        Verb::Head,
        Scope::Object,
        &[],
        Answer::Built(Action::HeadObject),
    ),
    row(
        "PutObject",
        Verb::Put,
        Scope::Object,
        &[],
        Answer::Built(Action::PutObject),
    ),
    row(
        "CopyObject",
        Verb::Put,
        Scope::Object,
        &[Term::Header("x-amz-copy-source")],
        Answer::Built(Action::CopyObject),
    ),
    row(
        "DeleteObject",
        Verb::Delete,
        Scope::Object,
        &[],
        Answer::Built(Action::DeleteObject),
    ),
    row(
        "GetObjectAttributes",
        Verb::Get,
        Scope::Object,
        &[Term::Query("attributes")],
        Answer::Built(Action::GetObjectAttributes),
    ),
    row(
        "GetObjectTagging",
        Verb::Get,
        Scope::Object,
        &[Term::Query("tagging")],
        Answer::Built(Action::GetObjectTagging),
    ),
    row(
        "PutObjectTagging",
        Verb::Put,
        Scope::Object,
        &[Term::Query("tagging")],
        Answer::Built(Action::PutObjectTagging),
    ),
    row(
        "DeleteObjectTagging",
        Verb::Delete,
        Scope::Object,
        &[Term::Query("tagging")],
        Answer::Built(Action::DeleteObjectTagging),
    ),
    row(
        "CreateMultipartUpload",
        Verb::Post,
        Scope::Object,
        &[Term::Query("uploads")],
        Answer::Built(Action::CreateMultipartUpload),
    ),
    row(
        "UploadPart",
        Verb::Put,
        Scope::Object,
        &[Term::Query("partNumber"), Term::Query("uploadId")],
        Answer::Built(Action::UploadPart),
    ),
    row(
        "UploadPartCopy",
        Verb::Put,
        Scope::Object,
        &[
            Term::Query("partNumber"),
            Term::Query("uploadId"),
            Term::Header("x-amz-copy-source"),
        ],
        Answer::Built(Action::UploadPartCopy),
    ),
    row(
        "CompleteMultipartUpload",
        Verb::Post,
        Scope::Object,
        &[Term::Query("uploadId")],
        Answer::Built(Action::CompleteMultipartUpload),
    ),
    row(
        "AbortMultipartUpload",
        Verb::Delete,
        Scope::Object,
        &[Term::Query("uploadId")],
        Answer::Built(Action::AbortMultipartUpload),
    ),
    row(
        "ListParts",
        Verb::Get,
        Scope::Object,
        &[Term::Query("uploadId")],
        Answer::Built(Action::ListParts),
    ),
    row(
        "GetObjectAcl",
        Verb::Get,
        Scope::Object,
        &[Term::Query("acl")],
        Answer::Built(Action::GetObjectAcl),
    ),
    row(
        "PutObjectAcl",
        Verb::Put,
        Scope::Object,
        &[Term::Query("acl")],
        Answer::Built(Action::PutObjectAcl),
    ),
    row(
        "GetObjectLegalHold",
        Verb::Get,
        Scope::Object,
        &[Term::Query("legal-hold")],
        Answer::NotBuilt,
    ),
    row(
        "PutObjectLegalHold",
        Verb::Put,
        Scope::Object,
        &[Term::Query("legal-hold")],
        Answer::NotBuilt,
    ),
    row(
        "GetObjectRetention",
        Verb::Get,
        Scope::Object,
        &[Term::Query("retention")],
        Answer::NotBuilt,
    ),
    row(
        "PutObjectRetention",
        Verb::Put,
        Scope::Object,
        &[Term::Query("retention")],
        Answer::NotBuilt,
    ),
    row(
        "GetObjectTorrent",
        Verb::Get,
        Scope::Object,
        &[Term::Query("torrent")],
        Answer::Unset(Unset::Torrent),
    ),
    row(
        "RenameObject",
        Verb::Put,
        Scope::Object,
        &[Term::Query("renameObject")],
        Answer::NotBuilt,
    ),
    row(
        "RestoreObject",
        Verb::Post,
        Scope::Object,
        &[Term::Query("restore")],
        Answer::NotBuilt,
    ),
    row(
        "SelectObjectContent",
        Verb::Post,
        Scope::Object,
        &[Term::Query("select")],
        Answer::NotBuilt,
    ),
    row(
        "UpdateObjectEncryption",
        Verb::Put,
        Scope::Object,
        &[Term::Query("encryption")],
        Answer::NotBuilt,
    ),
];

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
