//! The seam between a session and what executes its commands.
//!
//! A session does not know what a logical unit is. It has [`Units`]: what one initiator sees of one
//! target, as functions that the program joins to the command set.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use crate::scsi::command::{Command, Outcome};
use crate::scsi::{self, LunMap, NexusId, Unit};

/// A command in work.
pub type Execution = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A logical unit, whatever its number in a LUN map: the same for all initiators and targets.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct UnitId(pub u64);

/// Tells the command set what happened to a nexus or a unit (SAM-5 5.14).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    NexusLost,
    /// The LUN field of the reset.
    LogicalUnitReset(u64),
    /// CLEAR TASK SET: other initiators' tasks went too.
    TasksCleared(u64),
    TargetReset,
}

/// Executes a command for a nexus. It never fails: errors are sense data.
pub type Execute = dyn Fn(Command, &Arc<NexusId>) -> Execution + Send + Sync;

/// How many Data-Out bytes a CDB can use at most, on a LUN.
pub type DataOutBytesMax = dyn Fn(&[u8], u64) -> u64 + Send + Sync;

/// Takes notice of an event of a nexus.
pub type Notice = dyn Fn(Event, &NexusId) + Send + Sync;

/// What one initiator sees of one target. Cheap to share.
pub struct Units {
    /// Executes a command.
    pub execute: Box<Execute>,
    /// What is solicited for a write.
    pub data_out_bytes_max: Box<DataOutBytesMax>,
    /// The unit of a LUN field; none if it is not mapped.
    pub unit: Box<dyn Fn(u64) -> Option<UnitId> + Send + Sync>,
    /// All units that are mapped.
    pub units: Box<dyn Fn() -> Vec<UnitId> + Send + Sync>,
    pub event: Box<Notice>,
}

/// A map that may be replaced while sessions have it.
#[derive(Debug)]
pub struct LiveLuns(RwLock<Arc<LunMap>>);

impl LiveLuns {
    #[must_use]
    pub fn new(luns: LunMap) -> Self {
        Self(RwLock::new(Arc::new(luns)))
    }

    #[must_use]
    pub fn current(&self) -> Arc<LunMap> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Commands that begin from now on find these. Who has the map is to be told by
    /// [`LunMap::changed_for`].
    pub fn replace(&self, luns: LunMap) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(luns);
    }
}

impl Units {
    /// The units of a map that stays, executed by [`scsi::execute`].
    #[must_use]
    pub fn of_luns(luns: LunMap) -> Arc<Self> {
        Self::of_live(&Arc::new(LiveLuns::new(luns)))
    }

    /// The units of a map, executed by [`scsi::execute`].
    #[must_use]
    pub fn of_live(luns: &Arc<LiveLuns>) -> Arc<Self> {
        let [executed, bounded, found, listed, told] = std::array::from_fn(|_| Arc::clone(luns));
        Arc::new(Self {
            execute: Box::new(move |command, nexus| {
                let (luns, nexus) = (executed.current(), Arc::clone(nexus));
                Box::pin(async move { scsi::execute(command, &nexus, &luns).await })
            }),
            data_out_bytes_max: Box::new(move |cdb, lun| {
                let luns = bounded.current();
                let unit = luns.unit(lun);
                // Nobody executes what is not there, so its data is not asked for.
                unit.map_or(0, |unit| scsi::data_out_bytes_max(cdb, unit.block_bytes()))
            }),
            unit: Box::new(move |lun| found.current().unit(lun).map(unit_id)),
            units: Box::new(move || {
                let luns = listed.current();
                luns.units().map(|(_, unit)| unit_id(unit)).collect()
            }),
            event: Box::new(move |event, nexus| match event {
                Event::NexusLost => told.current().nexus_lost(nexus),
                Event::LogicalUnitReset(lun) => drop(told.current().lun_reset(lun)),
                Event::TargetReset => told.current().target_reset(),
                Event::TasksCleared(_) => {}
            }),
        })
    }

    /// No units at all: what a discovery session has.
    #[must_use]
    pub fn none() -> Arc<Self> {
        Arc::new(Self {
            execute: Box::new(|_, _| Box::pin(std::future::ready(Outcome::busy()))),
            data_out_bytes_max: Box::new(|_, _| 0),
            unit: Box::new(|_| None),
            units: Box::new(Vec::new),
            event: Box::new(|_, _| {}),
        })
    }
}

/// A unit is shared by all who have it mapped, so its place says which one it is.
fn unit_id(unit: &Arc<Unit>) -> UnitId {
    let address = Arc::as_ptr(unit).addr();
    UnitId(u64::try_from(address).expect("addresses have 64 bits at most"))
}

impl fmt::Debug for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Units")
    }
}
