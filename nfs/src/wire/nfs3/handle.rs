//! `nfs_fh3` (RFC 1813 section 2.4): what a client holds of a file, opaque to it.

use std::fmt;

use crate::wire::WireError;
use crate::wire::xdr::{Reader, Writer, Xdr};

/// A file handle of any content. Whether it is one of ours is the operation's question, which answers
/// `NFS3ERR_BADHANDLE` or `NFS3ERR_STALE`.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Handle {
    /// Zeros behind `length`.
    bytes: [u8; WIRE_BYTES_MAX],
    length: u8,
}

impl Handle {
    /// # Panics
    /// If it is longer than `WIRE_BYTES_MAX`: handles are made here, and shorter.
    #[must_use]
    pub fn new(handle: &[u8]) -> Self {
        let mut bytes = [0; WIRE_BYTES_MAX];
        bytes[..handle.len()].copy_from_slice(handle);
        let length = u8::try_from(handle.len()).expect("64 at most");
        Self { bytes, length }
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl Xdr for Handle {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        let max = u32::try_from(WIRE_BYTES_MAX).expect("64");
        reader.opaque(field, max).map(|bytes| Self::new(&bytes))
    }

    fn write(&self, writer: &mut Writer) {
        writer.opaque(self.as_bytes());
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// `NFS3_FHSIZE`. Handles of our own have `HANDLE_BYTES_MAX` at most.
pub const WIRE_BYTES_MAX: usize = 64;
