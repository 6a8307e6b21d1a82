//! ListParts.

use super::{Context, about, multipart};
use crate::error::S3Error;
use crate::limits::{PAGE_COUNT_MAX, PART_NUMBER_MAX};
use crate::serve::reply::Reply;
use crate::wire::{checksum, time, xml};

pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let query = cx.query();
    let count_max = query.count("max-parts", PAGE_COUNT_MAX)?;
    let count_max = count_max.unwrap_or(PAGE_COUNT_MAX);
    let marker = query.count("part-number-marker", u32::from(PART_NUMBER_MAX))?;
    let marker = u16::try_from(marker.unwrap_or(0)).expect("10,000 at most");
    let upload = multipart::upload(cx).await?;
    let page = cx
        .bucket()
        .upload_parts(cx.key(), upload.upload, marker, count_max);
    let (parts, more) = page.await?;
    let mut writer = xml::Writer::document();
    writer.open_root("ListPartsResult");
    writer.text("Bucket", cx.record().name.as_str());
    writer.text("Key", cx.key().as_str());
    writer.text("UploadId", &multipart::upload_text(upload.upload));
    multipart::write_people(cx, &mut writer, &upload);
    writer.text("StorageClass", about::storage_class_name(&upload.about));
    writer.number("PartNumberMarker", u64::from(marker));
    if let Some(last) = parts.last() {
        writer.number("NextPartNumberMarker", u64::from(last.number));
    }
    writer.number("MaxParts", u64::from(count_max));
    writer.flag("IsTruncated", more);
    multipart::write_checksum_choice(&mut writer, &upload);
    for part in &parts {
        writer.open("Part");
        writer.number("PartNumber", u64::from(part.number));
        writer.text("LastModified", &time::iso8601(part.modified_ms));
        writer.text("ETag", &about::quoted(&part.etag));
        writer.number("Size", part.size);
        if let Some(checksum) = &part.checksum {
            let value = checksum::value_text(checksum, 0);
            writer.text(checksum::element_name(checksum.algorithm), &value);
        }
        writer.close("Part");
    }
    writer.close("ListPartsResult");
    Ok(Reply::xml(writer.finish()))
}
