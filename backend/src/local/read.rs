//! Reads: of published records only, without the committer.
//!
//! A read takes no lock over its whole length. Every write of an object changes its header, so a
//! read that finds the header at its end as at its start has seen one version.

use std::sync::PoisonError;

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::object::{
    Guard, ListCursor, ListPage, LockHolder, ObjectId, ObjectName, OmapPage, Pool, ReadOp,
    ReadOutput, ReadResult, ReadStep, Version,
};

use super::change::check_guard;
use super::core::Core;
use super::extent::{Miss, ObjectReader};
use super::failure::corrupt;
use super::memtable::Layers;
use super::record::{
    Header, Kind, ObjectKeys, decode_holders, parse_key, pool_bytes, pool_range, successor, unseal,
};

/// Answers a question. `Miss::NotCached` only if `cached_only`.
pub(super) fn read(
    core: &Core,
    object: &ObjectId,
    op: &ReadOp,
    cached_only: bool,
) -> Result<ReadOutput, Miss> {
    let keys = ObjectKeys::new(object);
    for _ in 0..RACES_MAX {
        if let Some(output) = read_once(core, object, &keys, op, cached_only)? {
            return Ok(output);
        }
        if cached_only {
            return Err(Miss::NotCached);
        }
    }
    // Written too often to be caught between two writes: nothing is published while this is held.
    let _gate = core
        .publishing
        .read()
        .unwrap_or_else(PoisonError::into_inner);
    let output = read_once(core, object, &keys, op, cached_only)?;
    Ok(output.expect("nothing changes under the gate"))
}

/// `None` if the object changed meanwhile.
fn read_once(
    core: &Core,
    object: &ObjectId,
    keys: &ObjectKeys,
    op: &ReadOp,
    cached_only: bool,
) -> Result<Option<ReadOutput>, Miss> {
    let view = core.view();
    let reader = ObjectReader {
        layers: Layers::of_view(&view),
        blocks: &core.blocks,
        stats: &core.stats,
        keys,
        cached_only,
    };
    let header_key = keys.header();
    let header_value = reader.value(&header_key)?;
    let answered = answer(&reader, object, &header_key, header_value.as_ref(), op);
    if let Err(Miss::NotCached) = answered {
        return Err(Miss::NotCached);
    }
    if reader.value(&header_key)? != header_value {
        return Ok(None);
    }
    answered.map(Some)
}

fn answer(
    reader: &ObjectReader<'_>,
    object: &ObjectId,
    header_key: &Bytes,
    header_value: Option<&Bytes>,
    op: &ReadOp,
) -> Result<ReadOutput, Miss> {
    let header = match header_value {
        Some(value) => Some(Header::decode(header_key, value)?),
        None => None,
    };
    for guard in &op.guards {
        check_guard(reader, header, guard)?;
    }
    if header.is_none() && !op.guards.contains(&Guard::Absent) {
        let error = Error::new(ErrorKind::NotFound, format!("reading {object}"));
        return Err(Miss::Failed(error));
    }
    let header = header.unwrap_or(Header {
        version: 0,
        size: 0,
    });
    let results = op
        .steps
        .iter()
        .map(|step| answer_step(reader, header, step));
    Ok(ReadOutput {
        version: Version(header.version),
        results: results.collect::<Result<_, _>>()?,
    })
}

fn answer_step(
    reader: &ObjectReader<'_>,
    header: Header,
    step: &ReadStep,
) -> Result<ReadResult, Miss> {
    let payload = |key: Bytes| match reader.value(&key)? {
        Some(value) => Ok::<_, Miss>(Some(unseal(&key, &value)?)),
        None => Ok(None),
    };
    Ok(match step {
        ReadStep::Extents { offset, length } => {
            let end = offset.saturating_add(*length).min(header.size);
            ReadResult::Extents(reader.extents(*offset, end)?)
        }
        ReadStep::OmapGet { keys } => {
            let values = keys.iter().map(|key| payload(reader.keys.omap(key)));
            ReadResult::OmapValues(values.collect::<Result<_, _>>()?)
        }
        ReadStep::OmapScan {
            start,
            end,
            keys_only,
            count_max,
        } => ReadResult::OmapPage(scan(reader, start, end.as_ref(), *keys_only, *count_max)?),
        ReadStep::Stat => ReadResult::Stat { size: header.size },
        ReadStep::Xattr { name } => ReadResult::Xattr(payload(reader.keys.xattr(name.as_str()))?),
    })
}

fn scan(
    reader: &ObjectReader<'_>,
    start: &[u8],
    end: Option<&Bytes>,
    keys_only: bool,
    count_max: u32,
) -> Result<OmapPage, Miss> {
    if reader.cached_only && !reader.layers.view.base.is_empty() {
        return Err(Miss::NotCached);
    }
    let from = reader.keys.omap(start);
    let to = match end {
        Some(end) => reader.keys.omap(end),
        None => reader.keys.range(Kind::Omap).1,
    };
    let count_max = usize::try_from(count_max).expect("32 bits fit");
    let (found, more) = reader.layers.range(&from, &to, count_max)?;
    let mut entries = Vec::with_capacity(found.len());
    for (key, value) in found {
        let payload = unseal(&key, &value)?;
        let value = if keys_only { Bytes::new() } else { payload };
        entries.push((reader.keys.sub_bytes(&key), value));
    }
    Ok(OmapPage { entries, more })
}

/// A page of the names in a pool. The cursor is the last name given.
pub(super) fn list(
    core: &Core,
    pool: &Pool,
    cursor: &ListCursor,
    count_max: u32,
) -> Result<ListPage, Error> {
    let (start, end) = pool_range(pool);
    let start = if cursor.0.is_empty() {
        start
    } else {
        let name = std::str::from_utf8(&cursor.0)
            .ok()
            .filter(|name| !name.is_empty() && name.len() <= crate::limits::OBJECT_NAME_BYTES_MAX)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "a cursor of another session"))?;
        let last = ObjectId::new(pool, ObjectName::new(name));
        successor(&ObjectKeys::new(&last).header())
    };
    let view = core.view();
    let count_max = usize::try_from(count_max).expect("32 bits fit");
    let (found, more) = Layers::of_view(&view).range(&start, &end, count_max)?;
    let mut names = Vec::with_capacity(found.len());
    for (key, value) in &found {
        unseal(key, value)?;
        let parsed = parse_key(key)
            .ok()
            .filter(|parsed| !parsed.name.is_empty())
            .ok_or_else(|| corrupt("an object without a name"))?;
        names.push(ObjectName::new(parsed.name));
    }
    let last = names.last().filter(|_| more).map(ObjectName::to_string);
    Ok(ListPage {
        names,
        next: last.map(|name| ListCursor(Bytes::from(name))),
    })
}

/// Who holds a lock at this moment.
pub(super) fn lock_holders(
    core: &Core,
    object: &ObjectId,
    name: &str,
    now: tokio::time::Instant,
) -> Result<Vec<LockHolder>, Error> {
    let key = ObjectKeys::new(object).lock(name);
    let view = core.view();
    let Some(value) = Layers::of_view(&view).value(&key)? else {
        return Ok(Vec::new());
    };
    let holders = core.locks.current(&key, decode_holders(&key, &value)?, now);
    Ok(holders.into_iter().map(|stored| stored.holder).collect())
}

/// Whether the object exists.
pub(super) fn exists(core: &Core, object: &ObjectId) -> Result<bool, Error> {
    let view = core.view();
    let key = ObjectKeys::new(object).header();
    Ok(Layers::of_view(&view).value(&key)?.is_some())
}

pub(super) fn object_count(core: &Core, pool: &Pool) -> u64 {
    core.object_count(&pool_bytes(pool))
}

/// Tries before a read asks writers to wait.
const RACES_MAX: usize = 8;
