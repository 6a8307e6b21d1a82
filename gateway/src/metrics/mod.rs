//! `/metrics` for Prometheus and `/health` for load balancers. `docs/operations/monitor.md` lists
//! what is told.

mod iscsi;
mod process;
mod rados;
mod text;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use portico_backend::bucket::BucketStats;
use portico_backend::budget::Budget;
use portico_backend::local::LocalStats;
use portico_backend::object::Pool;
use portico_backend::rados::RadosStore;
use portico_backend::stats::Counter;
use portico_backend::tenure::Tenures;
use portico_s3::stats::{Stats, VerbStats};

use crate::assemble::{Engine, Node};
use crate::block::Block;
use crate::health::Health;
use text::Text;

/// Where the numbers come from. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    s3: Arc<Stats>,
    block: Block,
    buckets: Arc<BucketStats>,
    engine: EngineSource,
    tenures: Tenures,
    pool: Pool,
    budget: Budget,
    reclaim: Arc<ReclaimStats>,
    health: Health,
}

#[derive(Clone, Debug)]
enum EngineSource {
    Local(Arc<portico_backend::local::LocalStore>),
    Memory,
    Rados(RadosStore),
}

/// What background work counts.
#[derive(Debug, Default)]
pub(crate) struct ReclaimStats {
    pub(crate) removed: Counter,
    pub(crate) rounds: Counter,
    pub(crate) failures: Counter,
}

impl Sources {
    pub(crate) fn new(node: &Node, reclaim: Arc<ReclaimStats>) -> Self {
        Self {
            s3: Arc::clone(node.s3.stats()),
            block: node.block.clone(),
            buckets: Arc::clone(&node.bucket_stats),
            engine: match &node.engine {
                Engine::Local(store) => EngineSource::Local(Arc::clone(store)),
                Engine::Memory(_) => EngineSource::Memory,
                Engine::Rados(store) => EngineSource::Rados(store.clone()),
            },
            tenures: node.tenures.clone(),
            pool: node.pools.data.clone(),
            budget: node.budget.clone(),
            reclaim,
            health: node.health.clone(),
        }
    }

    async fn render(&self) -> String {
        let mut text = Text::default();
        text.gauge(
            "portico_build_info",
            "Always 1; the label tells the version.",
        )
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        text.gauge("portico_ready", "1 if requests can be served.")
            .sample(&[], u8::from(self.health.readiness().await.is_ok()));
        s3(&mut text, &self.s3);
        iscsi::render(&mut text, &self.block);
        session(&mut text, &self.tenures, self.health.reopened());
        buckets(&mut text, &self.buckets);
        text.gauge("portico_budget_bytes", "Bytes that may be in flight.")
            .sample(&[], self.budget.bytes());
        text.gauge(
            "portico_budget_free_bytes",
            "Bytes in flight that are free.",
        )
        .sample(&[], self.budget.free_bytes());
        match &self.engine {
            EngineSource::Local(store) => local(&mut text, store.stats()),
            EngineSource::Memory => {}
            EngineSource::Rados(store) => rados::render(&mut text, store),
        }
        if let Ok(tenure) = self.tenures.current()
            && let Ok(usage) = tenure.store.usage(&self.pool).await
        {
            text.gauge("portico_store_capacity_bytes", "Bytes the store may hold.")
                .sample(&[], usage.capacity_bytes);
            text.gauge("portico_store_used_bytes", "Bytes of the store in use.")
                .sample(&[], usage.used_bytes);
        }
        text.counter(
            "portico_reclaim_removed_total",
            "Store objects removed in the background.",
        )
        .sample(&[], self.reclaim.removed.value());
        text.counter(
            "portico_reclaim_rounds_total",
            "Rounds of background work that ended.",
        )
        .sample(&[], self.reclaim.rounds.value());
        text.counter(
            "portico_reclaim_failures_total",
            "Steps of background work that failed.",
        )
        .sample(&[], self.reclaim.failures.value());
        process::render(&mut text);
        text.finish()
    }
}

/// The routes of the metrics listener.
pub(crate) fn router(sources: Sources) -> Router {
    let health = sources.health.clone();
    Router::new()
        .route("/metrics", get(metrics).with_state(sources))
        .route("/health", get(ready).with_state(health.clone()))
        .route("/health/ready", get(ready).with_state(health))
        .route("/health/live", get(|| async { "the program is alive\n" }))
}

async fn metrics(State(sources): State<Sources>) -> impl IntoResponse {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], sources.render().await)
}

async fn ready(State(health): State<Health>) -> (StatusCode, String) {
    match health.readiness().await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

fn session(text: &mut Text, tenures: &Tenures, reopened: &Counter) {
    text.gauge(
        "portico_session_open",
        "1 if there is a session to serve S3 with.",
    )
    .sample(&[], u8::from(tenures.current().is_ok()));
    text.counter(
        "portico_session_reopened_total",
        "Sessions opened in place of one that was fenced.",
    )
    .sample(&[], reopened.value());
}

fn s3(text: &mut Text, stats: &Stats) {
    text.counter(
        "portico_s3_connections_total",
        "S3 connections that were served.",
    )
    .sample(&[], stats.connections.value());
    text.gauge("portico_s3_connections", "S3 connections that are open.")
        .sample(&[], stats.connections_open.value());
    text.gauge(
        "portico_s3_requests_in_work",
        "S3 requests without a whole reply yet.",
    )
    .sample(&[], stats.requests_in_work.value());
    let mut requests = text.counter("portico_s3_requests_total", "S3 requests answered.");
    for (verb, counters) in stats.verbs() {
        requests.sample(&[("verb", verb)], counters.count.value());
    }
    let mut errors = text.counter(
        "portico_s3_errors_total",
        "S3 requests answered by an error.",
    );
    for (verb, counters) in stats.verbs() {
        let (client, server) = (&counters.client_errors, &counters.server_errors);
        errors
            .sample(&[("verb", verb), ("class", "client")], client.value())
            .sample(&[("verb", verb), ("class", "server")], server.value());
    }
    s3_bytes_and_times(text, stats);
}

fn s3_bytes_and_times(text: &mut Text, stats: &Stats) {
    let verbs: Vec<(&str, &VerbStats)> = stats.verbs().collect();
    let mut bytes = text.counter(
        "portico_s3_received_bytes_total",
        "Bytes of request bodies.",
    );
    for (verb, counters) in &verbs {
        bytes.sample(&[("verb", verb)], counters.bytes_in.value());
    }
    let mut bytes = text.counter("portico_s3_sent_bytes_total", "Bytes of reply bodies.");
    for (verb, counters) in &verbs {
        bytes.sample(&[("verb", verb)], counters.bytes_out.value());
    }
    let mut times = text.histogram(
        "portico_s3_service_seconds",
        "Time from a request's head to its reply's head, without queueing.",
    );
    for (verb, counters) in &verbs {
        times.latency(&[("verb", verb)], &counters.service);
    }
    let mut times = text.histogram(
        "portico_s3_queue_seconds",
        "Time a request waited for bytes in flight.",
    );
    for (verb, counters) in &verbs {
        times.latency(&[("verb", verb)], &counters.queue);
    }
}

fn buckets(text: &mut Text, stats: &BucketStats) {
    for (name, help, counter) in [
        ("batches", "Batches of changes of keys.", &stats.batches),
        ("changes", "Changes of keys.", &stats.changes),
        (
            "conflicts",
            "Batches decided anew because another node wrote first.",
            &stats.conflicts,
        ),
        (
            "scanned_rows",
            "Rows of the index that listings read.",
            &stats.rows_scanned,
        ),
        ("splits", "Shards of the index split.", &stats.splits),
    ] {
        text.counter(&format!("portico_bucket_{name}_total"), help)
            .sample(&[], counter.value());
    }
    text.gauge(
        "portico_bucket_fullest_shard_rows",
        "Rows that the fullest shard of the index ever held.",
    )
    .sample(&[], stats.fullest_shard.value());
    text.histogram(
        "portico_bucket_freeze_seconds",
        "Time writers of a shard waited for its split.",
    )
    .latency(&[], &stats.freezes);
}

fn local(text: &mut Text, stats: &LocalStats) {
    local_times(text, stats);
    text.counter(
        "portico_store_flushes_total",
        "Syncs to stable storage, by file.",
    )
    .sample(&[("file", "log")], stats.log_flushes.value())
    .sample(&[("file", "data")], stats.data_flushes.value());
    for (name, help, counter) in [
        ("writes", "Write operations.", &stats.writes),
        ("batches", "Batches of writes.", &stats.batches),
        (
            "batches_here",
            "Batches committed without a change of threads.",
            &stats.batches_here,
        ),
        ("reads", "Read operations.", &stats.reads),
        ("cached_reads", "Reads from memory.", &stats.reads_cached),
        ("checkpoints", "Checkpoints.", &stats.checkpoints),
        ("log_bytes", "Bytes written to the log.", &stats.log_bytes),
        (
            "written_bytes",
            "Bytes written to the data file.",
            &stats.data_bytes_written,
        ),
        (
            "read_bytes",
            "Bytes read from the data file.",
            &stats.data_bytes_read,
        ),
        (
            "corruptions",
            "Blocks, pages or records that did not match their checksum.",
            &stats.corruptions,
        ),
    ] {
        text.counter(&format!("portico_store_{name}_total"), help)
            .sample(&[], counter.value());
    }
    text.gauge(
        "portico_store_memtable_bytes",
        "Bytes of records in memory.",
    )
    .sample(&[], stats.memtable_bytes.value());
}

fn local_times(text: &mut Text, stats: &LocalStats) {
    for (name, help, histogram) in [
        (
            "queue",
            "Time a write waited for its batch.",
            &stats.queue_time,
        ),
        (
            "service",
            "Time from the start of a write's batch to its answer.",
            &stats.service_time,
        ),
        ("read", "Time a read took.", &stats.read_time),
        (
            "held_back",
            "Time writers were held back.",
            &stats.held_back_time,
        ),
        (
            "log_flush",
            "Time a sync of the log took.",
            &stats.log_flush_time,
        ),
        (
            "checkpoint",
            "Time a checkpoint took.",
            &stats.checkpoint_time,
        ),
    ] {
        text.histogram(&format!("portico_store_{name}_seconds"), help)
            .latency(&[], histogram);
    }
}
