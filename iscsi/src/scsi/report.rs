//! REPORT SUPPORTED OPERATION CODES and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-5 6.37).

use super::opcode::{Row, TABLE, of_opcode};
use super::sense::{Failure, Sense};
use super::task::{Answer, Reply, Task};

/// What is to come with each command.
const RETURN_TIMEOUTS: u8 = 0x80;

/// Seconds after which an initiator may try to recover a command. The nominal time is not said.
const RECOMMENDED_TIMEOUT_SECONDS: u32 = 60;

/// REPORT SUPPORTED OPERATION CODES: all commands, or one.
pub(super) fn operation_codes(task: &Task<'_>) -> Answer {
    let options = task.cdb.u8(2);
    let has_timeouts = options & RETURN_TIMEOUTS != 0;
    let data = match options & 0x07 {
        0 => all(has_timeouts),
        option @ 1..=3 => one(asked(task, option)?, has_timeouts),
        _ => return Err(Sense::cdb_field(2).into()),
    };
    Ok(Reply::data(data, u64::from(task.cdb.u32(6))))
}

/// The row of the command that is asked for; `None` for one that is not there.
fn asked(task: &Task<'_>, option: u8) -> Result<Option<&'static Row>, Failure> {
    let rows = of_opcode(task.cdb.u8(3));
    let action = task.cdb.u16(4);
    let has_actions = rows.first().is_some_and(|row| row.service_action.is_some());
    match (option, has_actions) {
        // By operation code alone, what has service actions; by both, what has none.
        (1, true) => return Err(Sense::cdb_field(2).into()),
        (2, false) if !rows.is_empty() => return Err(Sense::cdb_field(2).into()),
        _ => {}
    }
    if option == 1 {
        return Ok(rows.first());
    }
    let is_it = |row: &&Row| u16::from(row.service_action.unwrap_or(0)) == action;
    Ok(rows.iter().find(is_it))
}

fn all(has_timeouts: bool) -> Vec<u8> {
    const TIMEOUTS: u8 = 0x02;
    const HAS_ACTION: u8 = 0x01;
    let mut data = vec![0; 4];
    for row in TABLE {
        let action = row.service_action.map_or(0, |_| HAS_ACTION);
        let timeouts = if has_timeouts { TIMEOUTS } else { 0 };
        data.extend_from_slice(&[row.opcode(), 0, 0, row.service_action.unwrap_or(0)]);
        data.extend_from_slice(&[0, action | timeouts, 0, row.cdb_bytes()]);
        if has_timeouts {
            data.extend_from_slice(&timeouts_descriptor());
        }
    }
    let length = u32::try_from(data.len() - 4).expect("a short table");
    data[..4].copy_from_slice(&length.to_be_bytes());
    data
}

fn one(row: Option<&Row>, has_timeouts: bool) -> Vec<u8> {
    const TIMEOUTS: u8 = 0x80;
    const NOT_SUPPORTED: u8 = 1;
    const SUPPORTED: u8 = 3;
    let Some(row) = row else {
        return vec![0, NOT_SUPPORTED, 0, 0];
    };
    let timeouts = if has_timeouts { TIMEOUTS } else { 0 };
    let mut data = vec![0, timeouts | SUPPORTED, 0, row.cdb_bytes()];
    data.extend_from_slice(row.usage);
    if has_timeouts {
        data.extend_from_slice(&timeouts_descriptor());
    }
    data
}

fn timeouts_descriptor() -> [u8; 12] {
    let [a, b, c, d] = RECOMMENDED_TIMEOUT_SECONDS.to_be_bytes();
    [0, 10, 0, 0, 0, 0, 0, 0, a, b, c, d]
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL
/// UNIT RESET and the resets of the target.
pub(super) fn task_functions(task: &Task<'_>) -> Answer {
    const ABORT_TASK: u8 = 0x80;
    const ABORT_TASK_SET: u8 = 0x40;
    const CLEAR_TASK_SET: u8 = 0x10;
    const UNIT_RESET: u8 = 0x08;
    const TARGET_RESET: u8 = 0x02;
    const EXTENDED: u8 = 0x80;
    let functions = ABORT_TASK | ABORT_TASK_SET | CLEAR_TASK_SET | UNIT_RESET | TARGET_RESET;
    let mut data = vec![functions, 0, 0, 0];
    if task.cdb.flag(2, EXTENDED) {
        data[3] = 12;
        data.resize(16, 0);
    }
    Ok(Reply::data(data, u64::from(task.cdb.u32(6))))
}
