//! One contract over all engines.

use std::sync::Arc;

use portico_conformance::contract::{MemoryHarness, run};

#[test]
fn memory_keeps_the_contract() {
    run(&(Arc::new(MemoryHarness) as _));
}
