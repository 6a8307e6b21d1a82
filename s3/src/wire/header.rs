//! Headers that stay with an object: the standard ones, user metadata, the storage class.
//!
//! Values may hold more than ASCII. They come as UTF-8, or as ISO-8859-1 where they are not that,
//! and are kept as text. They go back as S3 sends them: as ISO-8859-1 where that has all their
//! characters, otherwise as an encoded word of RFC 2047. A value that comes as an encoded word is
//! kept and given back as it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use portico_backend::bucket::record::ObjectAbout;

use super::Query;
use crate::error::{Code, S3Error};
use crate::limits::USER_METADATA_BYTES_MAX;

/// Standard headers that are kept with an object and given back with it.
const KEPT: &[&str] = &[
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-website-redirect-location",
];

/// The type of an object whose writer named none.
pub const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";

const META_PREFIX: &str = "x-amz-meta-";

/// Storage classes of the API. They are kept as names; all data is stored alike.
const STORAGE_CLASSES: &[&str] = &[
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "DEEP_ARCHIVE",
    "OUTPOSTS",
    "GLACIER_IR",
    "SNOW",
    "EXPRESS_ONEZONE",
];

/// Headers that ask for something that is not built. Ignoring one would break a promise to the
/// client: data it believes encrypted or locked.
const NOT_BUILT: &[&str] = &[
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-write-offset-bytes",
];

/// What the headers of a writing request say about the object.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AboutHeaders {
    /// As [`ObjectAbout::headers`].
    pub headers: Vec<(String, String)>,
    /// As [`ObjectAbout::user_metadata`].
    pub user_metadata: Vec<(String, String)>,
    /// As [`ObjectAbout::storage_class`].
    pub storage_class: String,
}

impl AboutHeaders {
    /// # Errors
    /// `MetadataTooLarge`, `InvalidStorageClass`, `NotImplemented` for headers that ask for what
    /// is not built.
    pub fn parse(headers: &HeaderMap) -> Result<Self, S3Error> {
        refuse_not_built(headers)?;
        Ok(Self {
            headers: kept(headers),
            user_metadata: user_metadata(headers)?,
            storage_class: storage_class(headers)?,
        })
    }
}

/// # Errors
/// `NotImplemented` if a header asks for encryption, locks or appending.
pub fn refuse_not_built(headers: &HeaderMap) -> Result<(), S3Error> {
    let asked = headers.keys().map(HeaderName::as_str).find(|name| {
        NOT_BUILT.contains(name)
            || name.starts_with("x-amz-server-side-encryption")
            || name.starts_with("x-amz-copy-source-server-side-encryption")
    });
    match asked {
        Some(name) => Err(S3Error::not_implemented(&format!("The header {name}"))),
        None => Ok(()),
    }
}

/// Puts what is kept with an object on an answer that gives it back.
pub fn write_about(about: &ObjectAbout, out: &mut HeaderMap) {
    for (name, value) in &about.headers {
        put(out, name, value);
    }
    if !out.contains_key("content-type") {
        out.insert(
            "content-type",
            HeaderValue::from_static(DEFAULT_CONTENT_TYPE),
        );
    }
    let mut missing = 0_u32;
    for (name, value) in &about.user_metadata {
        if !put(out, &format!("{META_PREFIX}{name}"), value) {
            missing += 1;
        }
    }
    if missing > 0 {
        out.insert("x-amz-missing-meta", HeaderValue::from(missing));
    }
    if !about.storage_class.is_empty() {
        put(out, "x-amz-storage-class", &about.storage_class);
    }
}

/// Applies `response-content-type` and its companions of GetObject to an answer.
///
/// # Errors
/// `InvalidArgument` if a value is no header value.
pub fn response_overrides(query: &Query, out: &mut HeaderMap) -> Result<(), S3Error> {
    for (name, value) in query.iter() {
        let Some(header) = overridden(name) else {
            continue;
        };
        let value = HeaderValue::from_str(value)
            .map_err(|_| S3Error::invalid_argument(name, value, "Invalid header value"))?;
        out.insert(header, value);
    }
    Ok(())
}

/// Whether the query asks for other headers than those kept. Only signed requests may.
#[must_use]
pub fn has_response_overrides(query: &Query) -> bool {
    query.iter().any(|(name, _)| overridden(name).is_some())
}

fn overridden(name: &str) -> Option<&'static str> {
    match name {
        "response-cache-control" => Some("cache-control"),
        "response-content-disposition" => Some("content-disposition"),
        "response-content-encoding" => Some("content-encoding"),
        "response-content-language" => Some("content-language"),
        "response-content-type" => Some("content-type"),
        "response-expires" => Some("expires"),
        _ => None,
    }
}

fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    KEPT.iter()
        .filter_map(|name| {
            let value = joined(headers, name)?;
            let value = if *name == "content-encoding" {
                without_aws_chunked(&value)
            } else {
                value
            };
            (!value.is_empty()).then(|| ((*name).to_owned(), value))
        })
        .collect()
}

/// `aws-chunked` describes the transfer, not the object.
fn without_aws_chunked(value: &str) -> String {
    let codings = value
        .split(',')
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"));
    codings.collect::<Vec<_>>().join(", ")
}

/// `x-amz-meta-` headers without the prefix.
///
/// # Errors
/// `MetadataTooLarge`.
pub fn user_metadata(headers: &HeaderMap) -> Result<Vec<(String, String)>, S3Error> {
    let mut metadata = Vec::new();
    for name in headers.keys() {
        let Some(short) = name.as_str().strip_prefix(META_PREFIX) else {
            continue;
        };
        if let Some(value) = joined(headers, name.as_str()) {
            metadata.push((short.to_owned(), value));
        }
    }
    check_metadata_size(&metadata)?;
    Ok(metadata)
}

/// # Errors
/// `MetadataTooLarge` if names and values have more than `USER_METADATA_BYTES_MAX` bytes.
pub fn check_metadata_size(metadata: &[(String, String)]) -> Result<(), S3Error> {
    let size: usize = metadata
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if size > USER_METADATA_BYTES_MAX {
        return Err(S3Error::new(Code::MetadataTooLarge)
            .with_field("Size", size.to_string())
            .with_field("MaxSizeAllowed", USER_METADATA_BYTES_MAX.to_string()));
    }
    Ok(())
}

/// The storage class; empty for the standard one.
///
/// # Errors
/// `InvalidStorageClass`.
pub fn storage_class(headers: &HeaderMap) -> Result<String, S3Error> {
    match headers.get("x-amz-storage-class") {
        None => Ok(String::new()),
        Some(value) => checked_storage_class(value.to_str().unwrap_or_default()),
    }
}

/// As [`storage_class`] from the name alone.
///
/// # Errors
/// `InvalidStorageClass`.
pub fn checked_storage_class(name: &str) -> Result<String, S3Error> {
    match STORAGE_CLASSES.iter().find(|class| **class == name) {
        Some(&"STANDARD") => Ok(String::new()),
        Some(class) => Ok((*class).to_owned()),
        None => Err(Code::InvalidStorageClass.into()),
    }
}

/// All values of a header as one list; `None` without any.
fn joined(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let mut all = text_of(values.next()?.as_bytes());
    for value in values {
        all.push(',');
        all.push_str(&text_of(value.as_bytes()));
    }
    Some(all)
}

/// The text of a header's value: UTF-8, otherwise ISO-8859-1.
#[must_use]
pub fn text_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// A text as the value of a header: ISO-8859-1, otherwise an encoded word.
#[must_use]
pub fn value_of(text: &str) -> Vec<u8> {
    let latin: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    latin.unwrap_or_else(|| format!("=?UTF-8?B?{}?=", STANDARD.encode(text)).into_bytes())
}

/// Whether the header could be written.
fn put(out: &mut HeaderMap, name: &str, value: &str) -> bool {
    let name = HeaderName::from_bytes(name.as_bytes());
    let value = HeaderValue::from_bytes(&value_of(value));
    match (name, value) {
        (Ok(name), Ok(value)) => {
            out.insert(name, value);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        map
    }

    fn about(pairs: &[(&'static str, &[u8])]) -> ObjectAbout {
        let parsed = AboutHeaders::parse(&headers(pairs)).unwrap();
        ObjectAbout {
            headers: parsed.headers,
            user_metadata: parsed.user_metadata,
            storage_class: parsed.storage_class,
            ..ObjectAbout::default()
        }
    }

    #[test]
    fn what_is_kept_comes_back() {
        let sent: &[(&'static str, &[u8])] = &[
            ("content-type", b"text/plain"),
            ("cache-control", b"no-cache"),
            ("expires", b"never"),
            ("x-amz-meta-latin", b"Hello \xe9"),
            ("x-amz-meta-word", b"=?UTF-8?B?w6k=?="),
            ("x-amz-meta-empty", b""),
            ("x-amz-storage-class", b"STANDARD_IA"),
        ];
        let mut answer = HeaderMap::new();
        write_about(&about(sent), &mut answer);
        assert_eq!(answer, headers(sent));

        let mut answer = HeaderMap::new();
        let plain = about(&[("host", b"h"), ("x-amz-storage-class", b"STANDARD")]);
        write_about(&plain, &mut answer);
        let default = DEFAULT_CONTENT_TYPE.as_bytes();
        assert_eq!(answer, headers(&[("content-type", default)]));
    }

    #[test]
    fn texts_beyond_ascii_go_back_as_s3_sends_them() {
        for (sent, back) in [
            ("\u{e9}".as_bytes(), &b"\xe9"[..]),
            (b"\xe9", b"\xe9"),
            ("\u{4e2d}".as_bytes(), b"=?UTF-8?B?5Lit?="),
        ] {
            let mut answer = HeaderMap::new();
            write_about(&about(&[("x-amz-meta-a", sent)]), &mut answer);
            assert_eq!(answer["x-amz-meta-a"].as_bytes(), back);
        }
        let mut unwritable = about(&[]);
        let line = ("a".to_owned(), "b\nc".to_owned());
        unwritable.user_metadata.push(line);
        let mut answer = HeaderMap::new();
        write_about(&unwritable, &mut answer);
        assert_eq!(answer["x-amz-missing-meta"], "1");
    }

    #[test]
    fn the_coding_of_the_transfer_is_not_the_objects() {
        for (sent, kept) in [
            (&b"gzip, aws-chunked"[..], Some("gzip")),
            (b"aws-chunked,gzip", Some("gzip")),
            (b"aws-chunked, aws-chunked", None),
            (b"deflate, gzip", Some("deflate, gzip")),
        ] {
            let about = about(&[("content-encoding", sent)]);
            assert_eq!(about.headers.first().map(|(_, value)| value.as_str()), kept);
        }
    }

    #[test]
    fn metadata_of_two_thousand_and_forty_eight_bytes_is_the_most() {
        let value = vec![b'x'; USER_METADATA_BYTES_MAX - 1];
        user_metadata(&headers(&[("x-amz-meta-a", &value)])).unwrap();
        let error = user_metadata(&headers(&[("x-amz-meta-ab", &value)])).unwrap_err();
        assert_eq!(error.code(), Code::MetadataTooLarge);
        let twice = user_metadata(&headers(&[("x-amz-meta-a", b"1"), ("x-amz-meta-a", b"2")]));
        assert_eq!(twice.unwrap(), [("a".to_owned(), "1,2".to_owned())]);
    }

    #[test]
    fn promises_that_cannot_be_kept_are_refused() {
        for name in [
            "x-amz-server-side-encryption",
            "x-amz-server-side-encryption-customer-key",
            "x-amz-object-lock-mode",
            "x-amz-write-offset-bytes",
        ] {
            let error = AboutHeaders::parse(&headers(&[(name, b"x")])).unwrap_err();
            assert_eq!(error.code(), Code::NotImplemented, "{name}");
        }
        let error = AboutHeaders::parse(&headers(&[("x-amz-storage-class", b"TAPE")]));
        assert_eq!(error.unwrap_err().code(), Code::InvalidStorageClass);
    }

    #[test]
    fn the_query_may_name_other_headers() {
        let query = Query::parse("response-content-type=a%2Fb&response-expires=x&x=y").unwrap();
        assert!(has_response_overrides(&query));
        let mut answer = headers(&[("content-type", b"text/plain")]);
        response_overrides(&query, &mut answer).unwrap();
        assert_eq!(
            answer,
            headers(&[("content-type", b"a/b"), ("expires", b"x")])
        );
        let query = Query::parse("response-content-type=a%0Ab").unwrap();
        assert!(response_overrides(&query, &mut answer).is_err());
    }
}
