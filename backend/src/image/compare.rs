//! Comparing and writing as one: SBC-4 COMPARE AND WRITE, and its retry after a takeover.
//!
//! An initiator whose answer was lost asks the next session again, and finds its own data where it
//! expects the old one. So each such write leaves a record in the same operation: who, where, what,
//! and under which claim. A mismatch counts as done if the data is what was to be written and the
//! record is that initiator's under an older claim; then the record gets the present claim, so that
//! it counts once.

use std::sync::Arc;

use bytes::Bytes;

use super::handle::Shared;
use super::{ATOMIC_BYTES, Image, facts, odd_answer};
use crate::codec::{DecodeError, Reader, Writer};
use crate::error::{Error, ErrorKind};
use crate::object::{
    Guard, ObjectId, Payload, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep, XattrName,
};
use crate::stripe::Piece;

const VERSION: u8 = 1;

/// Attempts at a change that meets others of its object.
const ATTEMPTS_MAX: u32 = 16;

/// Records of an object. Blocks next to each other have different ones: the hosts of a cluster
/// keep their heartbeats side by side.
const SLOTS: [XattrName; 32] = [
    XattrName::new("portico.compare.00"),
    XattrName::new("portico.compare.01"),
    XattrName::new("portico.compare.02"),
    XattrName::new("portico.compare.03"),
    XattrName::new("portico.compare.04"),
    XattrName::new("portico.compare.05"),
    XattrName::new("portico.compare.06"),
    XattrName::new("portico.compare.07"),
    XattrName::new("portico.compare.08"),
    XattrName::new("portico.compare.09"),
    XattrName::new("portico.compare.10"),
    XattrName::new("portico.compare.11"),
    XattrName::new("portico.compare.12"),
    XattrName::new("portico.compare.13"),
    XattrName::new("portico.compare.14"),
    XattrName::new("portico.compare.15"),
    XattrName::new("portico.compare.16"),
    XattrName::new("portico.compare.17"),
    XattrName::new("portico.compare.18"),
    XattrName::new("portico.compare.19"),
    XattrName::new("portico.compare.20"),
    XattrName::new("portico.compare.21"),
    XattrName::new("portico.compare.22"),
    XattrName::new("portico.compare.23"),
    XattrName::new("portico.compare.24"),
    XattrName::new("portico.compare.25"),
    XattrName::new("portico.compare.26"),
    XattrName::new("portico.compare.27"),
    XattrName::new("portico.compare.28"),
    XattrName::new("portico.compare.29"),
    XattrName::new("portico.compare.30"),
    XattrName::new("portico.compare.31"),
];

/// Who compares and writes, by which a retry is recognised.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CompareMark {
    /// The initiator's name; the same after it logged in again.
    pub initiator: Arc<str>,
    /// The first logical block.
    pub lba: u64,
}

/// What is remembered of one change.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Record {
    epoch: u64,
    /// Tells changes apart that are alike.
    nonce: u64,
    lba: u64,
    /// SHA-256 of the initiator, and of both halves one behind the other.
    initiator: [u8; 32],
    halves: [u8; 32],
}

impl Image {
    /// Writes `data` at `offset` if `expect` is there. Both have the same length, and the range
    /// lies in one object.
    ///
    /// # Errors
    /// `GuardFailed` if something else is there, with the offset of the first difference in
    /// `expect`; `TooLarge` for a range that does not lie in the image and in one object. After
    /// `Unavailable` and `Fenced` it may have been written: the retry by the same initiator after
    /// the image was opened again finds out.
    ///
    /// # Panics
    /// If the lengths differ: they come from one command.
    pub async fn compare_and_write(
        &self,
        offset: u64,
        expect: Bytes,
        data: Bytes,
        mark: CompareMark,
    ) -> Result<(), Error> {
        assert_eq!(expect.len(), data.len(), "two halves of one buffer");
        let shared = &*self.shared;
        let _changing = shared.changing.read().await;
        shared.check_range(offset, data.len() as u64)?;
        let mut pieces = shared.layout.map(offset, data.len() as u64);
        let (piece, rest) = (pieces.next(), pieces.next());
        let Some(piece) = piece else {
            return Ok(());
        };
        if rest.is_some() {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "image {:?}: comparing and writing {} bytes at {offset} crosses an object",
                    shared.place.name,
                    data.len()
                ),
            ));
        }
        let record = Record {
            epoch: shared.claim.epoch(),
            nonce: u64::from_le_bytes(facts::draw()?),
            lba: mark.lba,
            initiator: sha256(&[mark.initiator.as_bytes()]),
            halves: sha256(&[&expect, &data]),
        };
        let change = Change {
            shared,
            object: shared.object(piece.object_number),
            slot: slot(&piece),
            piece,
            expect,
            data,
            record,
        };
        change.run().await
    }
}

/// One change on its way.
struct Change<'a> {
    shared: &'a Shared,
    object: ObjectId,
    slot: XattrName,
    piece: Piece,
    expect: Bytes,
    data: Bytes,
    record: Record,
}

impl Change<'_> {
    async fn run(self) -> Result<(), Error> {
        for _ in 0..ATTEMPTS_MAX {
            let error = match self.attempt().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let kind = error.kind();
            if kind == ErrorKind::GuardFailed {
                return if self.recognised().await? {
                    Ok(())
                } else {
                    Err(self.mismatch(error))
                };
            }
            if kind == ErrorKind::Unavailable && self.happened().await {
                return Ok(());
            }
            // Otherwise the object came or went in between.
            if !matches!(kind, ErrorKind::AlreadyExists | ErrorKind::NotFound) {
                return Err(error);
            }
        }
        Err(Error::new(
            ErrorKind::Busy,
            format!("{}: it keeps coming and going", self.object),
        ))
    }

    async fn attempt(&self) -> Result<(), Error> {
        let write = WriteOp::new([
            WriteStep::Write {
                offset: self.piece.object_offset,
                data: Payload::from(self.data.clone()),
            },
            WriteStep::XattrSet {
                name: self.slot,
                value: self.record.encode(),
            },
        ]);
        let guard = Guard::BytesAre {
            offset: self.piece.object_offset,
            data: self.expect.clone(),
        };
        let store = &self.shared.store;
        let answer = store
            .write(&self.object, write.clone().guarded(guard))
            .await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Nothing is there, which reads as zeros.
                match self.expect.iter().position(|byte| *byte != 0) {
                    Some(at) => Err(Error::new(
                        ErrorKind::GuardFailed,
                        format!("{}: nothing is there", self.object),
                    )
                    .with_mismatch_offset(self.piece.object_offset + at as u64)),
                    None => {
                        let write = write.guarded(Guard::Absent);
                        store.write(&self.object, write).await.map(|_| ())
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the mismatch is what this initiator wrote under an older claim; it counts once.
    async fn recognised(&self) -> Result<bool, Error> {
        let Some(found) = self.stored().await? else {
            return Ok(false);
        };
        let Ok(record) = Record::decode(&found) else {
            return Ok(false);
        };
        let is_retry = record.initiator == self.record.initiator
            && record.lba == self.record.lba
            && record.halves == self.record.halves
            && record.epoch < self.record.epoch;
        if !is_retry {
            return Ok(false);
        }
        let op = WriteOp::new([WriteStep::XattrSet {
            name: self.slot,
            value: self.record.encode(),
        }])
        .guarded(Guard::XattrIs {
            name: self.slot,
            value: found,
        })
        .guarded(Guard::BytesAre {
            offset: self.piece.object_offset,
            data: self.data.clone(),
        });
        match self.shared.store.write(&self.object, op).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::GuardFailed | ErrorKind::NotFound) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether an attempt of unknown outcome has happened. `false` also if nobody knows.
    async fn happened(&self) -> bool {
        matches!(self.stored().await, Ok(Some(found)) if found == self.record.encode())
    }

    async fn stored(&self) -> Result<Option<Bytes>, Error> {
        let op = ReadOp::new([ReadStep::Xattr { name: self.slot }]);
        let output = match self.shared.store.read(&self.object, op).await {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match output.results.as_slice() {
            [ReadResult::Xattr(value)] => Ok(value.clone()),
            _ => Err(odd_answer(&self.object)),
        }
    }

    /// The error in terms of the command: the store counts from the start of the object.
    fn mismatch(&self, error: Error) -> Error {
        let at = error
            .mismatch_offset()
            .map_or(0, |at| at.saturating_sub(self.piece.object_offset));
        Error::new(
            ErrorKind::GuardFailed,
            format!("image {:?}: other data is there", self.shared.place.name),
        )
        .with_mismatch_offset(at)
        .with_source(error)
    }
}

impl Record {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer
            .u64(self.epoch)
            .u64(self.nonce)
            .u64(self.lba)
            .raw(&self.initiator)
            .raw(&self.halves);
        writer.finish()
    }

    fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let (epoch, nonce, lba) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let hash = |reader: &mut Reader<'_>| {
            <[u8; 32]>::try_from(reader.raw(32)?).map_err(|_| DecodeError::Truncated)
        };
        let (initiator, halves) = (hash(&mut reader)?, hash(&mut reader)?);
        reader.finish()?;
        Ok(Self {
            epoch,
            nonce,
            lba,
            initiator,
            halves,
        })
    }
}

fn slot(piece: &Piece) -> XattrName {
    // Blocks of 512 bytes and of 4 KiB both go round through all slots.
    let block = piece.object_offset / 512;
    let mixed = block ^ (block / u64::from(ATOMIC_BYTES / 512));
    let index = usize::try_from(mixed % SLOTS.len() as u64).expect("below the number of slots");
    SLOTS[index]
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for part in parts {
        context.update(part);
    }
    <[u8; 32]>::try_from(context.finish().as_ref()).expect("SHA-256 has 32 bytes")
}
