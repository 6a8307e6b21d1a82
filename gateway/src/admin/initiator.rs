//! `/v1/initiators`: what initiators prove themselves with. Secrets come in and never go out.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use portico_backend::catalog::{Chap, InitiatorRecord, IscsiName, Secret};

use super::Context;
use super::api::block as api;
use super::reply::{ApiError, Body, Named, Parameters, page};
use super::user::{PageQuery, check_limit};

pub(super) async fn list(
    State(context): State<Context>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<api::Initiators>, ApiError> {
    let tenure = context.tenure()?;
    let limit = check_limit(query.limit)?;
    let all = tenure.volumes.catalog.initiators().await?;
    let after = query.after.as_deref();
    let (all, next) = page(all, after, limit, |initiator| initiator.name.as_str());
    let initiators = all.into_iter().map(document).collect();
    Ok(Json(api::Initiators { initiators, next }))
}

pub(super) async fn set(
    State(context): State<Context>,
    Body(new): Body<api::NewInitiator>,
) -> Result<(StatusCode, Json<api::Initiator>), ApiError> {
    let tenure = context.tenure()?;
    let name = IscsiName::new(&new.name)?;
    let chap = chap(new.chap_user, &new.chap_secret)?;
    let mutual = match (new.mutual_user, new.mutual_secret) {
        (None, None) => None,
        (Some(user), Some(secret)) => Some(self::chap(user, &secret)?),
        (Some(_), None) | (None, Some(_)) => {
            let message = "give both mutual_user and mutual_secret, or neither";
            return Err(ApiError::invalid(message));
        }
    };
    let catalog = &tenure.volumes.catalog;
    let made = catalog.initiator_set(&name, &chap, mutual.as_ref()).await?;
    tracing::info!(initiator = %name, "initiator has a secret");
    context.block.look_again().await;
    Ok((StatusCode::CREATED, Json(document(made))))
}

pub(super) async fn delete(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Result<StatusCode, ApiError> {
    let tenure = context.tenure()?;
    let name = IscsiName::new(&name)?;
    tenure.volumes.catalog.initiator_delete(&name).await?;
    tracing::info!(initiator = %name, "initiator has no secret any more");
    context.block.look_again().await;
    Ok(StatusCode::NO_CONTENT)
}

fn chap(user: String, secret: &str) -> Result<Chap, ApiError> {
    let secret = Secret::new(secret)
        .map_err(|rule| ApiError::invalid(format!("the secret of {user:?} {rule}")))?;
    Ok(Chap { user, secret })
}

fn document(initiator: InitiatorRecord) -> api::Initiator {
    api::Initiator {
        name: initiator.name.to_string(),
        chap_user: initiator.chap.user,
        mutual_user: initiator.mutual.map(|mutual| mutual.user),
        created_ms: initiator.created_ms,
    }
}
