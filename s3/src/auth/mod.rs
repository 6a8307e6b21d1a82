//! Who asks: signatures as pure functions of message, secret and time.
//!
//! [`Verifier`] finds out which signature a request carries, in headers or in the query, and has
//! it checked by [`sigv4`] or [`sigv2`]. Forms carry theirs inside: see [`post_policy`].

pub mod post_policy;
mod signing_key;
mod sigv2;
mod sigv4;

use std::sync::Arc;

use portico_backend::catalog::Credential;

use crate::error::{Code, S3Error};
use crate::limits::CLOCK_SKEW_MS_MAX;
pub use crate::wire::Payload;
use crate::wire::RequestHead;
use crate::wire::time::{amz_date, iso8601, parse_amz_date, parse_http_date};
use signing_key::SigningKeys;

/// Finds the credential of an access key id.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<Arc<Credential>>;

/// Who sent a request.
#[derive(Clone, Debug)]
pub enum Identity {
    Anonymous,
    User(Arc<Credential>),
}

/// A request whose signature is right, or which has none.
#[derive(Clone, Debug)]
pub struct Verified {
    pub identity: Identity,
    pub payload: Payload,
}

/// What a verifier is set up with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VerifierOptions {
    /// The region that signatures of version 4 name.
    pub region: String,
    /// Names under which buckets are virtual hosts, in lower case. Signatures of version 2 cover
    /// the bucket.
    pub domains: Vec<String>,
    /// Whether signatures of version 2 are accepted.
    pub signature_v2: bool,
}

/// Checks signatures. Shared by all connections.
#[derive(Debug)]
pub struct Verifier {
    options: VerifierOptions,
    keys: SigningKeys,
}

impl Verifier {
    #[must_use]
    pub fn new(options: VerifierOptions) -> Self {
        Self {
            options,
            keys: SigningKeys::default(),
        }
    }

    #[must_use]
    pub fn options(&self) -> &VerifierOptions {
        &self.options
    }

    /// Checks the signature in headers or query. A request without any is anonymous.
    ///
    /// # Errors
    /// `AccessDenied`, `InvalidAccessKeyId`, `SignatureDoesNotMatch`, `RequestTimeTooSkewed`,
    /// `AuthorizationHeaderMalformed`, `AuthorizationQueryParametersError`, `InvalidArgument`,
    /// `InvalidRequest`.
    pub fn verify(
        &self,
        head: &RequestHead<'_>,
        now_ms: u64,
        lookup: Lookup<'_>,
    ) -> Result<Verified, S3Error> {
        let authorization = head
            .headers
            .get("authorization")
            .map(|value| value.to_str().unwrap_or_default().trim())
            .filter(|value| !value.is_empty());
        let in_query = |name: &str| raw_parameters(head.query).any(|(given, _)| given == name);
        match authorization {
            Some(value) if value.starts_with(sigv4::ALGORITHM) => {
                sigv4::verify_header(self, head, value, now_ms, lookup)
            }
            Some(value) if value.starts_with("AWS ") && self.options.signature_v2 => {
                sigv2::verify_header(self, head, value, now_ms, lookup)
            }
            Some(value) => Err(unsupported(value)),
            None if in_query("X-Amz-Algorithm") || in_query("X-Amz-Signature") => {
                sigv4::verify_query(self, head, now_ms, lookup)
            }
            None if in_query("AWSAccessKeyId") || in_query("Signature") => {
                if self.options.signature_v2 {
                    sigv2::verify_query(self, head, now_ms, lookup)
                } else {
                    Err(unsupported("AWS"))
                }
            }
            None => Ok(Verified {
                identity: Identity::Anonymous,
                payload: sigv4::payload_without_chain(head)?,
            }),
        }
    }
}

fn unsupported(value: &str) -> S3Error {
    let scheme = value.split(' ').next().unwrap_or_default();
    if scheme.eq_ignore_ascii_case("AWS") {
        return S3Error::new(Code::InvalidRequest).with_message(
            "The authorization mechanism you have provided is not supported. Please use \
             AWS4-HMAC-SHA256.",
        );
    }
    S3Error::invalid_argument("Authorization", scheme, "Unsupported Authorization Type")
}

/// The credential, if it opens anything.
fn credential(access_key: &str, lookup: Lookup<'_>) -> Result<Arc<Credential>, S3Error> {
    lookup(access_key)
        .filter(|credential| credential.enabled)
        .ok_or_else(|| {
            S3Error::new(Code::InvalidAccessKeyId).with_field("AWSAccessKeyId", access_key)
        })
}

/// When a request was signed: `X-Amz-Date`, or `Date` where that is missing.
fn header_time(head: &RequestHead<'_>) -> Result<u64, S3Error> {
    let read = |text: &str| parse_amz_date(text).or_else(|| parse_http_date(text));
    let text = head.header("x-amz-date").or_else(|| head.header("date"));
    text.and_then(read).ok_or_else(|| {
        access_denied("AWS authentication requires a valid Date or x-amz-date header")
    })
}

fn check_skew(time_ms: u64, now_ms: u64) -> Result<(), S3Error> {
    if now_ms.abs_diff(time_ms) <= CLOCK_SKEW_MS_MAX {
        return Ok(());
    }
    Err(S3Error::new(Code::RequestTimeTooSkewed)
        .with_field("RequestTime", amz_date(time_ms))
        .with_field("ServerTime", iso8601(now_ms))
        .with_field("MaxAllowedSkewMilliseconds", CLOCK_SKEW_MS_MAX.to_string()))
}

/// Names and values of a query as sent; a parameter without `=` has an empty value.
fn raw_parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn access_denied(message: &'static str) -> S3Error {
    S3Error::new(Code::AccessDenied).with_message(message)
}

#[cfg(test)]
pub(crate) mod tests;
