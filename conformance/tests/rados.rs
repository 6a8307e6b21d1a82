//! The RADOS engine on a real cluster, whose configuration `PORTICO_RADOS_CONF` names.
//! `PORTICO_RADOS_CHECKS` picks the checks whose names contain it.

use std::panic::{catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portico_backend::rados::wait_until_closed;
use portico_conformance::contract::{RadosHarness, run_some};

fn harness() -> RadosHarness {
    let conf = std::env::var_os("PORTICO_RADOS_CONF");
    let conf = conf.expect("PORTICO_RADOS_CONF names the ceph.conf of a cluster for tests");
    RadosHarness::new(&PathBuf::from(conf), "client.admin", 2)
}

#[test]
fn rados_keeps_the_contract() {
    let wanted = std::env::var_os("PORTICO_RADOS_CHECKS").unwrap_or_default();
    let wanted = wanted.to_string_lossy();
    // The process must not end while librados shuts down.
    let failed = catch_unwind(|| run_some(&(Arc::new(harness()) as _), &wanted));
    let closed = wait_until_closed(Duration::from_secs(60));
    if let Err(failed) = failed {
        resume_unwind(failed);
    }
    assert!(closed, "clients do not shut down");
}
