//! ListBuckets.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portico_backend::catalog::{BucketRecord, BucketState};

use super::Context;
use crate::error::S3Error;
use crate::serve::reply::Reply;
use crate::wire::{time, xml};

/// Buckets of one page (S3 API, ListBuckets).
const PAGE_COUNT_MAX: u32 = 10_000;

/// The asker's own buckets by name.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let query = cx.query();
    let prefix = query.first("prefix").unwrap_or_default();
    let region = query.first("bucket-region");
    let after = after(query.first("continuation-token"))?;
    let count_max = page_count(query.first("max-buckets"))?;
    let owner = cx.owner();
    let records = cx.volumes.catalog.buckets(Some(owner)).await?;
    let mut page: Vec<&BucketRecord> = records
        .iter()
        .filter(|record| record.state == BucketState::Live)
        .filter(|record| record.name.as_str().starts_with(prefix))
        .filter(|record| region.is_none_or(|region| region == record.region_name()))
        .filter(|record| {
            after
                .as_deref()
                .is_none_or(|after| record.name.as_str() > after)
        })
        .take(count_max + 1)
        .collect();
    let more = page.len() > count_max;
    page.truncate(count_max);
    let mut writer = xml::Writer::document();
    writer.open_root("ListAllMyBucketsResult");
    writer.open("Owner");
    writer.text("ID", owner);
    writer.text("DisplayName", &cx.display_name(owner));
    writer.close("Owner");
    writer.open("Buckets");
    for record in &page {
        writer.open("Bucket");
        writer.text("Name", record.name.as_str());
        writer.text("CreationDate", &time::iso8601(record.created_ms));
        writer.text("BucketRegion", record.region_name());
        writer.close("Bucket");
    }
    writer.close("Buckets");
    if let Some(last) = page.last().filter(|_| more) {
        let token = URL_SAFE_NO_PAD.encode(last.name.as_str());
        writer.text("ContinuationToken", &token);
    }
    if !prefix.is_empty() {
        writer.text("Prefix", prefix);
    }
    writer.close("ListAllMyBucketsResult");
    Ok(Reply::xml(writer.finish()))
}

/// The name behind which the page starts.
fn after(token: Option<&str>) -> Result<Option<String>, S3Error> {
    let Some(token) = token else {
        return Ok(None);
    };
    let name = URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    match name {
        Some(name) => Ok(Some(name)),
        None => Err(S3Error::invalid_argument(
            "continuation-token",
            token,
            "The continuation token provided is incorrect",
        )),
    }
}

fn page_count(text: Option<&str>) -> Result<usize, S3Error> {
    let Some(text) = text else {
        return Ok(PAGE_COUNT_MAX as usize);
    };
    match text.parse() {
        Ok(count @ 1..=PAGE_COUNT_MAX) => Ok(count as usize),
        Ok(_) | Err(_) => Err(S3Error::invalid_argument(
            "max-buckets",
            text,
            "Argument max-buckets must be an integer between 1 and 10000",
        )),
    }
}
