//! DeleteBucket.

use http::StatusCode;
use portico_backend::bucket::{
    Bucket, Error as BucketError, ListAfter, ListQuery, UploadItem, UploadQuery,
};

use super::{Context, bucket_id};
use crate::error::{Code, S3Error};
use crate::limits::PAGE_COUNT_MAX;
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
    end_uploads(cx.bucket()).await?;
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

/// Uploads in progress do not keep a bucket alive: what nobody has completed was never there.
async fn end_uploads(bucket: &Bucket) -> Result<(), S3Error> {
    let query = UploadQuery {
        prefix: String::new(),
        delimiter: None,
        after: None,
        count_max: PAGE_COUNT_MAX,
    };
    loop {
        let page = bucket.uploads(&query).await?;
        for item in &page.items {
            let UploadItem::Upload(upload) = item else {
                continue;
            };
            match bucket.upload_abort(&upload.key, upload.upload).await {
                Ok(()) | Err(BucketError::NoSuchUpload) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !page.truncated {
            return Ok(());
        }
    }
}

fn not_empty(cx: &Context<'_>) -> S3Error {
    S3Error::new(Code::BucketNotEmpty).with_field("BucketName", cx.record().name.as_str())
}
