//! PutBucketAcl and PutObjectAcl.

use http::StatusCode;

use super::Context;
use super::acl::CannedAcl;
use crate::error::{Code, S3Error};
use crate::serve::reply::Reply;

/// PutBucketAcl.
pub(crate) async fn bucket(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let owner = cx.record().owner.clone();
    let acl = asked(cx, &owner).await?;
    cx.service
        .catalog
        .bucket_set_acl(cx.record(), acl.stored())
        .await?;
    Ok(Reply::empty(StatusCode::OK))
}

/// PutObjectAcl.
pub(crate) async fn object(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let record = cx.head_object().await?;
    let acl = asked(cx, &record.about.owner).await?;
    let version = cx.version()?;
    cx.bucket().set_acl(cx.key(), version, acl.stored()).await?;
    Ok(Reply::empty(StatusCode::OK))
}

/// The list that the headers name or the document says.
async fn asked(cx: &mut Context<'_>, owner: &str) -> Result<CannedAcl, S3Error> {
    let named = CannedAcl::from_headers(cx.head.headers)?;
    let document = cx.document().await?;
    match named {
        Some(acl) if document.is_empty() => Ok(acl),
        Some(_) => Err(S3Error::new(Code::InvalidRequest)
            .with_message("Specifying both Canned ACLs and an ACL document is not allowed")),
        None if document.is_empty() => Err(Code::MissingSecurityHeader.into()),
        None => CannedAcl::from_document(&document, owner),
    }
}
