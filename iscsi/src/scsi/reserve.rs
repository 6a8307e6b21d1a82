//! RESERVE(6) and RELEASE(6) (SPC-2 7.21, 7.17): what VMFS falls back to, and clusters before
//! persistent reservations.

use super::sense::{Failure, Sense};
use super::task::{Answer, Reply, Task};

/// RESERVE(6) of the whole unit for the nexus that asks.
pub(super) fn reserve(task: &Task<'_>) -> Answer {
    check(task)?;
    task.unit().reserve(task.nexus)?;
    Ok(Reply::none())
}

/// RELEASE(6): GOOD without effect for a nexus that does not hold it.
pub(super) fn release(task: &Task<'_>) -> Answer {
    check(task)?;
    task.unit().release(task.nexus);
    Ok(Reply::none())
}

/// Third parties and extents are obsolete.
fn check(task: &Task<'_>) -> Result<(), Failure> {
    const THIRD_PARTY_OR_EXTENT: u8 = 0x11;
    if task.cdb.flag(1, THIRD_PARTY_OR_EXTENT) {
        return Err(Sense::cdb_field(1).into());
    }
    Ok(())
}
