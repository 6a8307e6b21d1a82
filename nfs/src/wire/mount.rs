//! MOUNT (RFC 1813 appendix I, RFC 1094 appendix A): handles of exported directories, and who has them.
//!
//! Versions 1 and 2 are there for what clients of NFSv3 send by them: `umount` of the BSDs (macOS among
//! them) tells version 1 that it leaves, and `showmount` of the same asks version 1. What they send and
//! get is the same in all versions. MNT of version 1 and 2 gives a handle of NFSv2, which is not served.

use bytes::Bytes;

use super::WireError;
use super::nfs3::handle::Handle;
use super::xdr::{List, Reader, Writer, Xdr, codes, message};
use crate::limits::RECORD_BYTES_MAX;

/// The program's number and versions.
pub const PROGRAM: u32 = 100_005;
pub const VERSIONS: [u32; 3] = [1, 2, 3];

codes! {
    /// What can be asked for.
    pub enum Procedure {
        Null = 0 "NULL",
        /// Arguments `DirPath`, results `MntResults`. Only in version 3.
        Mnt = 1 "MNT",
        /// Results `List<MountBody>`.
        Dump = 2 "DUMP",
        /// Arguments `DirPath`.
        Umnt = 3 "UMNT",
        UmntAll = 4 "UMNTALL",
        /// Results `List<ExportNode>`.
        Export = 5 "EXPORT",
        /// As EXPORT. Only in versions 1 and 2.
        ExportAll = 6 "EXPORTALL",
    }
}

codes! {
    /// `mountstat3` without `MNT3_OK`.
    pub enum MountStatus {
        NotOwner = 1 "MNT3ERR_PERM",
        NoEntry = 2 "MNT3ERR_NOENT",
        Io = 5 "MNT3ERR_IO",
        Access = 13 "MNT3ERR_ACCES",
        NotDirectory = 20 "MNT3ERR_NOTDIR",
        Invalid = 22 "MNT3ERR_INVAL",
        NameTooLong = 63 "MNT3ERR_NAMETOOLONG",
        NotSupported = 10004 "MNT3ERR_NOTSUPP",
        ServerFault = 10006 "MNT3ERR_SERVERFAULT",
    }
}

/// `dirpath`: an exported directory, or one below it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirPath(pub Bytes);

/// `name`: a host, or a group that may mount.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostName(pub Bytes);

/// Results of MNT.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MntResults {
    Done(Mounted),
    Failed(MountStatus),
}

/// `mountres3_ok`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mounted {
    pub handle: Handle,
    /// That may be used, the best first; `FLAVORS_MAX` at most.
    pub flavors: Vec<u32>,
}

message! {
    /// `mountbody`: who has mounted what.
    pub struct MountBody {
        pub host: HostName,
        pub directory: DirPath,
    }
}

message! {
    /// `exportnode`: a directory, and who may mount it; nobody named is everybody.
    pub struct ExportNode {
        pub directory: DirPath,
        pub groups: List<HostName>,
    }
}

impl DirPath {
    /// # Errors
    /// `NameTooLong` if it is longer than `MNTPATHLEN`; `Invalid` if it is empty or has a zero in it.
    pub fn check(&self) -> Result<&[u8], MountStatus> {
        let path = &self.0[..];
        if path.len() > PATH_BYTES_MAX {
            return Err(MountStatus::NameTooLong);
        }
        match path.is_empty() || path.contains(&0) {
            true => Err(MountStatus::Invalid),
            false => Ok(path),
        }
    }
}

impl Xdr for DirPath {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        reader.opaque(field, RECORD_BYTES_MAX).map(Self)
    }

    fn write(&self, writer: &mut Writer) {
        writer.opaque(&self.0);
    }
}

impl Xdr for HostName {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        reader.opaque(field, NAME_BYTES_MAX).map(Self)
    }

    fn write(&self, writer: &mut Writer) {
        writer.opaque(&self.0);
    }
}

impl Xdr for MntResults {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        match reader.u32("fhs_status")? {
            MNT3_OK => Mounted::read(reader, field).map(Self::Done),
            code => {
                let status = MountStatus::from_code(code);
                status
                    .map(Self::Failed)
                    .ok_or(WireError::Field("fhs_status"))
            }
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Done(mounted) => {
                writer.u32(MNT3_OK);
                mounted.write(writer);
            }
            Self::Failed(status) => status.write(writer),
        }
    }
}

impl Xdr for Mounted {
    fn read(reader: &mut Reader, _: &'static str) -> Result<Self, WireError> {
        let handle = Xdr::read(reader, "fhandle")?;
        let count = reader.count("auth_flavors", FLAVORS_MAX)?;
        let flavors = (0..count).map(|_| reader.u32("auth_flavors"));
        Ok(Self {
            handle,
            flavors: flavors.collect::<Result<_, _>>()?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        self.handle.write(writer);
        writer.count(self.flavors.len());
        for flavor in &self.flavors {
            writer.u32(*flavor);
        }
    }
}

const MNT3_OK: u32 = 0;

/// `MNTPATHLEN`.
pub const PATH_BYTES_MAX: usize = 1_024;

/// `MNTNAMLEN`.
pub const NAME_BYTES_MAX: u32 = 255;

/// What Linux takes.
pub const FLAVORS_MAX: u32 = 16;
