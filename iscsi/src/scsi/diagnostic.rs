//! Whether a unit works: TEST UNIT READY, REQUEST SENSE, START STOP UNIT, the self test.

use super::sense::{Code, Sense, SenseKey};
use super::task::{Answer, Reply, Task};

/// TEST UNIT READY. What stands against it was told before.
pub(super) fn ready(_task: &Task<'_>) -> Answer {
    Ok(Reply::none())
}

/// REQUEST SENSE (SPC-5 6.39): the first pending unit attention, which then is none, or that there
/// is nothing to say.
pub(super) fn request_sense(task: &Task<'_>) -> Answer {
    const DESCRIPTOR: u8 = 0x01;
    let sense = match task.unit {
        Some(unit) => unit.request_sense(task.nexus),
        None => Sense::new(SenseKey::IllegalRequest, Code::UNIT_NOT_SUPPORTED),
    };
    let data = sense.to_bytes(task.cdb.flag(1, DESCRIPTOR)).to_vec();
    Ok(Reply::data(data, u64::from(task.cdb.u8(4))))
}

/// START STOP UNIT (SBC-4 5.31): there is nothing to spin or to eject. A stop without NO_FLUSH
/// makes the cache stable.
pub(super) async fn start_stop(task: &Task<'_>) -> Answer {
    const LOAD_OR_EJECT: u8 = 0x02;
    const START: u8 = 0x01;
    const NO_FLUSH: u8 = 0x04;
    let is_condition = task.cdb.u8(4) >> 4 != 0;
    if task.cdb.flag(4, LOAD_OR_EJECT) && !is_condition {
        return Err(Sense::cdb_field(4).into());
    }
    if !task.cdb.flag(4, START | NO_FLUSH) {
        task.unit().image().flush().await?;
    }
    Ok(Reply::none())
}

/// SEND DIAGNOSTIC: the default self test, which passes, and nothing else (SPC-5 6.42).
pub(super) fn send(task: &Task<'_>) -> Answer {
    const SELF_TEST_CODE: u8 = 0xe0;
    if task.cdb.flag(1, SELF_TEST_CODE) {
        return Err(Sense::cdb_field(1).into());
    }
    let length = u64::from(task.cdb.u16(3));
    if length == 0 {
        return Ok(Reply::none());
    }
    // The one page there is: nothing but its header.
    let list = task.list(length)?;
    match *list {
        [0, _, 0, 0] => Ok(Reply::none()),
        [0, ..] => Err(Sense::list_length().into()),
        _ => Err(Sense::list_field(0).into()),
    }
}

/// RECEIVE DIAGNOSTIC RESULTS: the page of supported pages, itself.
pub(super) fn receive(task: &Task<'_>) -> Answer {
    const PAGE_CODE_VALID: u8 = 0x01;
    if task.cdb.flag(1, PAGE_CODE_VALID) && task.cdb.u8(2) != 0 {
        return Err(Sense::cdb_field(2).into());
    }
    Ok(Reply::data(vec![0, 0, 0, 1, 0], u64::from(task.cdb.u16(3))))
}
