//! One connection: requests in, replies out, on hyper.
//!
//! What is decided here and nowhere else: time-outs, bounds of a request's head, when a connection
//! ends and how, bytes in flight, whether a reply may leave at all. [`exchange`] is one request,
//! [`body`] its payload, [`reply`] the answer; what the answer says is decided in [`crate::op`].

pub(crate) mod body;
mod exchange;
mod patience;
pub(crate) mod reply;
mod request_id;
mod stall;
mod turn;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use portico_backend::budget::Budget;
use portico_backend::clock::Clock;
use portico_backend::connection::{Peer, Stop};
use portico_backend::error::chain;
use portico_backend::gate::Gate;
use portico_backend::tenure::Tenures;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) use request_id::RequestId;

use crate::auth::{Verifier, VerifierOptions};
use crate::error::{Code, S3Error};
use crate::limits::{HEAD_BYTES_MAX, HEAD_TIMEOUT, HEADERS_MAX, LINGER_BYTES_MAX, LINGER_TIMEOUT};
use crate::stats::Stats;
use request_id::RequestIds;
use stall::StallGuard;
use turn::{HoldBack, Turns};

/// How the front door behaves, from the configuration.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// The region that signatures and location constraints name.
    pub region: String,
    /// Domains whose first label may be a bucket.
    pub virtual_host_domains: Vec<String>,
    /// Whether signature version 2 is accepted.
    pub sigv2: bool,
    /// Bytes of each part but the last; see [`crate::limits::PART_BYTES_MIN`].
    pub part_bytes_min: u64,
    /// How long a request may wait for bytes in flight before it is told to slow down.
    pub queue_timeout: Duration,
    /// Bytes of a transfer's buffers, taken from the budget for the time of the transfer.
    pub transfer_bytes: u64,
    /// A client that keeps a transfer waiting for more than a minute in all has to move so many
    /// bytes in each second of that; 0 if any byte will do.
    pub transfer_bytes_per_second_min: u64,
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            region: "us-east-1".to_owned(),
            virtual_host_domains: Vec::new(),
            sigv2: true,
            part_bytes_min: crate::limits::PART_BYTES_MIN,
            queue_timeout: Duration::from_secs(10),
            transfer_bytes: 4 << 20,
            transfer_bytes_per_second_min: 1_024,
        }
    }
}

/// What all connections share.
#[derive(Debug)]
pub struct Service {
    pub(crate) tenures: Tenures,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: S3Options,
    pub(crate) stats: Arc<Stats>,
    pub(crate) budget: Budget,
    pub(crate) gate: Gate,
    pub(crate) verifier: Verifier,
    ids: RequestIds,
}

/// The parts of a [`Service`] that exist before it.
#[derive(Clone, Debug)]
pub struct ServiceParts {
    pub tenures: Tenures,
    pub clock: Arc<dyn Clock>,
    pub stats: Arc<Stats>,
    pub budget: Budget,
    pub gate: Gate,
    /// Makes the request ids of this run differ from those of others.
    pub seed: u64,
}

impl Service {
    #[must_use]
    pub fn new(parts: ServiceParts, options: S3Options) -> Self {
        Self {
            tenures: parts.tenures,
            clock: parts.clock,
            stats: parts.stats,
            budget: parts.budget,
            gate: parts.gate,
            verifier: Verifier::new(VerifierOptions {
                region: options.region.clone(),
                domains: options.virtual_host_domains.clone(),
                signature_v2: options.sigv2,
            }),
            options,
            ids: RequestIds::new(parts.seed),
        }
    }

    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }
}

/// One request in work, boxed: connections are many and mostly idle.
type Exchange =
    Pin<Box<dyn Future<Output = Result<Response<reply::ReplyBody>, exchange::GateClosed>> + Send>>;

/// Serves one connection to its end. Returns early, with the request in work still answered, once
/// `stop` is requested; cancelling the future cuts the connection.
///
/// The caller accepts, limits the number of connections, ends TLS and sets `TCP_NODELAY`.
pub async fn serve<S>(stream: S, peer: Peer, service: Arc<Service>, stop: Stop)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let open = OpenConnection::new(Arc::clone(&service));
    let peer = Arc::new(peer);
    let turns = Arc::new(Turns::default());
    let handler = {
        let (service, peer) = (Arc::clone(&service), Arc::clone(&peer));
        let turns = Arc::clone(&turns);
        service_fn(move |request: Request<Incoming>| {
            let turn = turns.begin();
            let exchange: Exchange = Box::pin(exchange::exchange(
                Arc::clone(&service),
                Arc::clone(&peer),
                request,
                turn,
            ));
            exchange
        })
    };
    let rate = service.options.transfer_bytes_per_second_min;
    let stream = HoldBack::new(StallGuard::new(stream, rate), turns);
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        // The reply's date comes from the service's clock.
        .auto_date_header(false)
        // A client may close its side once it has sent its request.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), handler);
    let ended = {
        let mut stopping = std::pin::pin!(stop.requested());
        let mut is_stopping = false;
        poll_fn(|cx| {
            if !is_stopping && stopping.as_mut().poll(cx).is_ready() {
                is_stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            connection.poll_without_shutdown(cx)
        })
        .await
    };
    match ended {
        Ok(()) => {
            let (stream, _) = connection.into_parts().io.into_inner().into_parts();
            linger(stream.into_inner()).await;
        }
        Err(error) => {
            tracing::debug!(peer = %peer, error = chain(&error), "connection ended with an error");
            // A head that is no HTTP, or too long, was answered, or is to be.
            if error.is_parse() {
                let (stream, status) = connection.into_parts().io.into_inner().into_parts();
                let mut stream = stream.into_inner();
                if let Some(status) = status {
                    refuse(&mut stream, &service, status, &error).await;
                }
                linger(stream).await;
            }
        }
    }
    drop(open);
}

/// Answers a head that hyper could not take in, as the API does.
async fn refuse<S: AsyncWrite + Unpin>(
    stream: &mut S,
    service: &Service,
    status: u16,
    error: &hyper::Error,
) {
    let error = match status {
        431 => S3Error::new(Code::RequestHeaderSectionTooLarge),
        414 => S3Error::new(Code::InvalidUri),
        _ => S3Error::new(Code::BadRequest)
            .with_message(format!("The request is not well-formed HTTP: {error}")),
    };
    let reply = exchange::reply_without_request(service, &error);
    if !service.gate.is_open() {
        return;
    }
    // Whoever does not take it is hung up on anyway.
    drop(tokio::time::timeout(LINGER_TIMEOUT, stream.write_all(&reply)).await);
}

/// Ends a connection so that the last reply arrives: a socket closed with bytes unread is reset,
/// and a reset overtakes a reply that the client has not read yet. A client that is still sending
/// a body which nobody wants gets a moment to notice.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let drain = async {
        stream.shutdown().await?;
        let mut buffer = vec![0; 16 << 10];
        let mut left = LINGER_BYTES_MAX;
        while left > 0 {
            let count = stream.read(&mut buffer).await?;
            if count == 0 {
                break;
            }
            left = left.saturating_sub(count);
        }
        io::Result::Ok(())
    };
    // Whatever stops it, the connection is over.
    drop(tokio::time::timeout(LINGER_TIMEOUT, drain).await);
}

/// Counts a connection for as long as it lives.
struct OpenConnection(Arc<Service>);

impl OpenConnection {
    fn new(service: Arc<Service>) -> Self {
        service.stats.connections.add(1);
        service.stats.connections_open.add(1);
        Self(service)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.stats.connections_open.subtract(1);
    }
}
