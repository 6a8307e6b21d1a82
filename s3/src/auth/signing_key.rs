//! Keys that signatures of version 4 are made with: one for each access key, day, region and
//! service. Deriving one costs four HMACs, so those in use are kept.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use portico_backend::catalog::{Credential, Secret};
use ring::hmac;

use crate::limits::SIGNING_KEYS_MAX;

/// A bounded cache. Entries of former secrets of the same access key are never used.
#[derive(Default)]
pub(super) struct SigningKeys(Mutex<HashMap<(String, String), Entry>>);

struct Entry {
    secret: Secret,
    key: hmac::Key,
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKeys")
    }
}

impl SigningKeys {
    /// The key for a scope of the form `20130524/us-east-1/s3/aws4_request`, whose region is
    /// already known to be ours.
    pub(super) fn key(&self, credential: &Credential, scope: &str) -> hmac::Key {
        let name = (credential.access_key.as_str().to_owned(), scope.to_owned());
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries
            .get(&name)
            .filter(|entry| entry.secret.expose() == credential.secret.expose());
        if let Some(entry) = known {
            return entry.key.clone();
        }
        let key = derive(credential.secret.expose(), scope);
        if entries.len() >= SIGNING_KEYS_MAX {
            entries.retain(|(_, other), _| other == scope);
        }
        if entries.len() >= SIGNING_KEYS_MAX {
            entries.clear();
        }
        let entry = Entry {
            secret: credential.secret.clone(),
            key: key.clone(),
        };
        entries.insert(name, entry);
        key
    }
}

/// Each part of the scope in turn is the message under the key made so far.
fn derive(secret: &str, scope: &str) -> hmac::Key {
    let mut key = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
    for part in scope.split('/') {
        let tag = hmac::sign(&key, part.as_bytes());
        key = hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref());
    }
    key
}
