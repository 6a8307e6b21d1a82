//! GetBucketTagging, PutBucketTagging and DeleteBucketTagging.

use http::StatusCode;

use super::Context;
use crate::error::{Code, S3Error};
use crate::serve::reply::Reply;
use crate::wire::tagging::{self, Tagged, Tags};

pub(crate) async fn get(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let record = cx.record();
    if record.tags.is_empty() {
        return Err(S3Error::new(Code::NoSuchTagSet).with_field("BucketName", record.name.as_str()));
    }
    Ok(Reply::xml(tagging::document(&record.tags)))
}

pub(crate) async fn put(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let body = cx.document().await?;
    let tags = tagging::parse_document(&body, Tagged::Bucket)?;
    set(cx, tags).await
}

pub(crate) async fn delete(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    set(cx, Tags::new()).await
}

async fn set(cx: &Context<'_>, tags: Tags) -> Result<Reply, S3Error> {
    let catalog = &cx.volumes.catalog;
    catalog.bucket_set_tags(cx.record(), tags).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
