//! AbortMultipartUpload.

use http::StatusCode;

use super::{Context, multipart};
use crate::error::S3Error;
use crate::serve::reply::Reply;

/// Ends an upload without an object; its parts are gone.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let upload = multipart::upload(cx).await?;
    cx.bucket().upload_abort(cx.key(), upload.upload).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
