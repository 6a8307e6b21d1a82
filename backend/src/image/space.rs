//! Giving space back, and saying where there is data.

use std::ops::Range;

use super::Image;
use super::create::remove_object;
use super::handle::{Shared, all};
use super::odd_answer;
use crate::error::{Error, ErrorKind};
use crate::object::{Durability, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep};
use crate::stripe::{Layout, Piece};

/// Objects that one question for the allocation looks at.
const LOOKS_MAX: usize = 64;

/// Bytes of an object that one look reads where an engine tells data from holes.
const LOOK_BYTES: u64 = 1024 * 1024;

impl Image {
    /// Makes exactly this range read as zeros. Space returns for what it covers of the engine's
    /// grain, and objects that it covers go.
    ///
    /// # Errors
    /// As [`Image::write`].
    pub async fn zero(
        &self,
        offset: u64,
        length: u64,
        durability: Durability,
    ) -> Result<(), Error> {
        let shared = &*self.shared;
        let _changing = shared.changing.read().await;
        shared.check_range(offset, length)?;
        let parts = parts_of(shared.layout, offset, offset + length);
        all(parts.map(|part| shared.zero_part(part, durability))).await
    }

    /// Says that a range is of no use any more. It reads as zeros from here on, stable when this
    /// returns: an old content never comes back.
    ///
    /// # Errors
    /// As [`Image::write`].
    pub async fn discard(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.zero(offset, length, Durability::Durable).await
    }

    /// Whether there may be data at `offset`, and for how many bytes, `length_max` at most, that is
    /// so. The range may end earlier than it could. What has no data reads as zeros. Where an engine
    /// does not tell holes from data, objects count as a whole.
    ///
    /// # Errors
    /// `TooLarge` if the range does not lie in the image.
    pub async fn allocation(&self, offset: u64, length_max: u64) -> Result<(bool, u64), Error> {
        let shared = &*self.shared;
        shared.check_range(offset, length_max)?;
        let mut run: Option<(bool, u64)> = None;
        for piece in shared.layout.map(offset, length_max).take(LOOKS_MAX) {
            let (is_mapped, length) = shared.look(&piece).await?;
            match &mut run {
                None => run = Some((is_mapped, length)),
                Some((state, total)) if *state == is_mapped => *total += length,
                Some(_) => break,
            }
            if length < piece.length {
                break;
            }
        }
        Ok(run.unwrap_or((false, 0)))
    }
}

/// What a range of an image covers of one object. Of each object that is one run of bytes, however
/// the image is striped.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Part {
    object_number: u64,
    range: Range<u64>,
}

/// The parts of `start..end`, by object.
fn parts_of(layout: Layout, start: u64, end: u64) -> impl Iterator<Item = Part> {
    let numbers = layout.first_touched(start)..layout.object_count(end);
    let part = move |object_number| Part {
        object_number,
        range: layout.kept_bytes(object_number, start)..layout.kept_bytes(object_number, end),
    };
    numbers.map(part).filter(|part| !part.range.is_empty())
}

impl Shared {
    async fn zero_part(&self, part: Part, durability: Durability) -> Result<(), Error> {
        let object = self.object(part.object_number);
        let object_size = u64::from(self.layout.object_size());
        if part.range == (0..object_size) {
            return remove_object(&*self.store, &object).await;
        }
        // What is behind the end of an object is nothing: cutting it there is the same, and one
        // that is shorter grows by a hole.
        let Range { start, end } = part.range;
        let step = if end == object_size {
            WriteStep::Truncate { size: start }
        } else {
            WriteStep::Zero {
                offset: start,
                length: end - start,
            }
        };
        let op = WriteOp {
            durability,
            ..WriteOp::new([step])
        };
        self.store.write(&object, op).await.map(|_| ())
    }

    /// What the beginning of a piece is, and how far.
    async fn look(&self, piece: &Piece) -> Result<(bool, u64), Error> {
        let object = self.object(piece.object_number);
        let is_sparse = self.store.limits(&self.place.pools.data).sparse_reads;
        let length = piece.length.min(LOOK_BYTES);
        let step = if is_sparse {
            ReadStep::Extents {
                offset: piece.object_offset,
                length,
            }
        } else {
            ReadStep::Stat
        };
        let output = match self.store.read(&object, ReadOp::new([step])).await {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((false, piece.length)),
            Err(error) => return Err(error),
        };
        match output.results.as_slice() {
            [ReadResult::Stat { size }] => {
                let mapped = size.saturating_sub(piece.object_offset).min(piece.length);
                Ok(if mapped == 0 {
                    (false, piece.length)
                } else {
                    (true, mapped)
                })
            }
            [ReadResult::Extents(extents)] => Ok(first_run(
                extents
                    .iter()
                    .map(|extent| (extent.offset, extent.data.len() as u64)),
                piece.object_offset,
                length,
            )),
            _ => Err(odd_answer(&object)),
        }
    }
}

/// The state at `offset` and how far it reaches within `length`, from extents in order.
fn first_run(extents: impl Iterator<Item = (u64, u64)>, offset: u64, length: u64) -> (bool, u64) {
    let mut mapped_to = offset;
    for (start, extent_length) in extents {
        if start > mapped_to {
            if mapped_to == offset {
                return (false, start - offset);
            }
            break;
        }
        mapped_to = start + extent_length;
    }
    match mapped_to - offset {
        0 => (false, length),
        mapped => (true, mapped),
    }
}
