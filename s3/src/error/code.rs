//! The codes of errors: one table of code, text, status and message.

use http::StatusCode;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_an_answer_a_client_can_use() {
        for (code, text, status, message) in CODES {
            assert!(code.status().as_u16() >= 301, "{text}");
            assert_eq!(code.status().as_u16(), *status);
            assert!(!message.is_empty() && text.is_ascii(), "{text}");
        }
    }
}
