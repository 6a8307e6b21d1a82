//! GetObjectTagging, PutObjectTagging and DeleteObjectTagging.

use http::StatusCode;

use super::acl::Right;
use super::{Context, about};
use crate::error::S3Error;
use crate::serve::reply::Reply;
use crate::wire::tagging::{self, Tagged, Tags};

pub(crate) async fn get(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let record = cx.head_object(Right::Read).await?;
    let mut reply = Reply::xml(tagging::document(&record.about.tags));
    about::set_version(&mut reply, record.version);
    Ok(reply)
}

pub(crate) async fn put(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let body = cx.document().await?;
    let tags = tagging::parse_document(&body, Tagged::Object)?;
    set(cx, tags, StatusCode::OK).await
}

pub(crate) async fn delete(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    set(cx, Tags::new(), StatusCode::NO_CONTENT).await
}

async fn set(cx: &Context<'_>, tags: Tags, status: StatusCode) -> Result<Reply, S3Error> {
    let version = cx.version()?;
    let tagged = cx.bucket().set_tags(cx.key(), version, tags).await?;
    let mut reply = Reply::empty(status);
    about::set_version(&mut reply, tagged);
    Ok(reply)
}
