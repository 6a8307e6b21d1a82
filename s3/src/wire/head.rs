//! The head of a request as it came: nothing decoded, nothing put in order.

use http::request::Parts;
use http::{HeaderMap, Method};

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
