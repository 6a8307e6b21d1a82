//! GetBucketLocation.

use super::Context;
use crate::error::S3Error;
use crate::serve::reply::Reply;
use crate::wire::xml;

/// The region; empty for us-east-1, which had no name when the API was made.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let region = match cx.record().region.as_str() {
        "us-east-1" => "",
        region => region,
    };
    let mut writer = xml::Writer::document();
    writer.root_text("LocationConstraint", region);
    Ok(Reply::xml(writer.finish()))
}
