//! What the cluster and the way to it are like, as this node sees them.

use portico_backend::rados::{Fullness, PoolFullness, RadosStore};

use super::text::Text;

pub(super) fn render(text: &mut Text, store: &RadosStore) {
    let stats = store.stats();
    text.histogram(
        "portico_rados_queue_seconds",
        "Time an operation waited for its place among those in flight.",
    )
    .latency(&[], &stats.queue);
    text.histogram(
        "portico_rados_service_seconds",
        "Time from asking the cluster until its answer.",
    )
    .latency(&[("kind", "read")], &stats.read_service)
    .latency(&[("kind", "write")], &stats.write_service);
    for (name, help, counter) in [
        (
            "slow_operations",
            "Operations that took longer than backend.slow_op_milliseconds.",
            &stats.slow_ops,
        ),
        (
            "timeouts",
            "Calls that gave up before the cluster answered.",
            &stats.timeouts,
        ),
        (
            "refused",
            "Calls that gave up waiting for a place among those in flight.",
            &stats.refused,
        ),
        (
            "no_space",
            "Writes that the cluster refused because it is full.",
            &stats.no_space,
        ),
        (
            "fenced_sessions",
            "Sessions of this node that another one fenced.",
            &stats.fenced_sessions,
        ),
        (
            "watches_lost",
            "Watches that ended by themselves.",
            &stats.watches_lost,
        ),
    ] {
        text.counter(&format!("portico_rados_{name}_total"), help)
            .sample(&[], counter.value());
    }
    pools(text, &store.fullness());
    let oldest = store.oldest_op();
    let oldest = oldest.map_or(0.0, |oldest| oldest.age.as_secs_f64());
    text.gauge(
        "portico_rados_oldest_operation_seconds",
        "For how long the cluster has not answered the oldest operation.",
    )
    .sample(&[], oldest);
    text.gauge(
        "portico_rados_in_flight",
        "Operations that the cluster has not answered.",
    )
    .sample(&[], stats.in_flight.value());
    text.gauge(
        "portico_rados_in_flight_bytes",
        "Bytes kept for operations that the cluster has not answered.",
    )
    .sample(&[], stats.in_flight_bytes.value());
}

fn pools(text: &mut Text, pools: &[PoolFullness]) {
    for (name, help, from) in [
        (
            "portico_rados_pool_nearly_full",
            "1 if the pool is above the cluster's ratio nearfull, or is full.",
            Fullness::NearlyFull,
        ),
        (
            "portico_rados_pool_full",
            "1 if the pool is full, or its quota is reached.",
            Fullness::Full,
        ),
    ] {
        let mut family = text.gauge(name, help);
        for pool in pools {
            let labels = [("pool", pool.ceph_pool.as_str())];
            family.sample(&labels, u64::from(pool.fullness >= from));
        }
    }
}
