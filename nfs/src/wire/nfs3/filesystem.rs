//! FSSTAT, FSINFO, PATHCONF (RFC 1813 sections 3.3.18 to 3.3.20).

use super::attributes::{PostOp, Time};
use super::handle::Handle;
use crate::wire::xdr::message;

message! {
    /// Arguments of FSSTAT, FSINFO and PATHCONF.
    pub struct OfRoot {
        pub object: Handle,
    }
}

message! {
    /// Results of FSSTAT.
    pub struct FsStat {
        pub attributes: PostOp,
        /// Bytes: all, free, and free for who asks. The same with files.
        pub tbytes: u64,
        pub fbytes: u64,
        pub abytes: u64,
        pub tfiles: u64,
        pub ffiles: u64,
        pub afiles: u64,
        /// Seconds for which this is not expected to change.
        pub invarsec: u32,
    }
}

message! {
    /// Results of FSINFO.
    pub struct FsInfo {
        pub attributes: PostOp,
        /// Bytes of a READ: at most, preferred, and a multiple. The same with WRITE.
        pub rtmax: u32,
        pub rtpref: u32,
        pub rtmult: u32,
        pub wtmax: u32,
        pub wtpref: u32,
        pub wtmult: u32,
        /// Bytes of a READDIR, preferred.
        pub dtpref: u32,
        pub maxfilesize: u64,
        /// How finely times are kept.
        pub time_delta: Time,
        /// Bits of `properties`.
        pub properties: u32,
    }
}

message! {
    /// Results of PATHCONF.
    pub struct PathConf {
        pub attributes: PostOp,
        pub linkmax: u32,
        pub name_max: u32,
        /// Longer names are refused, not cut.
        pub no_trunc: bool,
        pub chown_restricted: bool,
        pub case_insensitive: bool,
        pub case_preserving: bool,
    }
}

/// Bits of FSINFO.
pub mod properties {
    pub const LINK: u32 = 0x01;
    pub const SYMLINK: u32 = 0x02;
    /// PATHCONF says the same of every object.
    pub const HOMOGENEOUS: u32 = 0x08;
    pub const CAN_SET_TIME: u32 = 0x10;
}
