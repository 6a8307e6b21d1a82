//! How procedures fail: what went wrong in a file system, and what of it a client may be told.

use crate::filesystem::Error;
use crate::wire::nfs3::Procedure;
use crate::wire::nfs3::status::Status;

/// Why a procedure has no results of success.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    Status(Status),
    /// The export takes calls from other ports only: `AUTH_TOOWEAK`.
    Weak,
    /// Nothing may be answered.
    Silence,
}

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Status(match error {
            Error::Access => Status::Access,
            Error::BadCookie => Status::BadCookie,
            Error::BadType => Status::BadType,
            Error::Exists => Status::Exists,
            Error::FileTooBig => Status::FileTooBig,
            Error::Invalid => Status::Invalid,
            Error::Io => Status::Io,
            Error::IsDirectory => Status::IsDirectory,
            Error::NameTooLong => Status::NameTooLong,
            Error::NoEntry => Status::NoEntry,
            Error::NoSpace => Status::NoSpace,
            Error::NotDirectory => Status::NotDirectory,
            Error::NotEmpty => Status::NotEmpty,
            Error::NotOwner => Status::NotOwner,
            Error::NotSync => Status::NotSync,
            Error::Quota => Status::Quota,
            Error::Stale => Status::Stale,
            Error::TooManyLinks => Status::TooManyLinks,
            Error::Unanswerable => return Self::Silence,
        })
    }
}

/// The status that a procedure answers: this one, or if the standard does not list it there, the one of
/// its list that is nearest.
#[must_use]
pub fn told(procedure: Procedure, status: Status) -> Status {
    let listed = listed(procedure);
    let nearest = || nearest(status).iter().find(|other| listed.contains(other));
    match listed.contains(&status) {
        true => status,
        false => nearest().copied().unwrap_or(Status::Io),
    }
}

/// What the standard lists for a procedure beside `ANY` (RFC 1813 section 3.3).
#[must_use]
pub fn listed(procedure: Procedure) -> Vec<Status> {
    use Status as S;
    let more: &[Status] = match procedure {
        Procedure::Null
        | Procedure::GetAttr
        | Procedure::Access
        | Procedure::FsStat
        | Procedure::FsInfo
        | Procedure::PathConf
        | Procedure::Commit => &[],
        Procedure::SetAttr => SET,
        Procedure::Lookup => &[S::NoEntry, S::Access, S::NotDirectory, S::NameTooLong],
        Procedure::ReadLink => &[S::Invalid, S::Access, S::NotSupported],
        Procedure::Read => &[S::NoDeviceOrAddress, S::Access, S::Invalid],
        Procedure::Write => WRITE,
        Procedure::Create | Procedure::MkDir | Procedure::SymLink => MAKE,
        Procedure::MkNod => MAKE_NODE,
        Procedure::Remove => &[
            S::NoEntry,
            S::Access,
            S::NotDirectory,
            S::NameTooLong,
            S::ReadOnly,
        ],
        Procedure::RmDir => RMDIR,
        Procedure::Rename => RENAME,
        Procedure::Link => LINK,
        Procedure::ReadDir | Procedure::ReadDirPlus => {
            &[S::Access, S::NotDirectory, S::BadCookie, S::TooSmall]
        }
    };
    [ANY, more].concat()
}

/// What comes nearest to a status, the best first.
fn nearest(status: Status) -> &'static [Status] {
    use Status as S;
    match status {
        S::NotOwner => &[S::Access],
        S::Access | S::ReadOnly => &[S::Access, S::Stale],
        S::IsDirectory | S::NotDirectory | S::BadType => &[S::Invalid, S::Exists, S::Access],
        // A name that cannot be is not there.
        S::Invalid | S::NameTooLong => &[S::Invalid, S::NoEntry, S::Access],
        S::Quota | S::TooManyLinks => &[S::NoSpace],
        S::FileTooBig => &[S::Invalid],
        S::NotEmpty => &[S::Exists],
        S::NoEntry
        | S::Io
        | S::NoDeviceOrAddress
        | S::Exists
        | S::CrossDevice
        | S::NoDevice
        | S::NoSpace
        | S::Stale
        | S::Remote
        | S::BadHandle
        | S::NotSync
        | S::BadCookie
        | S::NotSupported
        | S::TooSmall
        | S::ServerFault
        | S::Jukebox => &[],
    }
}

/// In the list of every procedure.
const ANY: &[Status] = &[
    Status::Io,
    Status::Stale,
    Status::BadHandle,
    Status::ServerFault,
];

const MAKE: &[Status] = &[
    Status::Access,
    Status::Exists,
    Status::NotDirectory,
    Status::NoSpace,
    Status::ReadOnly,
    Status::NameTooLong,
    Status::Quota,
    Status::NotSupported,
];

const MAKE_NODE: &[Status] = &[
    Status::Access,
    Status::Exists,
    Status::NotDirectory,
    Status::NoSpace,
    Status::ReadOnly,
    Status::NameTooLong,
    Status::Quota,
    Status::NotSupported,
    Status::BadType,
];

const SET: &[Status] = &[
    Status::NotOwner,
    Status::Access,
    Status::Invalid,
    Status::NoSpace,
    Status::ReadOnly,
    Status::Quota,
    Status::NotSync,
    Status::NotSupported,
];

const WRITE: &[Status] = &[
    Status::Access,
    Status::FileTooBig,
    Status::Quota,
    Status::NoSpace,
    Status::ReadOnly,
    Status::Invalid,
];

const RENAME: &[Status] = &[
    Status::NoEntry,
    Status::Access,
    Status::Exists,
    Status::CrossDevice,
    Status::NotDirectory,
    Status::IsDirectory,
    Status::Invalid,
    Status::NoSpace,
    Status::ReadOnly,
    Status::TooManyLinks,
    Status::NameTooLong,
    Status::NotEmpty,
    Status::Quota,
    Status::NotSupported,
];

const LINK: &[Status] = &[
    Status::Access,
    Status::Exists,
    Status::CrossDevice,
    Status::NotDirectory,
    Status::Invalid,
    Status::NoSpace,
    Status::ReadOnly,
    Status::TooManyLinks,
    Status::NameTooLong,
    Status::Quota,
    Status::NotSupported,
];

const RMDIR: &[Status] = &[
    Status::NoEntry,
    Status::Access,
    Status::Invalid,
    Status::Exists,
    Status::NotDirectory,
    Status::NameTooLong,
    Status::ReadOnly,
    Status::NotEmpty,
    Status::NotSupported,
];
