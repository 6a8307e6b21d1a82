//! The accept loop of every listener: how many connections, TLS, and how they end.
//!
//! A connection is served only when there is a permit for it, so that too many clients wait in
//! the kernel's queue and not in our memory. What a connection says is its protocol's business.

mod idle;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use portico_backend::connection::{Peer, Stop};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::config::Listen;
use crate::error::Failure;
use crate::limits::{
    ACCEPT_PAUSE_MAX, ACCEPT_PAUSE_MIN, SIDE_HEAD_TIMEOUT, SIDE_TURN_INTERVAL,
    TLS_HANDSHAKE_TIMEOUT,
};
use crate::tls::Certificates;
use idle::{Idle, Seat};

/// A bound socket that is not served yet.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    certificates: Option<Arc<Certificates>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Who may connect, beside root.
        owner: u32,
        _file: SocketFile,
    },
}

/// The file of a unix socket, removed when the socket is not served any more, however that ends.
#[derive(Debug)]
struct SocketFile(PathBuf);

/// The two ends of a connection.
#[derive(Debug, Default)]
struct Ends {
    peer: Peer,
    local: Option<SocketAddr>,
}

enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// What the connections of a listener speak.
#[derive(Clone, Debug)]
pub(crate) enum Protocol {
    S3(Arc<portico_s3::serve::Service>),
    Iscsi(Arc<portico_iscsi::serve::Service>),
    /// Plain HTTP for machines that watch or manage this one.
    Http(axum::Router),
}

/// The bounds of an accept loop.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// One for each connection; may be shared by several listeners.
    pub(crate) permits: Arc<Semaphore>,
    /// How long connections may go on after the stop was requested.
    pub(crate) stop_timeout: Duration,
}

impl Listener {
    /// # Errors
    /// If the address is in use or not ours, or the certificate cannot be used.
    pub(crate) async fn bind(listen: &Listen) -> Result<Self, Failure> {
        let certificates = match &listen.tls {
            Some(files) => Some(Arc::new(Certificates::load(files.clone())?)),
            None => None,
        };
        let socket = TcpListener::bind(listen.address)
            .await
            .map_err(|error| cannot_listen(&listen.address.to_string(), &error))?;
        Ok(Self {
            socket: Socket::Tcp(socket),
            certificates,
        })
    }

    /// Binds a unix socket that only this user and root may use. A socket that an earlier run left
    /// behind is replaced: the caller holds the store, so no other run is there.
    ///
    /// # Errors
    /// If the path is too long for a socket, is another kind of file, or cannot be written.
    pub(crate) fn bind_unix(path: &Path) -> Result<Self, Failure> {
        let bind = || -> io::Result<Socket> {
            remove_stale_socket(path)?;
            let listener = UnixListener::bind(path)?;
            let file = SocketFile(path.to_owned());
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            let owner = std::fs::metadata(path)?.uid();
            Ok(Socket::Unix {
                listener,
                owner,
                _file: file,
            })
        };
        let socket = bind().map_err(|error| cannot_listen_unix(path, &error))?;
        Ok(Self {
            socket,
            certificates: None,
        })
    }

    /// The address in use; tells the port where the configuration says 0.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().ok(),
            Socket::Unix { .. } => None,
        }
    }

    pub(crate) fn certificates(&self) -> Option<&Arc<Certificates>> {
        self.certificates.as_ref()
    }

    /// Accepts and serves until the stop is requested and all connections have ended, or were cut
    /// when their time was over.
    pub(crate) async fn run(self, protocol: Protocol, bounds: Bounds, stop: Stop) {
        let acceptor = self.certificates.as_ref().map(|one| one.acceptor());
        let idle = Arc::new(Idle::default());
        let mut connections = JoinSet::new();
        let mut pause = ACCEPT_PAUSE_MIN;
        loop {
            while connections.try_join_next().is_some() {}
            let next = async {
                match &protocol {
                    Protocol::S3(_) | Protocol::Iscsi(_) => {
                        let permit = Arc::clone(&bounds.permits).acquire_owned().await;
                        (permit, self.socket.accept().await)
                    }
                    Protocol::Http(_) => {
                        let accepted = self.socket.accept().await;
                        (idle_makes_room(&bounds, &idle).await, accepted)
                    }
                }
            };
            let (permit, accepted) = tokio::select! {
                () = stop.requested() => break,
                next = next => next,
            };
            match accepted {
                Ok(accepted) => {
                    pause = ACCEPT_PAUSE_MIN;
                    let protocol = protocol.clone();
                    let (acceptor, stop) = (acceptor.clone(), stop.clone());
                    let seat = idle.seat();
                    connections.spawn(async move {
                        tokio::select! {
                            () = serve(accepted, acceptor, protocol, &seat, stop) => {}
                            () = seat.given_away() => {
                                tracing::debug!("an idle connection made room for another one");
                            }
                        }
                        drop(permit);
                    });
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot accept a connection; pausing");
                    tokio::select! {
                        () = stop.requested() => break,
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
        // Refuses further clients; a unix socket leaves nothing behind.
        drop(self.socket);
        drain(connections, bounds.stop_timeout).await;
    }
}

impl Socket {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(Accepted::Tcp(stream, address))
            }
            Self::Unix {
                listener, owner, ..
            } => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred()?.uid();
                if user != *owner && user != 0 {
                    tracing::warn!(user, "refused a connection to the admin socket");
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                Ok(Accepted::Unix(stream))
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, path = %self.0.display(), "the socket is gone already");
        }
    }
}

impl Protocol {
    async fn serve<S>(self, stream: S, ends: Ends, seat: &Arc<Seat>, stop: Stop)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ends { peer, local } = ends;
        match self {
            Self::S3(service) => portico_s3::serve::serve(stream, peer, service, stop).await,
            Self::Iscsi(service) => {
                let local = local.expect("portals are TCP addresses");
                let ends = portico_iscsi::serve::Ends { peer, local };
                portico_iscsi::serve::serve(stream, ends, service, stop).await;
            }
            Self::Http(router) => serve_http(stream, router, Arc::clone(seat), stop).await,
        }
    }
}

/// A permit, for which idle connections are ended if there is none.
async fn idle_makes_room(
    bounds: &Bounds,
    idle: &Idle,
) -> Result<OwnedSemaphorePermit, AcquireError> {
    loop {
        let permit = Arc::clone(&bounds.permits).acquire_owned();
        match tokio::time::timeout(SIDE_TURN_INTERVAL, permit).await {
            Ok(permit) => return permit,
            Err(_) => idle.end_oldest(),
        }
    }
}

async fn serve(
    accepted: Accepted,
    tls: Option<TlsAcceptor>,
    protocol: Protocol,
    seat: &Arc<Seat>,
    stop: Stop,
) {
    let (stream, address) = match accepted {
        Accepted::Unix(stream) => {
            return protocol.serve(stream, Ends::default(), seat, stop).await;
        }
        Accepted::Tcp(stream, address) => (stream, address),
    };
    let local = match stream.set_nodelay(true).and_then(|()| stream.local_addr()) {
        Ok(local) => local,
        Err(error) => {
            tracing::debug!(%error, %address, "connection gone before it was served");
            return;
        }
    };
    let ends = Ends {
        peer: Peer {
            address: Some(address),
            secure: tls.is_some(),
        },
        local: Some(local),
    };
    let Some(acceptor) = tls else {
        return protocol.serve(stream, ends, seat, stop).await;
    };
    let handshake = tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, acceptor.accept(stream));
    let shaken = tokio::select! {
        () = stop.requested() => return,
        shaken = handshake => shaken,
    };
    match shaken {
        Ok(Ok(stream)) => protocol.serve(stream, ends, seat, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, %address, "TLS handshake failed"),
        Err(_) => tracing::debug!(%address, "TLS handshake took too long"),
    }
}

async fn serve_http<S>(stream: S, router: axum::Router, seat: Arc<Seat>, stop: Stop)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let handler = service_fn(move |request: Request<Incoming>| {
        seat.work();
        let (reply, seat) = (router.call(request), Arc::clone(&seat));
        async move {
            let reply = reply.await;
            seat.wait();
            reply
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SIDE_HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), handler);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.requested() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended with an error");
    }
}

/// Waits for connections to end, and cuts those that do not.
async fn drain(mut connections: JoinSet<()>, timeout: Duration) {
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(timeout, all).await.is_err() {
        tracing::warn!(
            count = connections.len(),
            "cutting connections that did not end"
        );
        connections.shutdown().await;
    }
}

/// Errors of `accept` that say something about one client and nothing about the next.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn remove_stale_socket(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::symlink_metadata(path) {
        Ok(data) if data.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::other("another kind of file is there")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn cannot_listen_unix(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::from_source(format!("cannot listen on {}", path.display()), error);
    let failure = failure.of_key("admin.socket");
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    match directory {
        Some(directory) if !directory.is_dir() => failure.with_help(format!(
            "there is no directory {}: make it, or set the key to a path in one that exists",
            directory.display()
        )),
        Some(_) | None => failure.with_help(
            "set the key to another path in a directory that this user may write to; \
                        it may have 107 bytes at most",
        ),
    }
}

fn cannot_listen(place: &str, error: &io::Error) -> Failure {
    let failure = Failure::from_source(format!("cannot listen on {place}"), error);
    if error.kind() == io::ErrorKind::AddrInUse {
        failure.with_help(
            "another program listens there; choose another address with --listen or \
                --metrics-listen, or in the configuration",
        )
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        failure.with_help("ports below 1024 need the capability CAP_NET_BIND_SERVICE")
    } else {
        failure
    }
}

#[cfg(test)]
mod tests;
