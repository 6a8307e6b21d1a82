//! READ, WRITE, PRE-FETCH and SYNCHRONIZE CACHE (SBC-4 5.14 to 5.45).

use portico_backend::object::Payload;

use super::task::{Answer, Reply, Task, whole_blocks};

const FORCE_UNIT_ACCESS: u8 = 0x08;

/// Where the transfer length starts.
pub(super) fn length_byte(task: &Task<'_>) -> u16 {
    match task.cdb.u8(0) >> 5 {
        0 => 4,
        4 => 10,
        5 => 6,
        _ => 7,
    }
}

/// Whether the data is to be stable whatever the cache; CDBs of 6 bytes have no such bit.
pub(super) fn force_unit_access(task: &Task<'_>) -> bool {
    task.cdb.u8(0) >> 5 != 0 && task.cdb.flag(1, FORCE_UNIT_ACCESS)
}

/// READ(6), (10), (12) and (16). No more is read than the initiator has room for.
pub(super) async fn read(task: &Task<'_>) -> Answer {
    let blocks = task.transfer(length_byte(task))?;
    let unit = task.unit();
    // What lies in the cache alone is not on the medium yet.
    if force_unit_access(task) && unit.is_cached() {
        unit.image().flush().await?;
    }
    let bytes = task.bytes_of(blocks.count);
    let wanted = bytes.min(u64::from(task.data_in_bytes_max));
    let mut reply = Reply {
        data_in_bytes: bytes,
        ..Reply::default()
    };
    if wanted > 0 {
        let offset = task.bytes_of(blocks.lba);
        let image = unit.image();
        reply.data_in = match image.try_read_cached(offset, wanted) {
            Some(answer) => answer?,
            None => image.read(offset, wanted).await?,
        };
    }
    Ok(reply)
}

/// WRITE(6), (10), (12) and (16).
pub(super) async fn write(task: &Task<'_>, data: Payload) -> Answer {
    let blocks = task.transfer(length_byte(task))?;
    let unit = task.unit();
    let data = whole_blocks(data, task.bytes_of(blocks.count), unit.block_bytes())?;
    if !data.is_empty() {
        let durability = unit.durability(force_unit_access(task));
        let offset = task.bytes_of(blocks.lba);
        let _change = unit.change(offset, data.len()).await;
        unit.image().write(offset, data, durability).await?;
    }
    Ok(Reply::none())
}

/// PRE-FETCH(10) and (16): GOOD says that nothing was held back for it.
pub(super) fn prefetch(task: &Task<'_>) -> Answer {
    task.check_range(task.cdb.blocks())?;
    Ok(Reply::none())
}

/// SYNCHRONIZE CACHE(10) and (16): the whole cache, whatever the range. With IMMED too the answer
/// waits, which is allowed and safer.
pub(super) async fn synchronize(task: &Task<'_>) -> Answer {
    task.check_range(task.cdb.blocks())?;
    task.unit().image().flush().await?;
    Ok(Reply::none())
}
