//! Talks to a running portico over its admin API.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use portico_backend::catalog::Secret;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::{Location, trust};
use crate::admin::api::Failed;
use crate::error::{Exit, Failure};
use crate::private_file;

/// Longer than any admin request takes with a store that answers.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of a reply: a page of 1,000 items is far smaller.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// Which portico to talk to, and how to show what it says.
#[derive(Args, Clone, Debug)]
pub(super) struct Target {
    #[command(flatten)]
    location: Location,
    /// Admin socket, instead of the one configured
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    socket: Option<PathBuf>,
    /// Admin API over TCP, such as https://gateway:9002
    #[arg(long, value_name = "URL", requires = "token_file")]
    url: Option<Uri>,
    /// File (mode 0600) that holds the token for --url
    #[arg(long, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// Certificate (PEM) that the server of an https URL has, or that has signed it
    #[arg(long, value_name = "FILE", requires = "url")]
    ca_file: Option<PathBuf>,
    /// Print the reply as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Asks one portico. Each request has a connection of its own.
#[derive(Debug)]
pub(super) struct Client {
    place: Place,
    token: Option<Secret>,
}

#[derive(Debug)]
enum Place {
    Socket(PathBuf),
    Tcp {
        host: String,
        port: u16,
        tls: Option<Arc<ClientConfig>>,
    },
}

impl Client {
    /// # Errors
    /// If the configuration, the token or the certificate cannot be read.
    pub(super) fn new(target: &Target) -> Result<Self, Failure> {
        let Some(url) = &target.url else {
            let socket = match &target.socket {
                Some(socket) => socket.clone(),
                None => target.location.load()?.admin.socket,
            };
            return Ok(Self {
                place: Place::Socket(socket),
                token: None,
            });
        };
        let (Some(host), Some(scheme @ ("http" | "https"))) = (url.host(), url.scheme_str()) else {
            let what = format!("{url} is no address of an admin API");
            return Err(Failure::new(Exit::Usage, what)
                .with_help("it looks like https://gateway:9002 or http://127.0.0.1:9002"));
        };
        let host = host.trim_matches(['[', ']']);
        if scheme == "http" && !is_loopback(host) {
            let what = format!("the token would go to {host} in the clear");
            return Err(Failure::new(Exit::Usage, what).with_help("use an https URL"));
        }
        let tls = match scheme {
            "https" => Some(Arc::new(tls(target.ca_file.as_deref())?)),
            _ => None,
        };
        let port = url
            .port_u16()
            .unwrap_or(if tls.is_some() { 443 } else { 80 });
        let token_file = target
            .token_file
            .as_ref()
            .expect("--url requires --token-file");
        let token = private_file::read(token_file)?.ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                format!("there is no file {}", token_file.display()),
            )
        })?;
        let token = Secret::new(token.trim()).map_err(|error| {
            let what = format!("the token in {} {error}", token_file.display());
            Failure::new(Exit::Usage, what)
                .with_help("give the file that admin.tcp.token_file of the server names, or a copy")
        })?;
        Ok(Self {
            place: Place::Tcp {
                host: host.to_owned(),
                port,
                tls,
            },
            token: Some(token),
        })
    }

    pub(super) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::GET, path, None::<&()>).await
    }

    /// All items of a list, page by page. `path` ends with a query; `page` takes a page apart into
    /// its items and where the next one begins.
    pub(super) async fn list<P: DeserializeOwned, T>(
        &self,
        path: &str,
        page: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, Failure> {
        let mut all = Vec::new();
        let mut next = Some(String::new());
        while let Some(after) = next {
            let path = format!("{path}after={}", segment(&after));
            let (items, then) = page(self.get(&path).await?.parse()?);
            all.extend(items);
            next = then;
        }
        Ok(all)
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::DELETE, path, None::<&()>).await
    }

    pub(super) async fn post(&self, path: &str, body: &impl Serialize) -> Result<Answer, Failure> {
        self.ask(Method::POST, path, Some(body)).await
    }

    pub(super) async fn patch(&self, path: &str, body: &impl Serialize) -> Result<Answer, Failure> {
        self.ask(Method::PATCH, path, Some(body)).await
    }

    /// Asks and waits for a success.
    ///
    /// # Errors
    /// What the server says is wrong, or why it cannot be reached.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Answer, Failure> {
        let asked = tokio::time::timeout(TIMEOUT, self.exchange(method, path, body)).await;
        let (status, body) = match asked {
            Ok(answer) => answer.map_err(|error| self.unreachable(&error))?,
            Err(_) => {
                let what = format!("portico at {} does not answer", self.name());
                return Err(Failure::new(Exit::Failed, what));
            }
        };
        if status.is_success() {
            return Ok(Answer(body));
        }
        match serde_json::from_slice::<Failed>(&body) {
            Ok(failed) => {
                let what = format!("{} ({})", failed.error.message, failed.error.code);
                Err(Failure::new(Exit::Failed, what))
            }
            Err(_) => {
                let what = format!("{} answers {status}, not as portico does", self.name());
                Err(Failure::new(Exit::Failed, what))
            }
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> io::Result<(StatusCode, Bytes)> {
        let stream = self.place.connect().await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        // It ends with the sender; what goes wrong is told by the request, too.
        let connection = tokio::spawn(connection);
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(io::Error::other)?,
            None => Vec::new(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "portico")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(io::Error::other)?;
        let reply = sender
            .send_request(request)
            .await
            .map_err(io::Error::other)?;
        let status = reply.status();
        let body = Limited::new(reply.into_body(), REPLY_BYTES_MAX)
            .collect()
            .await
            .map_err(io::Error::other)?;
        connection.abort();
        Ok((status, body.to_bytes()))
    }

    fn name(&self) -> String {
        match &self.place {
            Place::Socket(path) => path.display().to_string(),
            Place::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        let failure =
            Failure::from_source(format!("cannot reach portico at {}", self.name()), error);
        match (&self.place, error.kind()) {
            (Place::Socket(_), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => failure
                .with_help(
                    "is \"portico serve\" running? Name its data directory with --data-dir, its \
                     configuration with --config or its socket with --socket",
                ),
            (Place::Socket(_), ErrorKind::PermissionDenied) => {
                failure.with_help("only the user that runs portico, and root, may use the socket")
            }
            _ => failure,
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Place {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let (host, port, tls) = match self {
            Self::Socket(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
            Self::Tcp { host, port, tls } => (host, *port, tls),
        };
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        let Some(tls) = tls else {
            return Ok(Box::new(stream));
        };
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(tls));
        Ok(Box::new(connector.connect(name, stream).await?))
    }
}

/// The body of a success.
#[derive(Debug)]
pub(super) struct Answer(Bytes);

impl Answer {
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.0)
            .map_err(|error| Failure::from_source("cannot understand the answer", &error))
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// One segment of a path.
pub(super) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn tls(ca_file: Option<&Path>) -> Result<ClientConfig, Failure> {
    let Some(ca_file) = ca_file else {
        return Err(
            Failure::new(Exit::Usage, "an https URL needs --ca-file").with_help(
                "give the certificate that the admin listener has, or the one that signed it",
            ),
        );
    };
    trust::client_config(ca_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "127.0.0.1", "127.1.2.3", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "gateway",
            "192.0.2.1",
            "::",
            "localhost.example.com",
            "127.0.0.1.example",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_segment_stays_one() {
        assert_eq!(segment("a.b-c_d~1"), "a.b-c_d~1");
        assert_eq!(
            segment("a/../b c?d#e+f@\u{e4}"),
            "a%2F..%2Fb%20c%3Fd%23e%2Bf%40%C3%A4"
        );
    }
}
