//! UploadPart.

use http::StatusCode;
use http::header::ETAG;
use portico_backend::bucket::{Checksum, ChecksumAlgorithm, ChecksumKind, UploadRecord};

use super::{Context, about, multipart};
use crate::error::{Code, S3Error};
use crate::serve::reply::Reply;
use crate::wire::checksum;

/// Stores the body as a part. The part that ends last is the part of its number.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let number = multipart::part_number(cx)?;
    let upload = multipart::upload(cx).await?;
    let mut data = cx.data(Some(algorithm(&upload))).await?;
    check_algorithm(&upload, data.stated_algorithm())?;
    let key = cx.key().clone();
    let mut writer = cx.bucket().put_part(key, upload.upload, number);
    while let Some(piece) = data.next().await? {
        writer.write(piece).await?;
    }
    let summary = data.finish()?;
    let checksum = summary
        .checksum
        .clone()
        .map(|one| part_checksum(&upload, one));
    let part = writer.finish(summary.etag(), checksum).await?;
    let mut reply = Reply::empty(StatusCode::OK);
    reply.set(ETAG, &about::quoted(&part.etag));
    if let Some(checksum) = &part.checksum {
        let value = checksum::value_text(checksum, 0);
        reply.set_named(checksum::header_name(checksum.algorithm), &value);
    }
    Ok(reply)
}

/// The checksum that parts of this upload carry. Where the client chose none it is the API's own,
/// which makes the checksum of the object.
pub(crate) fn algorithm(upload: &UploadRecord) -> ChecksumAlgorithm {
    upload
        .checksum
        .map_or(ChecksumAlgorithm::Crc64Nvme, |(algorithm, _)| algorithm)
}

/// A part's checksum bears the kind of the object's.
pub(crate) fn part_checksum(upload: &UploadRecord, checksum: Checksum) -> Checksum {
    Checksum {
        kind: upload
            .checksum
            .map_or(ChecksumKind::FullObject, |(_, kind)| kind),
        ..checksum
    }
}

fn check_algorithm(
    upload: &UploadRecord,
    stated: Option<ChecksumAlgorithm>,
) -> Result<(), S3Error> {
    match (upload.checksum, stated) {
        (Some((expected, _)), Some(stated)) if expected != stated => {
            Err(S3Error::new(Code::InvalidRequest).with_message(format!(
                "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum \
                 Type: {}",
                checksum::algorithm_name(expected).to_ascii_lowercase(),
                checksum::algorithm_name(stated).to_ascii_lowercase()
            )))
        }
        (Some(_) | None, _) => Ok(()),
    }
}
