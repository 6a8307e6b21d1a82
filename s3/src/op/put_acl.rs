//! PutBucketAcl and PutObjectAcl.

use http::{HeaderMap, StatusCode};
use portico_backend::catalog::Catalog;

use super::Context;
use super::acl::{self, Acl, Right};
use crate::error::{Code, S3Error};
use crate::serve::reply::Reply;

/// PutBucketAcl.
pub(crate) async fn bucket(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let acl = asked(cx).await?;
    cx.volumes
        .catalog
        .bucket_set_acl(cx.record(), &acl.stored())
        .await?;
    Ok(Reply::empty(StatusCode::OK))
}

/// PutObjectAcl.
pub(crate) async fn object(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    cx.head_object(Right::WriteAcp).await?;
    let acl = asked(cx).await?;
    let version = cx.version()?;
    cx.bucket()
        .set_acl(cx.key(), version, &acl.stored())
        .await?;
    Ok(Reply::empty(StatusCode::OK))
}

/// The list that the headers of a request ask for, if they do, with users who exist.
///
/// # Errors
/// Those of [`Acl::from_headers`], and `InvalidArgument` for a user who does not exist.
pub(crate) fn from_headers(headers: &HeaderMap, catalog: &Catalog) -> Result<Option<Acl>, S3Error> {
    let acl = Acl::from_headers(headers)?;
    if let Some(acl) = &acl {
        check_users(acl, catalog)?;
    }
    Ok(acl)
}

/// The list that the headers or the document of a request say.
async fn asked(cx: &mut Context<'_>) -> Result<Acl, S3Error> {
    let catalog = &cx.volumes.catalog;
    let named = from_headers(cx.head.headers, catalog)?;
    let document = cx.document().await?;
    match named {
        Some(acl) if document.is_empty() => Ok(acl),
        Some(_) => Err(Code::UnexpectedContent.into()),
        None if document.is_empty() => Err(Code::MissingSecurityHeader.into()),
        None => {
            let acl = acl::from_document(&document)?;
            check_users(&acl, catalog)?;
            Ok(acl)
        }
    }
}

fn check_users(acl: &Acl, catalog: &Catalog) -> Result<(), S3Error> {
    match acl.users().iter().find(|id| catalog.user(id).is_none()) {
        None => Ok(()),
        Some(id) => Err(S3Error::invalid_argument(
            "CanonicalUser/ID",
            *id,
            "Invalid id",
        )),
    }
}
