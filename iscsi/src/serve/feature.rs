//! A connection in full feature phase: one task, which polls everything it waits for.
//!
//! A command is polled when it arrives, so that one that ends at once costs no wake; what does not
//! is kept aside. All frames of a read are handled before anything is written, and all replies go
//! out in as few writes as the stream allows.

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use portico_backend::budget::Permit;
use portico_backend::connection::Stop;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::Service;
use super::entry::{Entered, Member};
use super::output::Output;
use crate::limits::{
    NOP_INTERVAL, READ_BYTES_MAX, READ_BYTES_MIN, RECEIVE_DATA_BYTES_MAX, RESET_TIMEOUT,
    WRITE_TIMEOUT,
};
use crate::scsi::command::{Outcome, Status};
use crate::session::{Action, CloseReason, ConnectionKey, Management, Purpose, Session, TaskKey};
use crate::units::Execution;
use crate::wire::WireError;
use crate::wire::deframe::{self, Deframer, Digests};
use crate::wire::response::{Response, TaskOutcome};

/// Why a connection ended.
pub(super) enum Ended {
    /// The initiator closed it.
    Peer,
    Stream(io::Error),
    Wire(WireError),
    Session(CloseReason),
    /// This node may not answer any more.
    Gate,
    /// The initiator takes no replies.
    Unread,
}

/// Bytes that are being waited for, and what for.
type Wanted = (Purpose, Pin<Box<dyn Future<Output = Permit> + Send>>);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("the initiator closed it"),
            Self::Stream(error) => write!(f, "the stream ended: {error}"),
            Self::Wire(error) => write!(f, "{error}"),
            Self::Session(reason) => write!(f, "{reason:?}"),
            Self::Gate => f.write_str("the node may not answer"),
            Self::Unread => f.write_str("the initiator takes no replies"),
        }
    }
}

type Managed = Pin<Box<dyn Future<Output = (Management, TaskOutcome)> + Send>>;

/// A connection in full feature phase.
pub(super) struct FullFeature<S> {
    stream: S,
    deframer: Deframer,
    digests: Digests,
    member: Member,
    service: Arc<Service>,
    stop: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    wake: Arc<Notify>,
    woken: Pin<Box<OwnedNotified>>,
    timer: Pin<Box<Sleep>>,
    executions: FuturesUnordered<Running>,
    managed: FuturesUnordered<Managed>,
    wanted: Option<Wanted>,
    actions: Vec<Action>,
    output: Output,
    /// When a byte of the output was taken last, or the output was empty.
    written_at: Instant,
    read_bytes: usize,
    closing: Option<CloseReason>,
}

/// A command in work.
struct Running {
    key: TaskKey,
    begun: Instant,
    execution: Execution,
}

impl Future for Running {
    type Output = (TaskKey, Instant, Outcome);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.execution.as_mut().poll(cx));
        Poll::Ready((self.key, self.begun, outcome))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> FullFeature<S> {
    pub(super) fn new(entered: Entered<S>, service: Arc<Service>, stop: Stop) -> Self {
        let mut deframer = entered.deframer;
        let digests = entered.parameters.digests;
        deframer.set_limits(digests, RECEIVE_DATA_BYTES_MAX);
        let now = Instant::now();
        Self {
            stream: entered.stream,
            deframer,
            digests,
            member: entered.member,
            service,
            stop: Some(Box::pin(async move { stop.requested().await })),
            woken: Box::pin(Arc::clone(&entered.wake).notified_owned()),
            wake: entered.wake,
            timer: Box::pin(sleep_until(now + NOP_INTERVAL)),
            executions: FuturesUnordered::new(),
            managed: FuturesUnordered::new(),
            wanted: None,
            actions: Vec::new(),
            output: Output::default(),
            written_at: now,
            read_bytes: READ_BYTES_MIN,
            closing: None,
        }
    }

    /// Runs the connection to its end.
    pub(super) async fn run(mut self) -> Ended {
        // Bytes may have come with the last login request.
        let leftover = self.take_frames();
        let ended = match leftover {
            Ok(()) => std::future::poll_fn(|cx| self.poll(cx)).await,
            Err(error) => Ended::Wire(error),
        };
        match ended {
            Ended::Wire(_) | Ended::Unread | Ended::Session(CloseReason::Silence) => {
                self.service.stats.connections_cut.add(1);
            }
            Ended::Peer | Ended::Stream(_) | Ended::Session(_) | Ended::Gate => {}
        }
        ended
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            let mut has_moved = self.poll_outcomes(cx);
            has_moved |= self.poll_events(cx);
            match self.poll_read(cx) {
                Ok(read) => has_moved |= read,
                Err(ended) => return Poll::Ready(ended),
            }
            self.act(cx);
            has_moved |= self.poll_want(cx);
            match self.poll_output(cx) {
                Ok(written) => has_moved |= written,
                Err(ended) => return Poll::Ready(ended),
            }
            if let Some(reason) = self.closing
                && self.output.is_empty()
            {
                return Poll::Ready(Ended::Session(reason));
            }
            if !has_moved {
                return Poll::Pending;
            }
        }
    }

    /// Commands and functions that have ended.
    fn poll_outcomes(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while let Poll::Ready(Some((key, begun, outcome))) = self.executions.poll_next_unpin(cx) {
            has_moved = true;
            self.record(begun, &outcome);
            self.step(|session, _| session.handle_outcome(key, &outcome));
        }
        while let Poll::Ready(Some((management, outcome))) = self.managed.poll_next_unpin(cx) {
            has_moved = true;
            self.step(|session, key| session.handle_managed(key, &management, outcome));
            let sessions = &self.service.sessions;
            sessions.end_target(&self.member.session, &management);
        }
        has_moved
    }

    /// Wakes by other connections, the timer, and the request to stop.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        if self.woken.as_mut().poll(cx).is_ready() {
            has_moved = true;
            self.woken.set(Arc::clone(&self.wake).notified_owned());
            self.step(|_, _| ());
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            has_moved = true;
            let now = Instant::now();
            self.step(|session, key| session.handle_timeout(now, key));
            let key = self.member.key;
            let due = self.member.session.lock().poll_timeout(key);
            // At least a moment from now, or it would spin while a close is written.
            let due = due.unwrap_or(now + NOP_INTERVAL);
            self.timer.as_mut().reset(due.max(now + TICK));
        }
        if let Some(stop) = &mut self.stop
            && stop.as_mut().poll(cx).is_ready()
        {
            has_moved = true;
            self.stop = None;
            let now = Instant::now();
            self.step(|session, key| session.request_logout(now, key));
            self.timer
                .as_mut()
                .reset(now + crate::limits::LOGOUT_TIMEOUT);
        }
        has_moved
    }

    /// Reads what there is and handles all frames of it.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        if self.closing.is_some() || self.output.is_full() {
            return Ok(false);
        }
        let wanted = match self.deframer.poll() {
            Ok(deframe::Poll::Wanted(bytes)) => bytes,
            // `take_frames` leaves none behind.
            Ok(deframe::Poll::Frame(_)) => return Ok(false),
            Err(error) => return Err(Ended::Wire(error)),
        };
        let room = self.read_bytes.max(wanted);
        let buffer = self.deframer.buffer();
        buffer.reserve(room);
        let read = pin!(self.stream.read_buf(buffer)).poll(cx);
        let count = match read {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(error)) => return Err(Ended::Stream(error)),
            Poll::Ready(Ok(0)) => return Err(Ended::Peer),
            Poll::Ready(Ok(count)) => count,
        };
        self.read_bytes = if count >= room {
            (self.read_bytes * 2).min(READ_BYTES_MAX)
        } else if count < self.read_bytes / 4 {
            (self.read_bytes / 2).max(READ_BYTES_MIN)
        } else {
            self.read_bytes
        };
        self.service.stats.bytes_in.add(count as u64);
        self.take_frames().map_err(Ended::Wire)?;
        Ok(true)
    }

    fn take_frames(&mut self) -> Result<(), WireError> {
        let now = Instant::now();
        let key = self.member.key;
        let mut session = self.member.session.lock();
        session.attend(Some(key));
        let mut result = Ok(());
        loop {
            match self.deframer.poll() {
                Ok(deframe::Poll::Frame(frame)) => session.handle_pdu(now, key, frame),
                Ok(deframe::Poll::Wanted(_)) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        collect(&mut session, key, &mut self.actions);
        result
    }

    /// One step of the session, and what it wants done.
    fn step(&mut self, step: impl FnOnce(&mut Session, ConnectionKey)) {
        let key = self.member.key;
        let mut session = self.member.session.lock();
        session.attend(Some(key));
        step(&mut session, key);
        collect(&mut session, key, &mut self.actions);
    }

    /// Does what the session wants, until there is nothing more.
    fn act(&mut self, cx: &mut Context<'_>) {
        let mut actions = Vec::new();
        if !self.output.has_bytes() && !self.actions.is_empty() {
            self.written_at = Instant::now();
        }
        while !self.actions.is_empty() {
            std::mem::swap(&mut actions, &mut self.actions);
            let mut outcomes = Vec::new();
            for action in actions.drain(..) {
                match action {
                    Action::Send(response, hold) => {
                        if matches!(response, Response::Reject(_)) {
                            self.service.stats.rejects.add(1);
                        }
                        let is_reserved = matches!(
                            response,
                            Response::DataIn(_) | Response::ReadyToTransfer(_) | Response::Scsi(_)
                        );
                        let frame = response.encode();
                        self.output.push(&frame, self.digests, hold, is_reserved);
                    }
                    Action::Execute(key, command) => {
                        let session = &self.member.session;
                        let execution = session.execute(command);
                        let mut running = Running {
                            key,
                            begun: Instant::now(),
                            execution,
                        };
                        match Pin::new(&mut running).poll(cx) {
                            Poll::Ready(ended) => outcomes.push(ended),
                            Poll::Pending => self.executions.push(running),
                        }
                        // What waits is polled once more below, with its own waker.
                    }
                    Action::Manage(management) => self.manage(management),
                    Action::Close(reason) => self.closing = Some(reason),
                }
            }
            for (key, begun, outcome) in outcomes {
                self.record(begun, &outcome);
                self.step(|session, _| session.handle_outcome(key, &outcome));
            }
            self.poll_outcomes(cx);
        }
        // The buffer is kept for the next round.
        self.actions = actions;
    }

    fn manage(&mut self, management: Management) {
        self.service.stats.management.add(1);
        let service = Arc::clone(&self.service);
        let session = &self.member.session;
        service.sessions.manage(session, &management);
        let begun = Instant::now();
        self.managed.push(Box::pin(async move {
            if !management.kind.is_reset() {
                return (management, TaskOutcome::Complete);
            }
            let settled = service.sessions.settled(&management.units);
            let outcome = match timeout(RESET_TIMEOUT, settled).await {
                Ok(()) => TaskOutcome::Complete,
                Err(_) if service.cut_off.run(begun).await => TaskOutcome::Complete,
                // What was aborted may still change the unit.
                Err(_) => TaskOutcome::Rejected,
            };
            (management, outcome)
        }));
    }

    /// Bytes that the session waits for.
    fn poll_want(&mut self, cx: &mut Context<'_>) -> bool {
        if self.wanted.is_none() {
            let key = self.member.key;
            let want = self.member.session.lock().poll_want(key);
            self.wanted = want.map(|want| {
                let (budget, bytes) = (want.budget, want.bytes);
                let taken: Pin<Box<dyn Future<Output = Permit> + Send>> =
                    Box::pin(async move { budget.take(bytes).await });
                (want.purpose, taken)
            });
        }
        let Some((purpose, taken)) = &mut self.wanted else {
            return false;
        };
        let Poll::Ready(permit) = taken.as_mut().poll(cx) else {
            return false;
        };
        let (purpose, now) = (*purpose, Instant::now());
        self.wanted = None;
        self.step(|session, _| session.handle_permit(now, purpose, permit));
        true
    }

    /// Writes what waits, if this node may answer.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        if self.output.is_empty() {
            return Ok(false);
        }
        let now = Instant::now();
        if !self.service.gate.is_open() {
            return Err(Ended::Gate);
        }
        match self.output.poll_write(&mut self.stream, cx) {
            Poll::Ready(Ok(bytes)) => {
                self.written_at = now;
                self.service.stats.bytes_out.add(bytes as u64);
                Ok(bytes > 0)
            }
            Poll::Ready(Err(error)) => Err(Ended::Stream(error)),
            Poll::Pending => {
                let waited = now.saturating_duration_since(self.written_at);
                match self.output.has_bytes() && waited >= WRITE_TIMEOUT {
                    true => Err(Ended::Unread),
                    false => Ok(false),
                }
            }
        }
    }

    fn record(&self, begun: Instant, outcome: &Outcome) {
        let stats = &self.service.stats;
        stats.commands.add(1);
        if outcome.status != Status::Good {
            stats.commands_failed.add(1);
        }
        let elapsed = begun.elapsed();
        stats.service.record(elapsed);
        self.member.session.stats().record(elapsed, outcome);
    }
}

impl<S> Drop for FullFeature<S> {
    /// Commands that run end all the same: nothing recalls them, and whoever resets the unit waits
    /// for them.
    fn drop(&mut self) {
        let session = Arc::clone(&self.member.session);
        for action in self.actions.drain(..) {
            // It was taken up and is not begun: nobody is to wait for it.
            if let Action::Execute(key, _) = action {
                session.lock().handle_outcome(key, &Outcome::busy());
            }
        }
        if self.executions.is_empty() {
            return;
        }
        let mut executions = std::mem::take(&mut self.executions);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                while let Some((key, _, outcome)) = executions.next().await {
                    session.lock().handle_outcome(key, &outcome);
                }
            });
        }
    }
}

/// The least time between two looks at the clock.
const TICK: std::time::Duration = std::time::Duration::from_millis(100);

fn collect(session: &mut Session, key: ConnectionKey, actions: &mut Vec<Action>) {
    while let Some(action) = session.poll_action(key) {
        actions.push(action);
    }
    session.attend(None);
}
