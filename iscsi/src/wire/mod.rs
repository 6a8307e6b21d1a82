//! iSCSI on the wire (RFC 7143): bytes to types and back, with a bound before every allocation.
//!
//! [`deframe`] cuts a stream into frames, [`request`] reads what initiators send and [`response`]
//! what targets send; both are written too, since tests have an initiator. [`text`] holds the
//! `key=value` pairs of login and text negotiation, [`serial`] the arithmetic of sequence numbers.

mod code;
pub mod deframe;
pub mod header;
pub mod request;
pub mod response;
pub mod serial;
pub mod text;

use std::fmt;

/// Why bytes are no PDU. Each one is a protocol error of the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WireError {
    /// No initiator sends this opcode, or no target does.
    Opcode(u8),
    /// A field has a value that the standard does not give it; the text names the field.
    Field(&'static str),
    /// An additional header segment is cut short or longer than it may be.
    AdditionalHeader,
    /// The data segment is longer than was declared.
    DataSegmentLength { bytes: u32, max: u32 },
    /// The header does not match its digest. Where the next one begins is unknown.
    HeaderDigest,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opcode(code) => write!(f, "the opcode {code:#04x} is not known"),
            Self::Field(name) => write!(f, "the field {name} is out of range"),
            Self::AdditionalHeader => f.write_str("an additional header segment is malformed"),
            Self::DataSegmentLength { bytes, max } => {
                write!(f, "a data segment of {bytes} bytes; {max} were declared")
            }
            Self::HeaderDigest => f.write_str("a header does not match its digest"),
        }
    }
}

impl std::error::Error for WireError {}
