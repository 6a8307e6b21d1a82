//! A logical unit: an image, how it is offered, and what it remembers of who asks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portico_backend::error::Error;
use portico_backend::image::Image;
use portico_backend::object::Durability;

use super::command::Status;
use super::mode::Mode;
use super::nexus::{Attention, NexusId, Nexuses};
use super::opcode::{Row, WhileAttention};
use super::order::{Change, Changes};
use super::sanitize::Sanitize;
use super::sense::{Code, Failure, Sense, SenseKey};
use crate::stats::UnitStats;

/// How a unit is offered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnitOptions {
    /// Nobody can write, whatever MODE SELECT says.
    pub is_write_protected: bool,
    pub write_cache: WriteCache,
    /// Bytes of a physical block as initiators align to it: a power of two, the logical block size
    /// at least. 4,096 is right everywhere; the logical block size makes a disk of 512n.
    pub physical_block_bytes: u32,
}

/// When a WRITE answers GOOD (SBC-4 4.15).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteCache {
    /// When the data is stable. WCE is 0 and cannot be set.
    Off,
    /// When the data is visible; stable after SYNCHRONIZE CACHE or with FUA. WCE is 1, and MODE
    /// SELECT may change it.
    On,
}

/// One logical unit, shared by all who have it mapped.
#[derive(Debug)]
pub struct Unit {
    image: Image,
    block_bytes: u32,
    state: Mutex<State>,
    pub(super) sanitize: Sanitize,
    changes: Changes,
    stats: UnitStats,
    /// Copies of what `state` holds, for the way of every READ and WRITE.
    is_cached: AtomicBool,
    has_descriptor_sense: AtomicBool,
}

#[derive(Debug)]
struct State {
    options: UnitOptions,
    nexuses: Nexuses,
    /// Who holds the unit by RESERVE(6).
    reserved_by: Option<NexusId>,
    mode: Mode,
}

impl Default for UnitOptions {
    fn default() -> Self {
        Self {
            is_write_protected: false,
            write_cache: WriteCache::Off,
            physical_block_bytes: 4_096,
        }
    }
}

impl Unit {
    /// # Panics
    /// If the physical block is no power of two or smaller than the logical one.
    #[must_use]
    pub fn new(image: Image, options: UnitOptions) -> Self {
        let block_bytes = image.identity().block_bytes;
        let physical = options.physical_block_bytes;
        assert!(physical.is_power_of_two() && physical >= block_bytes);
        let mode = Mode::new(options.write_cache == WriteCache::On);
        Self {
            image,
            block_bytes,
            is_cached: AtomicBool::new(mode.write_cache),
            has_descriptor_sense: AtomicBool::new(mode.descriptor_sense),
            state: Mutex::new(State {
                options,
                nexuses: Nexuses::default(),
                reserved_by: None,
                mode,
            }),
            sanitize: Sanitize::default(),
            changes: Changes::default(),
            stats: UnitStats::default(),
        }
    }

    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    #[must_use]
    pub fn options(&self) -> UnitOptions {
        self.state().options
    }

    /// Nobody writes from now on, or whom MODE SELECT lets; everybody is told (SPC-5 6.14).
    pub fn set_write_protected(&self, is_write_protected: bool) {
        let mut state = self.state();
        if state.options.is_write_protected != is_write_protected {
            state.options.is_write_protected = is_write_protected;
            state.nexuses.raise(Attention::ModeParametersChanged, None);
        }
    }

    /// As if made with it: WCE is what it says, and everybody is told. When a cache was switched
    /// off, what it held is stable on return.
    ///
    /// # Errors
    /// Those of [`Image::flush`]: the cache is off, and what it held may not be stable.
    pub async fn set_write_cache(&self, write_cache: WriteCache) -> Result<(), Error> {
        {
            let mut state = self.state();
            if state.options.write_cache == write_cache {
                return Ok(());
            }
            state.options.write_cache = write_cache;
            state.nexuses.raise(Attention::ModeParametersChanged, None);
            let mode = Mode {
                write_cache: write_cache == WriteCache::On,
                ..state.mode
            };
            self.publish(&mut state, mode);
        }
        match write_cache {
            WriteCache::On => Ok(()),
            WriteCache::Off => self.image.flush().await,
        }
    }

    #[must_use]
    pub fn stats(&self) -> &UnitStats {
        &self.stats
    }

    /// Bytes of a logical block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Logical blocks of the medium, whole ones.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.image.size_bytes() / u64::from(self.block_bytes)
    }

    /// The nexus is gone: its reservation ends, and when it comes back it learns that it was lost
    /// (SAM-5 5.14.4, 6.3.4).
    pub fn nexus_lost(&self, nexus: &NexusId) {
        let mut state = self.state();
        state.nexuses.lost(nexus);
        if state.reserved_by.as_ref() == Some(nexus) {
            state.reserved_by = None;
        }
    }

    /// LOGICAL UNIT RESET, and the reset of the whole target: reservations of RESERVE(6) end, mode
    /// parameters become what they were at first, everybody is told (SAM-5 6.3.3). SANITIZE goes
    /// on.
    pub fn reset(&self) {
        let mut state = self.state();
        state.reserved_by = None;
        self.sanitize.reset();
        state.nexuses.raise(Attention::UnitReset, None);
        let mode = Mode::new(state.options.write_cache == WriteCache::On);
        self.publish(&mut state, mode);
    }

    /// Tells everybody who knows the unit.
    pub fn raise(&self, attention: Attention) {
        self.state().nexuses.raise(attention, None);
    }

    /// Tells one nexus.
    pub fn raise_for(&self, nexus: &NexusId, attention: Attention) {
        self.state().nexuses.raise_for(nexus, attention);
    }

    pub(super) fn clear(&self, nexus: &NexusId, told: Attention) {
        self.state().nexuses.clear(nexus, told);
    }

    /// Whether the nexus may do this now: unit attentions and reservations in the order of SAM-5
    /// 5.3.3, then what the unit as a whole forbids.
    pub(super) fn admit(&self, nexus: &NexusId, row: &Row) -> Result<(), Failure> {
        let size_bytes = self.image.size_bytes();
        let mut state = self.state();
        let asks = state.nexuses.asks(nexus, size_bytes);
        let pending = match row.while_attention {
            WhileAttention::Told => asks.first(),
            WhileAttention::Done => None,
        };
        if let Some(attention) = pending.filter(|pending| pending.is_reset()) {
            asks.clear(attention);
            return Err(attention.sense().into());
        }
        let is_foreign = state.reserved_by.as_ref().is_some_and(|by| by != nexus);
        if is_foreign && !row.while_reserved {
            return Err(Failure::Status(Status::ReservationConflict));
        }
        if let Some(attention) = pending {
            state.nexuses.clear(nexus, attention);
            return Err(attention.sense().into());
        }
        let is_protected = state.options.is_write_protected;
        let is_protected_by_software = state.mode.software_write_protect;
        drop(state);
        if !row.while_sanitizing {
            self.sanitize.admit(row)?;
        }
        if row.writes && is_protected {
            return Err(Sense::new(SenseKey::DataProtect, Code::WRITE_PROTECTED).into());
        }
        if row.writes && is_protected_by_software {
            let code = Code::SOFTWARE_WRITE_PROTECTED;
            return Err(Sense::new(SenseKey::DataProtect, code).into());
        }
        Ok(())
    }

    /// What REQUEST SENSE says, which then is no longer pending.
    pub(super) fn request_sense(&self, nexus: &NexusId) -> Sense {
        let size_bytes = self.image.size_bytes();
        let mut state = self.state();
        let asks = state.nexuses.asks(nexus, size_bytes);
        if let Some(attention) = asks.first() {
            asks.clear(attention);
            return attention.sense();
        }
        drop(state);
        self.sanitize.sense()
    }

    /// RESERVE(6). Nobody else holds it: `admit` has seen to that, and another may have been
    /// faster since.
    pub(super) fn reserve(&self, nexus: &NexusId) -> Result<(), Failure> {
        let mut state = self.state();
        match &state.reserved_by {
            Some(by) if by != nexus => Err(Failure::Status(Status::ReservationConflict)),
            _ => {
                state.reserved_by = Some(nexus.clone());
                Ok(())
            }
        }
    }

    /// RELEASE(6), without effect for others than the holder (SPC-2 7.17.1).
    pub(super) fn release(&self, nexus: &NexusId) {
        let mut state = self.state();
        if state.reserved_by.as_ref() == Some(nexus) {
            state.reserved_by = None;
        }
    }

    /// Whether SANITIZE is at work.
    #[must_use]
    pub fn is_sanitizing(&self) -> bool {
        self.sanitize.is_running()
    }

    pub(super) fn mode(&self) -> Mode {
        self.state().mode
    }

    /// What MODE SELECT sets. All others are told if it changes anything.
    pub(super) fn set_mode(&self, nexus: &NexusId, mode: Mode) {
        let mut state = self.state();
        if state.mode != mode {
            let others = Some(nexus);
            state
                .nexuses
                .raise(Attention::ModeParametersChanged, others);
            self.publish(&mut state, mode);
        }
    }

    fn publish(&self, state: &mut State, mode: Mode) {
        state.mode = mode;
        self.is_cached.store(mode.write_cache, Ordering::Release);
        self.has_descriptor_sense
            .store(mode.descriptor_sense, Ordering::Release);
    }

    pub(super) fn has_descriptor_sense(&self) -> bool {
        self.has_descriptor_sense.load(Ordering::Acquire)
    }

    pub(super) fn is_cached(&self) -> bool {
        self.is_cached.load(Ordering::Acquire)
    }

    /// How stable data is when its command answers GOOD.
    pub(super) fn durability(&self, force_unit_access: bool) -> Durability {
        if self.is_cached() && !force_unit_access {
            Durability::Buffered
        } else {
            Durability::Durable
        }
    }

    /// Held by whoever changes so many bytes there, so that nothing that began before is still to
    /// change them.
    pub(super) async fn change(&self, offset: u64, bytes: u64) -> Change<'_> {
        self.change_all([(offset, bytes)]).await
    }

    /// The same for several ranges at once.
    pub(super) async fn change_all(
        &self,
        ranges: impl IntoIterator<Item = (u64, u64)>,
    ) -> Change<'_> {
        let range = |(offset, bytes): (u64, u64)| offset..offset.saturating_add(bytes);
        let ranges = ranges.into_iter().map(range).collect();
        self.changes.begin(ranges).await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole before anything could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
