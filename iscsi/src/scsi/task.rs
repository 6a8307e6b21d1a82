//! One command on its way through the command set.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use portico_backend::object::Payload;

use super::cdb::{Blocks, Cdb};
use super::limits::TRANSFER_BYTES_MAX;
use super::luns::LunMap;
use super::nexus::NexusId;
use super::sense::{Code, Failure, Sense, SenseKey};
use super::unit::Unit;

/// What a handler sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    pub(super) cdb: Cdb<'a>,
    pub(super) data_out: &'a Payload,
    pub(super) data_in_bytes_max: u32,
    pub(super) nexus: &'a NexusId,
    pub(super) luns: &'a LunMap,
    pub(super) unit: Option<&'a Arc<Unit>>,
}

/// What a handler gives back with GOOD.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Reply {
    pub(super) data_in: Payload,
    pub(super) data_in_bytes: u64,
}

pub(super) type Answer = Result<Reply, Failure>;

/// A handler that waits for the store. Boxed, so that READ and WRITE, which are not, stay small.
pub(super) type Later<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

impl Reply {
    /// GOOD without data.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// Data cut to the allocation length (SPC-5 4.3.5.6).
    pub(super) fn data(mut data: Vec<u8>, allocation: u64) -> Self {
        data.truncate(usize::try_from(allocation).unwrap_or(usize::MAX));
        Self {
            data_in_bytes: data.len() as u64,
            data_in: Bytes::from(data).into(),
        }
    }
}

impl<'a> Task<'a> {
    /// # Panics
    /// In a handler whose row works without a unit.
    pub(super) fn unit(&self) -> &'a Arc<Unit> {
        self.unit.expect("the row asks for a unit")
    }

    /// Bytes from blocks.
    pub(super) fn bytes_of(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(u64::from(self.unit().block_bytes()))
    }

    /// That a range lies on the medium.
    pub(super) fn check_range(&self, blocks: Blocks) -> Result<(), Failure> {
        let end = blocks.lba.checked_add(blocks.count);
        if end.is_some_and(|end| end <= self.unit().block_count()) {
            return Ok(());
        }
        Err(Sense::out_of_range(blocks.lba).into())
    }

    /// The range of a command that moves it as a whole: no protection information, on the medium,
    /// not longer than one transfer.
    pub(super) fn transfer(&self, length_byte: u16) -> Result<Blocks, Failure> {
        if self.cdb.u8(0) >> 5 != 0 && self.cdb.protect() != 0 {
            return Err(Sense::cdb_field(1).into());
        }
        let blocks = self.cdb.blocks();
        self.check_range(blocks)?;
        if self.bytes_of(blocks.count) > TRANSFER_BYTES_MAX {
            return Err(Sense::cdb_field(length_byte).into());
        }
        Ok(blocks)
    }

    /// The Data-Out buffer of a command that takes this many bytes; see [`whole_blocks`].
    pub(super) fn blocks_out(&self, bytes: u64) -> Result<Payload, Failure> {
        whole_blocks(self.data_out.clone(), bytes, self.unit().block_bytes())
    }

    /// The Data-Out buffer as one, which must have exactly this many bytes.
    pub(super) fn exactly(&self, bytes: u64) -> Result<Bytes, Failure> {
        if self.data_out.len() == bytes {
            Ok(self.data_out.to_bytes())
        } else {
            Err(wrong_length())
        }
    }

    /// The parameter list of this many bytes. Initiators that announce less than the CDB says sent
    /// a list that ends early.
    pub(super) fn list(&self, length: u64) -> Result<Bytes, Failure> {
        if self.data_out.len() < length {
            return Err(Sense::list_length().into());
        }
        Ok(first(self.data_out.clone(), length).to_bytes())
    }
}

/// The Data-Out buffer does not have the length that the CDB says.
fn wrong_length() -> Failure {
    let code = Code::INVALID_FIELD_IN_INFORMATION_UNIT;
    Sense::new(SenseKey::IllegalRequest, code).into()
}

/// What a command that takes this many bytes writes of its Data-Out buffer. An initiator that
/// announced less gets as much written; a part of a block is refused (RFC 7143 11.4.5.1 leaves both
/// open, and initiators' tests accept them).
pub(super) fn whole_blocks(
    data: Payload,
    bytes: u64,
    block_bytes: u32,
) -> Result<Payload, Failure> {
    let here = data.len();
    if here < bytes && !here.is_multiple_of(u64::from(block_bytes)) {
        return Err(wrong_length());
    }
    Ok(first(data, bytes))
}

/// The first bytes, or all if there are fewer.
pub(super) fn first(payload: Payload, bytes: u64) -> Payload {
    if payload.len() <= bytes {
        return payload;
    }
    payload.slice(0, bytes)
}

/// Where two buffers first differ. What only one of them has differs.
pub(super) fn difference(left: &[u8], right: &[u8]) -> Option<u64> {
    if left == right {
        return None;
    }
    let same = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    Some(same as u64)
}
