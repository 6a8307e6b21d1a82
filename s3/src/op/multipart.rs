//! What the verbs on multipart uploads have in common: ids, part numbers, who may touch an upload.

use portico_backend::bucket::{Error as BucketError, UploadId, UploadRecord};

use super::Context;
use crate::error::{Code, S3Error};
use crate::limits::PART_NUMBER_MAX;
use crate::wire::{checksum, xml};

/// An upload id as clients see it.
pub(crate) fn upload_text(upload: UploadId) -> String {
    format!("{:032x}", upload.0)
}

/// Reads what [`upload_text`] wrote; `None` for anything else, which no upload ever had.
pub(crate) fn upload_from_text(text: &str) -> Option<UploadId> {
    let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let number = digits.then(|| u128::from_str_radix(text, 16).ok());
    number.flatten().map(UploadId)
}

/// The id of the upload that the request names.
///
/// # Errors
/// `NoSuchUpload` if it cannot be one.
pub(crate) fn upload_id(cx: &Context<'_>) -> Result<UploadId, S3Error> {
    let text = cx.query().first("uploadId").unwrap_or_default();
    upload_from_text(text).ok_or_else(|| no_such_upload(cx))
}

/// The upload that the request names, if the asker may touch it: whoever began it, and the owner
/// of the bucket.
///
/// # Errors
/// `NoSuchUpload`, `AccessDenied`.
pub(crate) async fn upload(cx: &Context<'_>) -> Result<UploadRecord, S3Error> {
    let id = upload_id(cx)?;
    match cx.bucket().upload(cx.key(), id).await {
        Ok(record) if cx.may_manage(&record.about.owner) => Ok(record),
        Ok(_) => Err(Code::AccessDenied.into()),
        Err(BucketError::NoSuchUpload) => Err(no_such_upload(cx)),
        Err(error) => Err(error.into()),
    }
}

/// The part number that the request names.
///
/// # Errors
/// `InvalidArgument` unless it is 1 to 10,000.
pub(crate) fn part_number(cx: &Context<'_>) -> Result<u16, S3Error> {
    let text = cx.query().first("partNumber").unwrap_or_default();
    match text.parse() {
        Ok(number) if (1..=PART_NUMBER_MAX).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(S3Error::invalid_argument(
            "partNumber",
            text,
            "Part number must be an integer between 1 and 10000, inclusive",
        )),
    }
}

/// Writes who began an upload, which is who will own the object.
pub(crate) fn write_people(cx: &Context<'_>, writer: &mut xml::Writer, upload: &UploadRecord) {
    let id = &upload.about.owner;
    let name = cx.display_name(id);
    for element in ["Initiator", "Owner"] {
        writer.open(element);
        writer.text("ID", id);
        writer.text("DisplayName", &name);
        writer.close(element);
    }
}

/// Writes which checksum an upload's object will carry, if its beginner chose one.
pub(crate) fn write_checksum_choice(writer: &mut xml::Writer, upload: &UploadRecord) {
    if let Some((algorithm, kind)) = upload.checksum {
        let name = checksum::algorithm_name(algorithm);
        writer.text("ChecksumAlgorithm", name);
        writer.text("ChecksumType", checksum::kind_name(kind));
    }
}

fn no_such_upload(cx: &Context<'_>) -> S3Error {
    let text = cx.query().first("uploadId").unwrap_or_default();
    S3Error::new(Code::NoSuchUpload).with_field("UploadId", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_ids_read_back_and_nothing_else_does() {
        for id in [0, 7, u128::MAX] {
            let id = UploadId(id);
            assert_eq!(upload_from_text(&upload_text(id)), Some(id));
        }
        for text in [
            "",
            "56788",
            "+0000000000000000000000000000007",
            "abc1234def",
        ] {
            assert_eq!(upload_from_text(text), None, "{text}");
        }
    }
}
