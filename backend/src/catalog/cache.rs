//! What a catalog keeps in memory: all users and access keys, and the buckets asked for lately.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::keyring::{Keyring, KeyringError, sealed_with};
use super::name::{AccessKeyId, BucketName};
use super::record::{AccessKey, BucketRecord, Credential, SealedKey, User};
use super::secret::Secret;
use super::table::Partition;
use crate::error::chain;
use crate::object::Version;

/// How old a look at the root may be for a bucket to be served from memory.
pub(super) const FRESH_MAX: Duration = Duration::from_millis(1_000);

/// Buckets kept in memory, in each of two generations.
const BUCKETS_MAX: usize = 8_192;

/// All users and access keys. A key whose user is not there opens nothing.
#[derive(Debug)]
pub(super) struct Identities {
    users: Vec<UserPartition>,
    keys: Vec<KeyPartition>,
    /// By id.
    user_index: HashMap<String, Arc<User>>,
}

#[derive(Debug, Default)]
struct UserPartition {
    version: Option<Version>,
    /// By name.
    users: HashMap<String, Arc<User>>,
}

#[derive(Debug, Default)]
struct KeyPartition {
    version: Option<Version>,
    keys: HashMap<AccessKeyId, CachedKey>,
}

#[derive(Debug)]
struct CachedKey {
    about: AccessKey,
    sealed: Bytes,
    secret: Result<Secret, KeyringError>,
}

impl Identities {
    pub(super) fn new(partition_count: u32) -> Self {
        Self {
            users: (0..partition_count)
                .map(|_| UserPartition::default())
                .collect(),
            keys: (0..partition_count)
                .map(|_| KeyPartition::default())
                .collect(),
            user_index: HashMap::new(),
        }
    }

    pub(super) fn user(&self, id: &str) -> Option<&Arc<User>> {
        self.user_index.get(id)
    }

    pub(super) fn users(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users
            .iter()
            .flat_map(|partition| partition.users.values())
    }

    /// The access key of this id in its partition.
    pub(super) fn credential(&self, partition: u32, id: &AccessKeyId) -> Option<Credential> {
        let key = self.keys[place(partition)].keys.get(id)?;
        let user = self.user_index.get(&key.about.user)?;
        let secret = key.secret.as_ref().ok()?;
        Some(Credential {
            access_key: id.clone(),
            secret: secret.clone(),
            user: Arc::clone(user),
            enabled: !user.disabled && !user.deleting,
        })
    }

    pub(super) fn access_keys(&self) -> impl Iterator<Item = &AccessKey> {
        self.keys
            .iter()
            .flat_map(|partition| partition.keys.values())
            .map(|key| &key.about)
    }

    /// Access keys whose secrets do not open.
    pub(super) fn locked_out(&self) -> impl Iterator<Item = (&AccessKeyId, &KeyringError)> {
        self.keys
            .iter()
            .flat_map(|partition| partition.keys.values())
            .filter_map(|key| {
                key.secret
                    .as_ref()
                    .err()
                    .map(|error| (&key.about.id, error))
            })
    }

    pub(super) fn user_version(&self, partition: u32) -> Option<Version> {
        self.users[place(partition)].version
    }

    pub(super) fn key_version(&self, partition: u32) -> Option<Version> {
        self.keys[place(partition)].version
    }

    /// Puts the users of one partition in the place of those before.
    pub(super) fn replace_users(&mut self, partition: u32, loaded: &Partition) {
        let here = &mut self.users[place(partition)];
        for user in here.users.values() {
            self.user_index.remove(&user.id);
        }
        here.version = loaded.version;
        here.users.clear();
        for (key, record) in &loaded.entries {
            match User::decode(record) {
                Ok(user) => {
                    let user = Arc::new(user);
                    here.users.insert(user.name.clone(), Arc::clone(&user));
                    self.user_index.insert(user.id.clone(), user);
                }
                Err(error) => {
                    let user = String::from_utf8_lossy(key);
                    tracing::error!(%user, %error, "a user's record is not readable");
                }
            }
        }
    }

    /// Puts the access keys of one partition in the place of those before.
    pub(super) fn replace_keys(&mut self, partition: u32, loaded: &Partition, keyring: &Keyring) {
        let here = &mut self.keys[place(partition)];
        here.version = loaded.version;
        let mut before = std::mem::take(&mut here.keys);
        for (key, record) in &loaded.entries {
            let id = std::str::from_utf8(key)
                .ok()
                .and_then(|text| AccessKeyId::new(text).ok());
            let Some(id) = id else {
                tracing::error!(key = %String::from_utf8_lossy(key), "not an access key's id");
                continue;
            };
            let sealed = match SealedKey::decode(record) {
                Ok(sealed) => sealed,
                Err(error) => {
                    tracing::error!(%id, %error, "an access key's record is not readable");
                    continue;
                }
            };
            let known = before
                .remove(&id)
                .filter(|known| known.sealed == sealed.sealed && known.about.user == sealed.user);
            let cached = known.unwrap_or_else(|| CachedKey::open(&id, sealed, keyring));
            here.keys.insert(id, cached);
        }
    }

    /// Forgets which secrets opened, for another keyring to open them.
    pub(super) fn forget_keys(&mut self) {
        for partition in &mut self.keys {
            *partition = KeyPartition::default();
        }
    }
}

impl CachedKey {
    fn open(id: &AccessKeyId, key: SealedKey, keyring: &Keyring) -> Self {
        let secret = key.open(id, keyring);
        if let Err(error) = &secret {
            tracing::error!(%id, error = %chain(error), "an access key cannot be used");
        }
        Self {
            about: key.about(id),
            secret,
            sealed: key.sealed,
        }
    }
}

impl SealedKey {
    /// A secret sealed for one access key of one user.
    pub(super) fn seal(
        id: &AccessKeyId,
        user: &str,
        created_ms: u64,
        secret: &Secret,
        keyring: &Keyring,
    ) -> Result<Self, KeyringError> {
        let sealed = keyring.seal(secret.expose().as_bytes(), &binding(id, user))?;
        Ok(Self {
            user: user.to_owned(),
            created_ms,
            sealed,
        })
    }

    pub(super) fn open(&self, id: &AccessKeyId, keyring: &Keyring) -> Result<Secret, KeyringError> {
        let plain = keyring.open(&self.sealed, &binding(id, &self.user))?;
        std::str::from_utf8(&plain)
            .ok()
            .and_then(|text| Secret::new(text).ok())
            .ok_or(KeyringError::Decode(crate::codec::DecodeError::Field(
                "secret",
            )))
    }

    pub(super) fn about(&self, id: &AccessKeyId) -> AccessKey {
        AccessKey {
            id: id.clone(),
            user: self.user.clone(),
            created_ms: self.created_ms,
            sealed_with: sealed_with(&self.sealed).unwrap_or("?").to_owned(),
        }
    }
}

/// What a sealed secret is bound to: its place. Neither half holds a zero byte.
fn binding(id: &AccessKeyId, user: &str) -> Vec<u8> {
    format!("portico access key\0{user}\0{id}").into_bytes()
}

/// Buckets that were asked for, valid while the catalog follows the root closely.
#[derive(Debug, Default)]
pub(super) struct BucketCache {
    young: HashMap<BucketName, Arc<BucketRecord>>,
    old: HashMap<BucketName, Arc<BucketRecord>>,
    /// Grows whenever something is forgotten; see `insert`.
    generation: u64,
    /// When the last look at the root that found nothing missed was begun.
    verified: Option<Instant>,
}

impl BucketCache {
    pub(super) fn get(&mut self, name: &BucketName, now: Instant) -> Option<Arc<BucketRecord>> {
        let verified = self.verified?;
        if now.duration_since(verified) >= FRESH_MAX {
            return None;
        }
        if let Some(bucket) = self.young.get(name) {
            return Some(Arc::clone(bucket));
        }
        let bucket = self.old.remove(name)?;
        self.keep(Arc::clone(&bucket));
        Some(bucket)
    }

    /// To be taken before the store is read, for `insert`.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Keeps what was read since `generation` was taken, unless something was forgotten meanwhile:
    /// that may have been this bucket.
    pub(super) fn insert(&mut self, bucket: Arc<BucketRecord>, generation: u64) {
        if generation == self.generation {
            self.keep(bucket);
        }
    }

    pub(super) fn forget(&mut self, name: &[u8]) {
        self.generation += 1;
        if let Some(name) = std::str::from_utf8(name)
            .ok()
            .and_then(|t| BucketName::new(t).ok())
        {
            self.young.remove(&name);
            self.old.remove(&name);
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.generation += 1;
        self.young.clear();
        self.old.clear();
    }

    pub(super) fn verified_at(&mut self, begun: Instant) {
        self.verified = Some(begun);
    }

    fn keep(&mut self, bucket: Arc<BucketRecord>) {
        if self.young.len() >= BUCKETS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(bucket.name.clone(), bucket);
    }
}

fn place(partition: u32) -> usize {
    usize::try_from(partition).expect("a partition's number is small")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::BucketId;
    use crate::catalog::BucketState;

    fn bucket(name: &str) -> Arc<BucketRecord> {
        Arc::new(BucketRecord {
            id: BucketId(1),
            name: BucketName::new(name).unwrap(),
            owner: String::new(),
            region: String::new(),
            created_ms: 0,
            state: BucketState::Live,
            tags: Vec::new(),
            acl: String::new(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_before_a_change_is_not_kept_after_it() {
        let now = Instant::now();
        let (photos, other) = (bucket("photos"), bucket("other"));
        let mut cache = BucketCache::default();
        cache.verified_at(now);
        let before = cache.generation();
        cache.forget(b"photos");
        cache.insert(Arc::clone(&photos), before);
        assert_eq!(cache.get(&photos.name, now), None);
        let after = cache.generation();
        cache.insert(Arc::clone(&photos), after);
        cache.insert(Arc::clone(&other), after);
        assert_eq!(cache.get(&photos.name, now), Some(Arc::clone(&photos)));
        cache.forget(b"photos");
        assert_eq!(cache.get(&photos.name, now), None);
        assert_eq!(cache.get(&other.name, now), Some(other));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_and_keeps_what_is_asked_for() {
        let now = Instant::now();
        let mut cache = BucketCache::default();
        cache.verified_at(now);
        let kept = bucket("kept");
        cache.insert(Arc::clone(&kept), 0);
        for number in 0..3 * BUCKETS_MAX {
            cache.insert(bucket(&format!("bucket-{number}")), 0);
            if number % 1_000 == 0 {
                assert!(cache.get(&kept.name, now).is_some());
            }
        }
        assert!(cache.young.len() + cache.old.len() <= 2 * BUCKETS_MAX);
        assert_eq!(cache.get(&bucket("bucket-0").name, now), None);
    }
}
