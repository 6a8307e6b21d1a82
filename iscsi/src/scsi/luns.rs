//! What one initiator sees of a target: LUNs and the units behind them (SAM-5 4.7), REPORT LUNS.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::nexus::{Attention, NexusId};
use super::sense::Sense;
use super::task::{Answer, Reply, Task};
use super::unit::Unit;

/// The greatest LUN that the flat space addressing method holds.
pub const LUN_MAX: u16 = 0x3fff;

/// The LUNs of one initiator at one target.
#[derive(Debug)]
pub struct LunMap {
    target: String,
    units: BTreeMap<u16, Arc<Unit>>,
    misses: AtomicU64,
}

impl LunMap {
    /// `target` is the target's iSCSI name.
    ///
    /// # Panics
    /// If a LUN is greater than `LUN_MAX`.
    #[must_use]
    pub fn new(target: &str, units: impl IntoIterator<Item = (u16, Arc<Unit>)>) -> Self {
        let units: BTreeMap<u16, Arc<Unit>> = units.into_iter().collect();
        assert!(units.keys().all(|lun| *lun <= LUN_MAX));
        Self {
            target: target.to_owned(),
            units,
            misses: AtomicU64::new(0),
        }
    }

    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The unit behind a LUN field as it was sent.
    #[must_use]
    pub fn unit(&self, lun: u64) -> Option<&Arc<Unit>> {
        self.units.get(&lun_of(lun)?)
    }

    pub fn units(&self) -> impl Iterator<Item = (u16, &Arc<Unit>)> {
        self.units.iter().map(|(lun, unit)| (*lun, unit))
    }

    /// Commands to LUNs without a unit, INQUIRY and REPORT LUNS not counted. Whoever logs them
    /// does so at a rate of its own.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// See [`Unit::nexus_lost`].
    pub fn nexus_lost(&self, nexus: &NexusId) {
        self.units.values().for_each(|unit| unit.nexus_lost(nexus));
    }

    /// LOGICAL UNIT RESET, see [`Unit::reset`]. Whether there is such a unit.
    pub fn lun_reset(&self, lun: u64) -> bool {
        self.unit(lun).map(|unit| unit.reset()).is_some()
    }

    /// TARGET WARM RESET and TARGET COLD RESET of the units that the initiator sees.
    pub fn target_reset(&self) {
        self.units.values().for_each(|unit| unit.reset());
    }

    /// This map replaced another one: the nexus is to ask for the LUNs again.
    pub fn changed_for(&self, nexus: &NexusId) {
        for unit in self.units.values() {
            unit.raise_for(nexus, Attention::LunsChanged);
        }
    }

    pub(super) fn count_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }
}

/// The number in a LUN field: one level, peripheral device or flat space addressing.
#[must_use]
pub fn lun_of(field: u64) -> Option<u16> {
    let [first, second, rest @ ..] = field.to_be_bytes();
    let is_flat = match first >> 6 {
        0 if first == 0 => false,
        1 => true,
        _ => return None,
    };
    if rest != [0; 6] {
        return None;
    }
    let high = if is_flat { first & 0x3f } else { 0 };
    Some(u16::from_be_bytes([high, second]))
}

/// A LUN as REPORT LUNS names it.
#[must_use]
pub fn lun_field(lun: u16) -> u64 {
    let [high, low] = lun.to_be_bytes();
    let method = if lun < 256 { 0x00 } else { 0x40 };
    u64::from_be_bytes([method | high, low, 0, 0, 0, 0, 0, 0])
}

/// REPORT LUNS (SPC-5 6.35). Works for every LUN field.
pub(super) fn report(task: &Task<'_>) -> Answer {
    const SELECT: usize = 2;
    let luns: Vec<u16> = match task.cdb.u8(SELECT) {
        0x00 | 0x02 => task.luns.units.keys().copied().collect(),
        // Well known units only; there are none.
        0x01 => Vec::new(),
        _ => return Err(Sense::cdb_field(2).into()),
    };
    for unit in task.luns.units.values() {
        unit.clear(task.nexus, Attention::LunsChanged);
    }
    let length = u32::try_from(luns.len() * 8).expect("at most 16,384 LUNs");
    let mut data = length.to_be_bytes().to_vec();
    data.extend_from_slice(&[0; 4]);
    for lun in luns {
        data.extend_from_slice(&lun_field(lun).to_be_bytes());
    }
    Ok(Reply::data(data, u64::from(task.cdb.u32(6))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lun_fields_are_read_as_they_are_written() {
        for lun in [0, 1, 255, 256, LUN_MAX] {
            assert_eq!(lun_of(lun_field(lun)), Some(lun));
        }
        assert_eq!(lun_field(1), 0x0001_0000_0000_0000);
        assert_eq!(lun_field(256), 0x4100_0000_0000_0000);
        // Flat space addressing of a small LUN.
        assert_eq!(lun_of(0x4001_0000_0000_0000), Some(1));
    }

    #[test]
    fn other_addressing_methods_name_no_unit() {
        for field in [
            0x0101_0000_0000_0000,
            0x8001_0000_0000_0000,
            0xc101_0000_0000_0000,
            0x0001_0000_0000_0001,
            u64::MAX,
        ] {
            assert_eq!(lun_of(field), None, "{field:x}");
        }
    }
}
