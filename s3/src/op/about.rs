//! What headers say about an object: from the request that writes it into its record, and back
//! from the record into the reply of whoever reads it.

use http::header::{ETAG, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};
use portico_backend::bucket::{Checksum, ObjectAbout, ObjectRecord, VersionId};
use portico_backend::catalog::Catalog;

use crate::error::S3Error;
use crate::op::put_acl;
use crate::serve::reply::Reply;
use crate::wire::header::{self, AboutHeaders};
use crate::wire::{checksum, tagging, time};

/// What the headers of PutObject, CreateMultipartUpload and CopyObject say about the object they
/// make; ETag, checksum and owner are left empty.
///
/// # Errors
/// Those of [`AboutHeaders::parse`], [`tagging::parse_header`] and [`put_acl::from_headers`].
pub(crate) fn from_headers(headers: &HeaderMap, catalog: &Catalog) -> Result<ObjectAbout, S3Error> {
    let parsed = AboutHeaders::parse(headers)?;
    let acl = put_acl::from_headers(headers, catalog)?.unwrap_or_default();
    Ok(ObjectAbout {
        headers: parsed.headers,
        user_metadata: parsed.user_metadata,
        storage_class: parsed.storage_class,
        tags: tags(headers)?,
        acl: acl.stored(),
        ..ObjectAbout::default()
    })
}

/// The tags of the header `x-amz-tagging`.
///
/// # Errors
/// Those of [`tagging::parse_header`].
pub(crate) fn tags(headers: &HeaderMap) -> Result<tagging::Tags, S3Error> {
    match headers.get("x-amz-tagging") {
        None => Ok(tagging::Tags::new()),
        Some(value) => tagging::parse_header(value.to_str().unwrap_or("%")),
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
    header::write_about(&record.about, &mut reply.headers);
    reply.set(ETAG, &quoted(&record.about.etag));
    reply.set(LAST_MODIFIED, &time::imf_fixdate(record.modified_ms));
    reply.set_named("accept-ranges", "bytes");
    if !record.about.tags.is_empty() {
        reply.set_named("x-amz-tagging-count", &record.about.tags.len().to_string());
    }
    set_version(&mut reply, record.version);
    reply
}

/// Tells the version id; objects of buckets without versioning have none to tell.
pub(crate) fn set_version(reply: &mut Reply, version: VersionId) {
    if let VersionId::Numbered(_) = version {
        reply.set_named("x-amz-version-id", &version_text(version));
    }
}

/// Tells the checksum and what it covers. `part_count` is that of the object, 0 for a part.
pub(crate) fn set_checksum(reply: &mut Reply, checksum: &Checksum, part_count: u32) {
    let value = checksum::value_text(checksum, part_count);
    reply.set_named(checksum::header_name(checksum.algorithm), &value);
    reply.set_named("x-amz-checksum-type", checksum::kind_name(checksum.kind));
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
    sequence
        .map(VersionId::Numbered)
        .ok_or_else(|| S3Error::invalid_argument("versionId", text, "Invalid version id specified"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_ids_read_back() {
        for version in [VersionId::Null, VersionId::Numbered(77)] {
            assert_eq!(version_from_text(&version_text(version)).unwrap(), version);
        }
        assert!(version_from_text("+0000000000000ff").is_err());
    }
}
