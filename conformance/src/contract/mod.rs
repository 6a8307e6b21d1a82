//! The contract of `ObjectStore` as checks that any engine must pass.
//!
//! A check is a function from a [`Bench`] to nothing: it opens an empty store of the engine under
//! test, uses it through its sessions and panics where the engine breaks its word. Each sentence of
//! `portico_backend::object` is behind at least one check. Groups are run by [`run`].

mod bench;
mod clone_range;
mod durability;
mod engine;
mod guards;
mod list;
mod locks;
mod rados;
mod random;
mod reads;
mod sessions;
mod snapshots;
mod space;
mod steps;
mod versions;
mod watches;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout};

pub use self::bench::{Bench, Opened, Session, State};
pub use self::engine::{Cluster, Harness, LocalHarness, MemoryHarness, Reopening};
pub use self::rados::RadosHarness;

/// One thing an engine must do.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub name: &'static str,
    run: fn(Bench) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Checks of one subject.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub name: &'static str,
    pub checks: &'static [Check],
}

/// All of the contract.
pub const GROUPS: &[Group] = &[
    guards::GROUP,
    steps::GROUP,
    versions::GROUP,
    reads::GROUP,
    list::GROUP,
    snapshots::GROUP,
    clone_range::GROUP,
    locks::GROUP,
    watches::GROUP,
    sessions::GROUP,
    durability::GROUP,
    space::GROUP,
    random::GROUP,
];

/// A check that takes longer is named.
const SLOW: Duration = Duration::from_secs(3);

/// A check that takes longer hangs.
const CHECK_TIME_MAX: Duration = Duration::from_secs(60);

/// Makes a group of the named functions of a module.
macro_rules! group {
    ($name:literal: $($check:ident),+ $(,)?) => {
        pub(super) const GROUP: $crate::contract::Group = $crate::contract::Group {
            name: $name,
            checks: &[$($crate::contract::Check {
                name: stringify!($check),
                run: |bench| Box::pin($check(bench)),
            }),+],
        };
    };
}
use group;

/// Runs all groups and says how much was checked.
///
/// # Panics
/// If a check fails, after all have run; names the ones that failed.
pub fn run(harness: &Arc<dyn Harness>) {
    run_some(harness, "");
}

/// Runs the checks whose group and name, such as `locks::a_lock_expires`, contain a text.
///
/// # Panics
/// If a check fails, after all have run; or if there is none.
pub fn run_some(harness: &Arc<dyn Harness>, wanted: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let operations = Arc::new(AtomicU64::new(0));
    let time_max = CHECK_TIME_MAX * harness.patience();
    let mut check_count = 0;
    let mut failures = Vec::new();
    for group in GROUPS {
        for check in group.checks {
            if !format!("{}::{}", group.name, check.name).contains(wanted) {
                continue;
            }
            check_count += 1;
            let bench = Bench::new(Arc::clone(harness), Arc::clone(&operations));
            let run = async { timeout(time_max, tokio::spawn((check.run)(bench))).await };
            let start = Instant::now();
            match runtime.block_on(run) {
                Ok(Ok(())) => {}
                Ok(Err(_)) => failures.push(format!("{}::{}", group.name, check.name)),
                Err(_) => failures.push(format!("{}::{} hangs", group.name, check.name)),
            }
            if start.elapsed() > SLOW * harness.patience() {
                println!("{}::{} took {:?}", group.name, check.name, start.elapsed());
            }
        }
    }
    assert!(check_count > 0, "no check is called {wanted}");
    println!(
        "contract of {}: {check_count} checks, {} failed, {} operations",
        harness.name(),
        failures.len(),
        operations.load(Ordering::Relaxed)
    );
    assert!(
        failures.is_empty(),
        "{} breaks its contract in {failures:#?}",
        harness.name()
    );
}
