//! `GET /v1/status`: how this node is.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use portico_backend::error::chain;
use serde::Serialize;

use super::Context;

#[derive(Debug, Serialize)]
struct Status {
    version: &'static str,
    ready: bool,
    /// Why it is not ready.
    reason: Option<String>,
    user_count: usize,
    bucket_count: usize,
    capacity_bytes: u64,
    used_bytes: u64,
}

pub(super) async fn status(State(context): State<Context>) -> Response {
    match gather(&context).await {
        Ok(status) => Json(status).into_response(),
        Err(error) => {
            let reason = format!("{}\n", chain(&*error));
            (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
        }
    }
}

async fn gather(
    context: &Context,
) -> Result<Status, Box<dyn std::error::Error + Send + Sync + 'static>> {
    let usage = context.store.usage(&context.pools.data).await?;
    let reason = context.health.readiness().await.err();
    Ok(Status {
        version: env!("CARGO_PKG_VERSION"),
        ready: reason.is_none(),
        reason,
        user_count: context.catalog.users().await?.len(),
        bucket_count: context.catalog.buckets(None).await?.len(),
        capacity_bytes: usage.capacity_bytes,
        used_bytes: usage.used_bytes,
    })
}
