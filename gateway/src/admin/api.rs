//! The documents of the admin API, for the server and the command line alike.
//!
//! Version 1 may gain fields and routes, never lose or change them. Requests with unknown fields
//! are refused. Times are milliseconds since 1970-01-01 UTC.

pub(crate) mod block;

use serde::{Deserialize, Serialize};

/// Items of one page, unless fewer are asked for.
pub(crate) const PAGE_ITEMS_MAX: usize = 1_000;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct User {
    /// What S3 calls the owner's ID.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) display_name: String,
    /// The access keys of a disabled user open nothing.
    pub(crate) disabled: bool,
    /// A deletion was begun and not finished; the access keys open nothing.
    pub(crate) deleting: bool,
    pub(crate) created_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Users {
    pub(crate) users: Vec<User>,
    /// Ask again with `after` set to this for the next page.
    pub(crate) next: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewUser {
    pub(crate) name: String,
    /// The name if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) display_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) display_name: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct AccessKey {
    pub(crate) access_key: String,
    pub(crate) created_ms: u64,
    /// The key of the keyring that its secret is sealed with.
    pub(crate) sealed_with: String,
    /// Whether the keyring opens its secret.
    pub(crate) usable: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct AccessKeys {
    pub(crate) access_keys: Vec<AccessKey>,
}

/// Both or neither; drawn if left out.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAccessKey {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) access_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_key: Option<String>,
}

/// The only time that the secret is told.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct MadeAccessKey {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    /// Never used again for another bucket.
    pub(crate) id: u64,
    /// The owner's name; empty if there is no such user any more.
    pub(crate) owner: String,
    pub(crate) owner_id: String,
    pub(crate) region: String,
    /// `creating`, `live` or `deleting`.
    pub(crate) state: String,
    pub(crate) created_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Buckets {
    pub(crate) buckets: Vec<Bucket>,
    /// Ask again with `after` set to this for the next page.
    pub(crate) next: Option<String>,
}

/// One bucket with what it holds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct BucketWithUsage {
    #[serde(flatten)]
    pub(crate) bucket: Bucket,
    pub(crate) object_count: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBucket {
    pub(crate) name: String,
    /// Name or id of a user.
    pub(crate) owner: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) name: String,
    /// When it started last.
    pub(crate) registered_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) node: String,
    pub(crate) ready: bool,
    /// Why it is not ready.
    pub(crate) reason: Option<String>,
    /// This and what follows it is 0 while there is no session to ask with.
    pub(crate) user_count: usize,
    pub(crate) bucket_count: usize,
    pub(crate) capacity_bytes: u64,
    pub(crate) used_bytes: u64,
    /// What an operator should look at; empty if all is well.
    pub(crate) warnings: Vec<String>,
    /// The cluster behind this node; `None` for another backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<Cluster>,
    /// `None` from an older server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<Session>,
}

/// The session on the store that S3 is served with.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Session {
    /// Whether there is one at the moment; the reason says why not.
    pub(crate) open: bool,
    /// Sessions that were opened in place of one that was fenced, since the start.
    pub(crate) reopened_count: u64,
}

/// A cluster as one of its clients sees it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Cluster {
    /// `HEALTH_OK`, `HEALTH_WARN`, `HEALTH_ERR`, or why the monitors do not say.
    pub(crate) health: String,
    pub(crate) osd_count: u64,
    pub(crate) osd_up_count: u64,
    pub(crate) osd_in_count: u64,
    /// Operations that the cluster has not answered.
    pub(crate) in_flight_count: u64,
    /// For how long it has not answered the oldest.
    pub(crate) oldest_ms: u64,
}

/// How many secrets each key of the keyring seals.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct KeyringUse {
    pub(crate) keys: Vec<KeyUse>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct KeyUse {
    pub(crate) id: String,
    pub(crate) secret_count: u64,
}

/// The body of every reply that is not a success.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Failed {
    pub(crate) error: FailedError,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct FailedError {
    /// For programs; one word.
    pub(crate) code: String,
    /// For people: what was wrong, and what to do.
    pub(crate) message: String,
}
