//! What exists: users and their access keys, buckets, nodes; LUNs, targets and initiators. All of it lies in the store, changed
//! by guarded writes, so every gateway on the store sees the same: a change of one that has
//! returned is seen by the others within a second, usually at once.
//!
//! Users and access keys are all kept in memory, a few hundred bytes each, so that checking a
//! signature asks nobody; buckets are kept as far as they were asked for. `root` says how memory
//! keeps up with the store. Secrets are sealed by a [`Keyring`] before they leave the process.
//!
//! No object spans a change of two things, so whatever refers to another thing is written first and
//! checks the other afterwards: a bucket or access key whose user is being deleted takes itself
//! back, and a user is deleted only when nothing refers to it.

mod bucket;
mod cache;
mod error;
mod follow;
mod initiator;
mod iscsi_name;
mod keyring;
mod lun;
mod name;
mod node;
mod record;
mod root;
mod secret;
mod table;
mod target;
mod user;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::object::{ObjectStore, Pool};
use follow::{Shared, follow};

pub use crate::bucket::BucketId;
pub use error::CatalogError;
pub use initiator::{Chap, InitiatorRecord, SealedChap};
pub use iscsi_name::IscsiName;
pub use keyring::{Keyring, KeyringError};
pub use lun::{LUN_MAX, LunOptions, LunRecord, NewLun};
pub use name::{AccessKeyId, BucketName, NameError, NodeId};
pub use record::{AccessKey, BucketRecord, BucketState, Credential, NodeRecord, User};
pub use secret::{Secret, access_key_draw};
pub use target::{MAPPINGS_MAX, Mapping, TargetRecord};

/// Attempts at a change whose record others keep changing.
const ATTEMPTS_MAX: u32 = 32;

/// The catalog as one gateway sees it.
#[derive(Debug)]
pub struct Catalog {
    shared: Arc<Shared>,
    follower: Mutex<Option<JoinHandle<()>>>,
}

impl Catalog {
    /// Opens the catalog in `meta`, making it if it is not there, and starts to follow the changes
    /// of others until it is dropped or closed. Access keys that the keyring does not open are
    /// logged and listed by [`Catalog::access_keys_locked_out`].
    ///
    /// # Errors
    /// What the store says; `Unsupported` for a catalog of a newer format.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        meta: Pool,
        clock: Arc<dyn Clock>,
        keyring: Arc<Keyring>,
    ) -> Result<Arc<Self>, CatalogError> {
        let (shared, watch) = Shared::open(store, &meta, clock, keyring).await?;
        let shared = Arc::new(shared);
        let follower = tokio::spawn(follow(Arc::clone(&shared), watch));
        Ok(Arc::new(Self {
            shared,
            follower: Mutex::new(Some(follower)),
        }))
    }

    /// Stops following changes. The catalog is of no use afterwards.
    pub async fn close(&self) {
        let follower = self.take_follower();
        if let Some(follower) = follower {
            follower.abort();
            // It ended, whether by the abort or before.
            follower.await.ok();
        }
    }

    fn take_follower(&self) -> Option<JoinHandle<()>> {
        self.follower
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        if let Some(follower) = self.take_follower() {
            follower.abort();
        }
    }
}
