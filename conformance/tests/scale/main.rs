//! Buckets at the size that they are made for: a million keys, and an object of 5 TiB.
//!
//! Run as it is, this is a small version of itself that checks what does not depend on the machine.
//! `conformance/run scale` asks for the full size, in release mode and one test after the other,
//! and there the times count as well.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod manifest;
mod page;
mod synthetic;

use std::sync::Arc;

use portico_backend::bucket::{BucketId, BucketOptions, Buckets};
use portico_backend::clock::Clock;
use portico_backend::object::{ObjectStore, Pool};

const FULL_SIZE: &str = "PORTICO_SCALE_FULL";

#[expect(
    clippy::disallowed_methods,
    reason = "the one switch of this suite, since a test takes no arguments of its own"
)]
fn is_full_size() -> bool {
    std::env::var(FULL_SIZE).is_ok_and(|value| value == "1")
}

async fn open(
    store: Arc<dyn ObjectStore>,
    clock: Arc<dyn Clock>,
    options: BucketOptions,
) -> Arc<Buckets> {
    let (meta, data) = (Pool::new("meta", ""), Pool::new("data", ""));
    Buckets::open(store, meta, data, clock, options)
        .await
        .unwrap()
}

const SMALL: BucketId = BucketId(1);
const LARGE: BucketId = BucketId(2);
