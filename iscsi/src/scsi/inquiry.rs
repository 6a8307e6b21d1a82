//! INQUIRY (SPC-5 6.7): the standard data, and the way to the pages in [`vpd`](super::vpd).

use super::sense::Sense;
use super::task::{Answer, Reply, Task};
use super::vpd;

/// The vendor as T10 has it, and part of every unit's name: never to change.
pub(super) const VENDOR: &[u8; 8] = b"PORTICO ";

/// The same on all units, or initiators do not copy between them.
const PRODUCT: &[u8; 16] = b"Volume          ";

/// Peripheral qualifier and device type of a LUN without a unit.
const NO_UNIT: u8 = 0x7f;

/// INQUIRY.
pub(super) fn inquiry(task: &Task<'_>) -> Answer {
    const VITAL_PRODUCT_DATA: u8 = 0x01;
    let allocation = u64::from(task.cdb.u16(3));
    let page = task.cdb.u8(2);
    if task.cdb.flag(1, VITAL_PRODUCT_DATA) {
        let Some(data) = vpd::page(task, page) else {
            return Err(Sense::cdb_field(2).into());
        };
        return Ok(Reply::data(data, allocation));
    }
    if page != 0 {
        return Err(Sense::cdb_field(2).into());
    }
    let device = task.unit.map_or(NO_UNIT, |_| 0);
    Ok(Reply::data(standard(device), allocation))
}

fn standard(device: u8) -> Vec<u8> {
    const SPC_4: u8 = 0x06;
    const HIERARCHICAL_AND_FORMAT: u8 = 0x12;
    const SEVERAL_PORTS: u8 = 0x10;
    const COMMAND_QUEUE: u8 = 0x02;
    /// SAM-5, iSCSI, SPC-4, SBC-3, without a claim to a version.
    const STANDARDS: [[u8; 2]; 4] = [[0x00, 0xa0], [0x09, 0x60], [0x04, 0x60], [0x04, 0xc0]];
    const LENGTH: usize = 96;
    let mut data = vec![device, 0, SPC_4, HIERARCHICAL_AND_FORMAT, 91];
    data.extend_from_slice(&[0, SEVERAL_PORTS, COMMAND_QUEUE]);
    data.extend_from_slice(VENDOR);
    data.extend_from_slice(PRODUCT);
    data.extend_from_slice(&revision());
    data.resize(58, 0);
    data.extend_from_slice(STANDARDS.as_flattened());
    data.resize(LENGTH, 0);
    data
}

/// The program's version as far as 4 characters go: "0.1 ".
fn revision() -> [u8; 4] {
    let mut revision = *b"    ";
    let version = concat!(
        env!("CARGO_PKG_VERSION_MAJOR"),
        ".",
        env!("CARGO_PKG_VERSION_MINOR")
    );
    for (to, from) in revision.iter_mut().zip(version.bytes()) {
        *to = from;
    }
    revision
}
