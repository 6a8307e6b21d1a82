//! Commands in work: when each may start (SAM-5 8), and what is left of those that were aborted.

use std::collections::VecDeque;

use bytes::Bytes;
use portico_backend::budget::Permit;
use portico_backend::object::Payload;
use tokio::time::Instant;

use super::registry::Leftover;
use super::transfer::OutstandingTransfer;
use super::{Action, ConnectionKey, Hold, Session};
use crate::limits::IMMEDIATE_TASKS_MAX;
use crate::scsi::command::{Command, Outcome, Status};
use crate::scsi::limits::TRANSFER_BYTES_MAX;
use crate::units::UnitId;
use crate::wire::header::{Header, RESERVED_TAG};
use crate::wire::request::{ScsiCommand, TaskAttribute};
use crate::wire::response::RejectReason;

/// One task: tags are used again, numbers are not. Numbers rise in the order of commands.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TaskKey {
    number: u64,
    itt: u32,
}

/// A command in work.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) key: TaskKey,
    pub(super) connection: ConnectionKey,
    pub(super) phase: Phase,
    pub(super) command: ScsiCommand,
    /// What its LUN was when it came.
    pub(super) unit: Option<UnitId>,
    /// Data-Out as it comes, in order.
    pub(super) data: Vec<Bytes>,
    pub(super) received: u64,
    /// Data-Out that the command can use and the initiator has.
    pub(super) needed: u64,
    /// Unsolicited Data-Out is still to come.
    pub(super) is_unsolicited: bool,
    /// `DataSN` of the next PDU of that.
    pub(super) unsolicited_sn: u32,
    pub(super) transfers: VecDeque<OutstandingTransfer>,
    /// Data-Out that was sent unasked or asked for.
    pub(super) requested: u64,
    pub(super) r2t_sn: u32,
    /// When data was asked for or came last.
    pub(super) moved_at: Instant,
    /// Additional sense code and qualifier of what went wrong with the transfer.
    pub(super) failure: Option<(u8, u8)>,
    /// Bytes that are still to be reserved before it goes on.
    pub(super) wanted_bytes: u64,
    pub(super) hold: Hold,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Data-Out is missing.
    Receiving,
    /// It waits for tasks before it.
    Queued,
    /// Its connection has not taken it up.
    Ready,
    Running,
}

/// What a running command leaves behind when it is aborted: its bytes, and for one that may change
/// the unit the word to those who reset it.
#[derive(Debug)]
pub(super) struct AbortedTask {
    _hold: Hold,
    _leftover: Option<Leftover>,
}

/// A command as it arrived.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) connection: ConnectionKey,
    pub(super) place: Option<Permit>,
    pub(super) header: Header,
    pub(super) has_wrong_data: bool,
}

/// Additional sense codes of a failed transfer (section 11.4.7.2).
pub(super) const DIGEST_FAILED: (u8, u8) = (0x47, 0x05);
pub(super) const UNEXPECTED_DATA: (u8, u8) = (0x0c, 0x0c);
pub(super) const INCORRECT_AMOUNT: (u8, u8) = (0x0c, 0x0d);
/// INVALID MESSAGE ERROR: no condition that the ACA attribute is for is ever established.
const ACA_ATTRIBUTE: (u8, u8) = (0x49, 0x00);

impl Session {
    pub(super) fn task(&self, key: TaskKey) -> Option<&Task> {
        self.tasks.get(&key.itt).filter(|task| task.key == key)
    }

    pub(super) fn task_mut(&mut self, key: TaskKey) -> Option<&mut Task> {
        self.tasks.get_mut(&key.itt).filter(|task| task.key == key)
    }

    pub(super) fn handle_command(&mut self, now: Instant, mut arrived: Arrived, pdu: ScsiCommand) {
        let connection = arrived.connection;
        if pdu.itt == RESERVED_TAG {
            return self.reject(connection, RejectReason::InvalidPduField, &arrived.header);
        }
        if self.tasks.contains_key(&pdu.itt) {
            return self.reject(connection, RejectReason::TaskInProgress, &arrived.header);
        }
        if arrived.has_wrong_data {
            self.reject(connection, RejectReason::DataDigestError, &arrived.header);
        }
        let failure = match arrived.has_wrong_data {
            true => Some(DIGEST_FAILED),
            false => self.unfit(&pdu),
        };
        let is_immediate = pdu.numbers.immediate;
        if is_immediate {
            // It comes outside of the window, and costs the same.
            arrived.place = self.parts.window_budget.try_take(self.place_bytes());
        }
        let mut task = self.new_task(now, arrived, pdu);
        task.failure = failure;
        if failure.is_some() {
            task.data.clear();
        }
        let has_no_place = self.immediate_tasks >= IMMEDIATE_TASKS_MAX || task.hold.place.is_none();
        if is_immediate && has_no_place {
            let full = Outcome::of_status(Status::TaskSetFull);
            return self.respond(task, &full);
        }
        self.immediate_tasks += usize::from(is_immediate);
        if is_barrier(&task.command) {
            *self.barriers.entry(task.command.lun).or_default() += 1;
        }
        let key = task.key;
        self.tasks.insert(key.itt, task);
        self.proceed(now, key);
    }

    /// What is wrong with the data that a command brings or announces.
    fn unfit(&self, pdu: &ScsiCommand) -> Option<(u8, u8)> {
        let parameters = &self.parts.parameters;
        let bytes = u32::try_from(pdu.immediate_data.len()).expect("a data segment has 24 bits");
        let most = parameters.first_burst_bytes.min(pdu.expected_bytes);
        let is_unasked = bytes > 0 && !(pdu.writes && parameters.immediate_data && bytes <= most);
        let announces_more = !pdu.is_final && (!pdu.writes || parameters.initial_r2t);
        if is_unasked || announces_more {
            return Some(UNEXPECTED_DATA);
        }
        (pdu.attribute == TaskAttribute::Aca).then_some(ACA_ATTRIBUTE)
    }

    fn new_task(&mut self, now: Instant, arrived: Arrived, mut command: ScsiCommand) -> Task {
        self.tasks_made += 1;
        let key = TaskKey {
            number: self.tasks_made,
            itt: command.itt,
        };
        let data = std::mem::take(&mut command.immediate_data);
        let received = match arrived.has_wrong_data {
            true => 0,
            false => data.len() as u64,
        };
        let needed = match command.writes {
            true => {
                let usable = (self.parts.units.data_out_bytes_max)(&command.cdb, command.lun);
                usable.min(u64::from(command.expected_bytes))
            }
            false => 0,
        };
        let unit = (self.parts.units.unit)(command.lun);
        let mut task = Task {
            key,
            connection: arrived.connection,
            phase: Phase::Receiving,
            data: Vec::new(),
            received,
            needed,
            is_unsolicited: command.writes && !command.is_final,
            unsolicited_sn: 0,
            transfers: VecDeque::new(),
            requested: received,
            r2t_sn: 0,
            moved_at: now,
            failure: None,
            wanted_bytes: 0,
            hold: Hold {
                place: arrived.place,
                transfer: None,
            },
            command,
            unit,
        };
        if received > 0 {
            task.data.push(data);
        }
        // Small reads fit into what the place in the window reserved; no command returns more than
        // the longest transfer, whatever an initiator has room for.
        let read = u64::from(task.data_in_bytes_max()).min(TRANSFER_BYTES_MAX);
        let has_room = task.hold.place.is_some() && read <= self.place_bytes();
        task.wanted_bytes = if has_room { 0 } else { read };
        task
    }

    /// Starts a task that has its data, if it is its turn.
    pub(super) fn take_turn(&mut self, key: TaskKey) {
        let Some(task) = self.task(key) else {
            return;
        };
        let lun = task.command.lun;
        let has_to_wait = self.barriers.contains_key(&lun) && self.is_behind(task);
        let Some(task) = self.task_mut(key) else {
            return;
        };
        if has_to_wait {
            task.phase = Phase::Queued;
            return;
        }
        task.phase = Phase::Ready;
        let (connection, command) = (task.connection, task.take_command());
        self.push(connection, Action::Execute(key, command));
    }

    /// A connection takes a command up.
    pub(super) fn note_taken(&mut self, key: TaskKey) {
        if let Some(task) = self.task_mut(key) {
            task.phase = Phase::Running;
        }
    }

    /// Whether a task has to wait for one that came before: ordered tasks wait for all, simple ones
    /// for ordered ones and those at the head of the queue (SAM-5 8.6).
    fn is_behind(&self, task: &Task) -> bool {
        let attribute = task.command.attribute;
        if attribute == TaskAttribute::HeadOfQueue {
            return false;
        }
        let is_ordered = attribute == TaskAttribute::Ordered;
        self.tasks.values().any(|other| {
            other.command.lun == task.command.lun
                && other.key < task.key
                && (is_ordered || is_barrier(&other.command))
        })
    }

    /// Starts what waited for a task of the LUN that is gone.
    pub(super) fn take_turns(&mut self, lun: u64) {
        let is_queued = |task: &&Task| task.command.lun == lun && task.phase == Phase::Queued;
        let mut keys: Vec<TaskKey> = {
            let queued = self.tasks.values().filter(is_queued);
            queued.map(|task| task.key).collect()
        };
        keys.sort_unstable();
        for key in keys {
            self.take_turn(key);
        }
    }

    /// Takes a task out of the books.
    pub(super) fn remove(&mut self, key: TaskKey) -> Option<Task> {
        self.task(key)?;
        let task = self.tasks.remove(&key.itt)?;
        self.immediate_tasks -= usize::from(task.command.numbers.immediate);
        if task.wanted_bytes > 0
            && let Some(connection) = self.connection(task.connection)
        {
            connection.waiting.retain(|waiting| *waiting != key);
        }
        let lun = task.command.lun;
        if is_barrier(&task.command)
            && let Some(count) = self.barriers.get_mut(&lun)
        {
            *count -= 1;
            if *count == 0 {
                self.barriers.remove(&lun);
            }
        }
        Some(task)
    }

    /// An outcome of a task that was not aborted.
    pub(super) fn complete(&mut self, key: TaskKey, outcome: &Outcome) {
        let had_barrier = self
            .task(key)
            .is_some_and(|task| self.barriers.contains_key(&task.command.lun));
        let Some(task) = self.remove(key) else {
            return;
        };
        let lun = task.command.lun;
        self.respond(task, outcome);
        if had_barrier {
            self.take_turns(lun);
        }
        self.open_window();
    }

    /// Ends a task without an answer.
    pub(super) fn abort(&mut self, key: TaskKey) {
        let Some(task) = self.remove(key) else {
            return;
        };
        let lun = task.command.lun;
        if task.phase == Phase::Ready
            && let Some(connection) = self.connection(task.connection)
        {
            let is_it = |action: &Action| matches!(action, Action::Execute(one, _) if *one == key);
            connection.queue.retain(|action| !is_it(action));
        }
        if task.phase == Phase::Running {
            let changes = task.command.writes || !task.command.reads;
            let unit = task.unit.filter(|_| changes);
            let leftover = unit.map(|unit| self.parts.leftovers.add(unit));
            let aborted = AbortedTask {
                _hold: task.hold,
                _leftover: leftover,
            };
            self.aborted.insert(key, aborted);
        }
        self.take_turns(lun);
        self.open_window();
    }

    /// Ends all tasks of a connection that is gone.
    pub(super) fn end_tasks_of(&mut self, connection: ConnectionKey) {
        self.abort_where(|task| task.connection == connection);
    }

    pub(super) fn abort_where(&mut self, is_meant: impl Fn(&Task) -> bool) {
        let meant = self.tasks.values().filter(|task| is_meant(task));
        let keys: Vec<TaskKey> = meant.map(|task| task.key).collect();
        // None of them may start when the one before it goes.
        for key in &keys {
            if let Some(task) = self.task_mut(*key)
                && task.phase == Phase::Queued
            {
                task.phase = Phase::Receiving;
            }
        }
        for key in keys {
            self.abort(key);
        }
    }

    /// Aborts all tasks of a unit, whatever its LUN here.
    pub fn abort_unit(&mut self, unit: UnitId) {
        self.abort_where(|task| task.unit == Some(unit));
    }
}

impl Task {
    /// Bytes of the initiator's Data-In buffer.
    pub(super) fn data_in_bytes_max(&self) -> u32 {
        let command = &self.command;
        match (command.reads, command.writes) {
            (true, false) => command.expected_bytes,
            (true, true) => command.expected_read_bytes.unwrap_or(0),
            (false, _) => 0,
        }
    }

    fn take_command(&mut self) -> Command {
        Command {
            lun: self.command.lun,
            cdb: self.command.cdb.clone(),
            attribute: self.command.attribute,
            data_out: Payload::from(std::mem::take(&mut self.data)),
            data_in_bytes_max: self.data_in_bytes_max(),
        }
    }
}

/// Whether later tasks of the LUN wait for it.
fn is_barrier(command: &ScsiCommand) -> bool {
    match command.attribute {
        TaskAttribute::Ordered | TaskAttribute::HeadOfQueue => true,
        TaskAttribute::Untagged | TaskAttribute::Simple | TaskAttribute::Aca => false,
    }
}
