//! `/v1/targets`: targets, and which LUNs they show to whom.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use portico_backend::catalog::{CatalogError, IscsiName, Mapping, TargetRecord};
use serde::Deserialize;

use super::Context;
use super::api::block as api;
use super::reply::{ApiError, Body, Named, Parameters, page};
use super::user::{PageQuery, check_limit};

/// Whose mapping.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MapQuery {
    /// Any if left out.
    initiator: Option<String>,
}

pub(super) async fn list(
    State(context): State<Context>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<api::Targets>, ApiError> {
    let tenure = context.tenure()?;
    let limit = check_limit(query.limit)?;
    let targets = tenure.volumes.catalog.targets().await?;
    let after = query.after.as_deref();
    let (targets, next) = page(targets, after, limit, |target| target.name.as_str());
    let counts = SessionCounts::of(&context);
    let targets = targets.iter().map(|one| document(&counts, one)).collect();
    Ok(Json(api::Targets { targets, next }))
}

pub(super) async fn create(
    State(context): State<Context>,
    Body(new): Body<api::NewTarget>,
) -> Result<(StatusCode, Json<api::Target>), ApiError> {
    let tenure = context.tenure()?;
    let name = IscsiName::new(&new.name)?;
    let made = tenure.volumes.catalog.target_create(&name).await?;
    tracing::info!(target = %name, "target created");
    context.block.look_again().await;
    let counts = SessionCounts::of(&context);
    Ok((StatusCode::CREATED, Json(document(&counts, &made))))
}

pub(super) async fn read(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Result<Json<api::Target>, ApiError> {
    let tenure = context.tenure()?;
    let found = match IscsiName::new(&name) {
        Ok(valid) => tenure.volumes.catalog.target(&valid).await?,
        Err(_) => None,
    };
    let found = found.ok_or(CatalogError::NoSuch {
        what: "target",
        name,
    })?;
    Ok(Json(document(&SessionCounts::of(&context), &found)))
}

pub(super) async fn delete(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Result<StatusCode, ApiError> {
    let tenure = context.tenure()?;
    let name = IscsiName::new(&name)?;
    tenure.volumes.catalog.target_delete(&name).await?;
    tracing::info!(target = %name, "target deleted");
    context.block.look_again().await;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn map(
    State(context): State<Context>,
    Named(target): Named<String>,
    Body(new): Body<api::NewLunMap>,
) -> Result<(StatusCode, Json<api::LunMap>), ApiError> {
    let tenure = context.tenure()?;
    let target = IscsiName::new(&target)?;
    let wanted = Mapping {
        lun: new.lun.unwrap_or_default(),
        lun_name: new.name,
        initiator: new.initiator.as_deref().map(IscsiName::new).transpose()?,
    };
    let catalog = &tenure.volumes.catalog;
    let made = catalog.lun_map(&target, new.lun, &wanted).await?;
    tracing::info!(lun = made.lun_name, number = made.lun, target = %target, "LUN mapped");
    context.block.look_again().await;
    Ok((StatusCode::CREATED, Json(map_document(&target, &made))))
}

pub(super) async fn unmap(
    State(context): State<Context>,
    Named((target, lun)): Named<(String, u16)>,
    Parameters(query): Parameters<MapQuery>,
) -> Result<StatusCode, ApiError> {
    let tenure = context.tenure()?;
    let target = IscsiName::new(&target)?;
    let initiator = query.initiator.as_deref().map(IscsiName::new).transpose()?;
    let catalog = &tenure.volumes.catalog;
    catalog.lun_unmap(&target, lun, initiator.as_ref()).await?;
    tracing::info!(number = lun, target = %target, "LUN unmapped");
    context.block.look_again().await;
    Ok(StatusCode::NO_CONTENT)
}

/// Sessions with this node, by the name of their target.
struct SessionCounts(BTreeMap<String, usize>);

impl SessionCounts {
    fn of(context: &Context) -> Self {
        let mut counts = BTreeMap::new();
        for session in context.block.iscsi().sessions().list() {
            if let Some(target) = session.target() {
                *counts.entry(target.to_owned()).or_default() += 1;
            }
        }
        Self(counts)
    }
}

fn document(counts: &SessionCounts, target: &TargetRecord) -> api::Target {
    api::Target {
        name: target.name.to_string(),
        created_ms: target.created_ms,
        maps: target
            .maps
            .iter()
            .map(|map| map_document(&target.name, map))
            .collect(),
        session_count: counts.0.get(target.name.as_str()).copied().unwrap_or(0),
    }
}

fn map_document(target: &IscsiName, map: &Mapping) -> api::LunMap {
    api::LunMap {
        target: target.to_string(),
        lun: map.lun,
        name: map.lun_name.clone(),
        initiator: map.initiator.as_ref().map(ToString::to_string),
    }
}
