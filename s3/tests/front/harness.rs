//! A front door over the memory engine, and a client that speaks HTTP to it over a stream in
//! memory. Requests are signed by `aws-sigv4`, which shares no code with what it talks to.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use portico_backend::bucket::{BucketOptions, Buckets};
use portico_backend::budget::Budget;
use portico_backend::catalog::{Catalog, Keyring};
use portico_backend::clock::{Clock, FixedClock};
use portico_backend::connection::{Peer, Stop, StopControl, stop};
use portico_backend::gate::{GateControl, gate};
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{ObjectStore, Pool};
use portico_backend::tenure::{Tenure, TenureControl, tenures, watched};
use portico_backend::volumes::Volumes;
use portico_s3::serve::{S3Options, Service, ServiceParts, serve};
use portico_s3::stats::Stats;
use tokio::io::DuplexStream;

/// 2024-05-01T00:00:00Z.
pub(crate) const START_MS: u64 = 1_714_521_600_000;

/// One front door with two users.
pub(crate) struct Front {
    pub(crate) service: Arc<Service>,
    pub(crate) clock: FixedClock,
    pub(crate) gate: GateControl,
    pub(crate) stop: StopControl,
    stop_handle: Stop,
    pub(crate) main: User,
    pub(crate) alt: User,
    pub(crate) tenure: TenureControl,
    store: Arc<dyn ObjectStore>,
    cluster: MemoryCluster,
}

/// Somebody who signs requests.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) id: String,
    credentials: Option<Credentials>,
}

/// A reply, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// One connection.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    now_ms: u64,
}

impl Front {
    pub(crate) async fn new() -> Self {
        Self::with_options(S3Options::default()).await
    }

    pub(crate) async fn with_options(options: S3Options) -> Self {
        Self::with_budget(options, Budget::new(64 << 20)).await
    }

    pub(crate) async fn with_budget(options: S3Options, budget: Budget) -> Self {
        let cluster = MemoryCluster::new(MemoryOptions::default());
        let clock = FixedClock::new(START_MS);
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let (meta, data) = (Pool::new("meta", ""), Pool::new("data", ""));
        let catalog = Catalog::open(
            cluster.session("catalog"),
            meta.clone(),
            Arc::clone(&shared),
            Arc::new(Keyring::generate("k1").unwrap()),
        )
        .await
        .unwrap();
        let buckets = Buckets::open(
            cluster.session("buckets"),
            meta,
            data,
            Arc::clone(&shared),
            BucketOptions::default(),
        )
        .await
        .unwrap();
        let main = User::create(&catalog, "main").await;
        let alt = User::create(&catalog, "alt").await;
        let (gate_control, gate) = gate(true);
        let (stop_control, stop_handle) = stop();
        let (tenure, tenures) = tenures();
        let volumes = Volumes { catalog, buckets };
        let (store, lasts) = watched(cluster.session("store"));
        tenure.begin(Tenure::new(volumes, Arc::clone(&store), lasts));
        let parts = ServiceParts {
            tenures,
            clock: shared,
            stats: Arc::new(Stats::default()),
            budget,
            gate,
            seed: 1,
        };
        Self {
            service: Arc::new(Service::new(parts, options)),
            clock,
            gate: gate_control,
            stop: stop_control,
            stop_handle,
            main,
            alt,
            tenure,
            store,
            cluster,
        }
    }

    /// Another session fences the one that is served from, and that is told.
    pub(crate) async fn fence(&self) {
        let other = self.cluster.session("other");
        other.fence(&self.store.session()).await.unwrap();
        self.store.flush().await.unwrap_err();
    }

    /// The client's end of a fresh connection.
    pub(crate) fn stream(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(64 << 10);
        let service = Arc::clone(&self.service);
        tokio::spawn(serve(
            far,
            Peer::default(),
            service,
            self.stop_handle.clone(),
        ));
        near
    }

    pub(crate) async fn client(&self) -> Client {
        let io = TokioIo::new(self.stream());
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        Client {
            sender,
            now_ms: self.clock.now_ms(),
        }
    }
}

impl User {
    async fn create(catalog: &Catalog, name: &str) -> Self {
        let user = catalog
            .user_create(name, &format!("{name} user"))
            .await
            .unwrap();
        let (id, secret) = catalog.access_key_create(&user.id, None).await.unwrap();
        let credentials =
            Credentials::new(id.as_str(), secret.expose(), None, None, "portico tests");
        Self {
            id: user.id,
            credentials: Some(credentials),
        }
    }

    pub(crate) fn anonymous() -> Self {
        Self {
            id: String::new(),
            credentials: None,
        }
    }
}

/// What is signed of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signed {
    Body,
    /// `UNSIGNED-PAYLOAD`.
    HeadOnly,
    /// In the query, for so many seconds.
    Presigned(u64),
}

/// A request without headers of its own.
pub(crate) fn request(method: Method, target: &str, body: impl Into<Bytes>) -> Request<Bytes> {
    Request::builder()
        .method(method)
        .uri(format!("http://s3.test{target}"))
        .header("host", "s3.test")
        .body(body.into())
        .unwrap()
}

/// Adds headers.
pub(crate) fn with(
    mut request: Request<Bytes>,
    headers: &[(&'static str, &str)],
) -> Request<Bytes> {
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).unwrap();
        request.headers_mut().insert(*name, value);
    }
    request
}

/// Signs a request of somebody's at `now_ms`. Nothing is added for nobody.
pub(crate) fn signed(
    user: &User,
    mut request: Request<Bytes>,
    what: Signed,
    now_ms: u64,
) -> Request<Bytes> {
    let Some(credentials) = user.credentials.clone() else {
        return request;
    };
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    if let Signed::Presigned(seconds) = what {
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(Duration::from_secs(seconds));
        settings.payload_checksum_kind = PayloadChecksumKind::NoHeader;
    }
    let identity = credentials.into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region("us-east-1")
        .name("s3")
        .time(SystemTime::UNIX_EPOCH + Duration::from_millis(now_ms))
        .settings(settings)
        .build()
        .unwrap()
        .into();
    let body = request.body().clone();
    let signable_body = match what {
        Signed::Body => SignableBody::Bytes(&body),
        Signed::HeadOnly | Signed::Presigned(_) => SignableBody::UnsignedPayload,
    };
    let headers = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    let uri = request.uri().to_string();
    let signable =
        SignableRequest::new(request.method().as_str(), uri, headers, signable_body).unwrap();
    let (instructions, _) = sign(signable, &params).unwrap().into_parts();
    instructions.apply_to_request_http1x(&mut request);
    request
}

impl Client {
    /// Signs head and body, sends, and reads the reply.
    pub(crate) async fn send(&mut self, user: &User, request: Request<Bytes>) -> Answer {
        let request = signed(user, request, Signed::Body, self.now_ms);
        self.send_as_is(request).await
    }

    /// Sends a request as it stands.
    pub(crate) async fn send_as_is(&mut self, request: Request<Bytes>) -> Answer {
        self.try_send(request).await.unwrap()
    }

    pub(crate) async fn try_send(&mut self, request: Request<Bytes>) -> hyper::Result<Answer> {
        let (mut parts, body) = request.into_parts();
        // The target goes out in origin form, as clients of a server send it.
        parts.uri = parts
            .uri
            .path_and_query()
            .unwrap()
            .as_str()
            .parse()
            .unwrap();
        self.sender.ready().await?;
        let response = self
            .sender
            .send_request(Request::from_parts(parts, Full::new(body)))
            .await?;
        let (parts, body) = response.into_parts();
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await?.to_bytes(),
        })
    }

    pub(crate) async fn get(&mut self, user: &User, target: &str) -> Answer {
        self.send(user, request(Method::GET, target, "")).await
    }

    pub(crate) async fn head(&mut self, user: &User, target: &str) -> Answer {
        self.send(user, request(Method::HEAD, target, "")).await
    }

    pub(crate) async fn delete(&mut self, user: &User, target: &str) -> Answer {
        self.send(user, request(Method::DELETE, target, "")).await
    }

    pub(crate) async fn put(
        &mut self,
        user: &User,
        target: &str,
        body: impl Into<Bytes>,
    ) -> Answer {
        self.send(user, request(Method::PUT, target, body)).await
    }
}

impl Answer {
    /// The text of the first element of this name.
    pub(crate) fn element(&self, name: &str) -> Option<String> {
        let text = std::str::from_utf8(&self.body).unwrap();
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>"))
            .map(|(text, _)| text.to_owned())
    }

    /// Status and code of an error.
    pub(crate) fn error(&self) -> (u16, String) {
        let code = self.element("Code").unwrap_or_default();
        (self.status.as_u16(), code)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        match self.headers.get(name) {
            Some(value) => value.to_str().unwrap(),
            None => "",
        }
    }
}
