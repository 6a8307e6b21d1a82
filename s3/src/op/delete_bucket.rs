//! DeleteBucket.

use http::StatusCode;

use super::Context;
use crate::error::S3Error;
use crate::serve::reply::Reply;

/// Deletes an empty bucket.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let deleted = cx.volumes.bucket_delete(cx.record()).await;
    deleted.map_err(|error| {
        S3Error::from(error).with_field("BucketName", cx.record().name.as_str())
    })?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
