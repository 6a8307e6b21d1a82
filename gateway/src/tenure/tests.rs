use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::service::Service as _;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use portico_backend::bucket::{Key, ObjectWriter};
use portico_backend::clock::FixedClock;
use portico_backend::connection::{Peer, StopControl, stop};
use portico_backend::faulty::{CallKind, End, Faulty, FaultyOptions};
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{ListCursor, ObjectName, Pool};

use super::*;
use crate::admin;
use crate::assemble::Node;
use crate::config::{Backend, Config};
use crate::health::Phase;
use crate::metrics;

const START_MS: u64 = 1_714_521_600_000;

/// Sessions that a test lets a node have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    sessions: Arc<std::sync::Mutex<VecDeque<Arc<dyn ObjectStore>>>>,
    asked: Arc<AtomicU64>,
}

impl Waiting {
    pub(crate) fn next(&self) -> Result<Arc<dyn ObjectStore>, Failure> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let next = self.sessions.lock().unwrap().pop_front();
        next.ok_or_else(|| Failure::new(Exit::Failed, "no session can be had"))
    }

    fn push(&self, session: Arc<dyn ObjectStore>) {
        self.sessions.lock().unwrap().push_back(session);
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

/// One node on a cluster of sessions, and a user of it.
struct Bed {
    cluster: MemoryCluster,
    sessions: Waiting,
    /// The way of the first session to the cluster.
    first: Arc<Faulty>,
    node: Node,
    config: Config,
    keyring: Arc<Keyring>,
    clock: FixedClock,
    user: Credentials,
    stop: StopControl,
    keeping: tokio::task::JoinHandle<()>,
}

struct Client {
    sender: SendRequest<Full<Bytes>>,
    user: Credentials,
}

struct Answer {
    status: u16,
    retry_after: String,
    body: Bytes,
}

impl Bed {
    async fn start() -> Self {
        Self::start_over(FaultyOptions::new(1)).await
    }

    async fn start_over(way: FaultyOptions) -> Self {
        let cluster = MemoryCluster::new(MemoryOptions::default());
        let first = Faulty::new(cluster.session("first"), way);
        let sessions = Waiting::default();
        sessions.push(first.clone());
        let mut config = Config::load(None).unwrap();
        config.backend = Backend::Memory {
            capacity_bytes: 1 << 30,
        };
        let clock = FixedClock::new(START_MS);
        let keyring = Arc::new(Keyring::generate("k1").unwrap());
        let plan = Plan {
            sessions: Sessions::Waiting(sessions.clone()),
            pools: Pools::default(),
            clock: Arc::new(clock.clone()),
            keyring: Arc::clone(&keyring),
            name: "one".to_owned(),
            has_rivals: true,
            options: BucketOptions::default(),
            stats: Arc::default(),
        };
        let engine = Engine::Memory(cluster.clone());
        let node = Node::open_with(&engine, &config, plan, 7).await.unwrap();
        node.gate.set_open(true);
        node.health.enter(Phase::Serving);
        let catalog = &node.tenure().unwrap().volumes.catalog;
        let owner = catalog.user_create("main", "").await.unwrap();
        let (id, secret) = catalog.access_key_create(&owner.id, None).await.unwrap();
        let (stop, stopping) = stop();
        let keeping = tokio::spawn(keep(
            Arc::clone(&node.keeper),
            Arc::clone(node.health.reopened()),
            stopping,
        ));
        Self {
            user: Credentials::new(id.as_str(), secret.expose(), None, None, "tests"),
            cluster,
            sessions,
            first,
            node,
            config,
            keyring,
            clock,
            stop,
            keeping,
        }
    }

    async fn client(&self) -> Client {
        let (near, far) = tokio::io::duplex(64 << 10);
        let (control, stopping) = stop();
        let service = Arc::clone(&self.node.s3);
        tokio::spawn(async move {
            portico_s3::serve::serve(far, Peer::default(), service, stopping).await;
            drop(control);
        });
        let io = TokioIo::new(near);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        Client {
            sender,
            user: self.user.clone(),
        }
    }

    /// Another session fences the first one.
    async fn fence_first(&self) {
        let other = self.cluster.session("other");
        other.fence(&self.first.session()).await.unwrap();
    }

    async fn names(&self, pool: &Pool) -> Vec<ObjectName> {
        let looker = self.cluster.session("looker");
        let page = looker.list(pool, ListCursor::start(), 1_000).await.unwrap();
        let mut names = page.names;
        names.sort();
        names
    }

    async fn metrics(&self, path: &str) -> (u16, String) {
        let sources = metrics::Sources::new(&self.node, Arc::default());
        ask(metrics::router(sources), path).await
    }

    async fn status(&self) -> serde_json::Value {
        let router = admin::router(admin::Context::new(&self.node, &self.config));
        let (status, body) = ask(router, "/v1/status").await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn close(self) {
        self.stop.request();
        self.keeping.await.unwrap();
        self.node.close().await.unwrap();
    }
}

impl Client {
    async fn ask(&mut self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        let body = body.into();
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let identity = self.user.clone().into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region("us-east-1")
            .name("s3")
            .time(std::time::UNIX_EPOCH + Duration::from_millis(START_MS))
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let url = format!("http://s3.test{path}");
        let signed = SignableBody::Bytes(&body);
        let host = [("host", "s3.test")];
        let signable = SignableRequest::new(method, &url, host.into_iter(), signed).unwrap();
        let (signed, _) = sign(signable, &params).unwrap().into_parts();
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::HOST, "s3.test");
        for (name, value) in signed.headers() {
            request = request.header(name, value);
        }
        self.sender.ready().await.expect("the connection stays");
        let request = request.body(Full::new(body)).unwrap();
        let reply = self.sender.send_request(request).await.unwrap();
        let (parts, body) = reply.into_parts();
        let retry_after = parts.headers.get(header::RETRY_AFTER);
        Answer {
            status: parts.status.as_u16(),
            retry_after: retry_after
                .map_or("", |value| value.to_str().unwrap())
                .to_owned(),
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    async fn put(&mut self, path: &str, body: impl Into<Bytes>) -> u16 {
        self.ask("PUT", path, body).await.status
    }

    async fn get(&mut self, path: &str) -> (u16, Bytes) {
        let answer = self.ask("GET", path, "").await;
        (answer.status, answer.body)
    }
}

async fn ask(router: Router, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let reply = TowerToHyperService::new(router)
        .call(request)
        .await
        .unwrap();
    let status = reply.status().as_u16();
    let body = axum::body::to_bytes(reply.into_body(), 1 << 20)
        .await
        .unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn large(fill: u8) -> Bytes {
    vec![fill; 100 << 10].into()
}

/// Data of the present tenure that is never linked.
async fn leave_behind(bed: &Bed) -> ObjectWriter {
    let tenure = bed.node.tenure().unwrap();
    let name = portico_backend::catalog::BucketName::new("photos").unwrap();
    let record = tenure.volumes.catalog.bucket(&name).await.unwrap().unwrap();
    let bucket = tenure.volumes.buckets.bucket(record.id).await.unwrap();
    let mut writer = bucket.put(Key::new("unfinished").unwrap());
    writer.write(vec![5; 9 << 20].into()).await.unwrap();
    writer
}

#[tokio::test(start_paused = true)]
async fn a_fenced_node_serves_again_without_a_restart() {
    let bed = Bed::start().await;
    let data = bed.node.pools.data.clone();
    let (mut client, mut late) = (bed.client().await, bed.client().await);
    assert_eq!(client.put("/photos", "").await, 200);
    assert_eq!(client.put("/photos/small", "kept").await, 200);
    assert_eq!(client.put("/photos/large", large(1)).await, 200);
    let linked = bed.names(&data).await;
    let unfinished = leave_behind(&bed).await;
    let left = bed.names(&data).await;
    assert!(left.len() > linked.len(), "something is left behind");

    bed.first.hold(CallKind::Write);
    let in_flight = tokio::spawn(async move {
        let status = late.put("/photos/late", large(2)).await;
        (late, status)
    });
    bed.first.wait_held(1).await;
    bed.fence_first().await;
    let answer = client.ask("GET", "/photos/small", "").await;
    assert_eq!((answer.status, answer.retry_after.as_str()), (503, "1"));
    // While its write is still on the way.
    let (mut late, status) = in_flight.await.unwrap();
    assert_eq!(status, 503);
    // No session can be had for a while.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(client.get("/photos/small").await.0, 503);
    assert_eq!(client.put("/photos/small", "lost").await, 503);
    let (status, why) = bed.metrics("/health").await;
    assert_eq!(status, 503);
    assert!(why.contains("no session can be had"), "{why}");
    let status = bed.status().await;
    assert_eq!(
        (&status["ready"], &status["session"]["open"]),
        (&false.into(), &false.into())
    );
    let (_, text) = bed.metrics("/metrics").await;
    assert!(text.contains("\nportico_session_open 0\n"), "{text}");

    bed.sessions.push(bed.cluster.session("second"));
    sleep(REOPEN_PAUSE_MAX).await;
    assert_eq!(bed.metrics("/health").await, (200, "ready\n".to_owned()));
    assert_eq!(client.get("/photos/small").await, (200, "kept".into()));
    assert_eq!(client.get("/photos/large").await, (200, large(1)));
    assert_eq!(late.put("/photos/after", large(3)).await, 200);
    assert_eq!(late.get("/photos/after").await, (200, large(3)));
    let (_, text) = bed.metrics("/metrics").await;
    assert!(
        text.contains("\nportico_session_reopened_total 1\n"),
        "{text}"
    );
    assert_eq!(bed.status().await["session"]["reopened_count"], 1);

    // What the old session had on its way comes late, and to nothing.
    let before = bed.names(&data).await;
    bed.first.release();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(bed.names(&data).await, before);
    assert_eq!(client.get("/photos/late").await.0, 404);

    // The old writer has ended, and what it left without a name goes.
    drop(unfinished);
    let mut rounds = 0;
    bed.clock.advance(7_200_000);
    let tenure = bed.node.tenure().unwrap();
    while rounds < 3 {
        let step = tenure.volumes.buckets.reclaim_step().await.unwrap();
        rounds += u32::from(step.round_ended);
    }
    drop(tenure);
    let names = bed.names(&data).await;
    assert!(linked.iter().all(|name| names.contains(name)));
    assert_eq!(
        names.len(),
        linked.len() + 1,
        "the one more is of the new writer"
    );
    bed.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_was_lifted_is_made_again() {
    // The session is told that it is fenced, and nobody else knows of that.
    let way = FaultyOptions {
        end: Some((500, End::Fence)),
        ..FaultyOptions::new(1)
    };
    let bed = Bed::start_over(way).await;
    while bed.node.tenures.current().is_ok() {
        sleep(Duration::from_millis(100)).await;
    }
    let other = bed.cluster.session("other");
    assert!(other.may_write(&bed.first.session()).await.unwrap());
    bed.sessions.push(bed.cluster.session("second"));
    sleep(REOPEN_PAUSE_MAX).await;
    assert!(!other.may_write(&bed.first.session()).await.unwrap());
    let tenure = bed.node.tenure().unwrap();
    let nodes = tenure.volumes.catalog.nodes().await.unwrap();
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0].session, tenure.store.session());
    drop(tenure);
    bed.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_replaced_stays_down_and_fences_nobody() {
    for is_registered in [false, true] {
        let bed = Bed::start().await;
        bed.fence_first().await;
        let other = bed.cluster.session("replacement");
        let meta = bed.node.pools.meta.clone();
        let clock: Arc<dyn Clock> = Arc::new(bed.clock.clone());
        let keyring = Arc::clone(&bed.keyring);
        let catalog = Catalog::open(Arc::clone(&other), meta.clone(), clock, keyring);
        let catalog = catalog.await.unwrap();
        let presence = node::take(&other, &catalog, &meta, "one").await.unwrap();
        if is_registered {
            catalog.node_register("one", None).await.unwrap();
            // Also when it does not answer any more.
            drop(presence);
        } else {
            tokio::spawn(async move {
                let _presence = presence;
                std::future::pending::<()>().await;
            });
        }
        sleep(Duration::from_secs(1)).await;
        bed.sessions.push(bed.cluster.session("second"));
        bed.sessions.push(bed.cluster.session("third"));
        sleep(Duration::from_secs(600)).await;
        assert!(other.may_write(&other.session()).await.unwrap());
        assert_eq!(bed.client().await.get("/photos/small").await.0, 503);
        let (status, why) = bed.metrics("/health").await;
        assert_eq!(status, 503);
        assert!(
            why.contains("another portico took over as node one"),
            "{why}"
        );
        let reason = bed.status().await["reason"].clone();
        assert!(reason.as_str().unwrap().contains("took over"), "{reason}");
        let asked = bed.sessions.asked();
        sleep(Duration::from_secs(600)).await;
        assert_eq!(bed.sessions.asked(), asked, "it tries no more");
        assert_eq!(bed.node.health.reopened().value(), 0);
        bed.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_come_ever_more_seldom() {
    let bed = Bed::start().await;
    bed.fence_first().await;
    sleep(Duration::from_secs(300)).await;
    // At once, after 1, 2, 4, 8 and 16 s, and then every 30 s; the first was the start.
    let asked = bed.sessions.asked();
    assert!((12..=17).contains(&asked), "{asked}");
    // One that is fenced at once does not bring the short pauses back.
    let second = bed.cluster.session("second");
    bed.sessions.push(Arc::clone(&second));
    while bed.node.tenures.current().is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    let other = bed.cluster.session("other");
    other.fence(&second.session()).await.unwrap();
    let asked = bed.sessions.asked();
    sleep(Duration::from_secs(29)).await;
    assert_eq!(bed.sessions.asked(), asked);
    bed.sessions.push(bed.cluster.session("third"));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(bed.node.health.reopened().value(), 2);
    bed.close().await;
}
