//! The checkpoint thread: a frozen generation becomes part of the base, and its log is free.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::error::{Error, ErrorKind};

use super::allocator::ReadToken;
use super::base::{Base, BaseMeta};
use super::core::{Core, Frozen};
use super::media::{FileName, Medium};
use super::memtable::View;
use super::options::{LocalOptions, PlantedBug};

/// Works until the store ends.
pub(super) fn run(core: &Arc<Core>) {
    while let Some(frozen) = core.checkpoint.take() {
        let end = EndsCheckpoint(core);
        if let Err(error) = checkpoint(core, frozen) {
            core.poison.set(&error);
        }
        drop(end);
    }
}

/// Lets the committer go on, also if the checkpoint ends in a panic.
struct EndsCheckpoint<'a>(&'a Core);

impl Drop for EndsCheckpoint<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let context = "moving records to the base panicked";
            self.0
                .poison
                .set(&Error::new(ErrorKind::Unavailable, context));
        }
        self.0.checkpoint.done();
        self.0.pace.lift();
    }
}

fn checkpoint(core: &Core, frozen: Frozen) -> Result<(), Error> {
    let began = Instant::now();
    core.poison.check()?;
    // Small data of these records is in memory and in the log alone until now.
    core.blocks.store(frozen.kept, &core.stats)?;
    if core.options.planted_bug != Some(PlantedBug::CheckpointDataSyncSkipped) {
        core.blocks.sync(&core.poison, &core.stats)?;
    }
    let before = core.view();
    let meta = BaseMeta {
        applied_sequence: frozen.sequence,
        ..before.base.meta
    };
    let base = frozen.table.with_all(|delta| {
        core.base.commit(delta, meta)?;
        let kept = Some((&*before.base, delta));
        core.base.snapshot(record_cache_bytes(&core.options), kept)
    })?;
    drop(before);
    let base = Arc::new(base);
    let mut old_token = None;
    core.change_view(|view| {
        old_token = Some(Arc::clone(&view.token));
        View {
            active: Arc::clone(&view.active),
            frozen: None,
            base,
            token: Arc::new(ReadToken),
        }
    });
    // Reads that began before the change may still look at these blocks.
    let token = old_token.expect("set by the change");
    core.blocks.release_after(token, frozen.freed);
    refill_reserve(core);
    core.count_record_bytes();
    core.stats.checkpoints.add(1);
    core.stats.checkpoint_time.record(began.elapsed());
    Ok(())
}

/// Takes the reserve back as soon as there is room for it. Until then only what gives space back is
/// accepted.
pub(super) fn refill_reserve(core: &Core) {
    let wanted = reserve_bytes(&*core.medium, &core.options);
    let stored = core.medium.len(FileName::Reserve);
    let is_whole = stored.is_ok_and(|stored| stored >= wanted)
        || core.medium.allocate(FileName::Reserve, wanted).is_ok()
        || core.blocks.trim().is_ok() && core.medium.allocate(FileName::Reserve, wanted).is_ok();
    core.is_full.store(!is_whole, Ordering::Relaxed);
}

/// A small device is not eaten up by the reserve.
fn reserve_bytes(medium: &dyn Medium, options: &LocalOptions) -> u64 {
    let device = medium.device_bytes().unwrap_or(u64::MAX);
    options.reserve_bytes.min(device / 16)
}

/// A quarter of the cache each for redb's pages and for records; half for blocks.
pub(super) fn record_cache_bytes(options: &LocalOptions) -> u64 {
    options.cache_bytes / 4
}

/// Opens the base with its share of the cache.
pub(super) fn open_base(medium: &Arc<dyn Medium>, options: &LocalOptions) -> Result<Base, Error> {
    Base::open(medium, options.cache_bytes / 4, options.planted_bug)
}
