//! READ CAPACITY and READ DEFECT DATA (SBC-4 5.17 to 5.20).

use super::sense::Sense;
use super::task::{Answer, Reply, Task};

/// Partial medium indication: obsolete, and with it the LBA.
const PMI: u8 = 0x01;

/// READ CAPACITY(10). A unit too large for 32 bits says so, and READ CAPACITY(16) the rest.
pub(super) fn read_10(task: &Task<'_>) -> Answer {
    if task.cdb.flag(8, PMI) || task.cdb.u32(2) != 0 {
        return Err(Sense::cdb_field(2).into());
    }
    let unit = task.unit();
    let last = unit.block_count().saturating_sub(1);
    let last = u32::try_from(last).unwrap_or(u32::MAX);
    let data = [last.to_be_bytes(), unit.block_bytes().to_be_bytes()].concat();
    Ok(Reply::data(data, 8))
}

/// READ CAPACITY(16): unmapped blocks exist and read as zeros.
pub(super) fn read_16(task: &Task<'_>) -> Answer {
    const LBPME: u8 = 0x80;
    const LBPRZ: u8 = 0x40;
    if task.cdb.flag(14, PMI) || task.cdb.u64(2) != 0 {
        return Err(Sense::cdb_field(2).into());
    }
    let unit = task.unit();
    let last = unit.block_count().saturating_sub(1);
    let per_physical = unit.options().physical_block_bytes / unit.block_bytes();
    let exponent = u8::try_from(per_physical.ilog2()).expect("a logarithm of 32 bits");
    let mut data = last.to_be_bytes().to_vec();
    data.extend_from_slice(&unit.block_bytes().to_be_bytes());
    data.extend_from_slice(&[0, exponent, LBPME | LBPRZ, 0]);
    data.resize(32, 0);
    Ok(Reply::data(data, u64::from(task.cdb.u32(10))))
}

/// READ DEFECT DATA(10): no defects in either list.
pub(super) fn defects_10(task: &Task<'_>) -> Answer {
    let lists = task.cdb.u8(2) & 0x1f;
    Ok(Reply::data(
        vec![0, lists, 0, 0],
        u64::from(task.cdb.u16(7)),
    ))
}

/// READ DEFECT DATA(12): the same with longer fields.
pub(super) fn defects_12(task: &Task<'_>) -> Answer {
    let lists = task.cdb.u8(1) & 0x1f;
    let data = vec![0, lists, 0, 0, 0, 0, 0, 0];
    Ok(Reply::data(data, u64::from(task.cdb.u32(6))))
}
