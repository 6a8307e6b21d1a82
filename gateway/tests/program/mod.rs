//! Starts the program, talks to it, and ends it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use portico_backend::clock::{Clock, SystemClock};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty;
use rustls_pki_types::CertificateDer;

/// How long the program may take to say that it serves.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long it may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// The last line that the program prints when it serves.
const BANNER_END: &str = "  rclone ";

/// A running `portico serve`; killed when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    /// There until it was stopped.
    child: Option<Child>,
    pub(crate) banner: String,
    pub(crate) s3: SocketAddr,
    pub(crate) metrics: SocketAddr,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// What a program that ended has said.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    /// Starts it in `directory` on free ports and waits until it serves.
    pub(crate) fn start(directory: &Path, environment: &[(&str, &str)]) -> Self {
        let mut command = serve(directory);
        command.envs(environment.iter().copied());
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Self::wait(child, stdout)
    }

    /// The same with further arguments.
    pub(crate) fn start_with(directory: &Path, arguments: &[&str]) -> Self {
        let mut command = serve(directory);
        command.args(arguments);
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Self::wait(child, stdout)
    }

    /// The same with a terminal as its standard output.
    pub(crate) fn start_on(directory: &Path, terminal: &Terminal) -> Self {
        let mut command = serve(directory);
        command.stdout(terminal.program_side());
        let child = command.spawn().unwrap();
        Self::wait(child, terminal.our_side())
    }

    fn wait(mut child: Child, stdout: impl Read + Send + 'static) -> Self {
        let (lines, received) = mpsc::channel();
        let stdout = std::thread::spawn(move || {
            let mut all = String::new();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                all.push_str(&line);
                all.push('\n');
                // Nobody listens any more once the banner is complete.
                drop(lines.send(line));
            }
            all
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut all = String::new();
            stderr.read_to_string(&mut all).unwrap();
            all
        });
        let mut banner = String::new();
        while !banner.contains(BANNER_END) {
            let Ok(line) = received.recv_timeout(START_TIMEOUT) else {
                drop(child.kill());
                panic!("it does not serve: {banner}{}", stderr.join().unwrap());
            };
            banner.push_str(&line);
            banner.push('\n');
        }
        Self {
            s3: address(&banner, "  S3       "),
            metrics: address(&banner, "  metrics  "),
            child: Some(child),
            banner,
            stdout: Some(stdout),
            stderr: Some(stderr),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_child(self.child.as_ref().unwrap());
        kill_process(id, signal).unwrap();
    }

    /// Asks it to stop, as a service manager does, and waits.
    pub(crate) fn stop(mut self) -> Output {
        self.signal(Signal::TERM);
        let mut child = self.child.take().unwrap();
        let id = Pid::from_child(&child);
        let status = within(END_TIMEOUT, id, move || child.wait().unwrap());
        Output {
            code: status.code().expect("it was not killed"),
            stdout: self.stdout.take().unwrap().join().unwrap(),
            stderr: self.stderr.take().unwrap().join().unwrap(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A self-signed certificate, as a client that trusts nothing else knows it.
#[derive(Debug)]
pub(crate) struct Certificate(CertificateDer<'static>);

impl Certificate {
    /// Makes a new one in `certificate.pem` and `key.pem`.
    pub(crate) fn write(directory: &Path) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(directory.join("certificate.pem"), made.cert.pem()).unwrap();
        std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self(made.cert.der().clone())
    }

    pub(crate) fn is_shown_at(&self, address: SocketAddr) -> bool {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.0.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let mut tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        while tls.is_handshaking() {
            if tls.complete_io(&mut stream).is_err() {
                return false;
            }
        }
        tls.peer_certificates().unwrap()[0] == self.0
    }
}

/// A pseudo-terminal.
#[derive(Debug)]
pub(crate) struct Terminal(std::fs::File);

impl Terminal {
    pub(crate) fn open() -> Self {
        let ours = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
        pty::grantpt(&ours).unwrap();
        pty::unlockpt(&ours).unwrap();
        Self(ours.into())
    }

    fn program_side(&self) -> OwnedFd {
        let name = pty::ptsname(&self.0, Vec::new()).unwrap();
        let flags = OFlags::WRONLY | OFlags::NOCTTY;
        rustix::fs::open(name, flags, Mode::empty()).unwrap()
    }

    fn our_side(&self) -> std::fs::File {
        self.0.try_clone().unwrap()
    }
}

/// Runs a command to its end.
pub(crate) fn run(directory: &Path, arguments: &[&str]) -> Output {
    let child = command(directory, arguments).spawn().unwrap();
    let id = Pid::from_child(&child);
    let output = within(END_TIMEOUT, id, move || child.wait_with_output().unwrap());
    Output {
        code: output.status.code().expect("it was not killed"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Waits for what ends when the process does; kills the process if that takes too long.
fn within<T: Send + 'static>(
    timeout: Duration,
    id: Pid,
    wait: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let waiter = std::thread::spawn(move || drop(sender.send(wait())));
    let outcome = receiver.recv_timeout(timeout);
    if outcome.is_err() {
        kill_process(id, Signal::KILL).unwrap();
    }
    waiter.join().unwrap();
    outcome.expect("the program ends in time")
}

fn serve(directory: &Path) -> Command {
    let ports = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
    let mut command = command(directory, &["serve"]);
    command.args(ports);
    command
}

pub(crate) fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
    command
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn address(banner: &str, label: &str) -> SocketAddr {
    let line = banner.lines().find_map(|line| line.strip_prefix(label));
    let line = line.unwrap_or_else(|| panic!("no {label:?} in {banner}"));
    let (_scheme, rest) = line.split_once("://").unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// One request on a connection of its own.
pub(crate) fn http(address: SocketAddr, method: &str, path: &str) -> Reply {
    exchange(address, method, path, &[], b"")
}

/// A client that signs as awscli does.
#[derive(Debug)]
pub(crate) struct S3 {
    address: SocketAddr,
    credentials: Credentials,
}

impl S3 {
    /// `credentials` is the text of an AWS shared credentials file.
    pub(crate) fn new(program: &Program, credentials: &str) -> Self {
        let value = |name: &str| {
            let lines = credentials
                .lines()
                .filter_map(|line| line.split_once(" = "));
            let mut values = lines.filter(|(key, _)| *key == name);
            values.next().expect("the credentials are complete").1
        };
        let (access_key, secret) = (value("aws_access_key_id"), value("aws_secret_access_key"));
        Self {
            address: program.s3,
            credentials: Credentials::new(access_key, secret, None, None, "test"),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, b"")
    }

    pub(crate) fn put(&self, path: &str, body: &[u8]) -> Reply {
        self.ask("PUT", path, body)
    }

    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let identity = self.credentials.clone().into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region("us-east-1")
            .name("s3")
            .time(UNIX_EPOCH + Duration::from_millis(SystemClock.now_ms()))
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let url = format!("http://{}{path}", self.address);
        let host = self.address.to_string();
        let headers = [("host", host.as_str())];
        let request =
            SignableRequest::new(method, &url, headers.into_iter(), SignableBody::Bytes(body));
        let (signed, _) = sign(request.unwrap(), &params).unwrap().into_parts();
        let headers: Vec<(&str, &str)> = signed.headers().collect();
        exchange(self.address, method, path, &headers, body)
    }
}

fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.expect("the reply has a head");
    let head = String::from_utf8(reply[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = reply[end + 4..].to_vec();
    if head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        body = unchunked(&body);
    }
    Reply { status, body }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
}
