//! Attributes of files: as they are, as they were around a change, and as they shall be (RFC 1813
//! section 2.6).

use crate::wire::WireError;
use crate::wire::xdr::{Reader, Writer, Xdr, codes, message};

codes! {
    /// `ftype3`.
    pub enum FileType {
        Regular = 1 "NF3REG",
        Directory = 2 "NF3DIR",
        BlockDevice = 3 "NF3BLK",
        CharacterDevice = 4 "NF3CHR",
        SymbolicLink = 5 "NF3LNK",
        Socket = 6 "NF3SOCK",
        Fifo = 7 "NF3FIFO",
    }
}

message! {
    /// `nfstime3`: since 1970 in UTC. A client may send any value; `is_valid` tells what to refuse with
    /// `NFS3ERR_INVAL`.
    #[derive(Copy)]
    pub struct Time {
        pub seconds: u32,
        pub nanoseconds: u32,
    }
}

impl Time {
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.nanoseconds < 1_000_000_000
    }
}

message! {
    /// `specdata3`: which device a special file is.
    #[derive(Copy, Default)]
    pub struct Device {
        pub major: u32,
        pub minor: u32,
    }
}

message! {
    /// `fattr3`.
    #[derive(Copy)]
    pub struct Attributes {
        pub kind: FileType,
        /// Permissions, set-id and sticky bits; no type.
        pub mode: u32,
        pub nlink: u32,
        pub uid: u32,
        pub gid: u32,
        /// Bytes.
        pub size: u64,
        /// Bytes of the disk.
        pub used: u64,
        pub rdev: Device,
        pub fsid: u64,
        pub fileid: u64,
        pub atime: Time,
        pub mtime: Time,
        pub ctime: Time,
    }
}

/// Bytes of `fattr3` on the wire.
pub const ATTRIBUTES_BYTES: usize = 84;

/// `post_op_attr`: attributes after an operation, if they are known.
pub type PostOp = Option<Attributes>;

message! {
    /// `wcc_attr`: what tells whether a file was changed.
    #[derive(Copy)]
    pub struct WccAttributes {
        pub size: u64,
        pub mtime: Time,
        pub ctime: Time,
    }
}

impl From<&Attributes> for WccAttributes {
    fn from(of: &Attributes) -> Self {
        Self {
            size: of.size,
            mtime: of.mtime,
            ctime: of.ctime,
        }
    }
}

message! {
    /// `wcc_data`: weak cache consistency. `before` only if nothing came between it and the operation: a
    /// client keeps its cache if what it knows is `before`.
    #[derive(Copy, Default)]
    pub struct Wcc {
        pub before: Option<WccAttributes>,
        pub after: PostOp,
    }
}

message! {
    /// `sattr3`: what shall be set. `None` leaves it as it is.
    #[derive(Copy, Default)]
    pub struct SetAttributes {
        pub mode: Option<u32>,
        pub uid: Option<u32>,
        pub gid: Option<u32>,
        pub size: Option<u64>,
        pub atime: SetTime,
        pub mtime: SetTime,
    }
}

/// `set_atime` and `set_mtime`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SetTime {
    #[default]
    DontChange,
    /// Whoever may write may do this; any other time is for the owner.
    ToServerTime,
    ToClientTime(Time),
}

impl Xdr for SetTime {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        match reader.u32(field)? {
            0 => Ok(Self::DontChange),
            1 => Ok(Self::ToServerTime),
            2 => Time::read(reader, field).map(Self::ToClientTime),
            _ => Err(WireError::Field(field)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::DontChange => writer.u32(0),
            Self::ToServerTime => writer.u32(1),
            Self::ToClientTime(time) => {
                writer.u32(2);
                time.write(writer);
            }
        }
    }
}
