//! The admin API: versioned routes (`/v1/...`) over a unix socket that only this user and root may
//! use, and over TCP with a token where that is configured.

mod status;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use portico_backend::catalog::{Catalog, Secret};
use portico_backend::object::ObjectStore;

use crate::assemble::{Node, Pools};
use crate::health::Health;

/// What the routes work on. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) pools: Pools,
    pub(crate) health: Health,
}

impl Context {
    pub(crate) fn new(node: &Node) -> Self {
        Self {
            catalog: Arc::clone(&node.catalog),
            store: Arc::clone(&node.store),
            pools: node.pools.clone(),
            health: node.health.clone(),
        }
    }
}

/// The routes, for callers that need no token.
pub(crate) fn router(context: Context) -> Router {
    Router::new()
        .route("/v1/status", get(status::status))
        .with_state(context)
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
        .and_then(|value| value.strip_prefix("Bearer "));
    if given.is_some_and(|given| token.matches(given)) {
        next.run(request).await
    } else {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        (
            StatusCode::UNAUTHORIZED,
            challenge,
            "the admin token is missing or wrong\n",
        )
            .into_response()
    }
}
