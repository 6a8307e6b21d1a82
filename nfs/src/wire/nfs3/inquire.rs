//! GETATTR, LOOKUP, ACCESS, READLINK (RFC 1813 sections 3.3.1, 3.3.3 to 3.3.5).

use super::attributes::{Attributes, PostOp};
use super::handle::Handle;
use super::name::{Name, Path};
use crate::wire::xdr::message;

message! {
    /// Arguments of GETATTR.
    pub struct GetAttr {
        pub object: Handle,
    }
}

message! {
    pub struct GetAttrDone {
        pub attributes: Attributes,
    }
}

message! {
    /// `diropargs3`: a name in a directory.
    pub struct Place {
        pub directory: Handle,
        pub name: Name,
    }
}

message! {
    /// Arguments of LOOKUP.
    pub struct Lookup {
        pub what: Place,
    }
}

message! {
    pub struct LookupDone {
        pub object: Handle,
        pub attributes: PostOp,
        pub directory: PostOp,
    }
}

message! {
    /// What a failure tells of the directory that was looked at.
    #[derive(Default)]
    pub struct LookupFailed {
        pub directory: PostOp,
    }
}

message! {
    /// Arguments of ACCESS.
    pub struct Access {
        pub object: Handle,
        /// Bits of `access` that are asked for.
        pub access: u32,
    }
}

message! {
    pub struct AccessDone {
        pub attributes: PostOp,
        /// Those of the bits that were asked for and are allowed.
        pub access: u32,
    }
}

message! {
    /// What a failure tells of the object, in several procedures.
    #[derive(Default)]
    pub struct ObjectFailed {
        pub attributes: PostOp,
    }
}

message! {
    /// Arguments of READLINK.
    pub struct ReadLink {
        pub symlink: Handle,
    }
}

message! {
    pub struct ReadLinkDone {
        pub attributes: PostOp,
        pub path: Path,
    }
}

/// Bits of ACCESS.
pub mod access {
    pub const READ: u32 = 0x01;
    /// In a directory.
    pub const LOOKUP: u32 = 0x02;
    pub const MODIFY: u32 = 0x04;
    pub const EXTEND: u32 = 0x08;
    /// Of an entry of a directory.
    pub const DELETE: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
}
