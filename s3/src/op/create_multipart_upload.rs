//! CreateMultipartUpload.

use portico_backend::bucket::{ChecksumAlgorithm, ChecksumKind};

use super::multipart::upload_text;
use super::{Context, about};
use crate::error::{Code, S3Error};
use crate::serve::reply::Reply;
use crate::wire::{checksum, xml};

/// Begins an upload. All that is said about the object is said here.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let mut about = about::from_headers(cx.head.headers, &cx.volumes.catalog)?;
    cx.owner().clone_into(&mut about.owner);
    let choice = checksum_choice(cx)?;
    let begun = cx.bucket().upload_begin(cx.key().clone(), about, choice);
    let upload = begun.await?;
    let mut writer = xml::Writer::document();
    writer.open_root("InitiateMultipartUploadResult");
    writer.text("Bucket", cx.record().name.as_str());
    writer.text("Key", cx.key().as_str());
    writer.text("UploadId", &upload_text(upload.upload));
    writer.close("InitiateMultipartUploadResult");
    let mut reply = Reply::xml(writer.finish());
    if let Some((algorithm, kind)) = choice {
        let name = checksum::algorithm_name(algorithm);
        reply.set_named("x-amz-checksum-algorithm", name);
        reply.set_named("x-amz-checksum-type", checksum::kind_name(kind));
    }
    Ok(reply)
}

/// The checksum that parts and object shall carry; `None` leaves it to the server.
fn checksum_choice(cx: &Context<'_>) -> Result<Option<(ChecksumAlgorithm, ChecksumKind)>, S3Error> {
    let kind = cx.header("x-amz-checksum-type");
    let kind = kind.map(checksum::parse_kind).transpose()?;
    let Some(name) = cx.header("x-amz-checksum-algorithm") else {
        return match kind {
            Some(_) => Err(S3Error::new(Code::InvalidRequest).with_message(
                "The x-amz-checksum-type header can only be used with the \
                 x-amz-checksum-algorithm header.",
            )),
            None => Ok(None),
        };
    };
    let algorithm = checksum::parse_algorithm(name)?;
    let kind = kind.unwrap_or_else(|| checksum::default_kind(algorithm));
    if checksum::is_valid_kind(algorithm, kind) {
        return Ok(Some((algorithm, kind)));
    }
    Err(S3Error::new(Code::InvalidRequest).with_message(format!(
        "The {} checksum type cannot be used with the {} checksum algorithm.",
        checksum::kind_name(kind),
        checksum::algorithm_name(algorithm)
    )))
}
