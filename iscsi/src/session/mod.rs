//! A session (RFC 7143 sections 4 and 7): PDUs in, actions out, without I/O and with the time passed
//! in.
//!
//! A connection begins as a [`login::Login`]; [`registry::Sessions`] then gives it a place in a
//! [`Session`], which may have several connections. After each `handle_*` the caller takes
//! [`Session::poll_action`] of its connection until there is none; actions of other connections wake
//! those. [`task`] holds commands in work, [`transfer`] their data, [`management`] what aborts them,
//! [`control`] everything else an initiator may say.

mod chap;
mod control;
pub mod login;
mod management;
pub mod negotiate;
pub mod registry;
mod sequence;
mod task;
mod transfer;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use portico_backend::budget::{Budget, Permit};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::{NOP_INTERVAL, PLACE_BYTES_MIN, SILENCE_MAX, WINDOW_MAX};
use crate::scsi::NexusId;
use crate::scsi::command::{Command, Outcome};
use crate::target::{LocalAddress, Target, Targets};
use crate::units::Units;
use crate::wire::WireError;
use crate::wire::deframe::Frame;
use crate::wire::header::{Header, RESERVED_TAG};
use crate::wire::request::{Numbers as RequestNumbers, Request};
use crate::wire::response::{NopIn, Numbers, Reject, RejectReason, Response};
use crate::wire::serial::Serial;
use control::TextExchange;
use management::Deferred;
use negotiate::{ConnectionParameters, SessionParameters};
use registry::Leftovers;
use sequence::{Arrival, Window};
use task::{AbortedTask, Task};

pub use management::{Management, ManagementKind};
pub use task::TaskKey;

/// A connection of a session; a new one that takes the place of another has another key.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnectionKey(pub u64);

/// What has to be done for a connection.
#[derive(Debug)]
pub enum Action {
    /// The hold is kept until the reply is written.
    Send(Response, Hold),
    /// Execute a command, then [`Session::handle_outcome`].
    Execute(TaskKey, Command),
    /// Do what concerns other sessions too, then [`Session::handle_managed`].
    Manage(Management),
    /// Write what was sent so far and end the connection.
    Close(CloseReason),
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// The initiator logged out.
    Logout,
    /// It said nothing for too long.
    Silence,
    /// It took too long to send what was asked for.
    Stalled,
    /// Another login took its place, or the session ended.
    Replaced,
    /// It broke the protocol beyond what a reject mends.
    Protocol,
    /// It was asked to log out and did not.
    Drained,
}

/// Bytes of the budget that a reply still occupies.
#[derive(Debug, Default)]
pub struct Hold {
    place: Option<Permit>,
    transfer: Option<Permit>,
}

impl Hold {
    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.place.is_none() && self.transfer.is_none()
    }
}

/// Bytes that a session waits for.
#[derive(Debug)]
pub struct Want {
    pub budget: Budget,
    pub bytes: u64,
    pub purpose: Purpose,
}

/// What they are for; the same is given back with the permit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// A place in the command window.
    Window,
    Task(TaskKey),
}

/// What a session is made of.
#[derive(Clone, Debug)]
pub struct SessionParts {
    pub tsih: u16,
    pub nexus: Arc<NexusId>,
    /// None for a discovery session.
    pub target: Option<Arc<Target>>,
    /// What the initiator may discover.
    pub targets: Arc<Targets>,
    /// The address that it reached.
    pub local: LocalAddress,
    pub units: Arc<Units>,
    pub parameters: SessionParameters,
    pub cmd_sn: Serial,
    /// Unsolicited data of commands that may come.
    pub window_budget: Budget,
    /// What that budget has in all.
    pub window_bytes: u64,
    /// Solicited data and large reads.
    pub budget: Budget,
    pub leftovers: Arc<Leftovers>,
}

/// A session in full feature phase.
#[derive(Debug)]
pub struct Session {
    parts: SessionParts,
    connections: Vec<Connection>,
    connections_made: u64,
    window: Window<Waiting>,
    /// By initiator task tag.
    tasks: HashMap<u32, Task>,
    tasks_made: u64,
    immediate_tasks: usize,
    /// Unfinished ordered and head-of-queue tasks of a LUN, if there are any.
    barriers: BTreeMap<u64, usize>,
    /// Commands that were aborted while they were executed: nothing recalls them.
    aborted: HashMap<TaskKey, AbortedTask>,
    deferred: Vec<Deferred>,
    transfer_tags: u32,
    has_ended: bool,
    /// Takes its actions at once and needs no wake.
    attended: Option<ConnectionKey>,
}

/// A command that waits for those before it.
#[derive(Debug)]
struct Waiting {
    at: Instant,
    connection: ConnectionKey,
    received: Received,
}

/// A request with what is not in it.
#[derive(Debug)]
struct Received {
    request: Request,
    header: Header,
    has_wrong_data: bool,
}

/// One connection of a session.
#[derive(Debug)]
struct Connection {
    key: ConnectionKey,
    cid: u16,
    parameters: ConnectionParameters,
    stat_sn: Serial,
    queue: VecDeque<Action>,
    /// No more is taken from it.
    is_closing: bool,
    heard_at: Instant,
    /// A NOP-In waits for its answer.
    is_asked: bool,
    logout_by: Option<Instant>,
    /// Tasks that wait for bytes, in order.
    waiting: VecDeque<TaskKey>,
    text: TextExchange,
    /// Functions that it asked for and that concern other sessions too.
    managing: usize,
    wake: Arc<Notify>,
}

impl Session {
    #[must_use]
    pub fn new(parts: SessionParts) -> Self {
        let window = Window::new(parts.cmd_sn);
        let mut session = Self {
            parts,
            connections: Vec::new(),
            connections_made: 0,
            window,
            tasks: HashMap::new(),
            tasks_made: 0,
            immediate_tasks: 0,
            barriers: BTreeMap::new(),
            aborted: HashMap::new(),
            deferred: Vec::new(),
            transfer_tags: 0,
            has_ended: false,
            attended: None,
        };
        session.open_window();
        session
    }

    #[must_use]
    pub fn parts(&self) -> &SessionParts {
        &self.parts
    }

    /// Whether no command can come: no place in the window could be had.
    #[must_use]
    pub fn is_window_closed(&self) -> bool {
        self.window.is_closed()
    }

    #[must_use]
    pub fn window(&self) -> (Serial, Serial) {
        (self.window.exp_cmd_sn(), self.window.max_cmd_sn())
    }

    /// Commands in work, those that were aborted and still run included.
    #[must_use]
    pub fn tasks_in_work(&self) -> usize {
        self.tasks.len() + self.aborted.len()
    }

    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Until it is called again, this connection's actions are taken without a wake.
    pub fn attend(&mut self, key: Option<ConnectionKey>) {
        self.attended = key;
    }

    /// Takes a connection in. One with the same id goes (section 6.3.4: connection reinstatement).
    ///
    /// `stat_sn`: of the last login response, which is sent yet.
    pub fn add_connection(
        &mut self,
        now: Instant,
        cid: u16,
        parameters: ConnectionParameters,
        stat_sn: Serial,
    ) -> (ConnectionKey, Arc<Notify>) {
        if let Some(old) = self.connections.iter().find(|one| one.cid == cid) {
            let key = old.key;
            self.close(key, CloseReason::Replaced);
            self.end_tasks_of(key);
        }
        self.connections_made += 1;
        let key = ConnectionKey(self.connections_made);
        let wake = Arc::new(Notify::new());
        self.connections.push(Connection {
            key,
            cid,
            parameters,
            stat_sn: stat_sn.next(),
            queue: VecDeque::new(),
            is_closing: false,
            heard_at: now,
            is_asked: false,
            logout_by: None,
            waiting: VecDeque::new(),
            text: TextExchange::default(),
            managing: 0,
            wake: Arc::clone(&wake),
        });
        (key, wake)
    }

    /// Whether a connection of this id is there.
    #[must_use]
    pub fn has_connection(&self, cid: u16) -> bool {
        self.connections
            .iter()
            .any(|one| one.cid == cid && !one.is_closing)
    }

    /// The connection's stream is gone. Returns whether the session is over: at error recovery
    /// level 0 it ends with its last connection.
    pub fn remove_connection(&mut self, key: ConnectionKey) -> bool {
        self.end_tasks_of(key);
        self.connections.retain(|one| one.key != key);
        self.deferred.retain(|one| one.connection() != key);
        self.window
            .cancel_where(|waiting| waiting.connection == key);
        self.release_held();
        self.has_ended = self.has_ended || self.connections.is_empty();
        self.has_ended && self.connections.is_empty()
    }

    /// Ends the session: another took its place, or its target is gone. What it executes goes on.
    pub fn end(&mut self) {
        self.has_ended = true;
        let keys: Vec<_> = self.connections.iter().map(|one| one.key).collect();
        for key in keys {
            self.close(key, CloseReason::Replaced);
            self.end_tasks_of(key);
        }
        self.window.close();
    }

    /// A frame of a connection.
    pub fn handle_pdu(&mut self, now: Instant, key: ConnectionKey, frame: Frame) {
        let Some(connection) = self.connection(key).filter(|one| !one.is_closing) else {
            return;
        };
        connection.heard_at = now;
        connection.is_asked = false;
        let (header, has_wrong_data) = (frame.header, frame.has_wrong_data);
        match Request::decode(frame) {
            Ok(request) => {
                let received = Received {
                    request,
                    header,
                    has_wrong_data,
                };
                self.order(now, key, received);
            }
            Err(error) => self.refuse(key, &header, error),
        }
    }

    /// What came of a command.
    pub fn handle_outcome(&mut self, key: TaskKey, outcome: &Outcome) {
        if self.aborted.remove(&key).is_some() {
            self.open_window();
            return;
        }
        self.complete(key, outcome);
    }

    /// Bytes that were wanted.
    pub fn handle_permit(&mut self, now: Instant, purpose: Purpose, permit: Permit) {
        match purpose {
            Purpose::Window => {
                let was_closed = self.window.is_closed();
                if was_closed {
                    self.window.add_place(permit);
                    self.announce_window();
                }
            }
            Purpose::Task(key) => self.reserve(now, key, permit),
        }
    }

    /// Time has come for something.
    pub fn handle_timeout(&mut self, now: Instant, key: ConnectionKey) {
        let stalled = self.has_stalled_task(now, key);
        let Some(connection) = self.connection(key).filter(|one| !one.is_closing) else {
            return;
        };
        let silence = now.saturating_duration_since(connection.heard_at);
        let reason = if silence >= SILENCE_MAX {
            Some(CloseReason::Silence)
        } else if connection.logout_by.is_some_and(|by| now >= by) {
            Some(CloseReason::Drained)
        } else if stalled {
            Some(CloseReason::Stalled)
        } else {
            None
        };
        if let Some(reason) = reason {
            return self.close(key, reason);
        }
        if silence >= NOP_INTERVAL && !connection.is_asked {
            connection.is_asked = true;
            self.ask(key);
        }
    }

    /// When [`Session::handle_timeout`] is to be called for a connection, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self, key: ConnectionKey) -> Option<Instant> {
        let connection = self.connections.iter().find(|one| one.key == key)?;
        let quiet = if connection.is_asked {
            SILENCE_MAX
        } else {
            NOP_INTERVAL
        };
        let due = connection.heard_at + quiet;
        Some(connection.logout_by.map_or(due, |by| due.min(by)))
    }

    /// The next thing to do for a connection.
    pub fn poll_action(&mut self, key: ConnectionKey) -> Option<Action> {
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let connection = self.connection(key)?;
        let mut action = connection.queue.pop_front()?;
        match &mut action {
            Action::Send(response, _) => connection.number(response, exp_cmd_sn, max_cmd_sn),
            Action::Execute(key, _) => {
                let key = *key;
                self.note_taken(key);
            }
            Action::Manage(_) | Action::Close(_) => {}
        }
        Some(action)
    }

    /// Bytes that a connection waits for, to be given with [`Session::handle_permit`].
    #[must_use]
    pub fn poll_want(&self, key: ConnectionKey) -> Option<Want> {
        let connection = self.connections.iter().find(|one| one.key == key)?;
        let mut waiting = connection.waiting.iter();
        let of_task = waiting.find_map(|key| Some((*key, self.task(*key)?.wanted_bytes)));
        if let Some((task, bytes)) = of_task {
            return Some(Want {
                budget: self.parts.budget.clone(),
                bytes,
                purpose: Purpose::Task(task),
            });
        }
        let is_first = self.connections.first().is_some_and(|one| one.key == key);
        (is_first && self.lacks_place() && !self.has_ended).then(|| Want {
            budget: self.parts.window_budget.clone(),
            bytes: self.place_bytes(),
            purpose: Purpose::Window,
        })
    }

    /// Puts a request where it belongs: commands in their order, the others at once.
    fn order(&mut self, now: Instant, key: ConnectionKey, received: Received) {
        let numbers = match numbers_of(&received.request) {
            Some(numbers) if !numbers.immediate => numbers,
            _ => return self.dispatch(now, key, received, None),
        };
        let is_early = numbers.cmd_sn != self.window.exp_cmd_sn();
        let bytes = u64::from(received.header.data_segment_length());
        if is_early && bytes > self.place_bytes() && self.window.cancel(numbers.cmd_sn) {
            // What waits for its turn holds what its place reserved, and no more.
            self.reject(key, RejectReason::InvalidPduField, &received.header);
            return self.release_held();
        }
        let waiting = Waiting {
            at: now,
            connection: key,
            received,
        };
        match self.window.arrive(numbers.cmd_sn, waiting) {
            Arrival::Now(waiting, place) => {
                self.dispatch(now, key, waiting.received, place);
                self.release_held();
            }
            Arrival::Later | Arrival::Never => self.open_window(),
        }
    }

    fn dispatch(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        received: Received,
        place: Option<Permit>,
    ) {
        let is_discovery = self.parts.target.is_none();
        let Received {
            request,
            header,
            has_wrong_data,
        } = received;
        match request {
            Request::ScsiCommand(_) | Request::TaskManagement(_) | Request::DataOut(_)
                if is_discovery =>
            {
                self.reject(key, RejectReason::CommandNotSupported, &header);
            }
            Request::ScsiCommand(pdu) => {
                let arrived = task::Arrived {
                    connection: key,
                    place,
                    header,
                    has_wrong_data,
                };
                self.handle_command(now, arrived, pdu);
            }
            Request::DataOut(pdu) => self.handle_data_out(now, key, pdu, &header),
            _ if has_wrong_data => self.reject(key, RejectReason::DataDigestError, &header),
            Request::TaskManagement(pdu) => self.handle_management(key, &pdu),
            Request::NopOut(pdu) => self.handle_nop(key, pdu, &header),
            Request::Text(pdu) => self.handle_text(key, &pdu, &header),
            Request::Logout(pdu) => self.handle_logout(key, &pdu),
            Request::Snack(_) => self.reject(key, RejectReason::SnackReject, &header),
            Request::Login(_) => {
                self.reject(key, RejectReason::ProtocolError, &header);
                self.close(key, CloseReason::Protocol);
            }
        }
    }

    /// Answers what could not be read. A command's number counts as taken, or all after it would
    /// wait for ever.
    fn refuse(&mut self, key: ConnectionKey, header: &Header, error: WireError) {
        let reason = match error {
            WireError::Opcode(_) => RejectReason::CommandNotSupported,
            WireError::Field(_) | WireError::AdditionalHeader => RejectReason::InvalidPduField,
            WireError::DataSegmentLength { .. } | WireError::HeaderDigest => {
                RejectReason::ProtocolError
            }
        };
        if !matches!(error, WireError::Opcode(_)) && !header.is_immediate() {
            let number = header.0[24..28].try_into().expect("four bytes");
            self.window.cancel(Serial(u32::from_be_bytes(number)));
            self.release_held();
        }
        self.reject(key, reason, header);
    }

    /// Delivers what waited for numbers that count as done now.
    fn release_held(&mut self) {
        while let Some((waiting, place)) = self.window.next() {
            self.dispatch(waiting.at, waiting.connection, waiting.received, place);
        }
        self.release_deferred();
        self.open_window();
    }

    fn reject(&mut self, key: ConnectionKey, reason: RejectReason, header: &Header) {
        let reject = Reject {
            reason,
            numbers: NUMBERS,
            data_sn: 0,
            header: bytes::Bytes::copy_from_slice(&header.0),
        };
        self.send(key, Response::Reject(reject), Hold::default());
    }

    fn send(&mut self, key: ConnectionKey, response: Response, hold: Hold) {
        self.push(key, Action::Send(response, hold));
    }

    fn push(&mut self, key: ConnectionKey, action: Action) {
        let attended = self.attended;
        if let Some(connection) = self.connection(key).filter(|one| !one.is_closing) {
            connection.queue.push_back(action);
            if attended != Some(key) {
                connection.wake.notify_one();
            }
        }
    }

    fn close(&mut self, key: ConnectionKey, reason: CloseReason) {
        self.push(key, Action::Close(reason));
        if let Some(connection) = self.connection(key) {
            connection.is_closing = true;
        }
    }

    fn connection(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|one| one.key == key)
    }

    /// Whether it can neither send a command nor has one in work. Half of the budget is for those:
    /// sessions that could have more places do not keep others from their first.
    fn lacks_place(&self) -> bool {
        self.window.is_closed() && self.tasks.is_empty()
    }

    /// Reserves places in the window as far as bytes are free.
    fn open_window(&mut self) {
        if self.has_ended {
            return;
        }
        let wanted = self.window.places_wanted(self.tasks_in_work());
        for _ in 0..wanted {
            let free = self.parts.window_budget.free_bytes();
            if !self.lacks_place() && free <= self.parts.window_bytes / 2 {
                break;
            }
            match self.parts.window_budget.try_take(self.place_bytes()) {
                Some(permit) => self.window.add_place(permit),
                None => break,
            }
        }
    }

    /// Says that the window is open again, where no other reply would.
    fn announce_window(&mut self) {
        let keys: Vec<_> = self.connections.iter().map(|one| one.key).collect();
        for key in keys {
            let nop = NopIn {
                lun: 0,
                itt: RESERVED_TAG,
                ttt: RESERVED_TAG,
                numbers: NUMBERS,
                data: bytes::Bytes::new(),
            };
            self.send(key, Response::NopIn(nop), Hold::default());
        }
    }

    /// Bytes of one place: what a command may bring along unasked.
    fn place_bytes(&self) -> u64 {
        let parameters = &self.parts.parameters;
        let unasked = if parameters.immediate_data || !parameters.initial_r2t {
            parameters.first_burst_bytes
        } else {
            0
        };
        u64::from(unasked).max(PLACE_BYTES_MIN)
    }

    fn next_transfer_tag(&mut self) -> u32 {
        self.transfer_tags = match self.transfer_tags.wrapping_add(1) {
            RESERVED_TAG => 0,
            tag => tag,
        };
        self.transfer_tags
    }
}

impl Connection {
    /// Fills in the numbers at the moment at which a reply leaves.
    fn number(&mut self, response: &mut Response, exp_cmd_sn: Serial, max_cmd_sn: Serial) {
        let takes_number = match response {
            Response::ReadyToTransfer(_) => false,
            Response::DataIn(pdu) => pdu.status.is_some(),
            // A NOP-In that no NOP-Out asked for.
            Response::NopIn(pdu) => pdu.itt != RESERVED_TAG,
            Response::Scsi(_)
            | Response::TaskManagement(_)
            | Response::Login(_)
            | Response::Text(_)
            | Response::Logout(_)
            | Response::AsyncMessage(_)
            | Response::Reject(_) => true,
        };
        *numbers_in(response) = Numbers {
            stat_sn: self.stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
        };
        if takes_number {
            self.stat_sn = self.stat_sn.next();
        }
    }
}

/// Filled in when a reply leaves.
const NUMBERS: Numbers = Numbers {
    stat_sn: Serial(0),
    exp_cmd_sn: Serial(0),
    max_cmd_sn: Serial(0),
};

fn numbers_in(response: &mut Response) -> &mut Numbers {
    match response {
        Response::NopIn(pdu) => &mut pdu.numbers,
        Response::Scsi(pdu) => &mut pdu.numbers,
        Response::TaskManagement(pdu) => &mut pdu.numbers,
        Response::Login(pdu) => &mut pdu.numbers,
        Response::Text(pdu) => &mut pdu.numbers,
        Response::DataIn(pdu) => &mut pdu.numbers,
        Response::Logout(pdu) => &mut pdu.numbers,
        Response::ReadyToTransfer(pdu) => &mut pdu.numbers,
        Response::AsyncMessage(pdu) => &mut pdu.numbers,
        Response::Reject(pdu) => &mut pdu.numbers,
    }
}

/// Numbers of requests that stand in the order of commands.
fn numbers_of(request: &Request) -> Option<RequestNumbers> {
    match request {
        Request::NopOut(pdu) => Some(pdu.numbers),
        Request::ScsiCommand(pdu) => Some(pdu.numbers),
        Request::TaskManagement(pdu) => Some(pdu.numbers),
        Request::Text(pdu) => Some(pdu.numbers),
        Request::Logout(pdu) => Some(pdu.numbers),
        Request::Login(_) | Request::DataOut(_) | Request::Snack(_) => None,
    }
}

const _: () = assert!(WINDOW_MAX < 1 << 30);
