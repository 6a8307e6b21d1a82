//! LOG SENSE (SPC-5 6.8, 7.3): which pages there are. Nothing is counted that an initiator could
//! rely on, so there is no other page.

use super::sense::Sense;
use super::task::{Answer, Reply, Task};

/// LOG SENSE.
pub(super) fn sense(task: &Task<'_>) -> Answer {
    const SAVE: u8 = 0x01;
    const SUBPAGE_FORMAT: u8 = 0x40;
    if task.cdb.flag(1, SAVE) {
        return Err(Sense::cdb_field(1).into());
    }
    let (page, subpage) = (task.cdb.u8(2) & 0x3f, task.cdb.u8(3));
    let data = match (page, subpage) {
        (0x00, 0x00) => vec![0x00, 0, 0, 1, 0x00],
        // The supported pages and subpages.
        (0x00, 0xff) => vec![SUBPAGE_FORMAT, 0xff, 0, 4, 0x00, 0x00, 0x00, 0xff],
        (0x00, _) => return Err(Sense::cdb_field(3).into()),
        _ => return Err(Sense::cdb_field(2).into()),
    };
    // The first parameter asked for.
    if task.cdb.u16(5) != 0 {
        return Err(Sense::cdb_field(5).into());
    }
    Ok(Reply::data(data, u64::from(task.cdb.u16(7))))
}
