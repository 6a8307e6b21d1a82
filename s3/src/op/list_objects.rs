//! ListObjects, the first version.

use portico_backend::bucket::{ListAfter, ListQuery};

use super::Context;
use super::listing::{Selection, last_key};
use crate::error::S3Error;
use crate::serve::reply::Reply;
use crate::wire::xml;

pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let selection = Selection::parse(cx.query())?;
    let marker = cx.query().first("marker").unwrap_or_default();
    let page = cx
        .bucket()
        .list(&ListQuery {
            prefix: selection.prefix.clone(),
            delimiter: selection.delimiter.clone(),
            after: match marker {
                "" => ListAfter::Start,
                marker => ListAfter::Key(marker.to_owned()),
            },
            count_max: selection.count_max,
            versions: false,
        })
        .await?;
    let truncated = page.truncated && selection.count_max > 0;
    let mut writer = xml::Writer::document();
    writer.open_root("ListBucketResult");
    selection.echo(cx, &mut writer);
    // botocore decodes every other element of this answer, and expects this one as it was sent.
    writer.text("Prefix", &selection.prefix);
    selection.key(&mut writer, "Marker", marker);
    writer.flag("IsTruncated", truncated);
    // Without a delimiter the next marker is the last key, which clients are expected to know.
    let next = last_key(&page).filter(|_| truncated && selection.delimiter.is_some());
    if let Some(next) = next {
        selection.key(&mut writer, "NextMarker", next);
    }
    selection.contents(cx, &mut writer, &page, true);
    selection.common_prefixes(&mut writer, &page);
    writer.close("ListBucketResult");
    Ok(Reply::xml(writer.finish()))
}
