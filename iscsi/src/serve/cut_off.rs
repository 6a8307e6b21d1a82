//! What a reset falls back on when aborted commands do not end: nothing that is on its way to the
//! store takes effect any more.

use std::fmt;
use std::pin::Pin;
use std::sync::OnceLock;

use tokio::time::Instant;

/// Cuts the way to the store off for all that was begun before the moment, when a reset began to
/// wait. Whether that was done.
pub type Cut = dyn Fn(Instant) -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync;

/// Set once by the program that can do it.
#[derive(Default)]
pub(super) struct CutOff(OnceLock<Box<Cut>>);

impl CutOff {
    /// The first one counts.
    pub(super) fn set(&self, cut: Box<Cut>) {
        self.0.set(cut).ok();
    }

    pub(super) async fn run(&self, begun: Instant) -> bool {
        match self.0.get() {
            Some(cut) => cut(begun).await,
            None => false,
        }
    }
}

impl fmt::Debug for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CutOff")
    }
}
