//! How a call on a tree fails.

use std::fmt;

use super::access::Refusal;
use crate::error::{Error as StoreError, ErrorKind};

/// Exhaustive on purpose: each protocol maps it with one total match.
#[derive(Debug)]
pub enum TreeError {
    /// The permission bits say no: `EACCES`.
    Access,
    /// A cookie that no listing gave.
    BadCookie,
    /// Bytes that were never a handle.
    BadHandle,
    /// A node of another kind is needed: `EINVAL`, `NFS3ERR_BADTYPE`.
    BadType,
    Exists,
    FileTooBig,
    /// `EINVAL`: an argument that no state makes right.
    Invalid,
    IsDirectory,
    NameTooLong,
    NoEntry,
    /// The store is full. Removing still works.
    NoSpace,
    NotDirectory,
    NotEmpty,
    /// The node changed since the time that a guarded change names.
    NotSync,
    /// Only an owner or root may: `EPERM`.
    Permission,
    /// The tree's own bound on bytes or nodes.
    Quota,
    /// The node is gone, or the handle is another tree's.
    Stale,
    /// What the store said. After `Unavailable` and `Fenced` the call may have taken effect, and
    /// the tree is served no more: no answer may leave.
    Store(StoreError),
    TooManyLinks,
}

impl TreeError {
    pub(super) fn corrupt(what: &str) -> Self {
        Self::Store(StoreError::new(
            ErrorKind::Corrupt,
            format!("tree: {what} contradicts the rest"),
        ))
    }
}

impl From<Refusal> for TreeError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Access => Self::Access,
            Refusal::Permission => Self::Permission,
        }
    }
}

impl From<StoreError> for TreeError {
    fn from(error: StoreError) -> Self {
        if error.kind() == ErrorKind::NoSpace {
            return Self::NoSpace;
        }
        Self::Store(error)
    }
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Access => "the permissions do not allow it",
            Self::BadCookie => "no listing gave this cookie",
            Self::BadHandle => "the handle is none",
            Self::BadType => "a node of another kind is needed",
            Self::Exists => "the name exists",
            Self::FileTooBig => "the file would be too large",
            Self::Invalid => "the argument is out of place",
            Self::IsDirectory => "the node is a directory",
            Self::NameTooLong => "the name is too long",
            Self::NoEntry => "the name does not exist",
            Self::NoSpace => "the store is full",
            Self::NotDirectory => "the node is no directory",
            Self::NotEmpty => "the directory is not empty",
            Self::NotSync => "the node was changed since",
            Self::Permission => "only an owner or root may",
            Self::Quota => "the tree's quota is used up",
            Self::Stale => "the node is gone",
            Self::Store(_) => "the store failed",
            Self::TooManyLinks => "the node has too many links",
        })
    }
}

impl std::error::Error for TreeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Store(error) = self {
            return Some(error);
        }
        None
    }
}
