//! What every engine refuses before it looks at any object.

use crate::error::{Error, ErrorKind};
use crate::limits::{OMAP_KEY_BYTES_MAX, OP_STEPS_MAX, XATTR_VALUE_BYTES_MAX};
use crate::object::{
    CloneRange, Durability, Guard, Limits, ObjectId, ReadOp, ReadStep, WriteOp, WriteStep,
};

/// # Panics
/// If `Remove` is not the last step, a `Buffered` step is not plain data, a clone crosses pools or
/// a snapshot context is not in order: the caller's own mistakes.
pub(crate) fn check_write(id: &ObjectId, op: &WriteOp, limits: &Limits) -> Result<(), Error> {
    let steps = op.steps.len();
    let remove = op.steps.iter().position(|step| *step == WriteStep::Remove);
    assert!(
        remove.is_none_or(|at| at + 1 == steps),
        "`Remove` is the last step"
    );
    let buffered = op.durability == Durability::Buffered;
    assert!(
        !buffered || op.steps.iter().all(WriteStep::is_plain_data),
        "only plain data is buffered"
    );
    let snapshots = &op.snapshots.snapshots;
    assert!(
        snapshots.is_sorted_by(|a, b| a > b),
        "newest snapshots first"
    );
    let newest = snapshots.first().map_or(0, |newest| newest.0);
    assert!(
        newest <= op.snapshots.sequence,
        "the sequence covers all snapshots"
    );

    check_guards(&op.guards, steps, limits)?;
    if op.payload_bytes() > limits.op_bytes_max {
        return Err(too_large("payload of an operation"));
    }
    if op.snapshots.sequence > 0 {
        check_snapshots(limits)?;
    }
    let mut keys = 0;
    for step in &op.steps {
        keys += check_step(id, step, limits)?;
    }
    check_key_count(keys, limits)
}

pub(crate) fn check_read(op: &ReadOp, limits: &Limits) -> Result<(), Error> {
    check_guards(&op.guards, op.steps.len(), limits)?;
    if op.at.is_some() {
        check_snapshots(limits)?;
    }
    let mut keys = 0;
    for step in &op.steps {
        keys += match step {
            ReadStep::OmapGet { keys } => {
                check_omap(limits)?;
                keys.len()
            }
            ReadStep::OmapScan { count_max, .. } => {
                check_omap(limits)?;
                *count_max as usize
            }
            ReadStep::Extents { .. } | ReadStep::Stat | ReadStep::Xattr { .. } => 0,
        };
    }
    check_key_count(keys, limits)
}

pub(crate) fn check_snapshots(limits: &Limits) -> Result<(), Error> {
    supported(limits.snapshots, "snapshots")
}

/// The number of keys that the step names.
fn check_step(id: &ObjectId, step: &WriteStep, limits: &Limits) -> Result<usize, Error> {
    match step {
        WriteStep::Append { data } | WriteStep::Replace { data } => {
            check_end(0, data.len(), limits)?;
        }
        WriteStep::Write { offset, data } => check_end(*offset, data.len(), limits)?,
        WriteStep::Truncate { size } => check_end(*size, 0, limits)?,
        WriteStep::CloneRange {
            source,
            offset,
            length,
            ..
        } => {
            assert!(source.pool == id.pool, "a range is cloned within a pool");
            let works = limits.clone_range != CloneRange::Unsupported;
            supported(works, "cloning a range")?;
            check_end(*offset, *length, limits)?;
        }
        WriteStep::OmapRemove { keys } => {
            check_omap(limits)?;
            return Ok(keys.len());
        }
        WriteStep::OmapRemoveRange { .. } => check_omap(limits)?,
        WriteStep::OmapSet { entries } => {
            check_omap(limits)?;
            for (key, value) in entries {
                if key.len() > OMAP_KEY_BYTES_MAX
                    || value.len() > limits.omap_value_bytes_max as usize
                {
                    return Err(too_large("omap entry"));
                }
            }
            return Ok(entries.len());
        }
        WriteStep::XattrSet { value, .. } if value.len() > XATTR_VALUE_BYTES_MAX => {
            return Err(too_large("attribute"));
        }
        WriteStep::Rollback { .. } => check_snapshots(limits)?,
        WriteStep::Create
        | WriteStep::Remove
        | WriteStep::XattrRemove { .. }
        | WriteStep::XattrSet { .. }
        | WriteStep::Zero { .. } => {}
    }
    Ok(0)
}

fn check_guards(guards: &[Guard], steps: usize, limits: &Limits) -> Result<(), Error> {
    if guards.len() + steps > OP_STEPS_MAX {
        return Err(too_large("number of guards and steps"));
    }
    let of_omap = |guard: &Guard| matches!(guard, Guard::OmapIs { .. });
    match guards.iter().any(of_omap) {
        true => check_omap(limits),
        false => Ok(()),
    }
}

fn check_key_count(keys: usize, limits: &Limits) -> Result<(), Error> {
    match keys > limits.omap_keys_max as usize {
        true => Err(too_large("number of keys")),
        false => Ok(()),
    }
}

fn check_end(offset: u64, length: u64, limits: &Limits) -> Result<(), Error> {
    match offset.checked_add(length) {
        Some(end) if end <= limits.object_bytes_max => Ok(()),
        Some(_) | None => Err(too_large("size of an object")),
    }
}

fn check_omap(limits: &Limits) -> Result<(), Error> {
    supported(limits.omap, "omap")
}

fn supported(works: bool, what: &str) -> Result<(), Error> {
    match works {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Unsupported, what)),
    }
}

fn too_large(what: &str) -> Error {
    Error::new(ErrorKind::TooLarge, what)
}
