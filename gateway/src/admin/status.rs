//! `GET /v1/status`, `/v1/nodes` and `/v1/keyring`: how the node is, and what else there is.

use axum::Json;
use axum::extract::State;

use super::reply::ApiError;
use super::{Context, api};
use crate::space::Space;

pub(super) async fn status(State(context): State<Context>) -> Result<Json<api::Status>, ApiError> {
    let usage = context.store.usage(&context.pools.data).await?;
    let reason = context.health.readiness().await.err();
    let catalog = &context.volumes.catalog;
    let session = context.store.session();
    let nodes = catalog.nodes().await?;
    let node = nodes.into_iter().find(|node| node.session == session);
    Ok(Json(api::Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: node.map_or_else(String::new, |node| node.name),
        ready: reason.is_none(),
        reason,
        user_count: catalog.users().await?.len(),
        bucket_count: catalog.buckets(None).await?.len(),
        capacity_bytes: usage.capacity_bytes,
        used_bytes: usage.used_bytes,
        warnings: warnings(&context),
    }))
}

pub(super) async fn nodes(State(context): State<Context>) -> Result<Json<api::Nodes>, ApiError> {
    let nodes = context.volumes.catalog.nodes().await?;
    let nodes = nodes
        .into_iter()
        .map(|node| api::Node {
            id: node.id.0,
            name: node.name,
            registered_ms: node.registered_ms,
        })
        .collect();
    Ok(Json(api::Nodes { nodes }))
}

pub(super) async fn keyring(
    State(context): State<Context>,
) -> Result<Json<api::KeyringUse>, ApiError> {
    let keys = context.volumes.catalog.keyring_use().await?;
    let keys = keys
        .into_iter()
        .map(|(id, secret_count)| api::KeyUse { id, secret_count })
        .collect();
    Ok(Json(api::KeyringUse { keys }))
}

fn warnings(context: &Context) -> Vec<String> {
    let locked_out = context.volumes.catalog.access_keys_locked_out();
    let locked_out = locked_out.first().map(|(id, error)| {
        let count = locked_out.len();
        format!("{count} access keys cannot be used, among them {id}: {error}")
    });
    let space = context.space.as_ref().and_then(Space::warning);
    locked_out.into_iter().chain(space).collect()
}
