//! What a call of each program asks for: the number of its procedure and its arguments, decoded.

use crate::wire::WireError;
use crate::wire::mount::{self, DirPath};
use crate::wire::nfs3::{self, Arguments};
use crate::wire::portmap::{self, Mapping, PmapProcedure, Rpcb, RpcbProcedure};
use crate::wire::program::{Program, Row};
use crate::wire::xdr::{Reader, Xdr};

/// A call of one of the programs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    Nfs3(Arguments),
    Mount(MountRequest),
    /// Version 2 of the port mapper.
    Pmap(PmapRequest),
    /// Versions 3 and 4, rpcbind.
    Rpcb(RpcbRequest),
}

/// A call of MOUNT, whatever its version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MountRequest {
    Null,
    Mnt(DirPath),
    Dump,
    Umnt(DirPath),
    UmntAll,
    /// EXPORTALL too.
    Export,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PmapRequest {
    Null,
    /// SET and UNSET, which are refused.
    Register,
    GetPort(Mapping),
    Dump,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RpcbRequest {
    Null,
    /// SET and UNSET, which are refused.
    Register,
    /// Any version of the program will do.
    GetAddr(Rpcb),
    /// Only the version that is asked for.
    GetVersAddr(Rpcb),
    Dump,
}

impl Request {
    /// # Errors
    /// What is wrong with the arguments: to be answered `GARBAGE_ARGS`.
    ///
    /// # Panics
    /// If the table has a procedure that its program does not.
    pub fn decode(program: &Program, row: &Row, mut reader: Reader) -> Result<Self, WireError> {
        let number = row.number;
        match (program.number, program.version) {
            (nfs3::PROGRAM, _) => {
                let procedure = nfs3::Procedure::from_code(number).expect("a row of the table");
                Arguments::decode(procedure, reader).map(Self::Nfs3)
            }
            (mount::PROGRAM, _) => {
                let procedure = mount::Procedure::from_code(number).expect("a row of the table");
                MountRequest::decode(procedure, &mut reader).map(Self::Mount)
            }
            (portmap::PROGRAM, 2) => {
                let procedure = PmapProcedure::from_code(number).expect("a row of the table");
                PmapRequest::decode(procedure, &mut reader).map(Self::Pmap)
            }
            _ => {
                let procedure = RpcbProcedure::from_code(number).expect("a row of the table");
                RpcbRequest::decode(procedure, &mut reader).map(Self::Rpcb)
            }
        }
    }

    /// Bytes that results may have beyond what every reply takes: data and listings.
    #[must_use]
    pub fn results_bytes_max(&self) -> u32 {
        let Self::Nfs3(arguments) = self else {
            return 0;
        };
        let asked = match arguments {
            Arguments::Read(read) => read.count,
            Arguments::ReadDir(list) => list.count,
            Arguments::ReadDirPlus(list) => list.maxcount,
            Arguments::ReadLink(_) => LINK_BYTES_MAX,
            Arguments::Null
            | Arguments::GetAttr(_)
            | Arguments::SetAttr(_)
            | Arguments::Lookup(_)
            | Arguments::Access(_)
            | Arguments::Write(_)
            | Arguments::Create(_)
            | Arguments::MkDir(_)
            | Arguments::SymLink(_)
            | Arguments::MkNod(_)
            | Arguments::Remove(_)
            | Arguments::RmDir(_)
            | Arguments::Rename(_)
            | Arguments::Link(_)
            | Arguments::FsStat(_)
            | Arguments::FsInfo(_)
            | Arguments::PathConf(_)
            | Arguments::Commit(_) => 0,
        };
        asked.min(crate::limits::DATA_BYTES_MAX)
    }
}

impl MountRequest {
    fn decode(procedure: mount::Procedure, reader: &mut Reader) -> Result<Self, WireError> {
        Ok(match procedure {
            mount::Procedure::Null => Self::Null,
            mount::Procedure::Mnt => Self::Mnt(Xdr::read(reader, "dirpath")?),
            mount::Procedure::Dump => Self::Dump,
            mount::Procedure::Umnt => Self::Umnt(Xdr::read(reader, "dirpath")?),
            mount::Procedure::UmntAll => Self::UmntAll,
            mount::Procedure::Export | mount::Procedure::ExportAll => Self::Export,
        })
    }
}

impl PmapRequest {
    fn decode(procedure: PmapProcedure, reader: &mut Reader) -> Result<Self, WireError> {
        Ok(match procedure {
            PmapProcedure::Null => Self::Null,
            PmapProcedure::Set | PmapProcedure::Unset => {
                Mapping::read(reader, "mapping")?;
                Self::Register
            }
            PmapProcedure::GetPort => Self::GetPort(Xdr::read(reader, "mapping")?),
            PmapProcedure::Dump => Self::Dump,
        })
    }
}

impl RpcbRequest {
    fn decode(procedure: RpcbProcedure, reader: &mut Reader) -> Result<Self, WireError> {
        Ok(match procedure {
            RpcbProcedure::Null => Self::Null,
            RpcbProcedure::Set | RpcbProcedure::Unset => {
                Rpcb::read(reader, "rpcb")?;
                Self::Register
            }
            RpcbProcedure::GetAddr => Self::GetAddr(Xdr::read(reader, "rpcb")?),
            RpcbProcedure::GetVersAddr => Self::GetVersAddr(Xdr::read(reader, "rpcb")?),
            RpcbProcedure::Dump => Self::Dump,
        })
    }
}

/// What READLINK may answer: no more than `PATH_BYTES_MAX`.
const LINK_BYTES_MAX: u32 = 4_096;
