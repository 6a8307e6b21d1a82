//! GetBucketLocation.

use super::Context;
use crate::error::S3Error;
use crate::serve::reply::Reply;
use crate::wire::xml;

/// The region as the bucket's maker named it; empty if not at all.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let mut writer = xml::Writer::document();
    writer.root_text("LocationConstraint", &cx.record().region);
    Ok(Reply::xml(writer.finish()))
}
