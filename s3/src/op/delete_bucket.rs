//! DeleteBucket.

use http::StatusCode;
use portico_backend::bucket::{Error as BucketError, ListAfter, ListQuery};

use super::{Context, bucket_id};
use crate::error::{Code, S3Error};
use crate::serve::reply::Reply;

/// Deletes an empty bucket: marked first, so that whoever finds it half-deleted can finish it.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let catalog = &cx.service.catalog;
    // A bucket with keys is not even marked, since a mark is seen by those who use it.
    let first = ListQuery {
        prefix: String::new(),
        delimiter: None,
        after: ListAfter::Start,
        count_max: 1,
        versions: true,
    };
    if !cx.bucket().list(&first).await?.items.is_empty() {
        return Err(not_empty(cx));
    }
    let record = catalog.bucket_delete_begin(cx.record()).await?;
    match cx.service.buckets.delete(bucket_id(&record)).await {
        // Gone before: somebody was here and did not come to the end.
        Ok(()) | Err(BucketError::NoSuchBucket) => {}
        Err(BucketError::BucketNotEmpty) => {
            catalog.bucket_delete_cancel(&record).await?;
            return Err(not_empty(cx));
        }
        Err(error) => return Err(error.into()),
    }
    catalog.bucket_delete_end(&record).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn not_empty(cx: &Context<'_>) -> S3Error {
    S3Error::new(Code::BucketNotEmpty).with_field("BucketName", cx.record().name.as_str())
}
