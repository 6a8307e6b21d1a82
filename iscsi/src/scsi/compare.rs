//! Commands that are atomic or change what they find: COMPARE AND WRITE, ORWRITE, WRITE ATOMIC
//! (SBC-4 5.3, 5.16, 5.46).

use bytes::{Bytes, BytesMut};
use portico_backend::error::ErrorKind;
use portico_backend::image::CompareMark;
use portico_backend::object::Durability;
use portico_backend::stripe::Layout;

use super::block::{force_unit_access, length_byte};
use super::cdb::Blocks;
use super::limits::{ATOMIC_BYTES_MAX, COMPARE_BLOCKS_MAX};
use super::sense::{Failure, Sense};
use super::task::{Answer, Reply, Task};

/// COMPARE AND WRITE: if the blocks equal the first half of the data, the second half is stable
/// before GOOD, whatever the cache.
pub(super) async fn compare_and_write(task: &Task<'_>) -> Answer {
    const COUNT: usize = 13;
    check_protect(task)?;
    let count = task.cdb.u8(COUNT);
    let blocks = Blocks {
        lba: task.cdb.u64(2),
        count: u64::from(count),
    };
    task.check_range(blocks)?;
    if count > COMPARE_BLOCKS_MAX {
        return Err(Sense::cdb_field(13).into());
    }
    let bytes = task.bytes_of(blocks.count);
    let data = task.exactly(2 * bytes)?;
    if data.is_empty() {
        return Ok(Reply::none());
    }
    let half = data.len() / 2;
    let (expect, new) = (data.slice(..half), data.slice(half..));
    let offset = task.bytes_of(blocks.lba);
    let mark = CompareMark {
        initiator: task.nexus.initiator.as_str().into(),
        lba: blocks.lba,
    };
    let unit = task.unit();
    let _change = unit.change(offset, bytes).await;
    let image = unit.image();
    match image.compare_and_write(offset, expect, new, mark).await {
        Ok(()) => Ok(Reply::none()),
        Err(error) => Err(match (error.kind(), error.mismatch_offset()) {
            (ErrorKind::GuardFailed, Some(at)) => Sense::miscompare(at).into(),
            _ => error.into(),
        }),
    }
}

/// ORWRITE(16): reads, and writes what is set in either; nobody else writes there meanwhile.
pub(super) async fn or_write(task: &Task<'_>) -> Answer {
    let blocks = task.transfer(length_byte(task))?;
    let data = task.blocks_out(task.bytes_of(blocks.count))?;
    if data.is_empty() {
        return Ok(Reply::none());
    }
    let unit = task.unit();
    let offset = task.bytes_of(blocks.lba);
    let _change = unit.change(offset, data.len()).await;
    let found = unit.image().read(offset, data.len()).await?.to_bytes();
    let mut set = BytesMut::from(&found[..]);
    for (set, more) in set.iter_mut().zip(data.to_bytes()) {
        *set |= more;
    }
    let durability = unit.durability(force_unit_access(task));
    let set = Bytes::from(set).into();
    unit.image().write(offset, set, durability).await?;
    Ok(Reply::none())
}

/// WRITE ATOMIC(16): one object takes it as a whole or not at all. A range that crosses objects is
/// refused; one that is aligned to its length never does, if the length is a power of two. Stable
/// before GOOD whatever the cache: only then is it atomic.
pub(super) async fn write_atomic(task: &Task<'_>) -> Answer {
    const BOUNDARY: usize = 10;
    const COUNT: usize = 12;
    check_protect(task)?;
    let blocks = Blocks {
        lba: task.cdb.u64(2),
        count: u64::from(task.cdb.u16(COUNT)),
    };
    task.check_range(blocks)?;
    if task.cdb.u16(BOUNDARY) != 0 {
        return Err(Sense::cdb_field(10).into());
    }
    let unit = task.unit();
    let (offset, bytes) = (task.bytes_of(blocks.lba), task.bytes_of(blocks.count));
    let layout = unit.image().layout();
    if bytes > atomic_bytes_max(&layout) || layout.map(offset, bytes).count() > 1 {
        return Err(Sense::cdb_field(12).into());
    }
    let data = task.data_out;
    if data.len() < bytes {
        task.exactly(bytes)?;
    }
    if bytes > 0 {
        let data = task.blocks_out(bytes)?;
        let _change = unit.change(offset, bytes).await;
        unit.image()
            .write(offset, data, Durability::Durable)
            .await?;
    }
    Ok(Reply::none())
}

/// Bytes of one WRITE ATOMIC.
pub(super) fn atomic_bytes_max(layout: &Layout) -> u64 {
    let unit = match layout.stripe_count() {
        1 => layout.object_size(),
        _ => layout.stripe_unit(),
    };
    ATOMIC_BYTES_MAX.min(u64::from(unit))
}

fn check_protect(task: &Task<'_>) -> Result<(), Failure> {
    match task.cdb.protect() {
        0 => Ok(()),
        _ => Err(Sense::cdb_field(1).into()),
    }
}
