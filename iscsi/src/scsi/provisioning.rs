//! Blocks that need no space: UNMAP, WRITE SAME, GET LBA STATUS (SBC-4 4.7, 5.37, 5.52, 5.9).

use bytes::Bytes;
use portico_backend::object::Payload;

use super::block::length_byte;
use super::cdb::Blocks;
use super::limits::{
    CHUNK_BYTES, STATUS_DESCRIPTORS_MAX, STATUS_LOOKS_MAX, UNMAP_BYTES_MAX, UNMAP_DESCRIPTORS_MAX,
    WRITE_SAME_BYTES_MAX,
};
use super::sense::{Code, Failure, Sense, SenseKey};
use super::task::{Answer, Reply, Task};

/// UNMAP. Everything is checked before anything is given back.
pub(super) async fn unmap(task: &Task<'_>) -> Answer {
    const ANCHOR: u8 = 0x01;
    if task.cdb.flag(1, ANCHOR) {
        return Err(Sense::cdb_field(1).into());
    }
    let length = u64::from(task.cdb.u16(7));
    if length == 0 {
        return Ok(Reply::none());
    }
    let list = task.list(length)?;
    let ranges = ranges(task, &list)?;
    let unit = task.unit();
    let ranges = ranges.into_iter().filter(|blocks| blocks.count > 0);
    let bytes_of = |blocks: Blocks| (task.bytes_of(blocks.lba), task.bytes_of(blocks.count));
    let ranges: Vec<(u64, u64)> = ranges.map(bytes_of).collect();
    let _change = unit.change_all(ranges.iter().copied()).await;
    for (offset, bytes) in ranges {
        unit.image().discard(offset, bytes).await?;
    }
    Ok(Reply::none())
}

/// The descriptors of an UNMAP parameter list (SBC-4 table 136).
fn ranges(task: &Task<'_>, list: &Bytes) -> Result<Vec<Blocks>, Failure> {
    const HEADER: usize = 8;
    const DESCRIPTOR: usize = 16;
    let (header, rest) = list
        .split_at_checked(HEADER)
        .ok_or_else(Sense::list_length)?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let descriptors = rest.get(..length).ok_or_else(Sense::list_length)?;
    let (descriptors, _) = descriptors.as_chunks::<DESCRIPTOR>();
    if descriptors.len() as u64 > u64::from(UNMAP_DESCRIPTORS_MAX) {
        return Err(Sense::list_field(2).into());
    }
    let mut total = 0;
    let mut ranges = Vec::with_capacity(descriptors.len());
    for descriptor in descriptors {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *descriptor;
        let blocks = Blocks {
            lba: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            count: u64::from(u32::from_be_bytes([i, j, k, l])),
        };
        task.check_range(blocks)?;
        total += blocks.count;
        ranges.push(blocks);
    }
    if task.bytes_of(total) > UNMAP_BYTES_MAX {
        return Err(Sense::list_field(8).into());
    }
    Ok(ranges)
}

/// WRITE SAME(10) and (16). Zeros are not written but zeroed, which gives space back where it can.
pub(super) async fn write_same(task: &Task<'_>) -> Answer {
    const ANCHOR: u8 = 0x10;
    const UNMAP: u8 = 0x08;
    const NO_DATA: u8 = 0x01;
    const OBSOLETE: u8 = 0x06;
    if task.cdb.protect() != 0 || task.cdb.flag(1, ANCHOR | OBSOLETE) {
        return Err(Sense::cdb_field(1).into());
    }
    let is_long = task.cdb.u8(0) == 0x93;
    if !is_long && task.cdb.flag(1, NO_DATA) {
        return Err(Sense::cdb_field(1).into());
    }
    let blocks = task.cdb.blocks();
    task.check_range(blocks)?;
    let bytes = task.bytes_of(blocks.count);
    // A length of 0 would mean "to the end": WSNZ says that it does not.
    if blocks.count == 0 || bytes > WRITE_SAME_BYTES_MAX {
        return Err(Sense::cdb_field(length_byte(task)).into());
    }
    let unmaps = task.cdb.flag(1, UNMAP);
    // Initiators unmap without a Data-Out buffer too.
    let has_no_data = task.cdb.flag(1, NO_DATA) || (unmaps && task.data_out.is_empty());
    let block = match has_no_data {
        true => None,
        false => Some(task.exactly(task.bytes_of(1))?),
    };
    let unit = task.unit();
    let offset = task.bytes_of(blocks.lba);
    let durability = unit.durability(false);
    let _change = unit.change(offset, bytes).await;
    match block.filter(|block| block.iter().any(|byte| *byte != 0)) {
        Some(block) => {
            let mut at = 0;
            while at < bytes {
                let length = (bytes - at).min(CHUNK_BYTES);
                let data = repeated(&block, length);
                unit.image().write(offset + at, data, durability).await?;
                at += length;
            }
        }
        None if unmaps => unit.image().discard(offset, bytes).await?,
        None => unit.image().zero(offset, bytes, durability).await?,
    }
    Ok(Reply::none())
}

/// As many blocks as there are in so many bytes, all the same.
pub(super) fn repeated(block: &Bytes, bytes: u64) -> Payload {
    let bytes = usize::try_from(bytes).expect("a chunk is small");
    Bytes::from(block.repeat(bytes / block.len())).into()
}

/// GET LBA STATUS. Neighbours with the same status are one descriptor.
pub(super) async fn lba_status(task: &Task<'_>) -> Answer {
    const DESCRIPTOR: u64 = 16;
    const HEADER: u64 = 8;
    let start = task.cdb.u64(2);
    let allocation = u64::from(task.cdb.u32(10));
    let unit = task.unit();
    let end = unit.block_count();
    if start >= end {
        return Err(Sense::out_of_range(start).into());
    }
    let room = allocation.saturating_sub(HEADER).div_ceil(DESCRIPTOR);
    let count_max = room.clamp(1, u64::from(STATUS_DESCRIPTORS_MAX));
    let mut found: Vec<(Blocks, bool)> = Vec::new();
    let mut lba = start;
    let mut looks = 0;
    while lba < end && looks < STATUS_LOOKS_MAX {
        looks += 1;
        let (is_mapped, count) = run(task, lba, end).await?;
        let is_full = found.len() as u64 == count_max;
        match found.last_mut() {
            Some((last, status)) if *status == is_mapped && is_short(last.count + count) => {
                last.count += count;
            }
            _ if is_full => break,
            _ => found.push((Blocks { lba, count }, is_mapped)),
        }
        lba += count;
    }
    let length = u32::try_from(4 + found.len() * 16).expect("at most 256 descriptors");
    let mut data = length.to_be_bytes().to_vec();
    data.extend_from_slice(&[0; 4]);
    for (blocks, is_mapped) in found {
        const DEALLOCATED: u8 = 1;
        let count = u32::try_from(blocks.count).expect("a run is cut to 32 bits");
        data.extend_from_slice(&blocks.lba.to_be_bytes());
        data.extend_from_slice(&count.to_be_bytes());
        data.extend_from_slice(&[if is_mapped { 0 } else { DEALLOCATED }, 0, 0, 0]);
    }
    Ok(Reply::data(data, allocation))
}

fn is_short(count: u64) -> bool {
    u32::try_from(count).is_ok()
}

/// Blocks from here on that have the same status, at least one.
async fn run(task: &Task<'_>, lba: u64, end: u64) -> Result<(bool, u64), Failure> {
    let count_max = (end - lba).min(u64::from(u32::MAX));
    let offset = task.bytes_of(lba);
    let length_max = task.bytes_of(count_max);
    let image = task.unit().image();
    let (is_mapped, length) = image.allocation(offset, length_max).await?;
    let count = length / u64::from(task.unit().block_bytes());
    if count == 0 {
        // Less than a block: what is mapped in part is mapped.
        return Ok((true, 1));
    }
    if count > count_max {
        let code = Code::INTERNAL_TARGET_FAILURE;
        return Err(Sense::new(SenseKey::HardwareError, code).into());
    }
    Ok((is_mapped, count))
}
