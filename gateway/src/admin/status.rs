//! `GET /v1/status`, `/v1/nodes` and `/v1/keyring`: how the node is, and what else there is.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use portico_backend::error::chain;
use portico_backend::object::Usage;
use portico_backend::rados::{ClusterHealth, RadosStore};
use portico_backend::tenure::Tenure;

use super::reply::ApiError;
use super::{Context, api};
use crate::pools;
use crate::space::Space;

/// Who asks for the status does not want to wait for a cluster that is ill.
const MONITOR_TIMEOUT: Duration = Duration::from_secs(5);

/// An operation without an answer for so long is worth a warning.
const STALL: Duration = Duration::from_secs(5);

/// What the store holds.
#[derive(Debug, Default)]
struct Content {
    usage: Usage,
    user_count: usize,
    bucket_count: usize,
}

pub(super) async fn status(State(context): State<Context>) -> Result<Json<api::Status>, ApiError> {
    let tenure = context.tenures.current().ok();
    let content = match &tenure {
        Some(tenure) => match content(&context, tenure).await {
            Ok(content) => Some(content),
            Err(_) if !tenure.lasts() => None,
            Err(error) => return Err(error),
        },
        None => None,
    };
    // Comes later, so that whatever ended meanwhile is told.
    let reason = context.health.readiness().await.err();
    let session = api::Session {
        open: content.is_some(),
        reopened_count: context.health.reopened().value(),
    };
    let content = content.unwrap_or_default();
    let mut warnings = warnings(&context, tenure.as_deref());
    let cluster = match &context.cluster {
        Some(store) => Some(cluster(store, &mut warnings).await),
        None => None,
    };
    Ok(Json(api::Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: context.node.to_string(),
        ready: reason.is_none(),
        reason,
        user_count: content.user_count,
        bucket_count: content.bucket_count,
        capacity_bytes: content.usage.capacity_bytes,
        used_bytes: content.usage.used_bytes,
        warnings,
        cluster,
        session: Some(session),
    }))
}

async fn content(context: &Context, tenure: &Tenure) -> Result<Content, ApiError> {
    let catalog = &tenure.volumes.catalog;
    Ok(Content {
        usage: tenure.store.usage(&context.pools.data).await?,
        user_count: catalog.users().await?.len(),
        bucket_count: catalog.buckets(None).await?.len(),
    })
}

pub(super) async fn nodes(State(context): State<Context>) -> Result<Json<api::Nodes>, ApiError> {
    let tenure = context.tenure()?;
    let nodes = tenure.volumes.catalog.nodes().await?;
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
    let tenure = context.tenure()?;
    let keys = tenure.volumes.catalog.keyring_use().await?;
    let keys = keys
        .into_iter()
        .map(|(id, secret_count)| api::KeyUse { id, secret_count })
        .collect();
    Ok(Json(api::KeyringUse { keys }))
}

/// How the cluster is; what Ceph complains of, and what it does not answer, are warnings.
async fn cluster(store: &RadosStore, warnings: &mut Vec<String>) -> api::Cluster {
    let health = tokio::time::timeout(MONITOR_TIMEOUT, store.health()).await;
    let health = match health {
        Ok(Ok(health)) => health,
        Ok(Err(error)) => unknown(chain(&error)),
        Err(_) => unknown("the monitors do not answer".to_owned()),
    };
    let checks = health.checks.iter();
    warnings.extend(checks.map(|check| format!("{}: {}", check.code, check.summary)));
    let pools = store.fullness();
    warnings.extend(pools.iter().filter_map(pools::warning));
    let oldest = store.oldest_op();
    if let Some(oldest) = &oldest
        && oldest.age >= STALL
    {
        let age = oldest.age.as_secs();
        warnings.push(format!(
            "the cluster has not answered for {age} s about {}",
            oldest.object
        ));
    }
    let age = oldest.map_or(0, |oldest| oldest.age.as_millis());
    api::Cluster {
        health: health.status,
        osd_count: health.osds,
        osd_up_count: health.osds_up,
        osd_in_count: health.osds_in,
        in_flight_count: store.stats().in_flight.value(),
        oldest_ms: u64::try_from(age).unwrap_or(u64::MAX),
    }
}

fn unknown(why: String) -> ClusterHealth {
    ClusterHealth {
        status: why,
        ..ClusterHealth::default()
    }
}

fn warnings(context: &Context, tenure: Option<&Tenure>) -> Vec<String> {
    let locked_out = tenure.map_or_else(Vec::new, |tenure| {
        tenure.volumes.catalog.access_keys_locked_out()
    });
    let locked_out = locked_out.first().map(|(id, error)| {
        let count = locked_out.len();
        format!("{count} access keys cannot be used, among them {id}: {error}")
    });
    let space = context.space.as_ref().and_then(Space::warning);
    locked_out.into_iter().chain(space).collect()
}
