//! One request and its reply: who asks for what, what came of it, and whether it may be told.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, DATE, HeaderName, HeaderValue, RETRY_AFTER, SERVER};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use portico_backend::connection::Peer;
use portico_backend::tenure::Tenure;
use portico_backend::volumes::Volumes;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::body::{RequestBody, drain};
use super::reply::{Reply, ReplyBody};
use super::turn::Turn;
use super::{RequestId, Service};
use crate::auth::Identity;
use crate::error::{Code, S3Error};
use crate::op;
use crate::stats::Sample;
use crate::wire::{self, RequestHead, time};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");

/// Seconds after which whoever was told 503 may try again (RFC 9110 10.2.3): what is short for a
/// while is often there again after that.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

const FENCED: &str = "the session on the store was fenced";

/// Why a connection ends without a reply: the serving gate was closed.
#[derive(Debug)]
pub(super) struct GateClosed;

impl fmt::Display for GateClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the serving gate is closed")
    }
}

impl std::error::Error for GateClosed {}

/// What became known of a request on the way, for log and counters.
#[derive(Debug, Default)]
struct Notes {
    action: Option<&'static str>,
    user: Option<Arc<str>>,
    /// The error's code, and what the log says beside it.
    failure: Option<(&'static str, Option<String>)>,
    queued: Duration,
    bytes_in: AtomicU64,
}

/// Answers one request.
///
/// # Errors
/// [`GateClosed`]: the connection ends, and the client learns nothing.
pub(super) async fn exchange(
    service: Arc<Service>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
    turn: Turn,
) -> Result<Response<ReplyBody>, GateClosed> {
    let id = service.ids.next();
    let span = tracing::info_span!("s3", request = %id, peer = %peer);
    let work = InWork::new(&service);
    let answer = async {
        let started = Instant::now();
        let (parts, mut incoming) = request.into_parts();
        let mut notes = Notes::default();
        let tenure = service.tenures.current();
        let answered = match &tenure {
            Ok(tenure) => answer(&service, tenure, &parts, &mut incoming, &mut notes).await,
            Err(why) => Err(unavailable(why)),
        };
        let mut reply = match answered {
            Ok(reply) => reply,
            Err(error) => error_reply(&error, &parts, id, &mut notes),
        };
        let elapsed = started.elapsed();
        // hyper closes a connection with an unread body, and a client that was not told sends its
        // next request into the void (RFC 9112 9.3, 9.6).
        let received = notes.bytes_in.load(Ordering::Relaxed);
        if !drain(&mut incoming, &parts.headers, received).await {
            reply
                .headers
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Ok(tenure) = &tenure {
            withdraw_after_end(&mut reply, tenure, &parts, id, &mut notes);
        }
        finish(&mut reply, &service, id);
        if !service.gate.is_open() {
            return Err(GateClosed);
        }
        record(&service, &parts, &reply, &notes, elapsed);
        reply.body.guard(service.gate.clone(), turn);
        let mut response = Response::new(reply.body);
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        Ok(response)
    };
    let response = answer.instrument(span).await;
    drop(work);
    response
}

/// What comes of a request in one tenure. Whoever waits for a client, or for a store that leaves a
/// fenced session without an answer, learns of the end at once.
async fn answer(
    service: &Service,
    tenure: &Tenure,
    parts: &Parts,
    incoming: &mut Incoming,
    notes: &mut Notes,
) -> Result<Reply, S3Error> {
    let mut reply = tokio::select! {
        biased;
        () = tenure.ended() => return Err(unavailable(FENCED)),
        reply = answer_from(service, &tenure.volumes, parts, incoming, notes) => reply?,
    };
    reply.body.end_with(tenure.watch());
    Ok(reply)
}

/// No reply leaves whose tenure is over, whatever it says: another node may have served since.
fn withdraw_after_end(
    reply: &mut Reply,
    tenure: &Tenure,
    parts: &Parts,
    id: RequestId,
    notes: &mut Notes,
) {
    if tenure.lasts() {
        return;
    }
    let connection = reply.headers.remove(CONNECTION);
    *reply = error_reply(&unavailable(FENCED), parts, id, notes);
    if let Some(connection) = connection {
        reply.headers.insert(CONNECTION, connection);
    }
}

/// The answer where there is nothing to answer from, for a while.
fn unavailable(why: &str) -> S3Error {
    S3Error::new(Code::ServiceUnavailable).with_cause(why)
}

async fn answer_from(
    service: &Service,
    volumes: &Volumes,
    parts: &Parts,
    incoming: &mut Incoming,
    notes: &mut Notes,
) -> Result<Reply, S3Error> {
    let head = RequestHead::new(parts);
    head.check(parts.version)?;
    if parts.method == Method::OPTIONS {
        return Err(preflight(&head));
    }
    let request = wire::route(&head, &service.options.virtual_host_domains)?;
    notes.action = Some(request.name);
    let lookup = |access_key: &str| volumes.catalog.access_key(access_key);
    let verified = service
        .verifier
        .verify(&head, service.clock.now_ms(), &lookup)?;
    if let Identity::User(credential) = &verified.identity {
        notes.user = Some(Arc::from(credential.user.name.as_str()));
    }
    let body = RequestBody::new(
        incoming,
        &parts.headers,
        verified.payload,
        &notes.bytes_in,
        service.options.transfer_bytes_per_second_min,
    );
    let mut cx = op::Context::new(service, volumes, head, request, verified.identity, body);
    let reply = op::dispatch(&mut cx).await;
    let queued = cx.queued();
    let permit = cx.take_permit();
    drop(cx);
    notes.queued = queued;
    let mut reply = reply?;
    reply.body.hold(permit);
    Ok(reply)
}

/// Browsers ask before they send what crosses origins (Fetch, "CORS-preflight request"). No bucket
/// allows it.
fn preflight(head: &RequestHead<'_>) -> S3Error {
    if head.header("origin").is_none() {
        S3Error::new(Code::BadRequest)
            .with_message("Insufficient information. Origin request header needed.")
    } else if head.header("access-control-request-method").is_none() {
        S3Error::new(Code::BadRequest).with_message("Invalid Access-Control-Request-Method: null")
    } else {
        S3Error::new(Code::AccessForbidden)
            .with_message("CORSResponse: CORS is not enabled for this bucket.")
    }
}

/// The answer that tells an error: the API's document, or nothing where a reply has no body.
fn error_reply(error: &S3Error, parts: &Parts, id: RequestId, notes: &mut Notes) -> Reply {
    notes.failure = Some((error.code().text(), error.cause().map(str::to_owned)));
    let status = error.status();
    let mut reply = Reply::empty(status);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        reply.headers.insert(RETRY_AFTER, RETRY_AFTER_S);
    }
    if parts.method == Method::HEAD || status == StatusCode::NOT_MODIFIED {
        return reply;
    }
    let resource = wire::encoding::percent_decode(parts.uri.path())
        .unwrap_or_else(|_| parts.uri.path().to_owned());
    let error = error.clone().with_resource(resource);
    let document = error.body(&id.to_string(), &id.host_id());
    reply.body = ReplyBody::whole(Bytes::from(document));
    reply
        .headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    reply
}

/// The bytes of a reply to something that is no request.
pub(super) fn reply_without_request(service: &Service, error: &S3Error) -> Vec<u8> {
    let id = service.ids.next();
    let status = error.status();
    let document = error.body(&id.to_string(), &id.host_id());
    let sample = Sample {
        status,
        elapsed: Duration::ZERO,
        queued: Duration::ZERO,
        bytes_in: 0,
        bytes_out: document.len() as u64,
    };
    service.stats.verb(None).record(&sample);
    tracing::debug!(request = %id, %error, "answered what is no request");
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/xml\r\ncontent-length: {}\r\n\
         date: {}\r\n{REQUEST_ID}: {id}\r\n{HOST_ID}: {}\r\nserver: Portico\r\n\
         connection: close\r\n\r\n{document}",
        document.len(),
        time::imf_fixdate(service.clock.now_ms()),
        id.host_id()
    )
    .into_bytes()
}

/// Adds what every reply has.
fn finish(reply: &mut Reply, service: &Service, id: RequestId) {
    reply.set(DATE, &time::imf_fixdate(service.clock.now_ms()));
    reply.set(REQUEST_ID, &id.to_string());
    reply.set(HOST_ID, &id.host_id());
    reply
        .headers
        .insert(SERVER, HeaderValue::from_static("Portico"));
}

fn record(service: &Service, parts: &Parts, reply: &Reply, notes: &Notes, elapsed: Duration) {
    let sample = Sample {
        status: reply.status,
        elapsed,
        queued: notes.queued,
        bytes_in: notes.bytes_in.load(Ordering::Relaxed),
        bytes_out: reply.body.length(),
    };
    service.stats.verb(notes.action).record(&sample);
    let (code, cause) = match &notes.failure {
        Some((code, cause)) => (*code, cause.as_deref().unwrap_or_default()),
        None => ("", ""),
    };
    let status = reply.status.as_u16();
    let user = notes.user.as_deref().unwrap_or("-");
    let action = notes.action.unwrap_or("-");
    let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    if reply.status.is_server_error() && status != 501 {
        tracing::warn!(
            action, user, status, code, cause, elapsed_us, method = %parts.method,
            path = parts.uri.path(), "request failed"
        );
    } else {
        tracing::debug!(
            action, user, status, code, cause, elapsed_us, method = %parts.method,
            path = parts.uri.path(), bytes_in = sample.bytes_in, bytes_out = sample.bytes_out,
            "request answered"
        );
    }
}

/// Counts a request for as long as it is worked on, also if its connection is cut.
struct InWork<'a>(&'a Service);

impl<'a> InWork<'a> {
    fn new(service: &'a Service) -> Self {
        service.stats.requests_in_work.add(1);
        Self(service)
    }
}

impl Drop for InWork<'_> {
    fn drop(&mut self) {
        self.0.stats.requests_in_work.subtract(1);
    }
}
