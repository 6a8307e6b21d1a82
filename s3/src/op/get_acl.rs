//! GetBucketAcl and GetObjectAcl.

use super::Context;
use super::acl::CannedAcl;
use crate::error::S3Error;
use crate::serve::reply::Reply;

/// GetBucketAcl.
pub(crate) async fn bucket(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let record = cx.record();
    Ok(reply(cx, &record.acl, &record.owner))
}

/// GetObjectAcl.
pub(crate) async fn object(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let record = cx.head_object().await?;
    Ok(reply(cx, &record.about.acl, &record.about.owner))
}

fn reply(cx: &Context<'_>, acl: &str, owner: &str) -> Reply {
    let document = CannedAcl::from_stored(acl).document(owner, &cx.display_name(owner));
    Reply::xml(document)
}
