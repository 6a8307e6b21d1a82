//! `nfsstat3` (RFC 1813 section 2.6), and results that depend on it.

use crate::wire::WireError;
use crate::wire::xdr::{Reader, Writer, Xdr, codes};

codes! {
    /// `nfsstat3` without `NFS3_OK`, which no error is.
    pub enum Status {
        NotOwner = 1 "NFS3ERR_PERM",
        NoEntry = 2 "NFS3ERR_NOENT",
        Io = 5 "NFS3ERR_IO",
        NoDeviceOrAddress = 6 "NFS3ERR_NXIO",
        Access = 13 "NFS3ERR_ACCES",
        Exists = 17 "NFS3ERR_EXIST",
        CrossDevice = 18 "NFS3ERR_XDEV",
        NoDevice = 19 "NFS3ERR_NODEV",
        NotDirectory = 20 "NFS3ERR_NOTDIR",
        IsDirectory = 21 "NFS3ERR_ISDIR",
        Invalid = 22 "NFS3ERR_INVAL",
        FileTooBig = 27 "NFS3ERR_FBIG",
        NoSpace = 28 "NFS3ERR_NOSPC",
        ReadOnly = 30 "NFS3ERR_ROFS",
        TooManyLinks = 31 "NFS3ERR_MLINK",
        NameTooLong = 63 "NFS3ERR_NAMETOOLONG",
        NotEmpty = 66 "NFS3ERR_NOTEMPTY",
        Quota = 69 "NFS3ERR_DQUOT",
        Stale = 70 "NFS3ERR_STALE",
        Remote = 71 "NFS3ERR_REMOTE",
        BadHandle = 10001 "NFS3ERR_BADHANDLE",
        NotSync = 10002 "NFS3ERR_NOT_SYNC",
        BadCookie = 10003 "NFS3ERR_BAD_COOKIE",
        NotSupported = 10004 "NFS3ERR_NOTSUPP",
        TooSmall = 10005 "NFS3ERR_TOOSMALL",
        ServerFault = 10006 "NFS3ERR_SERVERFAULT",
        BadType = 10007 "NFS3ERR_BADTYPE",
        /// Try again later. Finder stands still meanwhile: never for long.
        Jukebox = 10008 "NFS3ERR_JUKEBOX",
    }
}

/// Results of a procedure: what it found or did, or why not, and what is told then.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome<T, F> {
    Done(T),
    Failed(Status, F),
}

impl<T, F> Outcome<T, F> {
    /// `None` is `NFS3_OK`.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Done(_) => None,
            Self::Failed(status, _) => Some(*status),
        }
    }
}

impl<T: Xdr, F: Xdr> Xdr for Outcome<T, F> {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        match reader.u32("status")? {
            NFS3_OK => T::read(reader, field).map(Self::Done),
            code => {
                let status = Status::from_code(code).ok_or(WireError::Field("status"))?;
                Ok(Self::Failed(status, F::read(reader, field)?))
            }
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Done(done) => {
                writer.u32(NFS3_OK);
                done.write(writer);
            }
            Self::Failed(status, told) => {
                status.write(writer);
                told.write(writer);
            }
        }
    }
}

const NFS3_OK: u32 = 0;
