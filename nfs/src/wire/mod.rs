//! NFS on the wire: bytes to types and back, with a bound before every allocation.
//!
//! [`record`] cuts a stream into records, [`xdr`] reads and writes what is in them, [`rpc`] is the head of
//! every call and reply. [`nfs3`], [`mount`] and [`portmap`] are the programs; [`program`] is the table of
//! what is served. Calls are written and replies are read too: a server registers itself with others, and
//! tests have a client.

pub mod mount;
pub mod nfs3;
pub mod portmap;
pub mod program;
pub mod record;
pub mod rpc;
#[cfg(test)]
pub(crate) mod tests;
pub mod xdr;

use std::fmt;

/// Why bytes are no message. A call whose arguments have such a fault is answered `GARBAGE_ARGS`, one
/// whose head has is answered as [`rpc::Refused`] says; after a fault of a record the stream is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WireError {
    /// The bytes end in this field.
    Short(&'static str),
    /// A field has a value that the standard does not give it; the text names the field.
    Field(&'static str),
    /// A field of variable length says more bytes or items than it may have.
    Length {
        field: &'static str,
        length: u32,
        max: u32,
    },
    /// A record is longer than it may be.
    RecordLength { bytes: u64, max: u32 },
    /// A record has more fragments than it may have.
    Fragments { max: u32 },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(name) => write!(f, "the message ends in the field {name}"),
            Self::Field(name) => write!(f, "the field {name} is out of range"),
            Self::Length { field, length, max } => {
                write!(
                    f,
                    "the field {field} has a length of {length}; it may have {max}"
                )
            }
            Self::RecordLength { bytes, max } => {
                write!(f, "a record of {bytes} bytes; it may have {max}")
            }
            Self::Fragments { max } => write!(f, "a record of more than {max} fragments"),
        }
    }
}

impl std::error::Error for WireError {}
