//! Background work.

use super::error::Error;
use super::{ReclaimOutcome, Shared};

impl Shared {
    pub(super) async fn reclaim_step(&self) -> Result<ReclaimOutcome, Error> {
        Ok(ReclaimOutcome {
            removed: 0,
            round_ended: true,
        })
    }
}
