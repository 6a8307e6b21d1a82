//! FSSTAT: how much there is and how much is free.

use super::super::error::TreeError;
use super::super::serve::Tree;

/// Bytes and nodes of a tree. A quota makes them smaller than the store's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub total_inodes: u64,
    pub free_inodes: u64,
}

/// Nodes of a tree without a quota: as many as nobody makes.
const INODES: u64 = 1 << 48;

impl Tree {
    /// # Errors
    /// What the store says.
    pub async fn statfs(&self) -> Result<Space, TreeError> {
        let shared = &self.shared;
        let totals = self.look(|view| view.totals()).await?;
        let usage = shared.store.usage(&shared.place.pools.data).await?;
        let quota = shared.header.quota;
        let store_free = usage.capacity_bytes.saturating_sub(usage.used_bytes);
        let (total_bytes, free_bytes) = match quota.bytes {
            None => (usage.capacity_bytes, store_free),
            Some(bytes) => {
                let free = bytes.saturating_sub(totals.used_bytes);
                (bytes, free.min(store_free))
            }
        };
        let total_inodes = quota.inodes.unwrap_or(INODES);
        Ok(Space {
            total_bytes,
            free_bytes,
            total_inodes,
            free_inodes: total_inodes.saturating_sub(totals.inode_count),
        })
    }
}
