//! SCSI: what a command asks of a logical unit, and what comes of it.
//!
//! [`command`] is what passes between a session and the command set: plain data, so that it can be
//! printed, compared, fuzzed and forwarded. [`execute`] does it: the row of the table in [`opcode`]
//! says what a command is and who does it. A handler sees a CDB of any content and a Data-Out
//! buffer of any length. Nothing here knows PDUs or connections; the order of commands and what an
//! abort means are the session's.
//!
//! Read on in [`opcode`], then in [`unit`] and [`luns`]; the handlers have a file for each family.

mod block;
mod capacity;
mod cdb;
pub mod command;
mod compare;
mod diagnostic;
mod inquiry;
pub mod limits;
mod log;
pub mod luns;
mod mode;
pub mod nexus;
pub mod opcode;
mod order;
mod provisioning;
mod report;
mod reserve;
mod sanitize;
pub mod sense;
mod task;
#[cfg(test)]
mod tests;
pub mod unit;
mod verify;
pub mod vpd;

use bytes::Bytes;
use portico_backend::object::Payload;
use tokio::time::Instant;

use crate::stats::{UnitStats, Work};
use cdb::Cdb;
use command::{Command, Outcome, Status};
use opcode::{Handler, Row};
use sense::{Code, Failure, Sense, SenseKey};
use task::{Answer, Reply, Task, first};

pub use luns::LunMap;
pub use nexus::{Attention, NexusId};
pub use opcode::data_out_bytes_max;
pub use unit::{Unit, UnitOptions, WriteCache};

/// Does what the command asks. Never fails: errors are sense data.
///
/// Dropping the future recalls nothing that it has begun.
pub async fn execute(command: Command, nexus: &NexusId, luns: &LunMap) -> Outcome {
    let Command {
        lun,
        cdb,
        data_out,
        data_in_bytes_max,
        attribute: _,
    } = command;
    let begun = Instant::now();
    // WRITE takes the data as its own; nobody else needs more than to look at it.
    let none = Payload::default();
    let mut task = Task {
        cdb: Cdb(&cdb),
        data_out: &none,
        data_in_bytes_max,
        nexus,
        luns,
        unit: luns.unit(lun),
    };
    let row = admit(&task);
    let kind = row.as_ref().ok().copied();
    let answer = match row {
        Ok(row) => match row.handler {
            Handler::Read => block::read(&task).await,
            Handler::Write => block::write(&task, data_out).await,
            Handler::Now(handler) => {
                task.data_out = &data_out;
                handler(&task)
            }
            Handler::Later(handler) => {
                task.data_out = &data_out;
                handler(&task).await
            }
        },
        Err(failure) => Err(failure),
    };
    let outcome = outcome(&task, answer);
    if let Some(unit) = task.unit {
        let work = work_of(unit.stats(), kind);
        work.record(begun.elapsed(), &outcome);
    }
    outcome
}

fn work_of<'a>(stats: &'a UnitStats, row: Option<&Row>) -> &'a Work {
    match row {
        Some(row) if matches!(row.handler, Handler::Read) => &stats.read,
        Some(row) if row.writes => &stats.write,
        Some(_) | None => &stats.other,
    }
}

/// The row of the command, if it may be done now.
fn admit(task: &Task<'_>) -> Result<&'static Row, Failure> {
    let row = opcode::find(task.cdb);
    let Some(unit) = task.unit else {
        return match row {
            Ok(row) if row.without_unit => Ok(row),
            _ => {
                task.luns.count_miss();
                Err(Sense::new(SenseKey::IllegalRequest, Code::UNIT_NOT_SUPPORTED).into())
            }
        };
    };
    let row = row?;
    unit.admit(task.nexus, row)?;
    row.check(task.cdb)?;
    Ok(row)
}

fn outcome(task: &Task<'_>, answer: Answer) -> Outcome {
    let block_bytes = task.unit.map_or(0, |unit| unit.block_bytes());
    let mut outcome = Outcome {
        status: Status::Good,
        sense: Bytes::new(),
        data_in: Payload::default(),
        data_in_bytes: 0,
        data_out_bytes: opcode::data_out_bytes(task.cdb, block_bytes),
    };
    match answer {
        Ok(Reply {
            data_in,
            data_in_bytes,
        }) => {
            let room = u64::from(task.data_in_bytes_max);
            outcome.data_in = first(data_in, room);
            outcome.data_in_bytes = data_in_bytes;
        }
        Err(Failure::Status(status)) => outcome.status = status,
        Err(Failure::Check(sense)) => {
            let is_descriptor = task.unit.is_some_and(|unit| unit.has_descriptor_sense());
            outcome.status = Status::CheckCondition;
            outcome.sense = sense.to_bytes(is_descriptor);
        }
    }
    outcome
}
