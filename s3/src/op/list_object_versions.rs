//! ListObjectVersions.

use portico_backend::bucket::{ListAfter, ListItem, ListQuery, ObjectRecord};

use super::listing::{Owners, Selection, data_elements, last_key};
use super::{Context, about};
use crate::error::S3Error;
use crate::serve::reply::Reply;
use crate::wire::{Query, time, xml};

pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let query = cx.query();
    let selection = Selection::parse(query)?;
    let page = cx
        .bucket()
        .list(&ListQuery {
            prefix: selection.prefix.clone(),
            delimiter: selection.delimiter.clone(),
            after: after(query)?,
            count_max: selection.count_max,
            versions: true,
        })
        .await?;
    let truncated = page.truncated && selection.count_max > 0;
    let mut writer = xml::Writer::document();
    writer.open_root("ListVersionsResult");
    selection.echo(cx, &mut writer);
    selection.key(&mut writer, "Prefix", &selection.prefix);
    let key_marker = query.first("key-marker").unwrap_or_default();
    selection.key(&mut writer, "KeyMarker", key_marker);
    let version_marker = query.first("version-id-marker").unwrap_or_default();
    writer.text("VersionIdMarker", version_marker);
    writer.flag("IsTruncated", truncated);
    if let Some(next) = last_key(&page).filter(|_| truncated) {
        selection.key(&mut writer, "NextKeyMarker", next);
        if let Some(ListItem::Object(record, _)) = page.items.last() {
            let version = about::version_text(record.version);
            writer.text("NextVersionIdMarker", &version);
        }
    }
    let mut owners = Owners::default();
    for item in &page.items {
        if let ListItem::Object(record, is_latest) = item {
            let element = element_name(record);
            writer.open(element);
            selection.key(&mut writer, "Key", record.key.as_str());
            writer.text("VersionId", &about::version_text(record.version));
            writer.flag("IsLatest", *is_latest);
            if record.delete_marker {
                writer.text("LastModified", &time::iso8601(record.modified_ms));
            } else {
                data_elements(&mut writer, record);
            }
            owners.write(cx, &mut writer, &record.about.owner);
            writer.close(element);
        }
    }
    selection.common_prefixes(&mut writer, &page);
    writer.close("ListVersionsResult");
    Ok(Reply::xml(writer.finish()))
}

fn element_name(record: &ObjectRecord) -> &'static str {
    if record.delete_marker {
        "DeleteMarker"
    } else {
        "Version"
    }
}

fn after(query: &Query) -> Result<ListAfter, S3Error> {
    let key = query.first("key-marker").filter(|key| !key.is_empty());
    let version = query
        .first("version-id-marker")
        .filter(|version| !version.is_empty());
    match (key, version) {
        (None, None) => Ok(ListAfter::Start),
        (Some(key), None) => Ok(ListAfter::Key(key.to_owned())),
        (Some(key), Some(version)) => {
            let version = about::version_from_text(version)?;
            Ok(ListAfter::Version(key.to_owned(), version))
        }
        (None, Some(version)) => Err(S3Error::invalid_argument(
            "version-id-marker",
            version,
            "A version-id marker cannot be specified without a key marker.",
        )),
    }
}
