//! What headers say about an object: from the request that writes it into its record, and back
//! from the record into the reply of whoever reads it.

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG,
    EXPIRES, HeaderName, HeaderValue, LAST_MODIFIED,
};
use http::{HeaderMap, StatusCode};
use portico_backend::bucket::{ObjectAbout, ObjectRecord, VersionId};

use crate::error::{Code, S3Error};
use crate::limits::USER_METADATA_BYTES_MAX;
use crate::op::acl::CannedAcl;
use crate::serve::reply::Reply;
use crate::wire::{tagging, time};

/// Headers that are kept with an object and given back as they came.
const KEPT: [HeaderName; 7] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_TYPE,
    EXPIRES,
    HeaderName::from_static("x-amz-website-redirect-location"),
];

const META_PREFIX: &str = "x-amz-meta-";

/// The content type of an object that was written without one (S3 API, PutObject).
const CONTENT_TYPE_DEFAULT: &str = "binary/octet-stream";

/// Classes that say how dear an object is to keep, but not that reading it needs a restore first.
const STORAGE_CLASSES: [&str; 6] = [
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
];

/// What the headers of PutObject, CreateMultipartUpload and CopyObject say about the object they
/// make; ETag, checksum and owner are left empty.
///
/// # Errors
/// `MetadataTooLarge`, `InvalidStorageClass`, `InvalidTag`, and those of
/// [`CannedAcl::from_headers`].
pub(crate) fn from_headers(headers: &HeaderMap) -> Result<ObjectAbout, S3Error> {
    let mut about = ObjectAbout {
        headers: kept_headers(headers),
        user_metadata: user_metadata(headers)?,
        storage_class: storage_class(headers)?,
        acl: CannedAcl::from_headers(headers)?
            .unwrap_or_default()
            .stored()
            .to_owned(),
        ..ObjectAbout::default()
    };
    if let Some(value) = headers.get("x-amz-tagging") {
        about.tags = tagging::parse_header(&text_of(value))?;
    }
    Ok(about)
}

/// The standard headers that are kept. `aws-chunked` is an encoding of the transfer and no longer
/// true of what is stored.
pub(crate) fn kept_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut kept = Vec::new();
    for name in &KEPT {
        let Some(value) = headers.get(name) else {
            continue;
        };
        let mut value = text_of(value);
        if name == CONTENT_ENCODING {
            value = without_aws_chunked(&value);
        }
        if !value.is_empty() {
            kept.push((name.as_str().to_owned(), value));
        }
    }
    kept
}

/// The `x-amz-meta-` headers, in the order of names; values of a repeated header are joined.
///
/// # Errors
/// `MetadataTooLarge`.
pub(crate) fn user_metadata(headers: &HeaderMap) -> Result<Vec<(String, String)>, S3Error> {
    let mut metadata = Vec::new();
    let mut size = 0;
    for name in headers.keys() {
        let Some(short) = name.as_str().strip_prefix(META_PREFIX) else {
            continue;
        };
        let values: Vec<String> = headers.get_all(name).iter().map(text_of).collect();
        let value = values.join(",");
        // One char each for what was one byte.
        size += short.len() + value.chars().count();
        metadata.push((short.to_owned(), value));
    }
    if size > USER_METADATA_BYTES_MAX {
        return Err(S3Error::new(Code::MetadataTooLarge)
            .with_field("Size", size.to_string())
            .with_field("MaxSizeAllowed", USER_METADATA_BYTES_MAX.to_string()));
    }
    metadata.sort_unstable();
    Ok(metadata)
}

/// The storage class that the headers ask for; empty for the standard one.
///
/// # Errors
/// `InvalidStorageClass`.
pub(crate) fn storage_class(headers: &HeaderMap) -> Result<String, S3Error> {
    let Some(value) = headers.get("x-amz-storage-class") else {
        return Ok(String::new());
    };
    match value.to_str().unwrap_or_default() {
        "STANDARD" => Ok(String::new()),
        class if STORAGE_CLASSES.contains(&class) => Ok(class.to_owned()),
        _ => Err(Code::InvalidStorageClass.into()),
    }
}

/// The storage class of an object by its name in the API.
pub(crate) fn storage_class_name(about: &ObjectAbout) -> &str {
    if about.storage_class.is_empty() {
        "STANDARD"
    } else {
        &about.storage_class
    }
}

/// An ETag as it stands in headers and documents.
pub(crate) fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// The reply that tells a reader all about an object but its checksum and length.
pub(crate) fn describe(record: &ObjectRecord) -> Reply {
    let mut reply = Reply::empty(StatusCode::OK);
    let about = &record.about;
    reply.set(ETAG, &quoted(&about.etag));
    reply.set(LAST_MODIFIED, &time::imf_fixdate(record.modified_ms));
    reply.set_named("accept-ranges", "bytes");
    reply.set(CONTENT_TYPE, CONTENT_TYPE_DEFAULT);
    for (name, value) in &about.headers {
        set_text(&mut reply, name, value);
    }
    for (name, value) in &about.user_metadata {
        set_text(&mut reply, &format!("{META_PREFIX}{name}"), value);
    }
    if !about.tags.is_empty() {
        reply.set_named("x-amz-tagging-count", &about.tags.len().to_string());
    }
    if !about.storage_class.is_empty() {
        reply.set_named("x-amz-storage-class", &about.storage_class);
    }
    if let VersionId::Numbered(_) = record.version {
        reply.set_named("x-amz-version-id", &version_text(record.version));
    }
    reply
}

/// A version id as clients see it.
pub(crate) fn version_text(version: VersionId) -> String {
    match version {
        VersionId::Null => "null".to_owned(),
        VersionId::Numbered(sequence) => format!("{sequence:016x}"),
    }
}

/// Reads what [`version_text`] wrote.
///
/// # Errors
/// `InvalidArgument` for anything else.
pub(crate) fn version_from_text(text: &str) -> Result<VersionId, S3Error> {
    if text == "null" {
        return Ok(VersionId::Null);
    }
    let sequence = Some(text)
        .filter(|text| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit()))
        .and_then(|text| u64::from_str_radix(text, 16).ok());
    sequence.map(VersionId::Numbered).ok_or_else(|| {
        S3Error::invalid_argument("versionId", text, "Invalid version id specified")
    })
}

/// The bytes of a header, one char each: header values are bytes in no fixed charset, and whoever
/// wrote them gets the same bytes back.
fn text_of(value: &HeaderValue) -> String {
    value.as_bytes().iter().copied().map(char::from).collect()
}

/// Sets a header to what [`text_of`] made of it. A char beyond one byte, which a form may have
/// brought in, goes out as UTF-8.
fn set_text(reply: &mut Reply, name: &str, text: &str) {
    let bytes: Option<Vec<u8>> = text
        .chars()
        .map(|c| u8::try_from(u32::from(c)).ok())
        .collect();
    let bytes = bytes.unwrap_or_else(|| text.as_bytes().to_vec());
    let name = HeaderName::from_bytes(name.as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&bytes)) {
        reply.headers.insert(name, value);
    }
}

fn without_aws_chunked(value: &str) -> String {
    let kept: Vec<&str> = value
        .split(',')
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    kept.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coding_of_the_transfer_is_not_kept() {
        assert_eq!(without_aws_chunked("aws-chunked,gzip"), "gzip");
        assert_eq!(without_aws_chunked("deflate, gzip"), "deflate, gzip");
        assert_eq!(without_aws_chunked("aws-chunked"), "");
    }

    #[test]
    fn any_bytes_of_a_header_come_back() {
        let bytes = b"Hello \xe9 \xc3\xa9";
        let text = text_of(&HeaderValue::from_bytes(bytes).unwrap());
        let mut reply = Reply::empty(StatusCode::OK);
        set_text(&mut reply, "x-amz-meta-a", &text);
        assert_eq!(reply.headers["x-amz-meta-a"].as_bytes(), bytes);
    }

    #[test]
    fn metadata_has_a_limit_in_bytes() {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_bytes(&[0xe9; 2_047]).unwrap();
        headers.insert("x-amz-meta-a", value.clone());
        assert_eq!(user_metadata(&headers).unwrap().len(), 1);
        headers.insert("x-amz-meta-bc", HeaderValue::from_static(""));
        let error = user_metadata(&headers).unwrap_err();
        assert_eq!(error.code(), Code::MetadataTooLarge);
    }

    #[test]
    fn version_ids_read_back() {
        for version in [VersionId::Null, VersionId::Numbered(77)] {
            assert_eq!(version_from_text(&version_text(version)).unwrap(), version);
        }
        assert!(version_from_text("+0000000000000ff").is_err());
    }

    #[test]
    fn archive_classes_are_refused() {
        let class = |name| {
            let mut headers = HeaderMap::new();
            headers.insert("x-amz-storage-class", HeaderValue::from_static(name));
            storage_class(&headers)
        };
        assert_eq!(class("STANDARD").unwrap(), "");
        assert_eq!(class("STANDARD_IA").unwrap(), "STANDARD_IA");
        assert!(class("GLACIER").is_err());
    }
}
