//! UploadPartCopy.

use std::ops::Range;

use portico_backend::bucket::ObjectRecord;

use super::copy_object::Digesting;
use super::upload_part::{algorithm, part_checksum};
use super::{Context, about, multipart};
use crate::error::{Code, S3Error};
use crate::limits::PART_BYTES_MAX;
use crate::serve::reply::Reply;
use crate::wire::encoding::hex;
use crate::wire::precondition::{ReadConditions, Verdict};
use crate::wire::range::ByteRange;
use crate::wire::{checksum, route, time, xml};

/// Copies a range of an object as a part, streaming it.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let number = multipart::part_number(cx)?;
    let header = cx.header("x-amz-copy-source").unwrap_or_default();
    let (bucket, key, version) = route::copy_source(header)?;
    let upload = multipart::upload(cx).await?;
    let (_, object) = cx.open_source(&bucket, &key, version.as_deref()).await?;
    let range = range(cx, object.record())?;
    cx.reserve(range.end - range.start).await?;
    let key = cx.key().clone();
    let mut writer = cx.bucket().put_part(key, upload.upload, number);
    let mut reader = object.read(range);
    let mut digesting = Digesting::new(algorithm(&upload));
    while let Some(piece) = reader.next().await {
        let piece = piece?;
        digesting.update(&piece);
        writer.write(piece).await?;
    }
    let digests = digesting.finish();
    let checksum = part_checksum(&upload, digests.checksum);
    let part = writer.finish(hex(&digests.md5), Some(checksum)).await?;
    let mut writer = xml::Writer::document();
    writer.open_root("CopyPartResult");
    writer.text("LastModified", &time::iso8601(part.modified_ms));
    writer.text("ETag", &about::quoted(&part.etag));
    if let Some(checksum) = &part.checksum {
        let value = checksum::value_text(checksum, 0);
        writer.text(checksum::element_name(checksum.algorithm), &value);
    }
    writer.close("CopyPartResult");
    let mut reply = Reply::xml(writer.finish());
    if version.is_some() {
        let version = about::version_text(object.record().version);
        reply.set_named("x-amz-copy-source-version-id", &version);
    }
    Ok(reply)
}

/// The bytes to copy, if the conditions on the source hold.
fn range(cx: &Context<'_>, source: &ObjectRecord) -> Result<Range<u64>, S3Error> {
    let conditions = ReadConditions::from_copy_source(cx.head.headers);
    match conditions.check(&source.about.etag, source.modified_ms) {
        Verdict::Proceed => {}
        Verdict::NotModified | Verdict::Failed(_) => return Err(Code::PreconditionFailed.into()),
    }
    let range = match cx.header("x-amz-copy-source-range") {
        None => 0..source.size,
        Some(header) => {
            let range = ByteRange::parse_copy_source(header, source.size)?;
            range.first..range.last + 1
        }
    };
    if range.end - range.start > PART_BYTES_MAX {
        return Err(S3Error::new(Code::InvalidRequest).with_message(format!(
            "The specified copy source is larger than the maximum allowable size for a copy \
             source: {PART_BYTES_MAX}"
        )));
    }
    Ok(range)
}
