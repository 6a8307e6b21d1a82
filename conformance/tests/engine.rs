//! One contract over all engines.

use std::sync::Arc;

use portico_backend::local::LocalOptions;
use portico_conformance::contract::{LocalHarness, MemoryHarness, run};

#[test]
fn memory_keeps_the_contract() {
    run(&(Arc::new(MemoryHarness) as _));
}

#[test]
fn local_keeps_the_contract() {
    run(&(Arc::new(LocalHarness {
        options: LocalOptions::default(),
        name: "local",
        seed_count: 12,
    }) as _));
}

/// Everything that happens only now and then in a store of usual size happens all the time here.
#[test]
fn local_with_little_memory_keeps_the_contract() {
    let options = LocalOptions {
        memtable_bytes: 64 * 1024,
        log_bytes: 256 * 1024,
        cache_bytes: 256 * 1024,
        inline_bytes_max: 8 * 1024,
        ..LocalOptions::default()
    };
    run(&(Arc::new(LocalHarness {
        options,
        name: "local with little memory",
        seed_count: 12,
    }) as _));
}
