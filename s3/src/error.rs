//! The errors of the S3 API: codes, statuses, the XML body, and how the errors from below map.
//!
//! Every code that this program answers stands in one table. Codes and default messages are those
//! of the S3 API reference, "Error responses"; clients compare both.

use std::borrow::Cow;

use http::StatusCode;
use portico_backend::bucket::Error as BucketError;
use portico_backend::bucket::record::PreconditionFailure;
use portico_backend::catalog::CatalogError;
use portico_backend::error::{Error as StoreError, ErrorKind, chain};

use crate::wire::xml;

/// A code of the S3 API, "List of error codes". The order is that of [`CODES`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Code {
    AccessDenied,
    AccessForbidden,
    AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError,
    BadDigest,
    BadRequest,
    BucketAlreadyExists,
    BucketAlreadyOwnedByYou,
    BucketNotEmpty,
    ConditionalRequestConflict,
    EntityTooLarge,
    EntityTooSmall,
    IllegalLocationConstraintException,
    IncompleteBody,
    IncorrectNumberOfFilesInPostRequest,
    InsufficientStorage,
    InternalError,
    InvalidAccessKeyId,
    InvalidArgument,
    InvalidBucketName,
    InvalidDigest,
    InvalidLocationConstraint,
    InvalidPart,
    InvalidPartNumber,
    InvalidPartOrder,
    InvalidPolicyDocument,
    InvalidRange,
    InvalidRequest,
    InvalidStorageClass,
    InvalidTag,
    InvalidUri,
    KeyTooLong,
    MalformedAcl,
    MalformedPostRequest,
    MalformedTrailer,
    MalformedXml,
    MaxMessageLengthExceeded,
    MaxPostPreDataLengthExceeded,
    MetadataTooLarge,
    MethodNotAllowed,
    MissingContentLength,
    MissingRequestBody,
    MissingSecurityHeader,
    NoSuchBucket,
    NoSuchBucketPolicy,
    NoSuchCorsConfiguration,
    NoSuchEncryptionConfiguration,
    NoSuchKey,
    NoSuchLifecycleConfiguration,
    NoSuchObjectLockConfiguration,
    NoSuchOwnershipControls,
    NoSuchPublicAccessBlockConfiguration,
    NoSuchReplicationConfiguration,
    NoSuchTagSet,
    NoSuchUpload,
    NoSuchVersion,
    NoSuchWebsiteConfiguration,
    NotImplemented,
    NotModified,
    OperationAborted,
    PermanentRedirect,
    PreconditionFailed,
    RequestHeaderSectionTooLarge,
    RequestTimeTooSkewed,
    RequestTimeout,
    ServiceUnavailable,
    SignatureDoesNotMatch,
    SlowDown,
    TooManyBuckets,
    UnexpectedContent,
    XAmzContentChecksumMismatch,
    XAmzContentSha256Mismatch,
}

/// One line of the table: code, its text, HTTP status, default message.
type CodeRow = (Code, &'static str, u16, &'static str);

/// All codes in the order of [`Code`].
static CODES: &[CodeRow] = &[
    (Code::AccessDenied, "AccessDenied", 403, "Access Denied"),
    (
        Code::AccessForbidden,
        "AccessForbidden",
        403,
        "Access Forbidden",
    ),
    (
        Code::AuthorizationHeaderMalformed,
        "AuthorizationHeaderMalformed",
        400,
        "The authorization header is malformed.",
    ),
    (
        Code::AuthorizationQueryParametersError,
        "AuthorizationQueryParametersError",
        400,
        "The authorization query parameters are malformed.",
    ),
    (
        Code::BadDigest,
        "BadDigest",
        400,
        "The Content-MD5 you specified did not match what we received.",
    ),
    (Code::BadRequest, "BadRequest", 400, "Bad Request"),
    (
        Code::BucketAlreadyExists,
        "BucketAlreadyExists",
        409,
        "The requested bucket name is not available. The bucket namespace is shared by all users \
         of the system. Please select a different name and try again.",
    ),
    (
        Code::BucketAlreadyOwnedByYou,
        "BucketAlreadyOwnedByYou",
        409,
        "Your previous request to create the named bucket succeeded and you already own it.",
    ),
    (
        Code::BucketNotEmpty,
        "BucketNotEmpty",
        409,
        "The bucket you tried to delete is not empty",
    ),
    (
        Code::ConditionalRequestConflict,
        "ConditionalRequestConflict",
        409,
        "The conditional request cannot succeed due to a conflicting operation against this \
         resource.",
    ),
    (
        Code::EntityTooLarge,
        "EntityTooLarge",
        400,
        "Your proposed upload exceeds the maximum allowed size",
    ),
    (
        Code::EntityTooSmall,
        "EntityTooSmall",
        400,
        "Your proposed upload is smaller than the minimum allowed size",
    ),
    (
        Code::IllegalLocationConstraintException,
        "IllegalLocationConstraintException",
        400,
        "The unspecified location constraint is incompatible for the region specific endpoint \
         this request was sent to.",
    ),
    (
        Code::IncompleteBody,
        "IncompleteBody",
        400,
        "You did not provide the number of bytes specified by the Content-Length HTTP header",
    ),
    (
        Code::IncorrectNumberOfFilesInPostRequest,
        "IncorrectNumberOfFilesInPostRequest",
        400,
        "POST requires exactly one file upload per request.",
    ),
    (
        Code::InsufficientStorage,
        "InsufficientStorage",
        507,
        "The store is full. Deleting still works.",
    ),
    (
        Code::InternalError,
        "InternalError",
        500,
        "We encountered an internal error. Please try again.",
    ),
    (
        Code::InvalidAccessKeyId,
        "InvalidAccessKeyId",
        403,
        "The AWS Access Key Id you provided does not exist in our records.",
    ),
    (
        Code::InvalidArgument,
        "InvalidArgument",
        400,
        "Invalid Argument",
    ),
    (
        Code::InvalidBucketName,
        "InvalidBucketName",
        400,
        "The specified bucket is not valid.",
    ),
    (
        Code::InvalidDigest,
        "InvalidDigest",
        400,
        "The Content-MD5 you specified was invalid.",
    ),
    (
        Code::InvalidLocationConstraint,
        "InvalidLocationConstraint",
        400,
        "The specified location-constraint is not valid",
    ),
    (
        Code::InvalidPart,
        "InvalidPart",
        400,
        "One or more of the specified parts could not be found.  The part may not have been \
         uploaded, or the specified entity tag may not match the part's entity tag.",
    ),
    (
        Code::InvalidPartNumber,
        "InvalidPartNumber",
        416,
        "The requested partnumber is not satisfiable",
    ),
    (
        Code::InvalidPartOrder,
        "InvalidPartOrder",
        400,
        "The list of parts was not in ascending order. Parts must be ordered by part number.",
    ),
    (
        Code::InvalidPolicyDocument,
        "InvalidPolicyDocument",
        400,
        "The content of the form does not meet the conditions specified in the policy document.",
    ),
    (
        Code::InvalidRange,
        "InvalidRange",
        416,
        "The requested range is not satisfiable",
    ),
    (
        Code::InvalidRequest,
        "InvalidRequest",
        400,
        "Invalid Request",
    ),
    (
        Code::InvalidStorageClass,
        "InvalidStorageClass",
        400,
        "The storage class you specified is not valid",
    ),
    (
        Code::InvalidTag,
        "InvalidTag",
        400,
        "The tag provided was not a valid tag.",
    ),
    (
        Code::InvalidUri,
        "InvalidURI",
        400,
        "Couldn't parse the specified URI.",
    ),
    (
        Code::KeyTooLong,
        "KeyTooLongError",
        400,
        "Your key is too long",
    ),
    (
        Code::MalformedAcl,
        "MalformedACLError",
        400,
        "The XML you provided was not well-formed or did not validate against our published schema",
    ),
    (
        Code::MalformedPostRequest,
        "MalformedPOSTRequest",
        400,
        "The body of your POST request is not well-formed multipart/form-data.",
    ),
    (
        Code::MalformedTrailer,
        "MalformedTrailerError",
        400,
        "The request contained trailing data that was not well-formed or did not conform to our \
         published schema.",
    ),
    (
        Code::MalformedXml,
        "MalformedXML",
        400,
        "The XML you provided was not well-formed or did not validate against our published \
         schema",
    ),
    (
        Code::MaxMessageLengthExceeded,
        "MaxMessageLengthExceeded",
        400,
        "Your request was too big.",
    ),
    (
        Code::MaxPostPreDataLengthExceeded,
        "MaxPostPreDataLengthExceededError",
        400,
        "Your POST request fields preceding the upload file were too large.",
    ),
    (
        Code::MetadataTooLarge,
        "MetadataTooLarge",
        400,
        "Your metadata headers exceed the maximum allowed metadata size",
    ),
    (
        Code::MethodNotAllowed,
        "MethodNotAllowed",
        405,
        "The specified method is not allowed against this resource.",
    ),
    (
        Code::MissingContentLength,
        "MissingContentLength",
        411,
        "You must provide the Content-Length HTTP header.",
    ),
    (
        Code::MissingRequestBody,
        "MissingRequestBodyError",
        400,
        "Request Body is empty",
    ),
    (
        Code::MissingSecurityHeader,
        "MissingSecurityHeader",
        400,
        "Your request was missing a required header",
    ),
    (
        Code::NoSuchBucket,
        "NoSuchBucket",
        404,
        "The specified bucket does not exist",
    ),
    (
        Code::NoSuchBucketPolicy,
        "NoSuchBucketPolicy",
        404,
        "The bucket policy does not exist",
    ),
    (
        Code::NoSuchCorsConfiguration,
        "NoSuchCORSConfiguration",
        404,
        "The CORS configuration does not exist",
    ),
    (
        Code::NoSuchEncryptionConfiguration,
        "ServerSideEncryptionConfigurationNotFoundError",
        404,
        "The server side encryption configuration was not found",
    ),
    (
        Code::NoSuchKey,
        "NoSuchKey",
        404,
        "The specified key does not exist.",
    ),
    (
        Code::NoSuchLifecycleConfiguration,
        "NoSuchLifecycleConfiguration",
        404,
        "The lifecycle configuration does not exist",
    ),
    (
        Code::NoSuchObjectLockConfiguration,
        "ObjectLockConfigurationNotFoundError",
        404,
        "Object Lock configuration does not exist for this bucket",
    ),
    (
        Code::NoSuchOwnershipControls,
        "OwnershipControlsNotFoundError",
        404,
        "The bucket ownership controls were not found",
    ),
    (
        Code::NoSuchPublicAccessBlockConfiguration,
        "NoSuchPublicAccessBlockConfiguration",
        404,
        "The public access block configuration was not found",
    ),
    (
        Code::NoSuchReplicationConfiguration,
        "ReplicationConfigurationNotFoundError",
        404,
        "The replication configuration was not found",
    ),
    (
        Code::NoSuchTagSet,
        "NoSuchTagSet",
        404,
        "The TagSet does not exist",
    ),
    (
        Code::NoSuchUpload,
        "NoSuchUpload",
        404,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may \
         have been aborted or completed.",
    ),
    (
        Code::NoSuchVersion,
        "NoSuchVersion",
        404,
        "The specified version does not exist.",
    ),
    (
        Code::NoSuchWebsiteConfiguration,
        "NoSuchWebsiteConfiguration",
        404,
        "The specified bucket does not have a website configuration",
    ),
    (
        Code::NotImplemented,
        "NotImplemented",
        501,
        "A header or query you provided implies functionality that is not implemented.",
    ),
    (Code::NotModified, "NotModified", 304, "Not Modified"),
    (
        Code::OperationAborted,
        "OperationAborted",
        409,
        "A conflicting conditional operation is currently in progress against this resource. \
         Please try again.",
    ),
    (
        Code::PermanentRedirect,
        "PermanentRedirect",
        301,
        "The bucket you are attempting to access must be addressed using the specified endpoint.",
    ),
    (
        Code::PreconditionFailed,
        "PreconditionFailed",
        412,
        "At least one of the pre-conditions you specified did not hold",
    ),
    (
        Code::RequestHeaderSectionTooLarge,
        "RequestHeaderSectionTooLarge",
        400,
        "Your request header section exceeds the maximum allowed request header section size.",
    ),
    (
        Code::RequestTimeTooSkewed,
        "RequestTimeTooSkewed",
        403,
        "The difference between the request time and the current time is too large.",
    ),
    (
        Code::RequestTimeout,
        "RequestTimeout",
        400,
        "Your socket connection to the server was not read from or written to within the timeout \
         period. Idle connections will be closed.",
    ),
    (
        Code::ServiceUnavailable,
        "ServiceUnavailable",
        503,
        "Service is unable to handle request.",
    ),
    (
        Code::SignatureDoesNotMatch,
        "SignatureDoesNotMatch",
        403,
        "The request signature we calculated does not match the signature you provided. Check \
         your key and signing method.",
    ),
    (
        Code::SlowDown,
        "SlowDown",
        503,
        "Please reduce your request rate.",
    ),
    (
        Code::TooManyBuckets,
        "TooManyBuckets",
        400,
        "You have attempted to create more buckets than allowed.",
    ),
    (
        Code::UnexpectedContent,
        "UnexpectedContent",
        400,
        "This request does not support content",
    ),
    (
        Code::XAmzContentChecksumMismatch,
        "XAmzContentChecksumMismatch",
        400,
        "The provided 'x-amz-checksum' header does not match what was computed.",
    ),
    (
        Code::XAmzContentSha256Mismatch,
        "XAmzContentSHA256Mismatch",
        400,
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    ),
];

/// Each code stands at its own place of the table, and none is missing.
const _: () = {
    let mut at = 0;
    while at < CODES.len() {
        assert!(CODES[at].0 as usize == at);
        at += 1;
    }
    assert!(Code::XAmzContentSha256Mismatch as usize + 1 == CODES.len());
};

impl Code {
    /// The text of the element `Code`.
    #[must_use]
    pub fn text(self) -> &'static str {
        CODES[self as usize].1
    }

    /// # Panics
    /// Never: the table holds valid statuses.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(CODES[self as usize].2).expect("the table holds valid statuses")
    }

    /// The API's own sentence.
    #[must_use]
    pub fn message(self) -> &'static str {
        CODES[self as usize].3
    }
}

/// An error answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct S3Error {
    code: Code,
    message: Cow<'static, str>,
    resource: Option<String>,
    fields: Vec<(&'static str, String)>,
    /// For the log, not for the client.
    cause: Option<String>,
}

impl S3Error {
    /// An error with the code's own message.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self {
            code,
            message: Cow::Borrowed(code.message()),
            resource: None,
            fields: Vec::new(),
            cause: None,
        }
    }

    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = message.into();
        self
    }

    /// Sets the element `Resource`, a decoded path, unless a place nearer to the cause has set it.
    #[must_use]
    pub fn with_resource(mut self, resource: impl Into<String>) -> Self {
        if self.resource.is_none() {
            self.resource = Some(resource.into());
        }
        self
    }

    /// Adds an element that only some codes have (`BucketName`, `Key`, `ArgumentName`, ...).
    #[must_use]
    pub fn with_field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Keeps what went wrong below for whoever reads the log; clients never see it.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// See [`S3Error::with_cause`].
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// `InvalidArgument` about one argument.
    #[must_use]
    pub fn invalid_argument(
        name: impl Into<String>,
        value: impl Into<String>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Code::InvalidArgument)
            .with_message(message)
            .with_field("ArgumentName", name)
            .with_field("ArgumentValue", value)
    }

    /// `NotImplemented` that names the action.
    #[must_use]
    pub fn not_implemented(what: &str) -> Self {
        Self::new(Code::NotImplemented).with_message(format!("{what} is not implemented."))
    }

    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.code.status()
    }

    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The further elements, in the order in which they were added.
    #[must_use]
    pub fn fields(&self) -> &[(&'static str, String)] {
        &self.fields
    }

    /// The XML document of the error ("REST error responses"). Answers to HEAD and 304 carry none.
    #[must_use]
    pub fn body(&self, request_id: &str, host_id: &str) -> String {
        let mut writer = xml::Writer::document();
        writer.open("Error");
        writer.text("Code", self.code.text());
        writer.text("Message", &self.message);
        for (name, value) in &self.fields {
            writer.text(name, value);
        }
        if let Some(resource) = &self.resource {
            writer.text("Resource", resource);
        }
        writer.text("RequestId", request_id);
        writer.text("HostId", host_id);
        writer.close("Error");
        writer.finish()
    }
}

impl std::fmt::Display for S3Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.text(), self.message)
    }
}

impl std::error::Error for S3Error {}

impl From<Code> for S3Error {
    fn from(code: Code) -> Self {
        Self::new(code)
    }
}

impl From<ErrorKind> for Code {
    /// What a failure of the store is to a client. Kinds that a bucket should have turned into an
    /// answer of its own are internal errors here.
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::AlreadyExists | ErrorKind::GuardFailed | ErrorKind::Locked => {
                Self::OperationAborted
            }
            ErrorKind::Busy => Self::SlowDown,
            ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::TooLarge => Self::InternalError,
            ErrorKind::Fenced | ErrorKind::Unavailable => Self::ServiceUnavailable,
            ErrorKind::NoSpace => Self::InsufficientStorage,
            ErrorKind::Unsupported => Self::NotImplemented,
        }
    }
}

impl From<&StoreError> for S3Error {
    fn from(error: &StoreError) -> Self {
        Self::new(Code::from(error.kind())).with_cause(chain(error))
    }
}

impl From<StoreError> for S3Error {
    fn from(error: StoreError) -> Self {
        Self::from(&error)
    }
}

impl From<&BucketError> for S3Error {
    fn from(error: &BucketError) -> Self {
        match error {
            BucketError::BucketNotEmpty => Self::new(Code::BucketNotEmpty),
            BucketError::Conflict => Self::new(Code::ConditionalRequestConflict),
            BucketError::EntityTooLarge => Self::new(Code::EntityTooLarge),
            BucketError::InvalidPart { number } => {
                Self::new(Code::InvalidPart).with_field("PartNumber", number.to_string())
            }
            BucketError::NoSuchBucket => Self::new(Code::NoSuchBucket),
            BucketError::NoSuchKey
            | BucketError::PreconditionFailed(PreconditionFailure::NoVersion) => {
                Self::new(Code::NoSuchKey)
            }
            BucketError::NoSuchUpload => Self::new(Code::NoSuchUpload),
            BucketError::NoSuchVersion => Self::new(Code::NoSuchVersion),
            BucketError::PreconditionFailed(PreconditionFailure::NotMet) => {
                Self::new(Code::PreconditionFailed)
            }
            BucketError::Store(error) => Self::from(error),
        }
    }
}

impl From<BucketError> for S3Error {
    fn from(error: BucketError) -> Self {
        Self::from(&error)
    }
}

impl From<CatalogError> for S3Error {
    /// What a request cannot have caused is an internal error.
    fn from(error: CatalogError) -> Self {
        match &error {
            CatalogError::BucketExists(_) => Self::new(Code::BucketAlreadyExists),
            CatalogError::Conflict => Self::new(Code::OperationAborted),
            CatalogError::NoSuchBucket(_) => Self::new(Code::NoSuchBucket),
            CatalogError::Store(error) => Self::from(error),
            CatalogError::AccessKeyExists(_)
            | CatalogError::Invalid { .. }
            | CatalogError::Keyring(_)
            | CatalogError::NoSuchAccessKey(_)
            | CatalogError::NoSuchNode(_)
            | CatalogError::NoSuchUser(_)
            | CatalogError::Random
            | CatalogError::UserExists(_)
            | CatalogError::UserOwnsBuckets { .. } => {
                Self::new(Code::InternalError).with_cause(chain(&error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_the_documents_of_the_api() {
        let error = S3Error::new(Code::NoSuchKey)
            .with_field("Key", "a<b")
            .with_resource("/bucket/a<b")
            .with_resource("/set/later");
        assert_eq!(
            error.body("4442587FB7D0A2F9", "host"),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code>\
             <Message>The specified key does not exist.</Message><Key>a&lt;b</Key>\
             <Resource>/bucket/a&lt;b</Resource><RequestId>4442587FB7D0A2F9</RequestId>\
             <HostId>host</HostId></Error>"
        );
    }

    #[test]
    fn every_row_is_an_answer_a_client_can_use() {
        for (code, text, status, message) in CODES {
            assert!(code.status().as_u16() >= 301, "{text}");
            assert_eq!(code.status().as_u16(), *status);
            assert!(!message.is_empty() && text.is_ascii(), "{text}");
        }
    }

    #[test]
    fn failures_below_become_retryable_only_where_a_retry_helps() {
        let code = |kind| Code::from(kind).status().as_u16();
        assert_eq!(code(ErrorKind::Busy), 503);
        assert_eq!(code(ErrorKind::Unavailable), 503);
        assert_eq!(code(ErrorKind::NoSpace), 507);
        assert_eq!(code(ErrorKind::Corrupt), 500);
        let no_version = BucketError::PreconditionFailed(PreconditionFailure::NoVersion);
        assert_eq!(S3Error::from(no_version).status().as_u16(), 404);
        let not_met = BucketError::PreconditionFailed(PreconditionFailure::NotMet);
        assert_eq!(S3Error::from(not_met).status().as_u16(), 412);
    }
}
