//! ListObjectsV2.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portico_backend::bucket::{ListAfter, ListQuery};

use super::Context;
use super::listing::{Selection, last_key};
use crate::error::S3Error;
use crate::serve::reply::Reply;
use crate::wire::xml;

pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let query = cx.query();
    let selection = Selection::parse(query)?;
    let token = query.first("continuation-token");
    let start_after = query.first("start-after");
    let page = cx
        .bucket()
        .list(&ListQuery {
            prefix: selection.prefix.clone(),
            delimiter: selection.delimiter.clone(),
            after: after(token, start_after)?,
            count_max: selection.count_max,
            versions: false,
        })
        .await?;
    let truncated = page.truncated && selection.count_max > 0;
    let mut writer = xml::Writer::document();
    writer.open_root("ListBucketResult");
    selection.echo(cx, &mut writer);
    selection.key(&mut writer, "Prefix", &selection.prefix);
    writer.number("KeyCount", page.items.len() as u64);
    writer.flag("IsTruncated", truncated);
    if let Some(token) = token {
        writer.text("ContinuationToken", token);
    }
    if let Some(next) = last_key(&page).filter(|_| truncated) {
        writer.text("NextContinuationToken", &URL_SAFE_NO_PAD.encode(next));
    }
    if let Some(start_after) = start_after {
        selection.key(&mut writer, "StartAfter", start_after);
    }
    let with_owner = query.first("fetch-owner") == Some("true");
    selection.contents(cx, &mut writer, &page, with_owner);
    selection.common_prefixes(&mut writer, &page);
    writer.close("ListBucketResult");
    Ok(Reply::xml(writer.finish()))
}

/// Where the page starts. A token, which holds the last key of the page before, outdoes
/// `start-after`; an empty one means the first page.
fn after(token: Option<&str>, start_after: Option<&str>) -> Result<ListAfter, S3Error> {
    let key = match token.filter(|token| !token.is_empty()) {
        Some(token) => key_of_token(token)?,
        None => start_after.unwrap_or_default().to_owned(),
    };
    Ok(match key {
        key if key.is_empty() => ListAfter::Start,
        key => ListAfter::Key(key),
    })
}

fn key_of_token(token: &str) -> Result<String, S3Error> {
    URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| {
            S3Error::invalid_argument(
                "continuation-token",
                token,
                "The continuation token provided is incorrect",
            )
        })
}
