//! READ, WRITE, COMMIT (RFC 1813 sections 3.3.6, 3.3.7, 3.3.21).

use bytes::Bytes;

use super::attributes::{PostOp, Wcc};
use super::handle::Handle;
use crate::limits::{DATA_BYTES_MAX, RECORD_BYTES_MAX};
use crate::wire::WireError;
use crate::wire::xdr::{Reader, Writer, Xdr, codes, message};

message! {
    /// Arguments of READ.
    pub struct Read {
        pub file: Handle,
        pub offset: u64,
        /// Any number: what is read has `DATA_BYTES_MAX` bytes at most.
        pub count: u32,
    }
}

/// Results of READ.
#[derive(Clone, Debug)]
pub struct ReadDone {
    pub attributes: PostOp,
    /// Nothing is behind what was read. Clients take a short READ without it for what it is.
    pub eof: bool,
    /// Pieces that are not copied on their way.
    pub data: Vec<Bytes>,
}

codes! {
    /// `stable_how`.
    pub enum Stable {
        Unstable = 0 "UNSTABLE",
        DataSync = 1 "DATA_SYNC",
        FileSync = 2 "FILE_SYNC",
    }
}

/// Arguments of WRITE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Write {
    pub file: Handle,
    pub offset: u64,
    pub stable: Stable,
    /// `DATA_BYTES_MAX` at most; a slice of its record.
    pub data: Bytes,
}

message! {
    pub struct WriteDone {
        pub wcc: Wcc,
        /// Bytes that were written.
        pub count: u32,
        pub committed: Stable,
        pub verifier: [u8; 8],
    }
}

message! {
    /// What a failure tells of the file, in several procedures.
    #[derive(Default)]
    pub struct FileFailed {
        pub wcc: Wcc,
    }
}

message! {
    /// Arguments of COMMIT.
    pub struct Commit {
        pub file: Handle,
        pub offset: u64,
        /// 0 is all that is behind `offset`.
        pub count: u32,
    }
}

message! {
    pub struct CommitDone {
        pub wcc: Wcc,
        pub verifier: [u8; 8],
    }
}

impl ReadDone {
    /// Bytes that were read.
    #[must_use]
    pub fn count(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }
}

impl Xdr for ReadDone {
    fn read(reader: &mut Reader, _: &'static str) -> Result<Self, WireError> {
        let attributes = Xdr::read(reader, "READ3resok.file_attributes")?;
        let count = reader.u32("READ3resok.count")?;
        let eof = reader.bool("READ3resok.eof")?;
        let data = reader.opaque("READ3resok.data", RECORD_BYTES_MAX)?;
        if usize::try_from(count) != Ok(data.len()) {
            return Err(WireError::Field("READ3resok.count"));
        }
        Ok(Self {
            attributes,
            eof,
            data: vec![data],
        })
    }

    fn write(&self, writer: &mut Writer) {
        self.attributes.write(writer);
        writer.count(self.count());
        writer.bool(self.eof);
        writer.data(&self.data);
    }
}

/// However the data is cut.
impl PartialEq for ReadDone {
    fn eq(&self, other: &Self) -> bool {
        self.attributes == other.attributes
            && self.eof == other.eof
            && self.data.concat() == other.data.concat()
    }
}

impl Eq for ReadDone {}

/// The count is there twice, and both must be the same.
impl Xdr for Write {
    fn read(reader: &mut Reader, _: &'static str) -> Result<Self, WireError> {
        let file = Xdr::read(reader, "WRITE3args.file")?;
        let offset = reader.u64("WRITE3args.offset")?;
        let count = reader.u32("WRITE3args.count")?;
        let stable = Xdr::read(reader, "WRITE3args.stable")?;
        let data = reader.opaque("WRITE3args.data", DATA_BYTES_MAX)?;
        if usize::try_from(count) != Ok(data.len()) {
            return Err(WireError::Field("WRITE3args.count"));
        }
        Ok(Self {
            file,
            offset,
            stable,
            data,
        })
    }

    fn write(&self, writer: &mut Writer) {
        self.file.write(writer);
        writer.u64(self.offset);
        writer.count(self.data.len());
        self.stable.write(writer);
        writer.data(std::slice::from_ref(&self.data));
    }
}
