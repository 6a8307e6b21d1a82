//! GetObject and HeadObject.

use std::io;
use std::ops::Range;

use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use portico_backend::bucket::{Checksum, Object, ObjectReader, ObjectRecord};
use portico_backend::error::chain;

use super::{Context, about, access};
use crate::error::{Code, S3Error};
use crate::limits::PART_NUMBER_MAX;
use crate::serve::reply::{DataStream, Reply, ReplyBody};
use crate::wire::header;
use crate::wire::precondition::{ReadConditions, Verdict, may_be_partial};
use crate::wire::range::ByteRange;

/// GetObject.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let object = cx.open_object().await?;
    if let Some(reply) = not_modified(cx, object.record())? {
        return Ok(reply);
    }
    let selection = select(cx, &object).await?;
    let mut reply = describe(cx, object.record(), &selection)?;
    let range = selection.range;
    let length = range.end - range.start;
    cx.reserve(length).await?;
    reply.body = stream(object.read(range), length).await?;
    Ok(reply)
}

/// HeadObject: as GetObject, without the data.
pub(crate) async fn head(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let object = cx.open_object().await?;
    if let Some(reply) = not_modified(cx, object.record())? {
        return Ok(reply);
    }
    let selection = select(cx, &object).await?;
    let mut reply = describe(cx, object.record(), &selection)?;
    let length = selection.range.end - selection.range.start;
    reply.set(CONTENT_LENGTH, &length.to_string());
    Ok(reply)
}

/// What of an object is asked for.
struct Selection {
    range: Range<u64>,
    /// Whether the reply is 206.
    partial: bool,
    /// The parts of the object if one was asked for by its number.
    part_count: Option<u32>,
    checksum: Option<Checksum>,
}

/// Compares with the conditions of the request. The reply if there is nothing new.
fn not_modified(cx: &Context<'_>, record: &ObjectRecord) -> Result<Option<Reply>, S3Error> {
    let conditions = ReadConditions::from_headers(cx.head.headers);
    match conditions.check(&record.about.etag, record.modified_ms) {
        Verdict::Proceed => Ok(None),
        Verdict::NotModified => {
            let mut reply = about::describe(record);
            reply.status = StatusCode::NOT_MODIFIED;
            reply.headers.remove(CONTENT_TYPE);
            Ok(Some(reply))
        }
        Verdict::Failed(header) => {
            Err(S3Error::new(Code::PreconditionFailed).with_field("Condition", header))
        }
    }
}

async fn select(cx: &Context<'_>, object: &Object) -> Result<Selection, S3Error> {
    let record = object.record();
    let size = record.size;
    let range_header = cx.header(RANGE.as_str());
    if let Some(number) = part_number(cx)? {
        if range_header.is_some() {
            return Err(S3Error::new(Code::InvalidRequest)
                .with_message("Cannot specify both Range header and partNumber query parameter"));
        }
        return select_part(cx, object, number).await;
    }
    let range = match range_header {
        Some(header) if may_be_partial(cx.head.headers, &record.about.etag, record.modified_ms) => {
            ByteRange::parse(header, size)?
        }
        Some(_) | None => None,
    };
    Ok(match range {
        Some(range) => Selection {
            range: range.first..range.last + 1,
            partial: true,
            part_count: None,
            checksum: None,
        },
        None => Selection {
            range: 0..size,
            partial: false,
            part_count: None,
            checksum: record.about.checksum.clone(),
        },
    })
}

/// One part of a multipart object; any other object counts as its own and only part.
async fn select_part(cx: &Context<'_>, object: &Object, number: u16) -> Result<Selection, S3Error> {
    let record = object.record();
    let missing = || S3Error::new(Code::InvalidPart).with_field("PartNumber", number.to_string());
    if record.part_count == 0 {
        if number != 1 {
            return Err(missing());
        }
        return Ok(Selection {
            range: 0..record.size,
            partial: record.size > 0,
            part_count: None,
            checksum: record.about.checksum.clone(),
        });
    }
    let mut start = 0;
    for part in cx.bucket().parts(object).await? {
        if part.number == number {
            return Ok(Selection {
                range: start..start + part.size,
                partial: part.size > 0,
                part_count: Some(record.part_count),
                checksum: part.checksum,
            });
        }
        start += part.size;
    }
    Err(missing())
}

fn part_number(cx: &Context<'_>) -> Result<Option<u16>, S3Error> {
    let Some(text) = cx.query().first("partNumber") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(number) if (1..=PART_NUMBER_MAX).contains(&number) => Ok(Some(number)),
        Ok(_) | Err(_) => Err(S3Error::invalid_argument(
            "partNumber",
            text,
            "Part number must be an integer between 1 and 10000, inclusive",
        )),
    }
}

fn describe(
    cx: &Context<'_>,
    record: &ObjectRecord,
    selection: &Selection,
) -> Result<Reply, S3Error> {
    let mut reply = about::describe(record);
    if header::has_response_overrides(cx.query()) {
        if access::user_id(&cx.identity).is_none() {
            return Err(S3Error::new(Code::InvalidRequest).with_message(
                "Request specific response headers cannot be used for anonymous GET requests.",
            ));
        }
        header::response_overrides(cx.query(), &mut reply.headers)?;
    }
    if selection.partial {
        reply.status = StatusCode::PARTIAL_CONTENT;
        let range = ByteRange {
            first: selection.range.start,
            last: selection.range.end - 1,
        };
        reply.set(CONTENT_RANGE, &range.content_range(record.size));
    }
    if let Some(count) = selection.part_count {
        reply.set_named("x-amz-mp-parts-count", &count.to_string());
    }
    let wants_checksum = cx
        .header("x-amz-checksum-mode")
        .is_some_and(|mode| mode.eq_ignore_ascii_case("ENABLED"));
    if let Some(checksum) = selection.checksum.as_ref().filter(|_| wants_checksum) {
        // The checksum of one part is no composite, whatever the object's is.
        let part_count = selection.part_count.map_or(record.part_count, |_| 0);
        about::set_checksum(&mut reply, checksum, part_count);
    }
    Ok(reply)
}

/// The first piece is read before the reply begins, so that a failure of the store is an answer
/// with a status where it can be one, and a small object leaves in one write with its head.
async fn stream(mut reader: ObjectReader, length: u64) -> Result<ReplyBody, S3Error> {
    if length == 0 {
        return Ok(ReplyBody::whole(bytes::Bytes::new()));
    }
    let first = match reader.next().await {
        Some(first) => first?,
        None => {
            return Err(S3Error::new(Code::InternalError).with_cause("the object has no data"));
        }
    };
    if first.len() as u64 == length {
        return Ok(ReplyBody::whole(first));
    }
    let rest = futures_util::stream::unfold((Some(first), reader), |(first, mut reader)| async {
        if let Some(first) = first {
            return Some((Ok(first), (None, reader)));
        }
        let piece = reader.next().await?;
        let piece = piece.map_err(|error| {
            let cause = chain(&error);
            tracing::warn!(
                cause,
                "an object's data cannot be read; the connection is cut"
            );
            io::Error::other(error)
        });
        Some((piece, (None, reader)))
    });
    let rest: DataStream = Box::pin(rest);
    Ok(ReplyBody::stream(length, rest))
}
