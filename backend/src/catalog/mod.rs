//! What exists: users and their access keys, buckets, nodes. All of it lies in the store, changed
//! by guarded writes, so every gateway on the store sees the same.

#![allow(dead_code, reason = "signatures first")]

mod error;
mod keyring;
mod name;
mod record;
mod secret;

use std::sync::Arc;

pub use error::CatalogError;
pub use keyring::{Keyring, KeyringError};
pub use name::{AccessKeyId, BucketId, BucketName, NameError, NodeId};
pub use record::{AccessKey, BucketRecord, BucketState, Credential, NodeRecord, User};
pub use secret::Secret;

use crate::clock::Clock;
use crate::object::{ObjectStore, Pool};

/// The catalog as one gateway sees it.
#[derive(Debug)]
pub struct Catalog {
    store: Arc<dyn ObjectStore>,
    meta: Pool,
    clock: Arc<dyn Clock>,
    keyring: Arc<Keyring>,
}

#[expect(clippy::todo, reason = "signatures first")]
#[expect(clippy::unused_async, reason = "signatures first")]
#[expect(unused_variables, reason = "signatures first")]
impl Catalog {
    /// Opens the catalog in `meta`, making it if it is not there, and starts to follow the changes
    /// of others until it is dropped or closed.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        meta: Pool,
        clock: Arc<dyn Clock>,
        keyring: Arc<Keyring>,
    ) -> Result<Arc<Self>, CatalogError> {
        todo!()
    }

    /// Stops following changes.
    pub async fn close(&self) {
        todo!()
    }

    /// The access key of this id, from memory. At most a second behind the store.
    #[must_use]
    pub fn access_key(&self, id: &str) -> Option<Arc<Credential>> {
        todo!()
    }

    pub async fn user_create(&self, name: &str, display_name: &str) -> Result<User, CatalogError> {
        todo!()
    }

    /// The user of this id, from memory. At most a second behind the store.
    #[must_use]
    pub fn user(&self, id: &str) -> Option<Arc<User>> {
        todo!()
    }

    pub async fn user_by_name(&self, name: &str) -> Result<Option<User>, CatalogError> {
        todo!()
    }

    pub async fn users(&self) -> Result<Vec<User>, CatalogError> {
        todo!()
    }

    pub async fn user_set_disabled(&self, id: &str, disabled: bool) -> Result<User, CatalogError> {
        todo!()
    }

    /// Deletes the user and all its access keys, unless it owns buckets.
    pub async fn user_delete(&self, id: &str) -> Result<(), CatalogError> {
        todo!()
    }

    /// A new access key for the user: drawn, or as chosen.
    pub async fn access_key_create(
        &self,
        user_id: &str,
        chosen: Option<(AccessKeyId, Secret)>,
    ) -> Result<(AccessKeyId, Secret), CatalogError> {
        todo!()
    }

    pub async fn access_keys(&self, user_id: &str) -> Result<Vec<AccessKey>, CatalogError> {
        todo!()
    }

    pub async fn access_key_delete(&self, id: &AccessKeyId) -> Result<(), CatalogError> {
        todo!()
    }

    /// Takes the name for a bucket in state `Creating`. The caller makes the bucket's objects, then
    /// calls [`Catalog::bucket_live`].
    ///
    /// # Errors
    /// `BucketExists` with the record if the name is taken. If its state is `Creating` and its
    /// owner the same, the caller may go on where the other one stopped, or beside it.
    pub async fn bucket_create(
        &self,
        name: &BucketName,
        owner: &str,
        region: &str,
    ) -> Result<BucketRecord, CatalogError> {
        todo!()
    }

    /// The bucket's objects exist. Fine if it is live already.
    pub async fn bucket_live(&self, bucket: &BucketRecord) -> Result<BucketRecord, CatalogError> {
        todo!()
    }

    /// The bucket of this name, live or being deleted. A hit may come from memory, at most a second
    /// behind the store; a miss comes from the store.
    pub async fn bucket(
        &self,
        name: &BucketName,
    ) -> Result<Option<Arc<BucketRecord>>, CatalogError> {
        todo!()
    }

    /// All buckets, live or being deleted, of one owner (a user id) or of all, by name.
    pub async fn buckets(&self, owner: Option<&str>) -> Result<Vec<BucketRecord>, CatalogError> {
        todo!()
    }

    /// Buckets whose making or deletion was begun and not finished.
    pub async fn buckets_unfinished(&self) -> Result<Vec<BucketRecord>, CatalogError> {
        todo!()
    }

    /// Replaces the tags; an empty list removes them.
    pub async fn bucket_set_tags(
        &self,
        bucket: &BucketRecord,
        tags: Vec<(String, String)>,
    ) -> Result<BucketRecord, CatalogError> {
        todo!()
    }

    /// Replaces the access control list; an empty text leaves the bucket to its owner.
    pub async fn bucket_set_acl(
        &self,
        bucket: &BucketRecord,
        acl: &str,
    ) -> Result<BucketRecord, CatalogError> {
        todo!()
    }

    /// Marks the bucket as being deleted. The caller removes its objects, then calls
    /// [`Catalog::bucket_delete_end`], or [`Catalog::bucket_delete_cancel`] if it is not empty.
    pub async fn bucket_delete_begin(
        &self,
        bucket: &BucketRecord,
    ) -> Result<BucketRecord, CatalogError> {
        todo!()
    }

    /// The bucket's objects are gone: frees its name. Fine if it is free already.
    pub async fn bucket_delete_end(&self, bucket: &BucketRecord) -> Result<(), CatalogError> {
        todo!()
    }

    /// The bucket lives on.
    pub async fn bucket_delete_cancel(&self, bucket: &BucketRecord) -> Result<(), CatalogError> {
        todo!()
    }

    /// Registers this session as the node of this name, or of this id, whose name may then change.
    pub async fn node_register(
        &self,
        name: &str,
        id: Option<NodeId>,
    ) -> Result<NodeRecord, CatalogError> {
        todo!()
    }

    pub async fn nodes(&self) -> Result<Vec<NodeRecord>, CatalogError> {
        todo!()
    }

    /// Seals every secret anew with the keyring's active key; says how many were.
    pub async fn reseal(&self) -> Result<u64, CatalogError> {
        todo!()
    }
}
