//! Which port a program has: the port mapper (version 2) and rpcbind (versions 3 and 4) of RFC 1833.
//!
//! CALLIT and its successors call any program in a client's place, and are not served.

mod address;

pub use address::UniversalAddress;

use bytes::Bytes;

use super::WireError;
use super::xdr::{Reader, Writer, Xdr, codes, message};

/// The program's number, versions and port.
pub const PROGRAM: u32 = 100_000;
pub const VERSIONS: [u32; 3] = [2, 3, 4];
pub const PORT: u16 = 111;

codes! {
    /// Procedures of version 2.
    pub enum PmapProcedure {
        Null = 0 "NULL",
        /// Arguments `Mapping`, results a boolean.
        Set = 1 "SET",
        /// The same; `protocol` and `port` are not looked at.
        Unset = 2 "UNSET",
        /// Arguments `Mapping`, whose port is not looked at; results a port, or 0.
        GetPort = 3 "GETPORT",
        /// Results `List<Mapping>`.
        Dump = 4 "DUMP",
    }
}

codes! {
    /// Procedures of versions 3 and 4.
    pub enum RpcbProcedure {
        Null = 0 "NULL",
        /// Arguments `Rpcb`, results a boolean.
        Set = 1 "SET",
        Unset = 2 "UNSET",
        /// Arguments `Rpcb`, results `Text` of a universal address, empty if there is none.
        GetAddr = 3 "GETADDR",
        /// Results `List<Rpcb>`.
        Dump = 4 "DUMP",
        /// As GETADDR, but only of the version that was asked for. Only in version 4.
        GetVersAddr = 9 "GETVERSADDR",
    }
}

message! {
    /// `mapping` of version 2.
    #[derive(Copy)]
    pub struct Mapping {
        pub program: u32,
        pub version: u32,
        /// `TCP` or `UDP`.
        pub protocol: u32,
        pub port: u32,
    }
}

message! {
    /// `rpcb` of versions 3 and 4.
    pub struct Rpcb {
        pub program: u32,
        pub version: u32,
        /// `tcp`, `udp`, `tcp6` or `udp6`.
        pub netid: Text,
        /// A universal address.
        pub address: Text,
        pub owner: Text,
    }
}

/// A string of `TEXT_BYTES_MAX` bytes at most.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Text(pub Bytes);

impl Xdr for Text {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        reader.opaque(field, TEXT_BYTES_MAX).map(Self)
    }

    fn write(&self, writer: &mut Writer) {
        writer.opaque(&self.0);
    }
}

/// `IPPROTO_TCP` and `IPPROTO_UDP`.
pub const TCP: u32 = 6;
pub const UDP: u32 = 17;

/// The standard has no bound; an address of IPv6 with its port takes 47 bytes, an owner is a user's name.
pub const TEXT_BYTES_MAX: u32 = 256;
