//! A connection until it has logged in.

use std::fmt;
use std::sync::Arc;

use portico_backend::connection::Stop;
use ring::rand::SecureRandom as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::{Ends, Service};
use crate::limits::{LOGIN_DATA_BYTES_MAX, LOGIN_TIMEOUT, READ_BYTES_MIN};
use crate::session::ConnectionKey;
use crate::session::login::{Login, Step};
use crate::session::negotiate::ConnectionParameters;
use crate::session::registry::SharedSession;
use crate::target::Targets;
use crate::wire::WireError;
use crate::wire::deframe::{Deframer, Digests, Frame, Poll};
use crate::wire::request::Request;
use crate::wire::response::{LoginResponse, LoginStatus, Response};

/// A connection in its login.
pub(super) struct Entry<S> {
    stream: S,
    deframer: Deframer,
    login: Login,
    targets: Arc<Targets>,
    ends: Ends,
    service: Arc<Service>,
}

/// A connection that has logged in.
pub(super) struct Entered<S> {
    pub(super) stream: S,
    pub(super) deframer: Deframer,
    pub(super) parameters: ConnectionParameters,
    pub(super) member: Member,
    pub(super) wake: Arc<Notify>,
}

/// A connection's place in its session; it leaves when this is dropped.
pub(super) struct Member {
    pub(super) session: Arc<SharedSession>,
    pub(super) key: ConnectionKey,
    pub(super) service: Arc<Service>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.service.sessions.leave(&self.session, self.key);
        let open = self.service.sessions.count();
        self.service.stats.sessions_open.set(open);
    }
}

/// Why there was no login.
#[derive(Debug)]
pub(super) enum NoLogin {
    Timeout,
    Stopped,
    /// The gate is closed: nothing is answered.
    Gate,
    Random,
    Stream(std::io::Error),
    Wire(WireError),
    Refused(LoginStatus),
}

impl fmt::Display for NoLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the login took too long"),
            Self::Stopped => f.write_str("the node stops"),
            Self::Gate => f.write_str("the node may not answer"),
            Self::Random => f.write_str("no random numbers"),
            Self::Stream(error) => write!(f, "the stream ended: {error}"),
            Self::Wire(error) => write!(f, "{error}"),
            Self::Refused(status) => write!(f, "refused: {status:?}"),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Entry<S> {
    pub(super) fn new(stream: S, ends: &Ends, service: Arc<Service>) -> Self {
        let targets = service.targets();
        // Without random numbers there is no challenge; `run` fails then.
        let login = Login::new(Arc::clone(&targets), ends.local, [0; 33]);
        Self {
            stream,
            deframer: Deframer::new(LOGIN_DATA_BYTES_MAX),
            login,
            targets,
            ends: ends.clone(),
            service,
        }
    }

    pub(super) async fn run(mut self, stop: &Stop) -> Result<Entered<S>, NoLogin> {
        let mut entropy = [0; 33];
        let filled = self.service.random.fill(&mut entropy);
        filled.map_err(|_| NoLogin::Random)?;
        self.login = Login::new(Arc::clone(&self.targets), self.ends.local, entropy);
        let login = timeout(LOGIN_TIMEOUT, self.log_in());
        let (member, wake, parameters) = tokio::select! {
            biased;
            done = login => done.map_err(|_| NoLogin::Timeout)??,
            () = stop.requested() => return Err(NoLogin::Stopped),
        };
        Ok(Entered {
            stream: self.stream,
            deframer: self.deframer,
            parameters,
            member,
            wake,
        })
    }

    async fn log_in(&mut self) -> Result<(Member, Arc<Notify>, ConnectionParameters), NoLogin> {
        loop {
            let frame = self.read_frame().await?;
            let itt = u32::from_be_bytes(frame.header.0[16..20].try_into().expect("four bytes"));
            let Ok(Request::Login(pdu)) = Request::decode(frame) else {
                let response = self.login.refuse_other(itt);
                let status = response.status;
                self.write(response).await?;
                return Err(NoLogin::Refused(status));
            };
            match self.login.handle_pdu(&pdu) {
                Step::Reply(response) => self.write(response).await?,
                Step::Refuse(response) => {
                    let status = response.status;
                    self.write(response).await?;
                    return Err(NoLogin::Refused(status));
                }
                Step::Admit(admission) => {
                    let parameters = admission.connection;
                    let sessions = &self.service.sessions;
                    let now = Instant::now();
                    let local = self.ends.local;
                    match sessions.admit(now, &admission, &self.targets, local) {
                        Ok(joined) => {
                            let member = Member {
                                session: joined.session,
                                key: joined.key,
                                service: Arc::clone(&self.service),
                            };
                            if admission.tsih == 0 {
                                self.service.stats.sessions.add(1);
                            }
                            self.service.stats.sessions_open.set(sessions.count());
                            let admitted = joined.admitted;
                            let response = self.login.conclude(*admission, Ok(admitted));
                            self.write(response).await?;
                            return Ok((member, joined.wake, parameters));
                        }
                        Err(status) => {
                            let response = self.login.conclude(*admission, Err(status));
                            self.write(response).await?;
                            return Err(NoLogin::Refused(status));
                        }
                    }
                }
            }
        }
    }

    async fn read_frame(&mut self) -> Result<Frame, NoLogin> {
        loop {
            match self.deframer.poll().map_err(NoLogin::Wire)? {
                Poll::Frame(frame) => return Ok(frame),
                Poll::Wanted(bytes) => {
                    let buffer = self.deframer.buffer();
                    buffer.reserve(bytes.max(READ_BYTES_MIN));
                    let read = self.stream.read_buf(buffer).await;
                    if read.map_err(NoLogin::Stream)? == 0 {
                        return Err(NoLogin::Stream(std::io::ErrorKind::UnexpectedEof.into()));
                    }
                }
            }
        }
    }

    async fn write(&mut self, response: LoginResponse) -> Result<(), NoLogin> {
        if !self.service.gate.is_open() {
            return Err(NoLogin::Gate);
        }
        let pieces = Response::Login(response)
            .encode()
            .encode(Digests::default());
        let written = async {
            self.stream.write_all(&pieces.concat()).await?;
            self.stream.flush().await
        };
        written.await.map_err(NoLogin::Stream)
    }
}
