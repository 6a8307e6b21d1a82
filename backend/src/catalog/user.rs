//! Users and their access keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::error::CatalogError;
use super::follow::Shared;
use super::keyring::{Keyring, KeyringError};
use super::name::{AccessKeyId, check_user_name};
use super::record::{AccessKey, Credential, SealedKey, User};
use super::root::TableKind;
use super::secret::{Secret, access_key_draw, user_id_draw};
use super::table::{Edit, corrupt};
use super::{ATTEMPTS_MAX, Catalog};
use crate::error::Error;

/// Bytes of a display name.
const DISPLAY_NAME_BYTES_MAX: usize = 256;

impl Catalog {
    /// The access key of this id, from memory. At most a second behind the store while that
    /// answers. `None` also if its secret is sealed with a key that the keyring lacks.
    #[must_use]
    pub fn access_key(&self, id: &str) -> Option<Arc<Credential>> {
        let id = AccessKeyId::new(id).ok()?;
        let partition = self.shared.access_keys.partition_of(id.as_str().as_bytes());
        self.shared
            .identities(|identities| identities.credential(partition, &id))
            .map(Arc::new)
    }

    /// The user of this id, from memory. At most a second behind the store while that answers.
    #[must_use]
    pub fn user(&self, id: &str) -> Option<Arc<User>> {
        self.shared
            .identities(|identities| identities.user(id).map(Arc::clone))
    }

    /// A new user.
    ///
    /// # Errors
    /// `UserExists`, `Invalid`.
    pub async fn user_create(&self, name: &str, display_name: &str) -> Result<User, CatalogError> {
        check_user_name(name).map_err(|error| CatalogError::Invalid {
            field: "user name",
            value: name.to_owned(),
            problem: error.0,
        })?;
        check_display_name(display_name)?;
        let user = User {
            id: user_id_draw()?,
            name: name.to_owned(),
            display_name: display_name.to_owned(),
            disabled: false,
            created_ms: self.shared.clock.now_ms(),
            deleting: false,
        };
        let edit = Edit {
            key: Bytes::copy_from_slice(name.as_bytes()),
            old: None,
            new: Some(user.encode()),
        };
        for _ in 0..ATTEMPTS_MAX {
            if let Some((existing, _)) = self.shared.user_read(name).await? {
                return Err(CatalogError::UserExists(Box::new(existing)));
            }
            if self
                .shared
                .commit(TableKind::User, std::slice::from_ref(&edit))
                .await?
            {
                return Ok(user);
            }
        }
        Err(CatalogError::Conflict)
    }

    /// The user of this name, from the store.
    ///
    /// # Errors
    /// What the store says.
    pub async fn user_by_name(&self, name: &str) -> Result<Option<User>, CatalogError> {
        Ok(self.shared.user_read(name).await?.map(|(user, _)| user))
    }

    /// All users by name, those being deleted too.
    ///
    /// # Errors
    /// What the store says.
    pub async fn users(&self) -> Result<Vec<User>, CatalogError> {
        self.shared.catch_up().await?;
        let mut users: Vec<User> = self
            .shared
            .identities(|identities| identities.users().map(|user| User::clone(user)).collect());
        users.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(users)
    }

    /// Whether the user's access keys open anything.
    ///
    /// # Errors
    /// `NoSuchUser`.
    pub async fn user_set_disabled(&self, id: &str, disabled: bool) -> Result<User, CatalogError> {
        self.user_change(id, |user| user.disabled = disabled).await
    }

    /// Changes the name that is shown.
    ///
    /// # Errors
    /// `NoSuchUser`, `Invalid`.
    pub async fn user_set_display_name(
        &self,
        id: &str,
        display_name: &str,
    ) -> Result<User, CatalogError> {
        check_display_name(display_name)?;
        self.user_change(id, |user| display_name.clone_into(&mut user.display_name))
            .await
    }

    /// Deletes the user and all its access keys. A deletion that was interrupted leaves a user
    /// whose access keys open nothing; deleting again finishes it.
    ///
    /// # Errors
    /// `UserOwnsBuckets`, `NoSuchUser`.
    pub async fn user_delete(&self, id: &str) -> Result<(), CatalogError> {
        let user = self.user_change(id, |user| user.deleting = true).await?;
        let owned = self
            .shared
            .buckets_where(|bucket| bucket.owner == user.id)
            .await?;
        if let Some(bucket) = owned.first() {
            self.user_change(id, |user| user.deleting = false).await?;
            return Err(CatalogError::UserOwnsBuckets {
                user: user.name,
                bucket: bucket.name.to_string(),
            });
        }
        for key in self.access_keys(id).await? {
            match self.access_key_delete(&key.id).await {
                Ok(()) | Err(CatalogError::NoSuchAccessKey(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for _ in 0..ATTEMPTS_MAX {
            let Some((current, record)) = self.shared.user_read(&user.name).await? else {
                return Ok(());
            };
            if current.id != user.id {
                return Ok(());
            }
            if !current.deleting {
                // Somebody found buckets in the meantime.
                return Err(CatalogError::Conflict);
            }
            let edit = Edit {
                key: Bytes::copy_from_slice(user.name.as_bytes()),
                old: Some(record),
                new: None,
            };
            if self.shared.commit(TableKind::User, &[edit]).await? {
                return Ok(());
            }
        }
        Err(CatalogError::Conflict)
    }

    /// A new access key for the user: drawn, or as chosen. Choosing what the user has already is
    /// fine.
    ///
    /// # Errors
    /// `NoSuchUser`, `AccessKeyExists`.
    pub async fn access_key_create(
        &self,
        user_id: &str,
        chosen: Option<(AccessKeyId, Secret)>,
    ) -> Result<(AccessKeyId, Secret), CatalogError> {
        let is_chosen = chosen.is_some();
        let (id, secret) = match chosen {
            Some(chosen) => chosen,
            None => access_key_draw()?,
        };
        let user = self.shared.user_by_id(user_id).await?;
        let now_ms = self.shared.clock.now_ms();
        let keyring = self.shared.keyring();
        let key = SealedKey::seal(&id, &user.id, now_ms, &secret, &keyring)?;
        let record = key.encode();
        let edit = Edit {
            key: Bytes::copy_from_slice(id.as_str().as_bytes()),
            old: None,
            new: Some(record.clone()),
        };
        if !self.shared.commit(TableKind::AccessKey, &[edit]).await? {
            let same = match self.shared.key_read(&id).await? {
                Some((held, _)) if is_chosen && held.user == user.id => {
                    held.open(&id, &keyring)?.matches(secret.expose())
                }
                _ => false,
            };
            return if same {
                Ok((id, secret))
            } else {
                Err(CatalogError::AccessKeyExists(id))
            };
        }
        if self.shared.user_is_there(&user).await? {
            return Ok((id, secret));
        }
        let edit = Edit {
            key: Bytes::copy_from_slice(id.as_str().as_bytes()),
            old: Some(record),
            new: None,
        };
        self.shared.commit(TableKind::AccessKey, &[edit]).await?;
        Err(CatalogError::NoSuchUser(user_id.to_owned()))
    }

    /// The access keys of a user, by id.
    ///
    /// # Errors
    /// What the store says. A user that does not exist has none.
    pub async fn access_keys(&self, user_id: &str) -> Result<Vec<AccessKey>, CatalogError> {
        self.shared.catch_up().await?;
        let mut keys: Vec<AccessKey> = self.shared.identities(|identities| {
            let keys = identities.access_keys();
            keys.filter(|key| key.user == user_id).cloned().collect()
        });
        keys.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(keys)
    }

    /// Deletes an access key, of whichever user.
    ///
    /// # Errors
    /// `NoSuchAccessKey`.
    pub async fn access_key_delete(&self, id: &AccessKeyId) -> Result<(), CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((_, record)) = self.shared.key_read(id).await? else {
                return Err(CatalogError::NoSuchAccessKey(id.clone()));
            };
            let edit = Edit {
                key: Bytes::copy_from_slice(id.as_str().as_bytes()),
                old: Some(record),
                new: None,
            };
            if self.shared.commit(TableKind::AccessKey, &[edit]).await? {
                return Ok(());
            }
        }
        Err(CatalogError::Conflict)
    }

    /// Access keys that cannot be used since the keyring does not open their secrets, and why.
    #[must_use]
    pub fn access_keys_locked_out(&self) -> Vec<(AccessKeyId, KeyringError)> {
        let mut keys: Vec<_> = self.shared.identities(|identities| {
            let keys = identities.locked_out();
            keys.map(|(id, error)| (id.clone(), error.clone()))
                .collect()
        });
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        keys
    }

    /// Uses another keyring from now on, such as one with a fresh active key.
    ///
    /// # Errors
    /// What the store says.
    pub async fn keyring_replace(&self, keyring: Arc<Keyring>) -> Result<(), CatalogError> {
        Ok(self.shared.keyring_replace(keyring).await?)
    }

    /// How many secrets each key of the keyring seals, by the key's id. A key that is not listed
    /// may be removed.
    ///
    /// # Errors
    /// What the store says.
    pub async fn keyring_use(&self) -> Result<BTreeMap<String, u64>, CatalogError> {
        self.shared.catch_up().await?;
        let mut sealed: BTreeMap<String, u64> = BTreeMap::new();
        self.shared.identities(|identities| {
            for key in identities.access_keys() {
                *sealed.entry(key.sealed_with.clone()).or_default() += 1;
            }
        });
        for initiator in self.initiators().await? {
            for secret in initiator.secrets() {
                *sealed.entry(secret.sealed_with().to_owned()).or_default() += 1;
            }
        }
        Ok(sealed)
    }

    /// Seals every secret anew that is not sealed with the keyring's active key; says how many
    /// were. Every gateway's keyring holds that key before.
    ///
    /// # Errors
    /// `Keyring` if a secret does not open; those before it are sealed anew.
    pub async fn reseal(&self) -> Result<u64, CatalogError> {
        self.shared.catch_up().await?;
        let keyring = self.shared.keyring();
        let mut ids: Vec<AccessKeyId> = self.shared.identities(|identities| {
            let keys = identities.access_keys();
            keys.filter(|key| key.sealed_with != keyring.active())
                .map(|key| key.id.clone())
                .collect()
        });
        ids.sort();
        let mut count = self.reseal_initiators().await?;
        for id in &ids {
            count += u64::from(self.shared.key_reseal(id, &keyring).await?);
        }
        Ok(count)
    }

    /// Changes a user's record. Also one being deleted, so that a deletion can be taken up again.
    async fn user_change(
        &self,
        id: &str,
        change: impl Fn(&mut User),
    ) -> Result<User, CatalogError> {
        let name = self.shared.user_name(id).await?;
        for _ in 0..ATTEMPTS_MAX {
            let (mut user, record) = self
                .shared
                .user_read(&name)
                .await?
                .filter(|(user, _)| user.id == id)
                .ok_or_else(|| CatalogError::NoSuchUser(id.to_owned()))?;
            change(&mut user);
            let new = user.encode();
            if new == record {
                return Ok(user);
            }
            let edit = Edit {
                key: Bytes::copy_from_slice(name.as_bytes()),
                old: Some(record),
                new: Some(new),
            };
            if self.shared.commit(TableKind::User, &[edit]).await? {
                return Ok(user);
            }
        }
        Err(CatalogError::Conflict)
    }
}

impl Shared {
    /// The user of this id, neither gone nor being deleted.
    pub(super) async fn user_by_id(&self, id: &str) -> Result<User, CatalogError> {
        let name = self.user_name(id).await?;
        match self.user_read(&name).await? {
            Some((user, _)) if user.id == id && !user.deleting => Ok(user),
            _ => Err(CatalogError::NoSuchUser(id.to_owned())),
        }
    }

    /// Whether the store has the user still, and nobody deletes it.
    pub(super) async fn user_is_there(&self, user: &User) -> Result<bool, Error> {
        let current = self.user_read(&user.name).await?;
        Ok(current.is_some_and(|(current, _)| current.id == user.id && !current.deleting))
    }

    async fn user_name(&self, id: &str) -> Result<String, CatalogError> {
        let known = || self.identities(|identities| identities.user(id).map(|u| u.name.clone()));
        if let Some(name) = known() {
            return Ok(name);
        }
        self.catch_up().await?;
        known().ok_or_else(|| CatalogError::NoSuchUser(id.to_owned()))
    }

    async fn user_read(&self, name: &str) -> Result<Option<(User, Bytes)>, Error> {
        let Some(record) = self.users.read(name.as_bytes()).await? else {
            return Ok(None);
        };
        let user =
            User::decode(&record).map_err(|error| corrupt("user", name.as_bytes(), error))?;
        Ok(Some((user, record)))
    }

    async fn key_read(&self, id: &AccessKeyId) -> Result<Option<(SealedKey, Bytes)>, Error> {
        let key = id.as_str().as_bytes();
        let Some(record) = self.access_keys.read(key).await? else {
            return Ok(None);
        };
        let sealed =
            SealedKey::decode(&record).map_err(|error| corrupt("access key", key, error))?;
        Ok(Some((sealed, record)))
    }

    /// `false` if there was nothing to do.
    async fn key_reseal(&self, id: &AccessKeyId, keyring: &Keyring) -> Result<bool, CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((key, record)) = self.key_read(id).await? else {
                return Ok(false);
            };
            if key.about(id).sealed_with == keyring.active() {
                return Ok(false);
            }
            let secret = key.open(id, keyring)?;
            let sealed = SealedKey::seal(id, &key.user, key.created_ms, &secret, keyring)?;
            let edit = Edit {
                key: Bytes::copy_from_slice(id.as_str().as_bytes()),
                old: Some(record),
                new: Some(sealed.encode()),
            };
            if self.commit(TableKind::AccessKey, &[edit]).await? {
                return Ok(true);
            }
        }
        Err(CatalogError::Conflict)
    }
}

fn check_display_name(display_name: &str) -> Result<(), CatalogError> {
    let problem = if display_name.len() > DISPLAY_NAME_BYTES_MAX {
        "must have at most 256 bytes"
    } else if display_name.chars().any(char::is_control) {
        "must not hold control characters"
    } else {
        return Ok(());
    };
    Err(CatalogError::Invalid {
        field: "display name",
        value: display_name.to_owned(),
        problem,
    })
}
