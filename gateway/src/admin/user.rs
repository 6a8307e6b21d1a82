//! `/v1/users`: users and their access keys. A user is addressed by name or id.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use portico_backend::catalog::{AccessKeyId, Catalog, Secret, User};
use serde::Deserialize;

use super::Context;
use super::api;
use super::reply::{ApiError, Body, Named, Parameters, page};

/// Which page of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

pub(super) async fn list(
    State(context): State<Context>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<api::Users>, ApiError> {
    let tenure = context.tenure()?;
    let users = tenure.volumes.catalog.users().await?;
    let limit = check_limit(query.limit)?;
    let (users, next) = page(users, query.after.as_deref(), limit, |user| {
        user.name.as_str()
    });
    let users = users.into_iter().map(document).collect();
    Ok(Json(api::Users { users, next }))
}

pub(super) async fn create(
    State(context): State<Context>,
    Body(new): Body<api::NewUser>,
) -> Result<(StatusCode, Json<api::User>), ApiError> {
    let tenure = context.tenure()?;
    let display_name = new.display_name.as_deref().unwrap_or(&new.name);
    let user = tenure
        .volumes
        .catalog
        .user_create(&new.name, display_name)
        .await?;
    tracing::info!(user = %user.name, id = %user.id, "user created");
    Ok((StatusCode::CREATED, Json(document(user))))
}

pub(super) async fn read(
    State(context): State<Context>,
    Named(user): Named<String>,
) -> Result<Json<api::User>, ApiError> {
    let tenure = context.tenure()?;
    let user = find(&tenure.volumes.catalog, &user).await?;
    Ok(Json(document(user)))
}

pub(super) async fn change(
    State(context): State<Context>,
    Named(user): Named<String>,
    Body(change): Body<api::UserChange>,
) -> Result<Json<api::User>, ApiError> {
    let tenure = context.tenure()?;
    let mut user = find(&tenure.volumes.catalog, &user).await?;
    if let Some(display_name) = &change.display_name {
        let catalog = &tenure.volumes.catalog;
        user = catalog
            .user_set_display_name(&user.id, display_name)
            .await?;
    }
    if let Some(disabled) = change.disabled {
        user = tenure
            .volumes
            .catalog
            .user_set_disabled(&user.id, disabled)
            .await?;
        tracing::info!(user = %user.name, disabled, "user changed");
    }
    Ok(Json(document(user)))
}

pub(super) async fn delete(
    State(context): State<Context>,
    Named(user): Named<String>,
) -> Result<StatusCode, ApiError> {
    let tenure = context.tenure()?;
    let user = find(&tenure.volumes.catalog, &user).await?;
    tenure.volumes.catalog.user_delete(&user.id).await?;
    tracing::info!(user = %user.name, id = %user.id, "user deleted");
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn key_list(
    State(context): State<Context>,
    Named(user): Named<String>,
) -> Result<Json<api::AccessKeys>, ApiError> {
    let tenure = context.tenure()?;
    let user = find(&tenure.volumes.catalog, &user).await?;
    let keys = tenure.volumes.catalog.access_keys(&user.id).await?;
    let locked_out = tenure.volumes.catalog.access_keys_locked_out();
    let access_keys = keys
        .into_iter()
        .map(|key| api::AccessKey {
            usable: !locked_out.iter().any(|(id, _)| *id == key.id),
            access_key: key.id.to_string(),
            created_ms: key.created_ms,
            sealed_with: key.sealed_with,
        })
        .collect();
    Ok(Json(api::AccessKeys { access_keys }))
}

pub(super) async fn key_create(
    State(context): State<Context>,
    Named(user): Named<String>,
    Body(new): Body<api::NewAccessKey>,
) -> Result<(StatusCode, Json<api::MadeAccessKey>), ApiError> {
    let tenure = context.tenure()?;
    let user = find(&tenure.volumes.catalog, &user).await?;
    let chosen = match (new.access_key, new.secret_key) {
        (None, None) => None,
        (Some(id), Some(secret)) => {
            let id = access_key(&id)?;
            let secret = Secret::new(&secret)
                .map_err(|rule| ApiError::invalid(format!("the secret key {rule}")))?;
            Some((id, secret))
        }
        (Some(_), None) | (None, Some(_)) => {
            let message = "give both access_key and secret_key, or neither to have them drawn";
            return Err(ApiError::invalid(message));
        }
    };
    let (id, secret) = tenure
        .volumes
        .catalog
        .access_key_create(&user.id, chosen)
        .await?;
    tracing::info!(user = %user.name, access_key = %id, "access key created");
    let made = api::MadeAccessKey {
        access_key: id.to_string(),
        secret_key: secret.expose().to_owned(),
    };
    Ok((StatusCode::CREATED, Json(made)))
}

pub(super) async fn key_delete(
    State(context): State<Context>,
    Named((user, key)): Named<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let tenure = context.tenure()?;
    let user = find(&tenure.volumes.catalog, &user).await?;
    let id = access_key(&key)?;
    let keys = tenure.volumes.catalog.access_keys(&user.id).await?;
    if !keys.iter().any(|key| key.id == id) {
        let message = format!("the user {:?} has no access key {id}", user.name);
        return Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "NoSuchAccessKey",
            message,
        ));
    }
    tenure.volumes.catalog.access_key_delete(&id).await?;
    tracing::info!(user = %user.name, access_key = %id, "access key deleted");
    Ok(StatusCode::NO_CONTENT)
}

/// The user of this name or, if nobody has that, of this id.
pub(super) async fn find(catalog: &Catalog, user: &str) -> Result<User, ApiError> {
    if let Some(found) = catalog.user_by_name(user).await? {
        return Ok(found);
    }
    let users = catalog.users().await?;
    users
        .into_iter()
        .find(|found| found.id == user)
        .ok_or_else(|| ApiError::no_such_user(user))
}

pub(super) fn check_limit(limit: Option<usize>) -> Result<usize, ApiError> {
    match limit {
        None => Ok(api::PAGE_ITEMS_MAX),
        Some(0) => Err(ApiError::invalid("limit must be at least 1")),
        Some(limit) => Ok(limit.min(api::PAGE_ITEMS_MAX)),
    }
}

fn access_key(text: &str) -> Result<AccessKeyId, ApiError> {
    AccessKeyId::new(text)
        .map_err(|rule| ApiError::invalid(format!("the access key {text:?} {rule}")))
}

fn document(user: User) -> api::User {
    api::User {
        id: user.id,
        name: user.name,
        display_name: user.display_name,
        disabled: user.disabled,
        deleting: user.deleting,
        created_ms: user.created_ms,
    }
}
