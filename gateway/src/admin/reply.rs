//! What the admin API answers: JSON in every case, also when the route or the body is wrong.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use portico_backend::bucket::Error as BucketError;
use portico_backend::catalog::CatalogError;
use portico_backend::error::{Error as StoreError, ErrorKind, chain};
use portico_backend::volumes::Error as VolumesError;
use serde::de::DeserializeOwned;

use super::api::{Failed, FailedError};
use crate::block::BlockError;

/// A reply that is not a success.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidRequest", message)
    }

    /// There is no session to answer from.
    pub(super) fn vacant(why: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "StoreUnavailable", why)
    }

    pub(super) fn no_such_user(user: &str) -> Self {
        CatalogError::NoSuchUser(user.to_owned()).into()
    }

    pub(super) fn no_such_bucket(bucket: &str) -> Self {
        let message = format!("there is no bucket {bucket:?}");
        Self::new(StatusCode::NOT_FOUND, "NoSuchBucket", message)
    }

    fn of_store(error: &StoreError, message: String) -> Self {
        let (status, code) = match error.kind() {
            ErrorKind::NoSpace => (StatusCode::INSUFFICIENT_STORAGE, "NoSpace"),
            ErrorKind::Busy | ErrorKind::Fenced | ErrorKind::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "StoreUnavailable")
            }
            ErrorKind::Corrupt => (StatusCode::INTERNAL_SERVER_ERROR, "StoreDamaged"),
            ErrorKind::AlreadyExists
            | ErrorKind::GuardFailed
            | ErrorKind::Locked
            | ErrorKind::NotFound
            | ErrorKind::TooLarge
            | ErrorKind::Unsupported => (StatusCode::INTERNAL_SERVER_ERROR, "StoreFailed"),
        };
        Self::new(status, code, message)
    }
}

impl From<CatalogError> for ApiError {
    fn from(error: CatalogError) -> Self {
        let message = chain(&error);
        let conflict = StatusCode::CONFLICT;
        let (status, code) = match error {
            CatalogError::AccessKeyExists(_) => (conflict, "AccessKeyExists"),
            CatalogError::BucketExists(_) => (conflict, "BucketExists"),
            CatalogError::Conflict => (conflict, "Conflict"),
            CatalogError::UserExists(_) => (conflict, "UserExists"),
            CatalogError::UserOwnsBuckets { .. } => (conflict, "UserOwnsBuckets"),
            CatalogError::Exists { .. } => (conflict, "Exists"),
            CatalogError::Refused(_) => (conflict, "Refused"),
            CatalogError::NoSuch { .. } => (StatusCode::NOT_FOUND, "NoSuch"),
            CatalogError::Invalid { .. } => (StatusCode::BAD_REQUEST, "InvalidRequest"),
            CatalogError::Keyring(_) => (StatusCode::INTERNAL_SERVER_ERROR, "KeyringDoesNotFit"),
            CatalogError::NoSuchAccessKey(_) => (StatusCode::NOT_FOUND, "NoSuchAccessKey"),
            CatalogError::NoSuchBucket(_) => (StatusCode::NOT_FOUND, "NoSuchBucket"),
            CatalogError::NoSuchNode(_) => (StatusCode::NOT_FOUND, "NoSuchNode"),
            CatalogError::NoSuchUser(_) => (StatusCode::NOT_FOUND, "NoSuchUser"),
            CatalogError::Random => (StatusCode::INTERNAL_SERVER_ERROR, "NoRandomNumbers"),
            CatalogError::Store(error) => return Self::of_store(&error, message),
        };
        Self::new(status, code, message)
    }
}

impl From<BucketError> for ApiError {
    fn from(error: BucketError) -> Self {
        let message = chain(&error);
        let (status, code) = match error {
            BucketError::BucketNotEmpty => (StatusCode::CONFLICT, "BucketNotEmpty"),
            BucketError::Conflict => (StatusCode::CONFLICT, "Conflict"),
            BucketError::NoSuchBucket => (StatusCode::NOT_FOUND, "NoSuchBucket"),
            BucketError::Store(error) => return Self::of_store(&error, message),
            BucketError::EntityTooLarge
            | BucketError::InvalidPart { .. }
            | BucketError::NoSuchKey
            | BucketError::NoSuchUpload
            | BucketError::NoSuchVersion
            | BucketError::PreconditionFailed(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "StoreFailed")
            }
        };
        Self::new(status, code, message)
    }
}

impl From<VolumesError> for ApiError {
    fn from(error: VolumesError) -> Self {
        match error {
            VolumesError::Bucket(error) => error.into(),
            VolumesError::Catalog(error) => error.into(),
        }
    }
}

impl From<BlockError> for ApiError {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::Catalog(error) => error.into(),
            BlockError::Refused(why) => Self::new(StatusCode::CONFLICT, "Refused", why),
            BlockError::Vacant(why) => Self::vacant(&why),
            BlockError::Store(error) => match error.kind() {
                // What makes no image, and what Portico can't serve.
                ErrorKind::Unsupported => Self::invalid(error.to_string()),
                ErrorKind::NotFound => {
                    Self::new(StatusCode::NOT_FOUND, "NoSuchImage", error.to_string())
                }
                ErrorKind::AlreadyExists
                | ErrorKind::Busy
                | ErrorKind::Corrupt
                | ErrorKind::Fenced
                | ErrorKind::GuardFailed
                | ErrorKind::Locked
                | ErrorKind::NoSpace
                | ErrorKind::TooLarge
                | ErrorKind::Unavailable => error.into(),
            },
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::of_store(&error, chain(&error))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::warn!(code = self.code, error = %self.message, "admin request failed");
        }
        let body = Failed {
            error: FailedError {
                code: self.code.to_owned(),
                message: self.message,
            },
        };
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// A body of JSON. An empty one counts as an object without fields.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|error: BytesRejection| ApiError::invalid(error.body_text()))?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text).map(Self).map_err(|error| {
            ApiError::invalid(format!("the body is not what it should be: {error}"))
        })
    }
}

/// The parameters of the query.
#[derive(Debug)]
pub(super) struct Parameters<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Query::from_request_parts(parts, state)
            .await
            .map(|Query(parameters)| Self(parameters))
            .map_err(|error: QueryRejection| ApiError::invalid(error.body_text()))
    }
}

/// The parts of the path that name something.
#[derive(Debug)]
pub(super) struct Named<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Path::from_request_parts(parts, state)
            .await
            .map(|Path(names)| Self(names))
            .map_err(|error: PathRejection| ApiError::invalid(error.body_text()))
    }
}

/// Cuts one page out of items in ascending order of name: those behind `after`.
pub(super) fn page<T>(
    mut items: Vec<T>,
    after: Option<&str>,
    limit: usize,
    name: impl Fn(&T) -> &str,
) -> (Vec<T>, Option<String>) {
    let start = after.map_or(0, |after| items.partition_point(|item| name(item) <= after));
    items.drain(..start);
    let next = match items.get(limit.saturating_sub(1)) {
        Some(last) if items.len() > limit => Some(name(last).to_owned()),
        Some(_) | None => None,
    };
    items.truncate(limit);
    (items, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        let all = || ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        for limit in 1..=6 {
            let mut seen = Vec::new();
            let mut after = None;
            loop {
                let (items, next) = page(all(), after.as_deref(), limit, String::as_str);
                assert!(items.len() <= limit);
                seen.extend(items);
                if next.is_none() {
                    break;
                }
                after = next;
            }
            assert_eq!(seen, all(), "limit {limit}");
        }
    }
}
