//! `/v1/sessions`: iSCSI sessions with this node.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use portico_iscsi::session::registry::SharedSession;

use super::Context;
use super::api::block as api;
use super::reply::{ApiError, Named};

pub(super) async fn list(State(context): State<Context>) -> Json<api::IscsiSessions> {
    let sessions = context.block.iscsi().sessions().list();
    let sessions = sessions.iter().map(|session| document(session)).collect();
    Json(api::IscsiSessions { sessions })
}

pub(super) async fn drop_session(
    State(context): State<Context>,
    Named(id): Named<u16>,
) -> Result<StatusCode, ApiError> {
    if context.block.iscsi().sessions().drop_session(id) {
        tracing::info!(session = id, "session dropped by an admin");
        return Ok(StatusCode::NO_CONTENT);
    }
    let message = format!("there is no session {id}");
    Err(ApiError::new(
        StatusCode::NOT_FOUND,
        "NoSuchSession",
        message,
    ))
}

fn document(session: &SharedSession) -> api::IscsiSession {
    let nexus = session.nexus();
    let stats = session.stats();
    let state = session.lock();
    api::IscsiSession {
        id: session.tsih(),
        initiator: nexus.initiator.clone(),
        isid: nexus
            .isid
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        target: session.target().map(str::to_owned),
        portal: state.parts().local.to_string(),
        connection_count: state.connection_count(),
        commands_in_work: state.tasks_in_work(),
        commands: stats.commands.value(),
        bytes_in: stats.bytes_in.value(),
        bytes_out: stats.bytes_out.value(),
    }
}
