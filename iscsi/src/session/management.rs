//! Task management (RFC 7143 section 11.5, SAM-5 7): what ends commands before their time.
//!
//! A command that runs cannot be recalled. It leaves the books, its initiator hears no more of it,
//! and whoever resets its unit waits until it has ended.

use super::{Action, ConnectionKey, Hold, NUMBERS, Session};
use crate::limits::MANAGEMENT_MAX;
use crate::units::{Event, UnitId};
use crate::wire::request::{TaskFunction, TaskManagement};
use crate::wire::response::{Response, TaskManagementResponse, TaskOutcome};

/// A function that concerns tasks of other sessions too.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Management {
    pub kind: ManagementKind,
    /// Units whose tasks are aborted in all sessions.
    pub units: Vec<UnitId>,
    itt: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ManagementKind {
    /// The LUN field, as the command set is told.
    ClearTaskSet(u64),
    LogicalUnitReset(u64),
    TargetWarmReset,
    /// All sessions of the target end afterwards.
    TargetColdReset,
}

impl ManagementKind {
    /// What the command set is told.
    #[must_use]
    pub fn event(self) -> Event {
        match self {
            Self::ClearTaskSet(lun) => Event::TasksCleared(lun),
            Self::LogicalUnitReset(lun) => Event::LogicalUnitReset(lun),
            Self::TargetWarmReset | Self::TargetColdReset => Event::TargetReset,
        }
    }

    /// Whether it waits for aborted commands that still run.
    #[must_use]
    pub fn is_reset(self) -> bool {
        !matches!(self, Self::ClearTaskSet(_))
    }
}

/// A function for which commands are missing that come before it.
#[derive(Debug)]
pub(super) struct Deferred {
    connection: ConnectionKey,
    pdu: TaskManagement,
}

impl Deferred {
    pub(super) fn connection(&self) -> ConnectionKey {
        self.connection
    }
}

impl Session {
    pub(super) fn handle_management(&mut self, connection: ConnectionKey, pdu: &TaskManagement) {
        let is_early = pdu.numbers.immediate
            && self.window.exp_cmd_sn().is_before(pdu.numbers.cmd_sn)
            && self.window.contains(pdu.numbers.cmd_sn);
        let managing: usize = self.connections.iter().map(|one| one.managing).sum();
        if self.deferred.len() + managing >= MANAGEMENT_MAX {
            return self.answer(connection, pdu.itt, TaskOutcome::Rejected);
        }
        // It concerns commands up to its number, which other connections may still bring.
        if is_early && pdu.function != TaskFunction::AbortTask {
            let pdu = pdu.clone();
            self.deferred.push(Deferred { connection, pdu });
            return;
        }
        self.manage(connection, pdu);
    }

    /// Does what waited for commands that are here now.
    pub(super) fn release_deferred(&mut self) {
        let exp_cmd_sn = self.window.exp_cmd_sn();
        let is_due = |deferred: &mut Deferred| !exp_cmd_sn.is_before(deferred.pdu.numbers.cmd_sn);
        let due: Vec<Deferred> = self.deferred.extract_if(.., is_due).collect();
        for deferred in due {
            self.manage(deferred.connection, &deferred.pdu);
        }
    }

    fn manage(&mut self, connection: ConnectionKey, pdu: &TaskManagement) {
        let lun = pdu.lun;
        let outcome = match pdu.function {
            TaskFunction::AbortTask => Some(self.abort_task(pdu)),
            TaskFunction::AbortTaskSet => Some(self.abort_task_set(lun)),
            TaskFunction::ClearTaskSet => {
                self.begin(connection, pdu, ManagementKind::ClearTaskSet(lun))
            }
            TaskFunction::LogicalUnitReset => {
                self.begin(connection, pdu, ManagementKind::LogicalUnitReset(lun))
            }
            TaskFunction::TargetWarmReset => {
                self.begin(connection, pdu, ManagementKind::TargetWarmReset)
            }
            TaskFunction::TargetColdReset => {
                self.begin(connection, pdu, ManagementKind::TargetColdReset)
            }
            // Connections are not recovered at error recovery level 0.
            TaskFunction::TaskReassign => Some(TaskOutcome::ReassignmentNotSupported),
            TaskFunction::ClearAca | TaskFunction::Other(_) => {
                Some(TaskOutcome::FunctionNotSupported)
            }
        };
        if let Some(outcome) = outcome {
            self.answer(connection, pdu.itt, outcome);
        }
    }

    /// Section 11.5.1. A task that has ended is answered like one that was aborted: initiators take
    /// "no such task" for a fault and reset.
    fn abort_task(&mut self, pdu: &TaskManagement) -> TaskOutcome {
        let task = self.tasks.get(&pdu.referenced_itt);
        if let Some(key) = task
            .filter(|task| task.command.lun == pdu.lun)
            .map(|task| task.key)
        {
            self.abort(key);
            return TaskOutcome::Complete;
        }
        if task.is_some() {
            return TaskOutcome::NoSuchTask;
        }
        let (first, number) = (self.window.exp_cmd_sn(), pdu.ref_cmd_sn);
        if number.is_before(first) {
            return TaskOutcome::Complete;
        }
        // It has not come yet, and is not to be executed when it does.
        let may_come = self.window.contains(number)
            && (number.is_before(pdu.numbers.cmd_sn) || !pdu.numbers.immediate);
        if may_come && self.window.cancel(number) {
            self.release_held();
            return TaskOutcome::Complete;
        }
        TaskOutcome::NoSuchTask
    }

    fn abort_task_set(&mut self, lun: u64) -> TaskOutcome {
        if (self.parts.units.unit)(lun).is_none() {
            return TaskOutcome::NoSuchLun;
        }
        self.abort_where(|task| task.command.lun == lun);
        TaskOutcome::Complete
    }

    /// Aborts what is here and hands on what is elsewhere.
    fn begin(
        &mut self,
        connection: ConnectionKey,
        pdu: &TaskManagement,
        kind: ManagementKind,
    ) -> Option<TaskOutcome> {
        let units = match kind {
            ManagementKind::ClearTaskSet(lun) | ManagementKind::LogicalUnitReset(lun) => {
                match (self.parts.units.unit)(lun) {
                    Some(unit) => vec![unit],
                    None => return Some(TaskOutcome::NoSuchLun),
                }
            }
            ManagementKind::TargetWarmReset | ManagementKind::TargetColdReset => {
                (self.parts.units.units)()
            }
        };
        for unit in &units {
            self.abort_unit(*unit);
        }
        if let Some(connection) = self.connection(connection) {
            connection.managing += 1;
        }
        let itt = pdu.itt;
        self.push(connection, Action::Manage(Management { kind, units, itt }));
        None
    }

    /// What [`Action::Manage`] asked for was done, or could not be.
    pub fn handle_managed(
        &mut self,
        connection: ConnectionKey,
        management: &Management,
        outcome: TaskOutcome,
    ) {
        if let Some(connection) = self.connection(connection) {
            connection.managing -= 1;
        }
        self.answer(connection, management.itt, outcome);
    }

    fn answer(&mut self, connection: ConnectionKey, itt: u32, response: TaskOutcome) {
        let response = TaskManagementResponse {
            response,
            itt,
            numbers: NUMBERS,
        };
        self.send(
            connection,
            Response::TaskManagement(response),
            Hold::default(),
        );
    }
}
