//! Who the store is: two copies, written in turn, each with a checksum.

use crate::codec::{Reader, Writer, crc32c};
use crate::error::{Error, ErrorKind};

use super::failure::io_error;
use super::media::{FileName, Medium};

/// Identity and life of a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Superblock {
    pub(super) store_id: u128,
    /// Greater after each write of the superblock; the greatest valid one counts.
    pub(super) generation: u64,
    /// How often the store was opened for writing; part of session names.
    pub(super) open_counter: u64,
    pub(super) state: State,
    /// In state `Closed`: the sequence of the last log record, which the base has.
    pub(super) sequence: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// The other files are not complete yet; nothing was ever acknowledged.
    Creating,
    Open,
    Closed,
}

/// What the two copies say.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) newest: Option<Superblock>,
    /// A copy that holds something which is no superblock: torn, or damaged.
    pub(super) damaged: Option<String>,
}

impl Superblock {
    /// # Errors
    /// `Unavailable` if the file cannot be read; `Unsupported` if a newer program wrote it.
    pub(super) fn read(medium: &dyn Medium) -> Result<Found, Error> {
        let mut found = Found {
            newest: None,
            damaged: None,
        };
        let len = medium
            .len(FileName::Superblock)
            .map_err(|e| io_error("reading the superblock", e))?;
        for copy in 0..COPIES {
            let mut bytes = [0; COPY_BYTES];
            if len < copy * COPY_STRIDE + COPY_BYTES as u64 {
                continue;
            }
            medium
                .read_at(FileName::Superblock, copy * COPY_STRIDE, &mut bytes)
                .map_err(|e| io_error("reading the superblock", e))?;
            if bytes == [0; COPY_BYTES] {
                continue;
            }
            match decode(&bytes)? {
                Some(block) => {
                    let newer = found
                        .newest
                        .as_ref()
                        .is_none_or(|newest| newest.generation < block.generation);
                    if newer {
                        found.newest = Some(block);
                    }
                }
                None => {
                    found.damaged = Some(format!(
                        "superblock: copy {copy} does not match its checksum"
                    ));
                }
            }
        }
        Ok(found)
    }

    /// Writes the next generation over the older copy and syncs it.
    pub(super) fn advance(&mut self, medium: &dyn Medium) -> Result<(), Error> {
        self.generation += 1;
        let copy = self.generation % COPIES;
        let bytes = self.encode();
        medium
            .write_at(FileName::Superblock, copy * COPY_STRIDE, &bytes)
            .and_then(|()| medium.sync(FileName::Superblock))
            .map_err(|e| io_error("writing the superblock", e))
    }

    fn encode(&self) -> [u8; COPY_BYTES] {
        let mut writer = Writer::fragment();
        writer
            .raw(MAGIC)
            .u32(FORMAT_VERSION)
            .u128(self.store_id)
            .u64(self.generation)
            .u64(self.open_counter)
            .u8(match self.state {
                State::Creating => 0,
                State::Open => 1,
                State::Closed => 2,
            })
            .u64(self.sequence);
        let record = writer.finish();
        let mut bytes = [0; COPY_BYTES];
        bytes[..record.len()].copy_from_slice(&record);
        let sum = crc32c(&bytes[..COPY_BYTES - 4]);
        bytes[COPY_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

fn decode(bytes: &[u8; COPY_BYTES]) -> Result<Option<Superblock>, Error> {
    let (body, sum) = bytes.split_at(COPY_BYTES - 4);
    if crc32c(body).to_le_bytes() != sum {
        return Ok(None);
    }
    let mut reader = Reader::fragment(body);
    let decoded = (|| {
        if reader.raw(MAGIC.len())? != MAGIC {
            return Ok(None);
        }
        let version = reader.u32()?;
        let block = Superblock {
            store_id: reader.u128()?,
            generation: reader.u64()?,
            open_counter: reader.u64()?,
            state: match reader.u8()? {
                0 => State::Creating,
                1 => State::Open,
                2 => State::Closed,
                _ => return Ok(None),
            },
            sequence: reader.u64()?,
        };
        Ok::<_, crate::codec::DecodeError>(Some((version, block)))
    })();
    match decoded {
        Ok(Some((FORMAT_VERSION, block))) => Ok(Some(block)),
        Ok(Some((version, _))) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("the store has format version {version}; this program knows {FORMAT_VERSION}"),
        )),
        Ok(None) | Err(_) => Ok(None),
    }
}

const MAGIC: &[u8] = b"PORTICO\0";
/// Of everything in `docs/format.md`.
const FORMAT_VERSION: u32 = 1;
const COPIES: u64 = 2;
/// One sector, so that a copy is torn as a whole or not at all on most devices.
const COPY_BYTES: usize = 512;
/// Copies lie in different pages, so that one bad page does not take both.
const COPY_STRIDE: u64 = 4096;
