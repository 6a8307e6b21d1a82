//! PutObject.

use http::header::ETAG;
use http::{HeaderMap, StatusCode};
use portico_backend::bucket::{Bucket, ChecksumAlgorithm, Error as BucketError, Key, Precondition};

use super::{Context, about};
use crate::error::{Code, S3Error};
use crate::limits::PART_BYTES_MAX;
use crate::serve::reply::Reply;
use crate::wire::encoding::hex;
use crate::wire::precondition::write_precondition;

/// Stores the body under the key. Nothing is visible unless the body was whole and correct.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let mut about = about::from_headers(cx.head.headers, &cx.volumes.catalog)?;
    about.owner = cx.owner().to_owned();
    let precondition = write_precondition(cx.head.headers)?;
    fail_early(cx.bucket(), cx.key(), &precondition).await?;
    let mut data = cx.data(algorithm_default(cx.head.headers)).await?;
    if data.size_hint().is_some_and(|size| size > PART_BYTES_MAX) {
        return Err(too_large());
    }
    let mut writer = cx.bucket().put(cx.key().clone());
    let mut size = 0;
    while let Some(piece) = data.next().await? {
        size += piece.len() as u64;
        if size > PART_BYTES_MAX {
            return Err(too_large());
        }
        writer.write(piece).await?;
    }
    let summary = data.finish()?;
    about.etag = hex(&summary.md5);
    about.checksum = summary.checksum;
    let record = writer.finish(about, &precondition).await?;
    let mut reply = Reply::empty(StatusCode::OK);
    reply.set(ETAG, &about::quoted(&record.about.etag));
    if let Some(checksum) = &record.about.checksum {
        about::set_checksum(&mut reply, checksum, record.part_count);
    }
    about::set_version(&mut reply, record.version);
    Ok(reply)
}

/// Spares a client whose condition fails already the sending of a body. The answer that counts is
/// given when the object is linked.
pub(crate) async fn fail_early(
    bucket: &Bucket,
    key: &Key,
    precondition: &Precondition,
) -> Result<(), S3Error> {
    if precondition.is_empty() {
        return Ok(());
    }
    let current = match bucket.head(key, None).await {
        Ok(record) => Some(record),
        Err(BucketError::NoSuchKey) => None,
        Err(error) => return Err(error.into()),
    };
    precondition
        .check(current.as_ref())
        .map_err(|failure| BucketError::PreconditionFailed(failure).into())
}

/// The checksum that an object gets whose writer has none of its own (S3 API, "Checking object
/// integrity").
fn algorithm_default(headers: &HeaderMap) -> Option<ChecksumAlgorithm> {
    let has_own = headers.keys().any(|name| {
        let name = name.as_str();
        name == "x-amz-trailer" || name.starts_with("x-amz-checksum-")
    });
    (!has_own).then_some(ChecksumAlgorithm::Crc64Nvme)
}

fn too_large() -> S3Error {
    S3Error::new(Code::EntityTooLarge).with_field("MaxSizeAllowed", PART_BYTES_MAX.to_string())
}
