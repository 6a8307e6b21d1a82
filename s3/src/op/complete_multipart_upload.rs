//! CompleteMultipartUpload.

use portico_backend::bucket::{
    Checksum, ChecksumAlgorithm, ChecksumKind, Error as BucketError, ObjectAbout, ObjectRecord,
    PartRecord, UploadRecord,
};

use super::{Context, about, multipart};
use crate::error::{Code, S3Error};
use crate::limits::PAGE_COUNT_MAX;
use crate::serve::reply::Reply;
use crate::wire::checksum;
use crate::wire::document::{CompletedPart, completed_parts};
use crate::wire::encoding::{Keep, percent_encode};
use crate::wire::precondition::write_precondition;
use crate::wire::xml;

/// Makes an object of the parts that the client names. Asked again with the same upload, the
/// answer is the same for as long as that object is current.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let stated = Stated::parse(cx)?;
    let precondition = write_precondition(cx.head.headers)?;
    let body = cx.document_about_object().await?;
    let named = completed_parts(&body)?;
    let id = multipart::upload_id(cx)?;
    let upload = match multipart::upload(cx).await {
        Ok(upload) => upload,
        Err(error) if error.code() == Code::NoSuchUpload => {
            let about = ObjectAbout::default();
            let again = cx
                .bucket()
                .upload_complete(cx.key(), id, &[], about, &precondition);
            return match again.await {
                Ok(record) => Ok(reply(cx, &record)),
                Err(BucketError::NoSuchUpload) => Err(error),
                Err(other) => Err(other.into()),
            };
        }
        Err(error) => return Err(error),
    };
    let parts = choose(&named, &upload, uploaded(cx, &upload).await?)?;
    check_sizes(cx, &parts, &stated)?;
    let mut about = upload.about.clone();
    let etags = parts.iter().map(|part| part.etag.as_str());
    about.etag = checksum::multipart_etag(etags).ok_or_else(|| {
        S3Error::new(Code::InternalError).with_cause("the ETag of a part is no MD5")
    })?;
    about.checksum = object_checksum(&upload, &parts);
    stated.check(&upload, about.checksum.as_ref())?;
    let record = cx
        .bucket()
        .upload_complete(cx.key(), id, &parts, about, &precondition)
        .await?;
    Ok(reply(cx, &record))
}

/// What the headers say about the whole object.
struct Stated {
    checksum: Option<(ChecksumAlgorithm, Vec<u8>)>,
    kind: Option<ChecksumKind>,
    size: Option<u64>,
}

impl Stated {
    fn parse(cx: &Context<'_>) -> Result<Self, S3Error> {
        let mut stated = None;
        if let Some((algorithm, text)) = checksum::stated_text(cx.head.headers)? {
            // A composite ends with the number of parts.
            let value = text.split_once('-').map_or(text, |(value, _)| value);
            let value = checksum::parse_value(algorithm, value);
            let invalid = || checksum::invalid_value(checksum::header_name(algorithm));
            stated = Some((algorithm, value.ok_or_else(invalid)?));
        }
        let size = match cx.header("x-amz-mp-object-size") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| {
                S3Error::invalid_argument("x-amz-mp-object-size", text, "Invalid size")
            })?),
        };
        let kind = cx.header("x-amz-checksum-type");
        Ok(Self {
            checksum: stated,
            kind: kind.map(checksum::parse_kind).transpose()?,
            size,
        })
    }

    fn check(&self, upload: &UploadRecord, computed: Option<&Checksum>) -> Result<(), S3Error> {
        let expected = upload.checksum.map(|(_, kind)| kind);
        if let (Some(stated), Some(expected)) = (self.kind, expected)
            && stated != expected
        {
            return Err(S3Error::new(Code::InvalidRequest).with_message(format!(
                "The upload was created using the {} checksum mode. The complete request must \
                     use the same checksum mode.",
                checksum::kind_name(expected)
            )));
        }
        let Some((algorithm, value)) = &self.checksum else {
            return Ok(());
        };
        match computed {
            Some(one) if one.algorithm == *algorithm && one.value == *value => Ok(()),
            // What cannot be compared is not confirmed either.
            Some(_) | None => Err(checksum::mismatch(*algorithm)),
        }
    }
}

/// All parts that were uploaded.
async fn uploaded(cx: &Context<'_>, upload: &UploadRecord) -> Result<Vec<PartRecord>, S3Error> {
    let mut all: Vec<PartRecord> = Vec::new();
    loop {
        let after = all.last().map_or(0, |part| part.number);
        let page = cx
            .bucket()
            .upload_parts(cx.key(), upload.upload, after, PAGE_COUNT_MAX);
        let (parts, more) = page.await?;
        let ended = parts.is_empty() || !more;
        all.extend(parts);
        if ended {
            return Ok(all);
        }
    }
}

/// The parts that the client names, in its order.
fn choose(
    named: &[CompletedPart],
    upload: &UploadRecord,
    uploaded: Vec<PartRecord>,
) -> Result<Vec<PartRecord>, S3Error> {
    let mut uploaded = uploaded.into_iter().peekable();
    let mut chosen = Vec::with_capacity(named.len());
    for name in named {
        while uploaded.next_if(|part| part.number < name.number).is_some() {}
        let part = uploaded
            .next_if(|part| part.number == name.number && is_same(upload, part, name))
            .ok_or_else(|| {
                S3Error::new(Code::InvalidPart)
                    .with_field("PartNumber", name.number.to_string())
                    .with_field("ETag", &name.etag)
            })?;
        chosen.push(part);
    }
    Ok(chosen)
}

fn is_same(upload: &UploadRecord, part: &PartRecord, name: &CompletedPart) -> bool {
    let fits = |(algorithm, value): &(ChecksumAlgorithm, Vec<u8>)| match &part.checksum {
        Some(kept) if kept.algorithm == *algorithm => *value == kept.value,
        // Where the client chose no algorithm it may name a checksum that was checked on arrival
        // and not kept. Otherwise no part can have been sent with another one.
        Some(_) | None => upload.checksum.is_none(),
    };
    part.etag.eq_ignore_ascii_case(&name.etag) && name.checksums.iter().all(fits)
}

/// Every part but the last has the least size, and all together have the size that was stated.
fn check_sizes(cx: &Context<'_>, parts: &[PartRecord], stated: &Stated) -> Result<(), S3Error> {
    let least = cx.service.options.part_bytes_min;
    let before_last = parts.split_last().map_or(parts, |(_, before)| before);
    if let Some(small) = before_last.iter().find(|part| part.size < least) {
        return Err(S3Error::new(Code::EntityTooSmall)
            .with_field("ProposedSize", small.size.to_string())
            .with_field("MinSizeAllowed", least.to_string())
            .with_field("PartNumber", small.number.to_string())
            .with_field("ETag", &small.etag));
    }
    let size: u64 = parts.iter().map(|part| part.size).sum();
    match stated.size {
        Some(stated) if stated != size => Err(S3Error::new(Code::InvalidRequest).with_message(
            "The provided 'x-amz-mp-object-size' header value does not match what was computed.",
        )),
        Some(_) | None => Ok(()),
    }
}

fn object_checksum(upload: &UploadRecord, parts: &[PartRecord]) -> Option<Checksum> {
    let (algorithm, kind) = upload
        .checksum
        .unwrap_or((ChecksumAlgorithm::Crc64Nvme, ChecksumKind::FullObject));
    let given = parts.iter().map(|part| (part.checksum.as_ref(), part.size));
    checksum::of_parts(algorithm, kind, given)
}

fn reply(cx: &Context<'_>, record: &ObjectRecord) -> Reply {
    let bucket = cx.record().name.as_str();
    let key = cx.key().as_str();
    let mut writer = xml::Writer::document();
    writer.open_root("CompleteMultipartUploadResult");
    writer.text("Location", &location(bucket, key));
    writer.text("Bucket", bucket);
    writer.text("Key", key);
    writer.text("ETag", &about::quoted(&record.about.etag));
    if let Some(checksum) = &record.about.checksum {
        let value = checksum::value_text(checksum, record.part_count);
        writer.text(checksum::element_name(checksum.algorithm), &value);
        writer.text("ChecksumType", checksum::kind_name(checksum.kind));
    }
    writer.close("CompleteMultipartUploadResult");
    let mut reply = Reply::xml(writer.finish());
    about::set_version(&mut reply, record.version);
    reply
}

/// Where the object is. Relative, since what the client calls this server may be known to a proxy
/// alone.
pub(crate) fn location(bucket: &str, key: &str) -> String {
    format!(
        "/{bucket}/{}",
        percent_encode(key, Keep::UnreservedAndSlash)
    )
}
