//! The head of a request as it came: nothing decoded, nothing put in order.

use http::request::Parts;
use http::{HeaderMap, Method, Version};

use crate::error::{Code, S3Error};

/// What routing and signatures look at. The signature covers the very bytes of path and query, so
/// both stay raw here.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    pub method: &'a Method,
    /// The path as sent, from the first `/` on; empty for `*` and the like.
    pub path: &'a str,
    /// What follows `?`, as sent; empty without one.
    pub query: &'a str,
    pub headers: &'a HeaderMap,
    /// The authority of a request target in absolute form; otherwise `None`.
    pub authority: Option<&'a str>,
}

impl<'a> RequestHead<'a> {
    #[must_use]
    pub fn new(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            headers: &parts.headers,
            authority: parts.uri.authority().map(http::uri::Authority::as_str),
        }
    }

    /// What holds for every head, whatever it asks for: one host (RFC 9112 3.2), and that headers
    /// which decide something are text: a condition that cannot be read must not count as none.
    ///
    /// # Errors
    /// `BadRequest`, `InvalidArgument`.
    pub fn check(&self, version: Version) -> Result<(), S3Error> {
        let odd = self
            .headers
            .iter()
            .find(|(name, value)| decides(name.as_str()) && value.to_str().is_err());
        if let Some((name, value)) = odd {
            let value = String::from_utf8_lossy(value.as_bytes());
            return Err(S3Error::invalid_argument(
                name.as_str(),
                value,
                "The value of this header must be ASCII text.",
            ));
        }
        if self.headers.get_all("authorization").iter().count() > 1 {
            return Err(S3Error::new(Code::BadRequest)
                .with_message("A request must have one Authorization header at most."));
        }
        let mut hosts = self.headers.get_all("host").iter();
        let is_one = match hosts.next() {
            Some(host) => is_host(host.as_bytes()) && hosts.next().is_none(),
            None => version < Version::HTTP_11,
        };
        if is_one {
            Ok(())
        } else {
            Err(S3Error::new(Code::BadRequest)
                .with_message("A request must have exactly one Host header with a host in it."))
        }
    }

    /// The host the client asked for, with a port if it named one.
    #[must_use]
    pub fn host(&self) -> Option<&'a str> {
        self.header("host").or(self.authority)
    }

    /// The first value of a header if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// A host with or without a port, or nothing (RFC 9110 7.2). Whether it is ours is not asked.
fn is_host(value: &[u8]) -> bool {
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=:[]".contains(b);
    value.iter().all(is_part)
}

/// Whether a header says what to do or whether to do it, rather than what to store.
fn decides(name: &str) -> bool {
    let is_stored = name.starts_with("x-amz-meta-");
    name == "authorization" || name.starts_with("if-") || (name.starts_with("x-amz-") && !is_stored)
}
