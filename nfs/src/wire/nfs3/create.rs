//! CREATE, MKDIR, SYMLINK, MKNOD (RFC 1813 sections 3.3.8 to 3.3.11).

use super::attributes::{Device, FileType, PostOp, SetAttributes, Wcc};
use super::handle::Handle;
use super::inquire::Place;
use super::name::Path;
use crate::wire::WireError;
use crate::wire::xdr::{Reader, Writer, Xdr, message};

message! {
    /// Arguments of CREATE.
    pub struct Create {
        pub place: Place,
        pub how: CreateHow,
    }
}

/// `createhow3`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CreateHow {
    /// A file that is there already is taken.
    Unchecked(SetAttributes),
    /// A file that is there already is an error.
    Guarded(SetAttributes),
    /// As guarded, but one that was made with the same verifier is taken: it is the same call again.
    Exclusive([u8; 8]),
}

message! {
    /// Arguments of MKDIR.
    pub struct MkDir {
        pub place: Place,
        pub attributes: SetAttributes,
    }
}

message! {
    /// Arguments of SYMLINK.
    pub struct SymLink {
        pub place: Place,
        pub attributes: SetAttributes,
        pub path: Path,
    }
}

message! {
    /// Arguments of MKNOD.
    pub struct MkNod {
        pub place: Place,
        pub what: Node,
    }
}

/// `mknoddata3`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Node {
    CharacterDevice(SetAttributes, Device),
    BlockDevice(SetAttributes, Device),
    Socket(SetAttributes),
    Fifo(SetAttributes),
    /// Some other number of a type, to be answered `NFS3ERR_BADTYPE`.
    Other(u32),
}

message! {
    /// Results of what makes an object.
    pub struct Created {
        pub object: Option<Handle>,
        pub attributes: PostOp,
        pub directory: Wcc,
    }
}

message! {
    /// What a failure tells of the directory, in several procedures.
    #[derive(Default)]
    pub struct DirectoryFailed {
        pub directory: Wcc,
    }
}

impl Xdr for CreateHow {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        match reader.u32(field)? {
            0 => Xdr::read(reader, field).map(Self::Unchecked),
            1 => Xdr::read(reader, field).map(Self::Guarded),
            2 => Xdr::read(reader, field).map(Self::Exclusive),
            _ => Err(WireError::Field(field)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Unchecked(attributes) => {
                writer.u32(0);
                attributes.write(writer);
            }
            Self::Guarded(attributes) => {
                writer.u32(1);
                attributes.write(writer);
            }
            Self::Exclusive(verifier) => {
                writer.u32(2);
                verifier.write(writer);
            }
        }
    }
}

impl Node {
    fn type_code(self) -> u32 {
        match self {
            Self::CharacterDevice(..) => FileType::CharacterDevice.code(),
            Self::BlockDevice(..) => FileType::BlockDevice.code(),
            Self::Socket(_) => FileType::Socket.code(),
            Self::Fifo(_) => FileType::Fifo.code(),
            Self::Other(code) => code,
        }
    }
}

impl Xdr for Node {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        let code = reader.u32(field)?;
        let mut attributes = || SetAttributes::read(reader, field);
        Ok(match FileType::from_code(code) {
            Some(FileType::CharacterDevice) => {
                Self::CharacterDevice(attributes()?, Xdr::read(reader, field)?)
            }
            Some(FileType::BlockDevice) => {
                Self::BlockDevice(attributes()?, Xdr::read(reader, field)?)
            }
            Some(FileType::Socket) => Self::Socket(attributes()?),
            Some(FileType::Fifo) => Self::Fifo(attributes()?),
            Some(FileType::Regular | FileType::Directory | FileType::SymbolicLink) | None => {
                Self::Other(code)
            }
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.u32(self.type_code());
        match self {
            Self::CharacterDevice(attributes, device) | Self::BlockDevice(attributes, device) => {
                attributes.write(writer);
                device.write(writer);
            }
            Self::Socket(attributes) | Self::Fifo(attributes) => attributes.write(writer),
            Self::Other(_) => {}
        }
    }
}
