//! GetBucketAcl and GetObjectAcl.

use super::Context;
use super::acl::{self, Acl, Right};
use crate::error::S3Error;
use crate::serve::reply::Reply;

/// GetBucketAcl.
pub(crate) async fn bucket(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let record = cx.record();
    Ok(reply(cx, &record.acl, &record.owner))
}

/// GetObjectAcl.
pub(crate) async fn object(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let record = cx.head_object(Right::ReadAcp).await?;
    Ok(reply(cx, &record.about.acl, &record.about.owner))
}

fn reply(cx: &Context<'_>, stored: &str, owner: &str) -> Reply {
    let grants = Acl::from_stored(stored).grants(owner, &cx.record().owner);
    Reply::xml(acl::to_document(owner, &grants, |id| cx.display_name(id)))
}
