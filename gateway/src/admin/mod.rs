//! The admin API: versioned routes (`/v1/...`) over a unix socket that only this user and root may
//! use, and over TCP with a token where that is configured. `api` has the documents.

pub(crate) mod api;
mod bucket;
mod initiator;
mod lun;
mod reply;
mod session;
mod status;
mod target;
#[cfg(test)]
mod tests;
mod user;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use portico_backend::catalog::Secret;
use portico_backend::rados::RadosStore;
use portico_backend::tenure::{Tenure, Tenures};

use crate::assemble::{Engine, Node, Pools};
use crate::block::Block;
use crate::config::Config;
use crate::health::Health;
use crate::space::Space;
use reply::ApiError;

/// Bytes of a request's body: many times what the largest document takes.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What the routes work on. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) tenures: Tenures,
    pub(crate) pools: Pools,
    pub(crate) block: Block,
    pub(crate) health: Health,
    /// The name of this node.
    pub(crate) node: Arc<str>,
    /// Where buckets are made.
    pub(crate) region: Arc<str>,
    pub(crate) space: Option<Space>,
    pub(crate) cluster: Option<RadosStore>,
}

impl Context {
    pub(crate) fn new(node: &Node, config: &Config) -> Self {
        Self {
            tenures: node.tenures.clone(),
            pools: node.pools.clone(),
            block: node.block.clone(),
            health: node.health.clone(),
            node: Arc::clone(&node.name),
            region: Arc::from(config.s3.region.as_str()),
            space: Space::of(config),
            cluster: match &node.engine {
                Engine::Rados(store) => Some(store.clone()),
                Engine::Local(_) | Engine::Memory(_) => None,
            },
        }
    }

    /// What the node serves from.
    fn tenure(&self) -> Result<Arc<Tenure>, ApiError> {
        self.tenures.current().map_err(|why| ApiError::vacant(&why))
    }
}

/// The routes, for callers that need no token.
pub(crate) fn router(context: Context) -> Router {
    let users = get(user::list).post(user::create);
    let user = get(user::read).patch(user::change).delete(user::delete);
    let keys = get(user::key_list).post(user::key_create);
    let buckets = get(bucket::list).post(bucket::create);
    let bucket = get(bucket::read).delete(bucket::delete);
    block_routes()
        .route("/v1/status", get(status::status))
        .route("/v1/nodes", get(status::nodes))
        .route("/v1/keyring", get(status::keyring))
        .route("/v1/users", users)
        .route("/v1/users/{user}", user)
        .route("/v1/users/{user}/keys", keys)
        .route("/v1/users/{user}/keys/{key}", delete(user::key_delete))
        .route("/v1/buckets", buckets)
        .route("/v1/buckets/{bucket}", bucket)
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(context)
}

/// The routes of what iSCSI serves.
fn block_routes() -> Router<Context> {
    let luns = get(lun::list).post(lun::create);
    let lun = get(lun::read).patch(lun::change).delete(lun::delete);
    let targets = get(target::list).post(target::create);
    let target = get(target::read).delete(target::delete);
    let initiators = get(initiator::list).post(initiator::set);
    Router::new()
        .route("/v1/luns", luns)
        .route("/v1/luns/{lun}", lun)
        .route("/v1/targets", targets)
        .route("/v1/targets/{target}", target)
        .route("/v1/targets/{target}/maps", post(target::map))
        .route("/v1/targets/{target}/maps/{lun}", delete(target::unmap))
        .route("/v1/initiators", initiators)
        .route("/v1/initiators/{initiator}", delete(initiator::delete))
        .route("/v1/sessions", get(session::list))
        .route("/v1/sessions/{session}", delete(session::drop_session))
}

/// The same routes for callers that send `Authorization: Bearer TOKEN`.
pub(crate) fn with_token(router: Router, token: Secret) -> Router {
    router.layer(middleware::from_fn_with_state(token, require_token))
}

async fn require_token(State(token): State<Secret>, request: Request, next: Next) -> Response {
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        // Schemes are the same in any case (RFC 9110 11.1), and any number of blanks may follow.
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, given)| given.trim_start_matches(' '));
    if given.is_some_and(|given| token.matches(given)) {
        return next.run(request).await;
    }
    let message = "the admin token is missing or wrong; send it as \"Authorization: Bearer TOKEN\"";
    ApiError::new(StatusCode::UNAUTHORIZED, "Unauthorized", message).into_response()
}

async fn no_such_route(uri: Uri) -> ApiError {
    let message = format!("there is no {} in version 1 of the admin API", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "NoSuchRoute", message)
}

async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not know {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
}
