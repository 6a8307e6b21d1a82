//! What the threads and sessions of an open store share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::budget::Budget;
use crate::engine::watch::Watchers;
use crate::limits::{OBJECT_BYTES_MAX, OMAP_KEYS_PER_OP_MAX, OP_BYTES_MAX};
use crate::object::{CloneRange, Limits, ObjectId};

use super::base::Base;
use super::blocks::Blocks;
use super::failure::Poison;
use super::lock::LockTable;
use super::media::{FileName, Medium};
use super::memtable::{Memtable, View};
use super::options::{LocalOptions, LocalStats};
use super::pace::Pace;
use super::queue::Queue;
use super::standing::Sessions;

/// The shared part of an open store.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) options: LocalOptions,
    pub(super) blocks: Blocks,
    pub(super) base: Base,
    view: RwLock<Arc<View>>,
    /// Held for reading by a read that lost too many races, for writing while a batch is published.
    pub(super) publishing: RwLock<()>,
    pub(super) queue: Queue,
    /// Payload bytes on their way through the queue.
    pub(super) in_flight: Budget,
    pub(super) pace: Pace,
    pub(super) checkpoint: CheckpointSlot,
    pub(super) poison: Poison,
    pub(super) sessions: Sessions,
    pub(super) locks: LockTable,
    pub(super) watches: Mutex<HashMap<ObjectId, Watchers>>,
    pub(super) next_notification: AtomicU64,
    /// Bytes that the base could have when the disk was asked last.
    headroom: Mutex<Option<(u64, Instant)>>,
    /// Objects of each pool, by the pool's bytes in keys.
    object_counts: Mutex<HashMap<Bytes, u64>>,
    /// The reserve is gone: only what gives space back is accepted.
    pub(super) is_full: AtomicBool,
    pub(super) stats: LocalStats,
}

/// Parts that opening a store brings together.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) options: LocalOptions,
    pub(super) blocks: Blocks,
    pub(super) base: Base,
    pub(super) view: View,
    pub(super) sessions: Sessions,
    pub(super) locks: LockTable,
    pub(super) object_counts: HashMap<Bytes, u64>,
}

impl Core {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            medium: parts.medium,
            options: parts.options,
            blocks: parts.blocks,
            base: parts.base,
            view: RwLock::new(Arc::new(parts.view)),
            publishing: RwLock::default(),
            queue: Queue::default(),
            in_flight: Budget::new(IN_FLIGHT_BYTES),
            pace: Pace::default(),
            checkpoint: CheckpointSlot::default(),
            poison: Poison::default(),
            sessions: parts.sessions,
            locks: parts.locks,
            watches: Mutex::default(),
            next_notification: AtomicU64::new(1),
            headroom: Mutex::default(),
            object_counts: Mutex::new(parts.object_counts),
            is_full: AtomicBool::new(false),
            stats: LocalStats::default(),
        }
    }

    pub(super) fn view(&self) -> Arc<View> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&view)
    }

    pub(super) fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        *view = Arc::new(change(&view));
    }

    pub(super) fn watches(&self) -> MutexGuard<'_, HashMap<ObjectId, Watchers>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn object_count(&self, pool: &[u8]) -> u64 {
        let counts = self.counts();
        counts.get(pool).copied().unwrap_or(0)
    }

    /// An object of the pool appeared or went.
    pub(super) fn count_object(&self, pool: &[u8], appeared: bool) {
        let mut counts = self.counts();
        let count = counts.entry(Bytes::copy_from_slice(pool)).or_default();
        *count = if appeared {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Bytes, u64>> {
        self.object_counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that the base may need on the disk to take what is in memory.
    pub(super) fn base_demand(&self) -> u64 {
        let view = self.view();
        let tables = [Some(&view.active), view.frozen.as_ref()];
        let demands = tables.into_iter().flatten();
        demands
            .map(|table| demand(table.len(), table.bytes()))
            .sum()
    }

    /// Bytes that the base can have. Records are taken in only if they fit, or a checkpoint would
    /// fail after their acknowledgement.
    pub(super) fn headroom(&self) -> u64 {
        let mut known = self.headroom.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((bytes, asked)) = *known
            && bytes >= PLENTY_BYTES
            && asked.elapsed() < PLENTY_SPAN
        {
            return bytes;
        }
        let asked = Instant::now();
        let Some(free) = self.medium.free_bytes() else {
            return u64::MAX;
        };
        let reserve = self.medium.len(FileName::Reserve).unwrap_or(0);
        let bytes = (free + reserve).saturating_sub(CHECKPOINT_BYTES);
        *known = Some((bytes, asked));
        bytes
    }

    /// Tells the block store how much the records take now.
    pub(super) fn count_record_bytes(&self) {
        let view = self.view();
        let memtables = view.active.bytes() + view.frozen.as_ref().map_or(0, |table| table.bytes());
        self.blocks.set_base_demand(self.base_demand());
        self.stats.memtable_bytes.set(memtables);
        self.stats.blocks_used_bytes.set(self.blocks.block_bytes());
        self.blocks
            .set_record_bytes(view.base.meta.record_bytes + memtables);
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        let device = self.medium.device_bytes();
        self.options.capacity_bytes.or(device).unwrap_or(u64::MAX)
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

/// A generation on its way to the base.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) table: Arc<Memtable>,
    /// The last log record in it.
    pub(super) sequence: u64,
    /// Blocks that its records no longer name.
    pub(super) freed: Vec<u64>,
    /// Blocks of its records that the data file does not have.
    pub(super) kept: Vec<u64>,
    /// Bytes of its records and of its log, a measure of the work.
    pub(super) weight_bytes: u64,
}

/// Hands frozen generations to the checkpoint thread, one at a time.
#[derive(Debug, Default)]
pub(super) struct CheckpointSlot {
    state: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SlotState {
    waiting: Option<Frozen>,
    busy: bool,
    stopped: bool,
    /// The weight of the generation on its way, and when it was given.
    given: Option<(u64, Instant)>,
    /// The same of the one before, and how long it took.
    former: Option<(u64, Duration)>,
}

impl CheckpointSlot {
    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a generation to the checkpoint thread, which must be idle.
    pub(super) fn give(&self, frozen: Frozen) {
        let mut state = self.state();
        assert!(state.waiting.is_none() && !state.busy, "one at a time");
        state.given = Some((frozen.weight_bytes, Instant::now()));
        state.waiting = Some(frozen);
        state.busy = true;
        self.changed.notify_all();
    }

    /// The next generation; `None` when the store ends.
    pub(super) fn take(&self) -> Option<Frozen> {
        let mut state = self.state();
        loop {
            if let Some(frozen) = state.waiting.take() {
                return Some(frozen);
            }
            if state.stopped {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn done(&self) {
        let mut state = self.state();
        state.busy = false;
        let given = state.given.take();
        state.former = given.map(|(weight, at)| (weight, at.elapsed()));
        drop(state);
        self.changed.notify_all();
    }

    /// Says how long the generation on its way takes from now on, judged by the one before. It does
    /// not end before `say` does.
    pub(super) fn while_busy(&self, say: impl FnOnce(Duration)) {
        let state = self.state();
        let (Some((weight, at)), Some((former_weight, former))) = (state.given, state.former)
        else {
            return;
        };
        let elapsed = at.elapsed();
        let share = weight.saturating_mul(1_000) / former_weight.max(1);
        let whole = former * u32::try_from(share).unwrap_or(u32::MAX) / 1_000;
        // A guess that proves too short must not make an end of the room.
        let least = whole.max(elapsed) / 4;
        say(whole.saturating_sub(elapsed).max(least));
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.state().busy
    }

    pub(super) fn wait_idle(&self) {
        let mut state = self.state();
        while state.busy {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_all();
    }
}

/// What one operation may carry. Snapshots have their place in the format, but no code yet.
pub(super) const LIMITS: Limits = Limits {
    object_bytes_max: OBJECT_BYTES_MAX,
    op_bytes_max: OP_BYTES_MAX,
    omap_keys_max: OMAP_KEYS_PER_OP_MAX,
    omap_value_bytes_max: 64 * 1024,
    omap: true,
    snapshots: false,
    clone_range: CloneRange::Copy,
    sparse_reads: true,
    buffered: true,
    stream_read_bytes: 1024 * 1024,
    stream_write_bytes: 2 * 1024 * 1024,
    discard_bytes: 4_096,
};

/// At worst each record lies in a leaf of its own, which is written anew, and half as much again
/// for the nodes above; the bytes themselves come on top.
pub(super) fn demand(records: u64, bytes: u64) -> u64 {
    records * 2 * 4_608 + 2 * bytes
}

/// What a checkpoint writes whatever its records: roots, tables of free pages.
const CHECKPOINT_BYTES: u64 = 128 * 1024;

/// Two of the largest operations.
const IN_FLIGHT_BYTES: u64 = 2 * OP_BYTES_MAX;
/// While the disk has so much left, it is asked how much only now and then: nobody fills that in the
/// meantime.
const PLENTY_BYTES: u64 = 1024 * 1024 * 1024;
const PLENTY_SPAN: Duration = Duration::from_millis(50);
