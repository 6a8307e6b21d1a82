//! The errors of the S3 API: codes, statuses, the XML body, and how the errors from below map.
//!
//! Every code that this program answers stands in one table. Codes and default messages are those
//! of the S3 API reference, "Error responses"; clients compare both.

mod code;

use std::borrow::Cow;

use http::StatusCode;
use portico_backend::bucket::Error as BucketError;
use portico_backend::bucket::record::PreconditionFailure;
use portico_backend::catalog::CatalogError;
use portico_backend::error::{Error as StoreError, ErrorKind, chain};
use portico_backend::volumes::Error as VolumesError;

pub use code::Code;

use crate::wire::xml;

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
            | CatalogError::Exists { .. }
            | CatalogError::Invalid { .. }
            | CatalogError::Keyring(_)
            | CatalogError::NoSuch { .. }
            | CatalogError::NoSuchAccessKey(_)
            | CatalogError::NoSuchNode(_)
            | CatalogError::NoSuchUser(_)
            | CatalogError::Random
            | CatalogError::Refused(_)
            | CatalogError::UserExists(_)
            | CatalogError::UserOwnsBuckets { .. } => {
                Self::new(Code::InternalError).with_cause(chain(&error))
            }
        }
    }
}

impl From<VolumesError> for S3Error {
    fn from(error: VolumesError) -> Self {
        match error {
            VolumesError::Bucket(error) => error.into(),
            VolumesError::Catalog(error) => error.into(),
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
