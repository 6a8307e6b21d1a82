use super::*;

use axum::Router;
use axum::routing::get;
use portico_backend::connection::{StopControl, stop};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::tls;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

struct Running {
    address: SocketAddr,
    control: StopControl,
    task: JoinHandle<()>,
}

async fn start(router: Router, connections: usize, stop_timeout: Duration) -> Running {
    let listener = Listener::bind(&loopback(None)).await.unwrap();
    let address = listener.address().unwrap();
    let (control, stop) = stop();
    let bounds = Bounds {
        permits: Arc::new(Semaphore::new(connections)),
        stop_timeout,
    };
    let task = tokio::spawn(listener.run(Protocol::Http(router), bounds, stop));
    Running {
        address,
        control,
        task,
    }
}

fn loopback(tls: Option<crate::config::TlsFiles>) -> Listen {
    Listen {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls,
    }
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> String {
    stream.write_all(REQUEST).await.unwrap();
    let mut reply = String::new();
    // A connection that is cut ends the reply where it is.
    drop(stream.read_to_string(&mut reply).await);
    reply
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// A router whose reply waits for `go`, having told `asked`.
fn slow(asked: &Arc<Notify>, go: &Arc<Notify>) -> Router {
    let (asked, go) = (Arc::clone(asked), Arc::clone(go));
    Router::new().route(
        "/",
        get(move || async move {
            asked.notify_one();
            go.notified().await;
            "late"
        }),
    )
}

#[tokio::test]
async fn a_stop_lets_requests_finish_and_refuses_new_connections() {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let running = start(slow(&asked, &go), 8, Duration::from_secs(60)).await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let reply = tokio::spawn(ask(stream));
    asked.notified().await;
    running.control.request();
    // Idle connections end at once; the one in work is waited for.
    while TcpStream::connect(running.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!running.task.is_finished());
    go.notify_one();
    assert!(reply.await.unwrap().ends_with("late"));
    running.task.await.unwrap();
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut() {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let running = start(slow(&asked, &go), 8, Duration::from_millis(50)).await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let reply = tokio::spawn(ask(stream));
    asked.notified().await;
    running.control.request();
    running.task.await.unwrap();
    let reply = tokio::time::timeout(Duration::from_secs(30), reply).await;
    assert_eq!(reply.expect("the connection was cut").unwrap(), "");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let running = start(slow(&asked, &go), 1, Duration::from_secs(60)).await;
    let first = tokio::spawn(ask(TcpStream::connect(running.address).await.unwrap()));
    asked.notified().await;
    let second = tokio::spawn(ask(TcpStream::connect(running.address).await.unwrap()));
    let early = tokio::time::timeout(Duration::from_millis(200), asked.notified()).await;
    assert!(
        early.is_err(),
        "a second connection was served beyond the limit"
    );
    go.notify_one();
    assert!(first.await.unwrap().ends_with("late"));
    asked.notified().await;
    go.notify_one();
    assert!(second.await.unwrap().ends_with("late"));
    drop(running.control);
    running.task.await.unwrap();
}

#[tokio::test]
async fn tls_shows_the_certificate_that_is_current() {
    let directory = tempfile::tempdir().unwrap();
    let (files, first) = tls::tests::write_certificate(directory.path());
    let listener = Listener::bind(&loopback(Some(files))).await.unwrap();
    let address = listener.address().unwrap();
    let certificates = Arc::clone(listener.certificates().unwrap());
    let (control, stop) = stop();
    let bounds = Bounds {
        permits: Arc::new(Semaphore::new(8)),
        stop_timeout: Duration::from_secs(60),
    };
    let task = tokio::spawn(listener.run(Protocol::Http(hello()), bounds, stop));

    assert!(ask_tls(address, &first).await.unwrap().ends_with("hello"));
    let (_, second) = tls::tests::write_certificate(directory.path());
    assert!(matches!(certificates.reload(), tls::Reload::Replaced));
    assert!(ask_tls(address, &second).await.unwrap().ends_with("hello"));
    assert!(ask_tls(address, &first).await.is_err());

    control.request();
    task.await.unwrap();
}

async fn ask_tls(address: SocketAddr, trusted: &[u8]) -> io::Result<String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(trusted.to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = "localhost".try_into().unwrap();
    let stream = TcpStream::connect(address).await?;
    Ok(ask(connector.connect(name, stream).await?).await)
}

#[tokio::test]
async fn a_unix_socket_is_private_and_a_stale_one_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    drop(Listener::bind_unix(&path).unwrap());
    let listener = Listener::bind_unix(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (control, stop) = stop();
    let bounds = Bounds {
        permits: Arc::new(Semaphore::new(8)),
        stop_timeout: Duration::from_secs(60),
    };
    let task = tokio::spawn(listener.run(Protocol::Http(hello()), bounds, stop));
    let stream = UnixStream::connect(&path).await.unwrap();
    assert!(ask(stream).await.ends_with("hello"));
    control.request();
    task.await.unwrap();
    assert!(!path.exists());

    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(Listener::bind_unix(&file).is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let first = Listener::bind(&loopback(None)).await.unwrap();
    let listen = Listen {
        address: first.address().unwrap(),
        tls: None,
    };
    let failure = Listener::bind(&listen).await.unwrap_err().to_string();
    assert!(failure.contains(&listen.address.to_string()), "{failure}");
    assert!(
        failure.contains("another program listens there"),
        "{failure}"
    );
}

/// Some who connected and said nothing kept everybody out for ten seconds.
#[tokio::test]
async fn the_longest_idle_connection_makes_room() {
    let running = start(hello(), 2, Duration::from_secs(60)).await;
    let connect = async || TcpStream::connect(running.address).await.unwrap();
    let mut silent = vec![connect().await, connect().await];
    for _ in 0..3 {
        let asked = tokio::time::timeout(SIDE_HEAD_TIMEOUT / 2, ask(connect().await));
        let reply = asked
            .await
            .expect("it need not wait for those who say nothing");
        assert!(reply.ends_with("hello"), "{reply}");
        silent.push(connect().await);
    }
    let mut first = silent.swap_remove(0);
    assert_eq!(first.read(&mut [0]).await.unwrap(), 0, "it made room");
    drop(running.control);
    drop(silent);
    running.task.await.unwrap();
}
