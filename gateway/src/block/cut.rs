//! Fencing the node's own session of images, so that nothing it has on its way takes effect any
//! more: what a reset does whose aborted commands do not end.

use portico_backend::error::chain;
use portico_backend::gate::{Gate, GateControl, gate};
use portico_backend::object::SessionId;
use tokio::time::{Instant, timeout};

use super::Shared;
use crate::limits::CUT_TIMEOUT;

/// The session that images are served with now.
#[derive(Debug)]
pub(super) struct Current {
    session: SessionId,
    since: Instant,
    /// Open until it is cut off.
    uncut: GateControl,
}

/// A session that begins now. The gate closes when it is cut off, or another one takes its place.
pub(super) fn begin(shared: &Shared, session: SessionId) -> Gate {
    let (uncut, is_uncut) = gate(true);
    *shared.current.lock().expect("no holder panics") = Some(Current {
        session,
        since: Instant::now(),
        uncut,
    });
    is_uncut
}

/// Fences the session if it is one from before `begun`; a later one took its place when it was
/// fenced. Whether nothing of it takes effect any more.
pub(super) async fn cut_off(shared: &Shared, begun: Instant) -> bool {
    let session = match &*shared.current.lock().expect("no holder panics") {
        Some(current) if current.since <= begun => current.session.clone(),
        Some(_) | None => return true,
    };
    let Ok(tenure) = shared.parts.tenures.current() else {
        return false;
    };
    match timeout(CUT_TIMEOUT, tenure.store.fence(&session)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::error!(error = chain(&error), "cannot fence the session of images");
            return false;
        }
        Err(_) => {
            tracing::error!("the store does not fence the session of images");
            return false;
        }
    }
    tracing::warn!("aborted commands did not end; the session of images was fenced for a reset");
    let current = shared.current.lock().expect("no holder panics");
    if let Some(current) = current.as_ref().filter(|one| one.session == session) {
        current.uncut.set_open(false);
    }
    true
}
