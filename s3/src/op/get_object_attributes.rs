//! GetObjectAttributes.

use http::header::LAST_MODIFIED;
use portico_backend::bucket::{Object, PartRecord};

use super::{Context, about};
use crate::error::{Code, S3Error};
use crate::limits::PAGE_COUNT_MAX;
use crate::serve::reply::Reply;
use crate::wire::{checksum, time, xml};

const ATTRIBUTES: &str = "x-amz-object-attributes";

/// Answers what is asked for of an object, without its data.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let asked = Asked::parse(cx)?;
    let object = cx.open_object().await?;
    let record = object.record();
    let mut writer = xml::Writer::document();
    writer.open_root("GetObjectAttributesResponse");
    if asked.etag {
        writer.text("ETag", &record.about.etag);
    }
    if let Some(checksum) = record.about.checksum.as_ref().filter(|_| asked.checksum) {
        let value = checksum::value_text(checksum, record.part_count);
        writer.open("Checksum");
        writer.text(checksum::element_name(checksum.algorithm), &value);
        writer.text("ChecksumType", checksum::kind_name(checksum.kind));
        writer.close("Checksum");
    }
    if asked.parts && record.part_count > 0 {
        write_parts(cx, &mut writer, &object).await?;
    }
    if asked.storage_class {
        writer.text("StorageClass", about::storage_class_name(&record.about));
    }
    if asked.size {
        writer.number("ObjectSize", record.size);
    }
    writer.close("GetObjectAttributesResponse");
    let mut reply = Reply::xml(writer.finish());
    reply.set(LAST_MODIFIED, &time::imf_fixdate(record.modified_ms));
    about::set_version(&mut reply, record.version);
    Ok(reply)
}

/// Which attributes the client wants.
#[derive(Debug, Default)]
struct Asked {
    checksum: bool,
    etag: bool,
    parts: bool,
    size: bool,
    storage_class: bool,
}

impl Asked {
    fn parse(cx: &Context<'_>) -> Result<Self, S3Error> {
        let mut asked = Self::default();
        let mut some = false;
        let lines = cx.head.headers.get_all(ATTRIBUTES).iter();
        let names = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .filter(|name| !name.is_empty());
        for name in names {
            some = true;
            match name {
                "Checksum" => asked.checksum = true,
                "ETag" => asked.etag = true,
                "ObjectParts" => asked.parts = true,
                "ObjectSize" => asked.size = true,
                "StorageClass" => asked.storage_class = true,
                _ => {
                    let message = "Invalid attribute name specified.";
                    return Err(S3Error::invalid_argument(ATTRIBUTES, name, message));
                }
            }
        }
        if some {
            Ok(asked)
        } else {
            Err(S3Error::new(Code::InvalidRequest).with_message(
                "The x-amz-object-attributes header specifying the attributes to be retrieved is \
                 either missing or empty",
            ))
        }
    }
}

/// Writes a page of the parts that the object was completed from.
async fn write_parts(
    cx: &Context<'_>,
    writer: &mut xml::Writer,
    object: &Object,
) -> Result<(), S3Error> {
    let count_max = number(cx, "x-amz-max-parts")?
        .unwrap_or(PAGE_COUNT_MAX)
        .min(PAGE_COUNT_MAX);
    let marker = number(cx, "x-amz-part-number-marker")?.unwrap_or(0);
    let parts = cx.bucket().parts(object).await?;
    let behind: Vec<&PartRecord> = parts
        .iter()
        .filter(|part| u32::from(part.number) > marker)
        .collect();
    let count = usize::try_from(count_max).expect("1,000 at most");
    let page = &behind[..count.min(behind.len())];
    writer.open("ObjectParts");
    writer.number("PartsCount", parts.len() as u64);
    writer.number("PartNumberMarker", u64::from(marker));
    if let Some(last) = page.last() {
        writer.number("NextPartNumberMarker", u64::from(last.number));
    }
    writer.number("MaxParts", u64::from(count_max));
    writer.flag("IsTruncated", page.len() < behind.len());
    for part in page {
        writer.open("Part");
        writer.number("PartNumber", u64::from(part.number));
        writer.number("Size", part.size);
        if let Some(checksum) = &part.checksum {
            let value = checksum::value_text(checksum, 0);
            writer.text(checksum::element_name(checksum.algorithm), &value);
        }
        writer.close("Part");
    }
    writer.close("ObjectParts");
    Ok(())
}

fn number(cx: &Context<'_>, name: &str) -> Result<Option<u32>, S3Error> {
    cx.header(name)
        .map(|text| text.parse())
        .transpose()
        .map_err(|_| {
            let text = cx.header(name).unwrap_or_default();
            S3Error::invalid_argument(name, text, "Provided value is not an integer.")
        })
}
