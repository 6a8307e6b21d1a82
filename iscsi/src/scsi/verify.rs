//! VERIFY and WRITE AND VERIFY (SBC-4 5.39, 5.49).

use bytes::Bytes;
use portico_backend::object::{Durability, Payload};

use super::block::length_byte;
use super::cdb::Blocks;
use super::limits::CHUNK_BYTES;
use super::sense::{Failure, Sense};
use super::task::{Answer, Reply, Task, difference};

/// VERIFY(10), (12) and (16). Without comparison the data is read all the same, so that a checksum
/// that fails is found.
pub(super) async fn verify(task: &Task<'_>) -> Answer {
    let blocks = range(task)?;
    let bytes = task.bytes_of(blocks.count);
    match byte_check(task) {
        0 => compare(task, blocks, None).await?,
        1 => compare(task, blocks, Some(&task.blocks_out(bytes)?)).await?,
        3 if blocks.count > 0 => {
            let block = task.exactly(task.bytes_of(1))?;
            compare_each(task, blocks, &block).await?;
        }
        3 => {}
        _ => return Err(Sense::cdb_field(1).into()),
    }
    Ok(Reply::none())
}

/// WRITE AND VERIFY(10), (12) and (16): stable, then read back; compared if BYTCHK is 1.
pub(super) async fn write_and_verify(task: &Task<'_>) -> Answer {
    let mut blocks = range(task)?;
    let is_compared = match byte_check(task) {
        0 => false,
        1 => true,
        _ => return Err(Sense::cdb_field(1).into()),
    };
    let data = task.blocks_out(task.bytes_of(blocks.count))?;
    if data.is_empty() {
        return Ok(Reply::none());
    }
    blocks.count = data.len() / u64::from(task.unit().block_bytes());
    let offset = task.bytes_of(blocks.lba);
    let unit = task.unit();
    let _change = unit.change(offset, data.len()).await;
    unit.image()
        .write(offset, data.clone(), Durability::Durable)
        .await?;
    compare(task, blocks, is_compared.then_some(&data)).await?;
    Ok(Reply::none())
}

fn byte_check(task: &Task<'_>) -> u8 {
    (task.cdb.u8(1) >> 1) & 3
}

fn range(task: &Task<'_>) -> Result<Blocks, Failure> {
    task.transfer(length_byte(task))
}

/// Reads the range in chunks; with `expected`, which may be shorter, each byte must be as there.
async fn compare(
    task: &Task<'_>,
    blocks: Blocks,
    expected: Option<&Payload>,
) -> Result<(), Failure> {
    let offset = task.bytes_of(blocks.lba);
    let bytes = match expected {
        Some(expected) => expected.len(),
        None => task.bytes_of(blocks.count),
    };
    let mut at = 0;
    while at < bytes {
        let length = (bytes - at).min(CHUNK_BYTES);
        let read = task.unit().image().read(offset + at, length).await?;
        if let Some(expected) = expected {
            let chunk = expected.slice(at, length);
            if let Some(differs) = difference(&read.to_bytes(), &chunk.to_bytes()) {
                return Err(Sense::miscompare(at + differs).into());
            }
        }
        at += length;
    }
    Ok(())
}

/// Reads the range in chunks, each block of which must be as this one.
async fn compare_each(task: &Task<'_>, blocks: Blocks, block: &Bytes) -> Result<(), Failure> {
    let offset = task.bytes_of(blocks.lba);
    let bytes = task.bytes_of(blocks.count);
    let mut at = 0;
    while at < bytes {
        let length = (bytes - at).min(CHUNK_BYTES);
        let read = task.unit().image().read(offset + at, length).await?;
        for piece in read.to_bytes().chunks(block.len()) {
            if let Some(differs) = difference(piece, block) {
                return Err(Sense::miscompare(differs).into());
            }
        }
        at += length;
    }
    Ok(())
}
