//! `/v1/buckets`: buckets of all users.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use portico_backend::bucket::Error as BucketError;
use portico_backend::catalog::{BucketName, BucketRecord, BucketState};
use portico_backend::tenure::Tenure;
use serde::Deserialize;

use super::reply::{ApiError, Body, Named, Parameters, page};
use super::user::{check_limit, find};
use super::{Context, api};

/// Which page of which list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Name or id of a user.
    owner: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn list(
    State(context): State<Context>,
    Parameters(query): Parameters<ListQuery>,
) -> Result<Json<api::Buckets>, ApiError> {
    let tenure = context.tenure()?;
    let owner = match &query.owner {
        Some(owner) => Some(find(&tenure.volumes.catalog, owner).await?.id),
        None => None,
    };
    let limit = check_limit(query.limit)?;
    let buckets = tenure.volumes.catalog.buckets(owner.as_deref()).await?;
    let after = query.after.as_deref();
    let (buckets, next) = page(buckets, after, limit, |bucket| bucket.name.as_str());
    let buckets = buckets
        .iter()
        .map(|bucket| document(&tenure, bucket))
        .collect();
    Ok(Json(api::Buckets { buckets, next }))
}

pub(super) async fn create(
    State(context): State<Context>,
    Body(new): Body<api::NewBucket>,
) -> Result<(StatusCode, Json<api::Bucket>), ApiError> {
    let tenure = context.tenure()?;
    let name = BucketName::new(&new.name)
        .map_err(|rule| ApiError::invalid(format!("the bucket name {:?} {rule}", new.name)))?;
    let owner = find(&tenure.volumes.catalog, &new.owner).await?;
    let made = tenure
        .volumes
        .bucket_create(&name, &owner.id, &context.region)
        .await?;
    tracing::info!(bucket = %name, owner = %owner.name, "bucket created");
    Ok((StatusCode::CREATED, Json(document(&tenure, &made))))
}

pub(super) async fn read(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Result<Json<api::BucketWithUsage>, ApiError> {
    let tenure = context.tenure()?;
    let record = record(&tenure, &name).await?;
    let usage = match tenure.volumes.buckets.bucket(record.id).await {
        Ok(bucket) => bucket.usage().await,
        Err(error) => Err(error),
    };
    let usage = usage.map_err(|error| {
        // Its deletion was begun.
        if matches!(error, BucketError::NoSuchBucket) {
            ApiError::no_such_bucket(&name)
        } else {
            error.into()
        }
    })?;
    Ok(Json(api::BucketWithUsage {
        bucket: document(&tenure, &record),
        object_count: usage.object_count,
        bytes: usage.bytes,
    }))
}

pub(super) async fn delete(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Result<StatusCode, ApiError> {
    let tenure = context.tenure()?;
    let record = record(&tenure, &name).await?;
    tenure.volumes.bucket_delete(&record).await?;
    tracing::info!(bucket = %name, "bucket deleted");
    Ok(StatusCode::NO_CONTENT)
}

async fn record(tenure: &Tenure, name: &str) -> Result<Arc<BucketRecord>, ApiError> {
    let Ok(valid) = BucketName::new(name) else {
        return Err(ApiError::no_such_bucket(name));
    };
    let found = tenure.volumes.catalog.bucket(&valid).await?;
    found.ok_or_else(|| ApiError::no_such_bucket(name))
}

fn document(tenure: &Tenure, bucket: &BucketRecord) -> api::Bucket {
    let owner = tenure.volumes.catalog.user(&bucket.owner);
    let state = match bucket.state {
        BucketState::Creating => "creating",
        BucketState::Live => "live",
        BucketState::Deleting => "deleting",
    };
    api::Bucket {
        name: bucket.name.to_string(),
        id: bucket.id.0,
        owner: owner.map_or_else(String::new, |owner| owner.name.clone()),
        owner_id: bucket.owner.clone(),
        region: bucket.region_name().to_owned(),
        state: state.to_owned(),
        created_ms: bucket.created_ms,
    }
}
