//! Conditional requests (RFC 9110, section 13, and the S3 API's additions).

use http::HeaderMap;
use portico_backend::bucket::record::{EtagMatch, Precondition};

use super::time::parse_http_date;
use crate::error::{Code, S3Error};

/// The conditions of a request that reads: GET, HEAD, and the source of a copy.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReadConditions {
    if_match: Option<EtagMatch>,
    if_none_match: Option<EtagMatch>,
    if_modified_since_ms: Option<u64>,
    if_unmodified_since_ms: Option<u64>,
}

/// What conditions say about a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    Proceed,
    /// 304 for GET and HEAD; 412 for the source of a copy.
    NotModified,
    /// 412; the header that did not hold.
    Failed(&'static str),
}

impl ReadConditions {
    /// `If-Match` and its three companions. Dates that cannot be read are as if not sent.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Self {
        Self::from_names(
            headers,
            [
                "if-match",
                "if-none-match",
                "if-modified-since",
                "if-unmodified-since",
            ],
        )
    }

    /// `x-amz-copy-source-if-match` and its three companions.
    #[must_use]
    pub fn from_copy_source(headers: &HeaderMap) -> Self {
        Self::from_names(
            headers,
            [
                "x-amz-copy-source-if-match",
                "x-amz-copy-source-if-none-match",
                "x-amz-copy-source-if-modified-since",
                "x-amz-copy-source-if-unmodified-since",
            ],
        )
    }

    fn from_names(headers: &HeaderMap, names: [&str; 4]) -> Self {
        let [matching, none_matching, modified, unmodified] = names;
        let date = |name: &str| text(headers, name).as_deref().and_then(parse_http_date);
        Self {
            if_match: text(headers, matching).map(|value| etags(&value)),
            if_none_match: text(headers, none_matching).map(|value| etags(&value)),
            if_modified_since_ms: date(modified),
            if_unmodified_since_ms: date(unmodified),
        }
    }

    /// Compares with a version, in the order of RFC 9110, section 13.2.2: an ETag condition makes
    /// the date condition of its kind void. Dates compare in whole seconds.
    #[must_use]
    pub fn check(&self, etag: &str, modified_ms: u64) -> Verdict {
        let modified_seconds = modified_ms / 1_000;
        match (&self.if_match, self.if_unmodified_since_ms) {
            (Some(etags), _) if !etags.matches(etag) => return Verdict::Failed("If-Match"),
            (None, Some(since)) if modified_seconds > since / 1_000 => {
                return Verdict::Failed("If-Unmodified-Since");
            }
            (Some(_) | None, _) => {}
        }
        match (&self.if_none_match, self.if_modified_since_ms) {
            (Some(etags), _) if etags.matches(etag) => Verdict::NotModified,
            (None, Some(since)) if modified_seconds <= since / 1_000 => Verdict::NotModified,
            (Some(_) | None, _) => Verdict::Proceed,
        }
    }
}

/// What `If-Range` says (RFC 9110, section 13.1.5): `false` if the client has pieces of another
/// version, so that it must get the whole of this one. A date has to be that of the version.
#[must_use]
pub fn may_be_partial(headers: &HeaderMap, etag: &str, modified_ms: u64) -> bool {
    let Some(value) = text(headers, "if-range") else {
        return !headers.contains_key("if-range");
    };
    match parse_http_date(&value) {
        Some(date_ms) => date_ms / 1_000 == modified_ms / 1_000,
        None => value.trim().trim_matches('"') == etag,
    }
}

/// The condition of a request that writes: PutObject, CopyObject, CompleteMultipartUpload.
///
/// # Errors
/// `InvalidRequest` if a header is empty.
pub fn write_precondition(headers: &HeaderMap) -> Result<Precondition, S3Error> {
    Ok(Precondition {
        if_match: condition(headers, "if-match")?,
        if_none_match: condition(headers, "if-none-match")?,
        size_is: None,
        modified_is_ms: None,
    })
}

/// The condition of DeleteObject: `If-Match`, `x-amz-if-match-size` and
/// `x-amz-if-match-last-modified-time`.
///
/// # Errors
/// `InvalidArgument` if a header cannot be read.
pub fn delete_precondition(headers: &HeaderMap) -> Result<Precondition, S3Error> {
    let size_is = match text(headers, "x-amz-if-match-size") {
        None => None,
        Some(value) => Some(value.parse().map_err(|_| {
            S3Error::invalid_argument("x-amz-if-match-size", value.clone(), "Invalid size")
        })?),
    };
    let modified_is_ms = match text(headers, "x-amz-if-match-last-modified-time") {
        None => None,
        Some(value) => Some(parse_http_date(&value).ok_or_else(|| {
            S3Error::invalid_argument(
                "x-amz-if-match-last-modified-time",
                value.clone(),
                "Invalid date",
            )
        })?),
    };
    Ok(Precondition {
        if_match: condition(headers, "if-match")?,
        if_none_match: None,
        size_is,
        modified_is_ms,
    })
}

/// One entity tag, with or without quotes, or `*`.
#[must_use]
pub fn etag(value: &str) -> EtagMatch {
    etags(value)
}

fn condition(headers: &HeaderMap, name: &'static str) -> Result<Option<EtagMatch>, S3Error> {
    match text(headers, name) {
        None => Ok(None),
        Some(value) if value.trim().is_empty() => {
            Err(S3Error::new(Code::InvalidRequest).with_field("HeaderName", name))
        }
        Some(value) => Ok(Some(etags(&value))),
    }
}

/// All lines of a header as one list.
fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut lines = headers.get_all(name).iter().map(|v| v.to_str().ok());
    let mut all = lines.next()??.to_owned();
    for line in lines {
        all.push(',');
        all.push_str(line?);
    }
    Some(all)
}

/// A list of entity tags. Quotes may be missing, as clients of S3 leave them out; weak tags match
/// as their opaque part. No ETag of S3 has a comma.
fn etags(value: &str) -> EtagMatch {
    let tags: Vec<String> = value
        .split(',')
        .map(|tag| {
            let tag = tag.trim();
            let tag = tag.strip_prefix("W/").unwrap_or(tag);
            tag.trim_matches('"').to_owned()
        })
        .filter(|tag| !tag.is_empty())
        .collect();
    if tags.iter().any(|tag| tag == "*") {
        EtagMatch::Any
    } else {
        EtagMatch::OneOf(tags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const T0: &str = "Sat, 29 Oct 1994 19:43:31 GMT";
    const T0_MS: u64 = 783_459_811_000;

    fn read(pairs: &[(&'static str, &str)]) -> ReadConditions {
        ReadConditions::from_headers(&headers(pairs))
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_str(value).unwrap();
                (http::HeaderName::from_static(name), value)
            })
            .collect()
    }

    #[test]
    fn etags_match_with_and_without_quotes_and_in_lists() {
        for value in ["\"e\"", "e", "W/\"e\"", "\"x\", \"e\"", "*"] {
            assert_eq!(read(&[("if-match", value)]).check("e", 0), Verdict::Proceed);
            let none = read(&[("if-none-match", value)]);
            assert_eq!(none.check("e", 0), Verdict::NotModified, "{value}");
        }
        let other = read(&[("if-match", "\"x\"")]);
        assert_eq!(other.check("e", 0), Verdict::Failed("If-Match"));
        assert_eq!(
            read(&[("if-none-match", "x")]).check("e", 0),
            Verdict::Proceed
        );
    }

    #[test]
    fn dates_compare_in_seconds() {
        let since = read(&[("if-modified-since", T0)]);
        assert_eq!(since.check("e", T0_MS + 999), Verdict::NotModified);
        assert_eq!(since.check("e", T0_MS + 1_000), Verdict::Proceed);
        let until = read(&[("if-unmodified-since", T0)]);
        assert_eq!(until.check("e", T0_MS + 999), Verdict::Proceed);
        assert_eq!(
            until.check("e", T0_MS + 1_000),
            Verdict::Failed("If-Unmodified-Since")
        );
        let nonsense = read(&[("if-modified-since", "yesterday")]);
        assert_eq!(nonsense.check("e", 0), Verdict::Proceed);
    }

    #[test]
    fn an_etag_makes_the_date_of_its_kind_void() {
        let conditions = read(&[("if-match", "e"), ("if-unmodified-since", T0)]);
        assert_eq!(conditions.check("e", T0_MS + 5_000), Verdict::Proceed);
        let conditions = read(&[("if-none-match", "x"), ("if-modified-since", T0)]);
        assert_eq!(conditions.check("e", T0_MS - 5_000), Verdict::Proceed);
    }

    #[test]
    fn writers_and_deleters_have_theirs() {
        let write = write_precondition(&headers(&[("if-none-match", "*")])).unwrap();
        assert_eq!(write.if_none_match, Some(EtagMatch::Any));
        assert!(write_precondition(&headers(&[("if-match", "")])).is_err());
        let delete = delete_precondition(&headers(&[
            ("if-match", "e"),
            ("x-amz-if-match-size", "7"),
            ("x-amz-if-match-last-modified-time", T0),
        ]))
        .unwrap();
        assert_eq!(delete.size_is, Some(7));
        assert_eq!(delete.modified_is_ms, Some(T0_MS));
        assert!(delete_precondition(&headers(&[("x-amz-if-match-size", "x")])).is_err());
    }
}
