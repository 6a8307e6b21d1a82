//! PostObject: an upload by an HTML form.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, HeaderValue, LOCATION, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use portico_backend::bucket::{ChecksumAlgorithm, Key, ObjectRecord, Precondition};

use super::access::{self, Permission};
use super::complete_multipart_upload::location;
use super::{ANONYMOUS, Context, about};
use crate::error::{Code, S3Error};
use crate::limits::{FORM_FIELDS_BYTES_MAX, FORM_HEADER_BYTES_MAX};
use crate::serve::body::RawBody;
use crate::serve::reply::{Reply, ReplyBody};
use crate::wire::encoding::{Keep, percent_encode};
use crate::wire::form::{FormDecoder, FormFields, no_file};
use crate::wire::tagging::{self, Tagged};
use crate::wire::{BodyDecoder, Payload, xml};

/// What is kept of a form before it is known who sends it. Anybody may get that far, so it must not
/// take what uploads wait for.
const HEAD_BYTES: u64 = (FORM_FIELDS_BYTES_MAX + FORM_HEADER_BYTES_MAX) as u64;

/// Stores the file of a form. Who sends it, and whether that is allowed, the form says itself.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let content_type = cx.header("content-type").unwrap_or_default();
    let decoder = FormDecoder::new(content_type)?;
    let mut form = Form {
        body: cx.raw_body(HEAD_BYTES).await?,
        decoder,
        pieces: Vec::new(),
    };
    let fields = form.read_fields().await?;
    let key = object_key(&fields)?;
    let lookup = |access_key: &str| cx.volumes.catalog.access_key(access_key);
    let bucket = cx.record().name.as_str();
    let now_ms = cx.service.clock.now_ms();
    let grant = cx
        .service
        .verifier
        .verify_form(&fields, bucket, key.as_str(), now_ms, &lookup)?;
    access::check_bucket(Permission::BucketWrite, &grant.identity, cx.record())?;
    cx.reserve(u64::MAX).await?;
    let headers = object_headers(&fields);
    let mut about = about::from_headers(&headers, &cx.volumes.catalog)?;
    if let Some(document) = fields.first("tagging") {
        about.tags = tagging::parse_document(document.as_bytes(), Tagged::Object)?;
    }
    let owner = access::user_id(&grant.identity).unwrap_or(ANONYMOUS);
    owner.clone_into(&mut about.owner);

    let mut checks = BodyDecoder::new(&headers, Payload::Unsigned, default_algorithm(&headers))?;
    let mut writer = cx.bucket().put(key);
    let mut size = 0;
    while let Some(piece) = form.next().await? {
        size += piece.len() as u64;
        if size > grant.length_range.map_or(u64::MAX, |(_, max)| max) {
            grant.check_size(size)?;
        }
        let mut data = Vec::new();
        checks.push(&piece, &mut data)?;
        for piece in data {
            writer.write(piece).await?;
        }
    }
    form.decoder.finish()?;
    grant.check_size(size)?;
    let summary = checks.finish()?;
    about.etag = summary.etag();
    about.checksum = summary.checksum;
    let record = writer.finish(about, &Precondition::default()).await?;
    Ok(reply(cx, &fields, &record))
}

/// A form on its way in.
struct Form<'a> {
    body: RawBody<'a>,
    decoder: FormDecoder,
    /// Data of the file that has arrived, in reverse order.
    pieces: Vec<Bytes>,
}

impl Form<'_> {
    async fn read_fields(&mut self) -> Result<FormFields, S3Error> {
        loop {
            if let Some(fields) = self.decoder.fields() {
                return Ok(fields.clone());
            }
            if !self.read().await? {
                return Err(no_file());
            }
        }
    }

    /// The next piece of the file; `None` at its end, when the whole body has been read.
    async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        loop {
            if let Some(piece) = self.pieces.pop() {
                return Ok(Some(piece));
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    async fn read(&mut self) -> Result<bool, S3Error> {
        let Some(bytes) = self.body.next().await? else {
            return Ok(false);
        };
        self.decoder.push(&bytes, &mut self.pieces)?;
        self.pieces.reverse();
        Ok(true)
    }
}

fn object_key(fields: &FormFields) -> Result<Key, S3Error> {
    let key = fields.key().ok_or_else(|| {
        S3Error::invalid_argument(
            "key",
            "",
            "Bucket POST must contain a field named 'key'.  If it is specified, please check the \
             order of the fields.",
        )
    })?;
    if key.is_empty() {
        let message = "User key must have a length greater than 0.";
        return Err(S3Error::invalid_argument("key", "", message));
    }
    Key::new(&key).ok_or_else(|| Code::KeyTooLong.into())
}

/// The fields as headers of PutObject. The length of the file is not known before its end.
fn object_headers(fields: &FormFields) -> HeaderMap {
    let mut headers = fields.headers();
    headers.remove("content-length");
    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    if let Some(acl) = fields.first("acl")
        && let Ok(value) = HeaderValue::from_str(acl)
    {
        headers.insert("x-amz-acl", value);
    }
    headers
}

fn default_algorithm(headers: &HeaderMap) -> Option<ChecksumAlgorithm> {
    let has_own = headers
        .keys()
        .any(|name| name.as_str().starts_with("x-amz-checksum-"));
    (!has_own).then_some(ChecksumAlgorithm::Crc64Nvme)
}

/// A redirect if the form asks for one, else the status it asks for, else 204.
fn reply(cx: &Context<'_>, fields: &FormFields, record: &ObjectRecord) -> Reply {
    let bucket = cx.record().name.as_str();
    let key = record.key.as_str();
    let etag = about::quoted(&record.about.etag);
    let place = location(bucket, key);
    let redirect = fields
        .first("success_action_redirect")
        .or_else(|| fields.first("redirect"))
        .filter(|url| url.starts_with("http://") || url.starts_with("https://"));
    let mut reply = match (redirect, fields.first("success_action_status")) {
        (Some(url), _) => {
            let separator = if url.contains('?') { '&' } else { '?' };
            let target = format!(
                "{url}{separator}bucket={}&key={}&etag={}",
                percent_encode(bucket, Keep::Unreserved),
                percent_encode(key, Keep::Unreserved),
                percent_encode(&etag, Keep::Unreserved)
            );
            let mut reply = Reply::empty(StatusCode::SEE_OTHER);
            reply.set(LOCATION, &target);
            reply
        }
        (None, Some("200")) => Reply::empty(StatusCode::OK),
        (None, Some("201")) => created(&place, bucket, key, &etag),
        (None, _) => Reply::empty(StatusCode::NO_CONTENT),
    };
    reply.set(ETAG, &etag);
    if redirect.is_none() {
        reply.set(LOCATION, &place);
    }
    about::set_version(&mut reply, record.version);
    reply
}

fn created(place: &str, bucket: &str, key: &str, etag: &str) -> Reply {
    let mut writer = xml::Writer::document();
    writer.open("PostResponse");
    writer.text("Location", place);
    writer.text("Bucket", bucket);
    writer.text("Key", key);
    writer.text("ETag", etag);
    writer.close("PostResponse");
    let mut reply = Reply::empty(StatusCode::CREATED);
    reply.body = ReplyBody::whole(Bytes::from(writer.finish()));
    reply
        .headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    reply
}
