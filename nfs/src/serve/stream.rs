//! One connection: a loop that reads, begins calls, and writes what has ended.

use std::future::{Future, pending, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll as Ready};

use bytes::{BufMut, Bytes};
use portico_backend::budget::Permit;
use portico_backend::connection::Stop;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadHalf, WriteHalf};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::dispatch::{Transport, answer};
use super::{Ends, Service};
use crate::limits::{IDLE_TIMEOUT, READ_AHEAD_BYTES, WRITE_SLICES_MAX};
use crate::session::call::Tls;
use crate::session::connection::{Connection, Hold, Poll};
use crate::wire::program;

/// A call that has ended: what it occupies, and the parts of its reply.
type Ended = (Hold<Permit>, Option<Vec<Bytes>>);

/// A permit on its way, for so many bytes.
type Asked = (usize, Pin<Box<dyn Future<Output = Permit> + Send>>);

/// Serves one connection to its end. After `stop` is requested nothing more is read, and it ends when all
/// calls are answered. Dropping the future cuts the connection; calls that run end all the same.
///
/// The caller accepts and sets `TCP_NODELAY`.
pub async fn serve<S>(stream: S, ends: Ends, service: Arc<Service>, stop: Stop)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let Ok(_place) = Arc::clone(&service.places).try_acquire_owned() else {
        tracing::debug!(peer = %ends.peer, "too many connections");
        return;
    };
    let (input, output) = tokio::io::split(stream);
    let mut serving = Serving {
        input,
        output,
        connection: Connection::new(program::ALL, Tls::Unavailable),
        calls: JoinSet::new(),
        asked: None,
        ends,
        service,
        last: Instant::now(),
    };
    if let Err(error) = serving.run(&stop).await {
        tracing::debug!(peer = %ends.peer, %error, "connection ended");
    }
    serving.calls.detach_all();
}

struct Serving<S> {
    input: ReadHalf<S>,
    output: WriteHalf<S>,
    connection: Connection<Permit>,
    calls: JoinSet<Ended>,
    asked: Option<Asked>,
    ends: Ends,
    service: Arc<Service>,
    /// When bytes came or went last.
    last: Instant,
}

impl<S: AsyncRead + AsyncWrite> Serving<S> {
    async fn run(&mut self, stop: &Stop) -> io::Result<()> {
        loop {
            let wanted = self.next_read()?;
            let is_stopped = stop.is_requested();
            if is_stopped && self.connection.calls() == 0 {
                return Ok(());
            }
            let wanted = wanted.filter(|_| !is_stopped);
            let deadline = self.last + IDLE_TIMEOUT;
            let is_idle = self.calls.is_empty();
            let transfer = transfer(
                &mut self.input,
                &mut self.output,
                &mut self.connection,
                wanted,
            );
            tokio::select! {
                biased;
                Some(ended) = self.calls.join_next() => self.ended(ended)?,
                moved = transfer => match moved? {
                    Moved::Written(bytes) => self.written(bytes),
                    Moved::Read(0) => return self.drain().await,
                    Moved::Read(_) => self.last = Instant::now(),
                },
                permit = granted(&mut self.asked) => {
                    let (bytes, _) = self.asked.take().expect("it was asked for");
                    self.connection.grant(permit, bytes);
                }
                () = stop.requested(), if !is_stopped => {}
                () = sleep_until(deadline), if is_idle => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }

    fn written(&mut self, bytes: usize) {
        self.connection.written(bytes);
        self.last = Instant::now();
    }

    /// Begins what can begin. Returns how much is to be read, if anything is.
    fn next_read(&mut self) -> io::Result<Option<usize>> {
        while self.asked.is_none() {
            match self.connection.poll().map_err(io::Error::other)? {
                Poll::Call(call, hold) => {
                    let (service, ends) = (Arc::clone(&self.service), self.ends);
                    self.calls.spawn(async move {
                        let parts = answer(&service, ends, Transport::Stream, *call).await;
                        (hold, parts)
                    });
                }
                Poll::Permit(bytes) => {
                    let budget = self.service.budget.clone();
                    let permit = async move { budget.take(bytes as u64).await };
                    self.asked = Some((bytes, Box::pin(permit)));
                }
                Poll::Read(bytes) => return Ok(Some(bytes)),
                Poll::Full => return Ok(None),
                Poll::StartTls => unreachable!("it is not offered"),
            }
        }
        Ok(None)
    }

    fn ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) -> io::Result<()> {
        let (hold, parts) = ended.map_err(io::Error::other)?;
        if !self.service.gate.is_open() {
            return Err(io::Error::other("the node may not answer"));
        }
        if let Some(parts) = parts {
            self.connection.reply(hold, parts);
        }
        Ok(())
    }

    /// The client sends nothing more, and may still read.
    async fn drain(&mut self) -> io::Result<()> {
        while let Some(ended) = self.calls.join_next().await {
            self.ended(ended)?;
        }
        while self.connection.output_bytes() > 0 {
            let Self {
                input,
                output,
                connection,
                ..
            } = self;
            let writing = transfer(input, output, connection, None);
            let moved = tokio::time::timeout(IDLE_TIMEOUT, writing).await??;
            if let Moved::Written(bytes) = moved {
                self.written(bytes);
            }
        }
        Ok(())
    }
}

async fn granted(asked: &mut Option<Asked>) -> Permit {
    match asked {
        Some((_, permit)) => permit.await,
        None => pending().await,
    }
}

/// Bytes that went or came.
enum Moved {
    Written(usize),
    Read(usize),
}

/// Writes what the stream takes, or reads what is wanted and what may be read ahead.
async fn transfer<S: AsyncRead + AsyncWrite>(
    input: &mut ReadHalf<S>,
    output: &mut WriteHalf<S>,
    connection: &mut Connection<Permit>,
    wanted: Option<usize>,
) -> io::Result<Moved> {
    poll_fn(|cx: &mut Context<'_>| {
        if connection.output_bytes() > 0 {
            let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
            let count = connection.output(&mut slices);
            match Pin::new(&mut *output).poll_write_vectored(cx, &slices[..count]) {
                Ready::Ready(Ok(0)) => return Ready::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ready::Ready(written) => return Ready::Ready(written.map(Moved::Written)),
                Ready::Pending => {}
            }
        }
        let Some(wanted) = wanted else {
            return Ready::Pending;
        };
        let bytes = wanted.max(READ_AHEAD_BYTES);
        let buffer = connection.buffer();
        buffer.reserve(bytes);
        let mut room = buffer.limit(bytes);
        pin!(input.read_buf(&mut room)).poll(cx).map_ok(Moved::Read)
    })
    .await
}
