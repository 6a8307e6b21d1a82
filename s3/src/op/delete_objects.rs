//! DeleteObjects.

use futures_util::StreamExt as _;
use futures_util::stream;
use portico_backend::bucket::{Bucket, DeleteOutcome, Key};

use super::{Context, about};
use crate::error::{Code, S3Error};
use crate::serve::reply::Reply;
use crate::wire::document::{DeleteEntry, delete_list};
use crate::wire::xml;

/// Deletions on their way at a time: keys of one shard are committed together.
const CONCURRENT_MAX: usize = 32;

/// Deletes up to 1,000 keys. Each has its own outcome; the reply is 200 whatever they are.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let body = cx.document().await?;
    let list = delete_list(&body)?;
    let bucket = cx.bucket().clone();
    // Each deletion owns what it needs: of borrowed ones rustc cannot show that they are `Send`.
    let deletions = list
        .objects
        .into_iter()
        .map(move |entry| delete(bucket.clone(), entry));
    let mut outcomes = stream::iter(deletions).buffered(CONCURRENT_MAX);
    let mut writer = xml::Writer::document();
    writer.open_root("DeleteResult");
    while let Some((entry, outcome)) = outcomes.next().await {
        match outcome {
            Ok(outcome) if !list.quiet => write_deleted(&mut writer, &entry, &outcome),
            Ok(_) => {}
            Err(error) => write_error(&mut writer, &entry, &error),
        }
    }
    writer.close("DeleteResult");
    Ok(Reply::xml(writer.finish()))
}

async fn delete(
    bucket: Bucket,
    entry: DeleteEntry,
) -> (DeleteEntry, Result<DeleteOutcome, S3Error>) {
    let outcome = delete_one(&bucket, &entry).await;
    (entry, outcome)
}

async fn delete_one(bucket: &Bucket, entry: &DeleteEntry) -> Result<DeleteOutcome, S3Error> {
    let key = Key::new(&entry.key).ok_or_else(|| S3Error::new(Code::KeyTooLong))?;
    let version = entry.version.as_deref();
    let version = version.map(about::version_from_text).transpose()?;
    let outcome = bucket.delete(&key, version, &entry.precondition).await?;
    Ok(outcome)
}

fn write_deleted(writer: &mut xml::Writer, entry: &DeleteEntry, outcome: &DeleteOutcome) {
    writer.open("Deleted");
    writer.text("Key", &entry.key);
    if let Some(version) = &entry.version {
        writer.text("VersionId", version);
    }
    if let Some(marker) = outcome.delete_marker {
        writer.flag("DeleteMarker", true);
        writer.text("DeleteMarkerVersionId", &about::version_text(marker));
    }
    writer.close("Deleted");
}

fn write_error(writer: &mut xml::Writer, entry: &DeleteEntry, error: &S3Error) {
    writer.open("Error");
    writer.text("Key", &entry.key);
    if let Some(version) = &entry.version {
        writer.text("VersionId", version);
    }
    writer.text("Code", error.code().text());
    writer.text("Message", error.message());
    writer.close("Error");
}
