//! External data representation (RFC 4506): units of four bytes, big-endian.

mod item;
mod reader;
mod writer;

pub use item::{List, Xdr};
pub(crate) use item::{codes, message};
pub use reader::Reader;
pub use writer::Writer;

/// Bytes of an opaque field of variable length as it lies on the wire: its length, itself, its padding.
///
/// # Panics
/// If the length does not fit into memory twice: such bytes are not held.
#[must_use]
pub fn opaque_bytes(length: usize) -> usize {
    4 + length.next_multiple_of(4)
}
