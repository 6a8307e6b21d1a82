//! DeleteObject.

use http::StatusCode;

use super::{Context, about};
use crate::error::S3Error;
use crate::serve::reply::Reply;
use crate::wire::precondition::delete_precondition;

/// Deletes an object; one that is not there is as good as deleted.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let precondition = delete_precondition(cx.head.headers)?;
    let version = cx.version()?;
    let outcome = cx.bucket().delete(cx.key(), version, &precondition).await?;
    let mut reply = Reply::empty(StatusCode::NO_CONTENT);
    if outcome.delete_marker.is_some() {
        reply.set_named("x-amz-delete-marker", "true");
    }
    if let Some(version) = version.or(outcome.delete_marker) {
        reply.set_named("x-amz-version-id", &about::version_text(version));
    }
    Ok(reply)
}
