//! ListMultipartUploads.

use portico_backend::bucket::{UploadId, UploadItem, UploadPage, UploadQuery};

use super::listing::encoded_keys;
use super::multipart::{self, upload_from_text, upload_text};
use super::{Context, about};
use crate::error::S3Error;
use crate::limits::PAGE_COUNT_MAX;
use crate::serve::reply::Reply;
use crate::wire::encoding::{Keep, percent_encode};
use crate::wire::{Query, time, xml};

pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let query = cx.query();
    let encoded = encoded_keys(query)?;
    let asked = UploadQuery {
        prefix: query.first("prefix").unwrap_or_default().to_owned(),
        delimiter: query
            .first("delimiter")
            .filter(|text| !text.is_empty())
            .map(str::to_owned),
        after: after(query)?,
        count_max: query
            .count("max-uploads", PAGE_COUNT_MAX)?
            .unwrap_or(PAGE_COUNT_MAX),
    };
    let page = cx.bucket().uploads(&asked).await?;
    let truncated = page.truncated && asked.count_max > 0;
    let key_text = |key: &str| {
        if encoded {
            percent_encode(key, Keep::Listing)
        } else {
            key.to_owned()
        }
    };
    let mut writer = xml::Writer::document();
    writer.open_root("ListMultipartUploadsResult");
    writer.text("Bucket", cx.record().name.as_str());
    let marker = query.first("key-marker").unwrap_or_default();
    writer.text("KeyMarker", &key_text(marker));
    let upload_marker = query.first("upload-id-marker").unwrap_or_default();
    writer.text("UploadIdMarker", upload_marker);
    if truncated {
        let (key, upload) = last(&page);
        writer.text("NextKeyMarker", &key_text(key));
        let upload = upload.map(upload_text).unwrap_or_default();
        writer.text("NextUploadIdMarker", &upload);
    }
    writer.text("Prefix", &key_text(&asked.prefix));
    if let Some(delimiter) = &asked.delimiter {
        writer.text("Delimiter", &key_text(delimiter));
    }
    if encoded {
        writer.text("EncodingType", "url");
    }
    writer.number("MaxUploads", u64::from(asked.count_max));
    writer.flag("IsTruncated", truncated);
    write_items(cx, &mut writer, &page, key_text);
    writer.close("ListMultipartUploadsResult");
    Ok(Reply::xml(writer.finish()))
}

fn write_items(
    cx: &Context<'_>,
    writer: &mut xml::Writer,
    page: &UploadPage,
    key_text: impl Fn(&str) -> String,
) {
    for item in &page.items {
        if let UploadItem::Upload(upload) = item {
            writer.open("Upload");
            writer.text("Key", &key_text(upload.key.as_str()));
            writer.text("UploadId", &upload_text(upload.upload));
            multipart::write_people(cx, writer, upload);
            writer.text("StorageClass", about::storage_class_name(&upload.about));
            writer.text("Initiated", &time::iso8601(upload.initiated_ms));
            multipart::write_checksum_choice(writer, upload);
            writer.close("Upload");
        }
    }
    for item in &page.items {
        if let UploadItem::CommonPrefix(prefix) = item {
            writer.open("CommonPrefixes");
            writer.text("Prefix", &key_text(prefix));
            writer.close("CommonPrefixes");
        }
    }
}

/// The key or common prefix at which a page ends, and the upload.
fn last(page: &UploadPage) -> (&str, Option<UploadId>) {
    match page.items.last() {
        None => ("", None),
        Some(UploadItem::CommonPrefix(prefix)) => (prefix, None),
        Some(UploadItem::Upload(upload)) => (upload.key.as_str(), Some(upload.upload)),
    }
}

/// Where the page starts. An upload marker without a key marker is not looked at.
fn after(query: &Query) -> Result<Option<(String, Option<UploadId>)>, S3Error> {
    let Some(key) = query.first("key-marker").filter(|key| !key.is_empty()) else {
        return Ok(None);
    };
    let marker = query.first("upload-id-marker");
    let upload = match marker.filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(upload_from_text(text).ok_or_else(|| {
            S3Error::invalid_argument("upload-id-marker", text, "Invalid uploadId marker")
        })?),
    };
    Ok(Some((key.to_owned(), upload)))
}
