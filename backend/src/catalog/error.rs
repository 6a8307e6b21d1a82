//! How a question to the catalog, or a change of it, fails.

use std::fmt;

use super::name::{AccessKeyId, NodeId};
use super::record::{BucketRecord, User};
use crate::bucket::BucketId;
use crate::error::Error as StoreError;

#[derive(Debug)]
pub enum CatalogError {
    /// The access key id is taken.
    AccessKeyExists(AccessKeyId),
    /// The bucket exists, in whichever state: see `BucketState`.
    BucketExists(Box<BucketRecord>),
    /// Others changed the same record over and over; worth another try.
    Conflict,
    /// A value breaks a rule.
    Invalid {
        /// What the value is, such as `user name`.
        field: &'static str,
        value: String,
        /// The end of a sentence about it, such as `must have 1 to 64 characters`.
        problem: &'static str,
    },
    /// There is one of this name: what it is, and its name.
    Exists {
        what: &'static str,
        name: String,
    },
    /// The keyring cannot seal or open a secret.
    Keyring(super::keyring::KeyringError),
    /// There is none of this name: what it would be, and the name.
    NoSuch {
        what: &'static str,
        name: String,
    },
    NoSuchAccessKey(AccessKeyId),
    /// The bucket does not exist (any more), or is not in the state that the change starts from.
    NoSuchBucket(BucketId),
    NoSuchNode(NodeId),
    /// A user id or name that nobody has.
    NoSuchUser(String),
    /// The machine gives no random numbers.
    Random,
    /// Something else stands in the way; a sentence that says what, and what to do.
    Refused(String),
    /// What the store said.
    Store(StoreError),
    /// The name is taken by this user.
    UserExists(Box<User>),
    /// A user who still owns buckets is not deleted; one of them is named.
    UserOwnsBuckets {
        user: String,
        bucket: String,
    },
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AccessKeyExists(id) => write!(f, "the access key {id} exists already"),
            Self::BucketExists(bucket) => write!(f, "the bucket {} exists already", bucket.name),
            Self::Conflict => f.write_str("others kept changing the same record; try again"),
            Self::Invalid {
                field,
                value,
                problem,
            } => write!(f, "the {field} {value:?} {problem}"),
            Self::Exists { what, name } => write!(f, "the {what} {name:?} exists already"),
            Self::Keyring(_) => f.write_str("the keyring does not fit"),
            Self::NoSuch { what, name } => write!(f, "there is no {what} {name:?}"),
            Self::Refused(why) => f.write_str(why),
            Self::NoSuchAccessKey(id) => write!(f, "there is no access key {id}"),
            Self::NoSuchBucket(id) => write!(f, "there is no bucket with the id {:016x}", id.0),
            Self::NoSuchNode(id) => write!(f, "there is no node with the id {id}"),
            Self::NoSuchUser(user) => write!(f, "there is no user {user:?}"),
            Self::Random => f.write_str("the machine gives no random numbers"),
            Self::Store(_) => f.write_str("the store failed"),
            Self::UserExists(user) if user.deleting => write!(
                f,
                "the user {:?} exists and its deletion was not finished; delete it again",
                user.name
            ),
            Self::UserExists(user) => write!(f, "the user {:?} exists already", user.name),
            Self::UserOwnsBuckets { user, bucket } => write!(
                f,
                "the user {user:?} still owns buckets, among them {bucket:?}; delete them first"
            ),
        }
    }
}

impl std::error::Error for CatalogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Keyring(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::AccessKeyExists(_)
            | Self::BucketExists(_)
            | Self::Conflict
            | Self::Exists { .. }
            | Self::Invalid { .. }
            | Self::NoSuch { .. }
            | Self::Refused(_)
            | Self::NoSuchAccessKey(_)
            | Self::NoSuchBucket(_)
            | Self::NoSuchNode(_)
            | Self::NoSuchUser(_)
            | Self::Random
            | Self::UserExists(_)
            | Self::UserOwnsBuckets { .. } => None,
        }
    }
}

impl From<StoreError> for CatalogError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<super::keyring::KeyringError> for CatalogError {
    fn from(error: super::keyring::KeyringError) -> Self {
        Self::Keyring(error)
    }
}
