//! Power loss, bit flips, failing and full disks, for the local engine.
//!
//! A seeded workload runs on a simulated disk that records every write and every sync. Each of
//! them is a cut point: what a disk may hold if the power goes there is opened again and compared
//! with what was acknowledged. The oracle of contents is the memory engine.
//!
//! `disk` is the medium, `workload` the run and its history, `verify` the judge, `flips` damage.

pub mod disk;
pub mod flips;
pub mod verify;
pub mod workload;

use portico_backend::local::{LocalOptions, PlantedBug};

/// Options under which a short run has many checkpoints, large writes and full logs.
#[must_use]
pub fn tiny_options(planted_bug: Option<PlantedBug>) -> LocalOptions {
    LocalOptions {
        capacity_bytes: None,
        memtable_bytes: 10 * 1024,
        log_bytes: 96 * 1024,
        cache_bytes: 512 * 1024,
        reserve_bytes: 384 * 1024,
        inline_bytes_max: 6_000,
        quiet_checkpoint: None,
        planted_bug,
    }
}
