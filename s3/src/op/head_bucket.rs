//! HeadBucket.

use http::StatusCode;

use super::Context;
use crate::error::S3Error;
use crate::serve::reply::Reply;

pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let mut reply = Reply::empty(StatusCode::OK);
    reply.set_named("x-amz-bucket-region", cx.record().region_name());
    reply.set_named("x-amz-access-point-alias", "false");
    Ok(reply)
}
