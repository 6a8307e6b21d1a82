//! `filename3` and `nfspath3` (RFC 1813 section 2.4): bytes of any content and length.

use bytes::Bytes;

use super::status::Status;
use crate::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX, RECORD_BYTES_MAX};
use crate::wire::WireError;
use crate::wire::xdr::{Reader, Writer, Xdr, opaque_bytes};

/// A name in a directory, a slice of the record it came in: what is kept of it longer is copied.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Name(pub Bytes);

impl Name {
    /// What it names, `.` and `..` among it: what they mean depends on the operation.
    ///
    /// # Errors
    /// `NameTooLong`; `Invalid` if it is empty or has a slash or a zero in it, which no name on a POSIX
    /// client can.
    pub fn check(&self) -> Result<&[u8], Status> {
        let name = &self.0[..];
        if name.len() > NAME_BYTES_MAX {
            return Err(Status::NameTooLong);
        }
        match name.is_empty() || name.iter().any(|byte| [0, b'/'].contains(byte)) {
            true => Err(Status::Invalid),
            false => Ok(name),
        }
    }

    /// Bytes on the wire.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        opaque_bytes(self.0.len())
    }
}

impl Xdr for Name {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        reader.opaque(field, RECORD_BYTES_MAX).map(Self)
    }

    fn write(&self, writer: &mut Writer) {
        writer.opaque(&self.0);
    }
}

/// What a symbolic link leads to, a slice of its record as a `Name`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Path(pub Bytes);

impl Path {
    /// # Errors
    /// `NameTooLong`; `Invalid` if it is empty or has a zero in it.
    pub fn check(&self) -> Result<&[u8], Status> {
        let path = &self.0[..];
        if path.len() > PATH_BYTES_MAX {
            return Err(Status::NameTooLong);
        }
        match path.is_empty() || path.contains(&0) {
            true => Err(Status::Invalid),
            false => Ok(path),
        }
    }
}

impl Xdr for Path {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        reader.opaque(field, RECORD_BYTES_MAX).map(Self)
    }

    fn write(&self, writer: &mut Writer) {
        writer.opaque(&self.0);
    }
}
