//! From an operation of the object model to the list of operations that a cluster executes as one.
//!
//! Most guards and steps have a counterpart. What has none is made of facts read before, and the
//! facts are guarded by the object's version: zeroing through the end of an object (RADOS would cut
//! it), rolling back (the C interface cannot within an operation) and cloning a range (copied
//! through us). A missing object is its own case, since RADOS answers most guards on one with "not
//! found". No I/O here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::keys;
use crate::error::{Error, ErrorKind};
use crate::object::{Guard, Payload, SnapId, WriteOp, WriteStep};

/// One operation of the list. Keys are as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Planned {
    Append(Bytes),
    Check(Check),
    Create {
        exclusive: bool,
    },
    /// A method of the object class `lock`, and its input.
    Lock(&'static str, Bytes),
    OmapClear,
    OmapRemove(Vec<Vec<u8>>),
    OmapRemoveRange(Vec<u8>, Vec<u8>),
    OmapSet(Vec<(Vec<u8>, Bytes)>),
    Remove {
        fine_if_missing: bool,
    },
    RemoveXattr(Vec<u8>),
    SetXattr(Vec<u8>, Bytes),
    Truncate(u64),
    Write(u64, Bytes),
    WriteFull(Bytes),
    Zero(u64, u64),
}

/// A condition, which reads may have too.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Check {
    Bytes(u64, Bytes),
    Exists,
    Omap(Vec<u8>, Bytes),
    Version(u64),
    /// The stored value is the one given.
    Xattr(Cow<'static, str>, Bytes),
    /// The stored value is at most the one given.
    XattrAtMost(&'static str, [u8; 8]),
}

/// What an operation is planned on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Basis<'a> {
    /// Whatever there is.
    Blind,
    /// An object that does not exist, which the list makes sure of.
    Missing,
    /// An object of this state, which the list makes sure of.
    Present(&'a Facts),
}

/// An object that exists.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Facts {
    pub(super) size: u64,
    pub(super) version: u64,
    /// Names of its attributes, where a step asks for them.
    pub(super) xattrs: Vec<Vec<u8>>,
}

/// Content of other objects and of snapshots that steps copy.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    /// The bytes of each `CloneRange`, in order.
    pub(super) ranges: Vec<Bytes>,
    /// `None` if the object did not exist then.
    pub(super) snapshots: BTreeMap<SnapId, Option<Kept>>,
}

/// The state of an object at a snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub(super) data: Bytes,
    /// Without locks.
    pub(super) xattrs: Vec<(Vec<u8>, Bytes)>,
    /// Keys as stored.
    pub(super) omap: Vec<(Vec<u8>, Bytes)>,
}

/// RADOS keeps locks in attributes of the object; rolling back leaves them as they are.
pub(super) const LOCK_PREFIX: &[u8] = b"lock.";

/// Pieces of a payload that are not worth an operation each are joined.
const PIECES_MAX: usize = 16;

/// Keys in one operation of a list; a list may hold several.
const OMAP_CHUNK: usize = 1_024;

/// Whether the operation can only be planned on facts.
pub(super) fn needs_facts(op: &WriteOp) -> bool {
    let ends = op.steps.last() == Some(&WriteStep::Remove);
    op.steps.iter().any(|step| match step {
        WriteStep::Zero { length, .. } => *length > 0 && !ends,
        WriteStep::Rollback { .. } => true,
        WriteStep::Append { .. }
        | WriteStep::CloneRange { .. }
        | WriteStep::Create
        | WriteStep::OmapRemove { .. }
        | WriteStep::OmapRemoveRange { .. }
        | WriteStep::OmapSet { .. }
        | WriteStep::Remove
        | WriteStep::Replace { .. }
        | WriteStep::Truncate { .. }
        | WriteStep::Write { .. }
        | WriteStep::XattrRemove { .. }
        | WriteStep::XattrSet { .. } => false,
    })
}

/// Whether all guards hold on a missing object.
pub(super) fn hold_on_missing(guards: &[Guard]) -> bool {
    let holds = |guard: &Guard| matches!(guard, Guard::Absent | Guard::XattrAtMost { .. });
    guards.iter().all(holds)
}

/// The guards as operations, and whether one is `Absent`, which ends the list: what it asks is the
/// caller's part.
pub(super) fn guards(guards: &[Guard]) -> (Vec<Check>, bool) {
    let mut list = Vec::with_capacity(guards.len() + 1);
    for guard in guards {
        let needs_object = !matches!(guard, Guard::Absent | Guard::XattrAtMost { .. });
        if needs_object && !list.contains(&Check::Exists) {
            list.push(Check::Exists);
        }
        match guard {
            Guard::Absent => return (list, true),
            Guard::BytesAre { offset, data } if !data.is_empty() => {
                list.push(Check::Bytes(*offset, data.clone()));
            }
            Guard::BytesAre { .. } | Guard::Exists => {}
            Guard::OmapIs { key, value } => {
                let value = value.clone().unwrap_or_default();
                list.push(Check::Omap(keys::encode(key), value));
            }
            // RADOS refuses to compare with 0, which is nobody's version.
            Guard::VersionIs(version) => list.push(Check::Version(match version.0 {
                0 => u64::MAX,
                version => version,
            })),
            Guard::XattrAtMost { name, value } => {
                let value = value.to_be_bytes();
                list.push(Check::XattrAtMost(name.as_str(), value));
            }
            Guard::XattrIs { name, value } => {
                list.push(Check::Xattr(name.as_str().into(), value.clone()));
            }
        }
    }
    (list, false)
}

/// The steps as operations; empty if there is nothing to do.
///
/// # Errors
/// `NotFound` if a step needs an object that the basis has not; the guards come before.
pub(super) fn steps(
    op: &WriteOp,
    basis: Basis<'_>,
    sources: &Sources,
) -> Result<Vec<Planned>, Error> {
    let mut planner = Planner {
        list: Vec::with_capacity(op.steps.len() + 2),
        exists: match basis {
            Basis::Blind => None,
            Basis::Missing => Some(false),
            Basis::Present(_) => Some(true),
        },
        made: false,
        size: match basis {
            Basis::Present(facts) => facts.size,
            Basis::Blind | Basis::Missing => 0,
        },
        xattrs: match basis {
            Basis::Present(facts) => &facts.xattrs,
            Basis::Blind | Basis::Missing => &[],
        },
        stored: matches!(basis, Basis::Present(_)),
        ghost: false,
        set: BTreeSet::new(),
    };
    let mut ranges = sources.ranges.iter();
    for step in &op.steps {
        planner.step(step, &mut ranges, sources)?;
    }
    if planner.ghost {
        planner.list.push(Planned::Remove {
            fine_if_missing: false,
        });
    }
    let is_made_sure = matches!(basis, Basis::Missing) && !planner.list.is_empty();
    if is_made_sure {
        planner.list.insert(0, Planned::Create { exclusive: true });
    }
    Ok(planner.list)
}

#[derive(Debug)]
struct Planner<'a> {
    list: Vec<Planned>,
    /// Whether the object exists at this step; `None` if nobody knows.
    exists: Option<bool>,
    /// Whether a step of this operation makes the object, if nothing before fails.
    made: bool,
    /// Bytes at this step, where the basis is known.
    size: u64,
    xattrs: &'a [Vec<u8>],
    /// Whether there is an object in the store before the operation.
    stored: bool,
    /// Whether it is there, but rolled back to before it was made.
    ghost: bool,
    /// Keys that this operation set: removing a range only removes what was there before it.
    set: BTreeSet<Vec<u8>>,
}

impl Planner<'_> {
    fn step<'s>(
        &mut self,
        step: &WriteStep,
        ranges: &mut impl Iterator<Item = &'s Bytes>,
        sources: &Sources,
    ) -> Result<(), Error> {
        match step {
            WriteStep::Append { data } => self.write(None, data),
            WriteStep::Write { offset, data } => self.write(Some(*offset), data),
            WriteStep::Replace { data } => self.replace(data),
            WriteStep::CloneRange { offset, .. } => {
                let range = ranges.next().cloned().unwrap_or_default();
                self.write(Some(*offset), &range.into());
            }
            WriteStep::Create => self.make(Planned::Create { exclusive: false }),
            WriteStep::OmapSet { entries } if entries.is_empty() => {
                self.make(Planned::Create { exclusive: false });
            }
            WriteStep::OmapSet { entries } => {
                let entries = entries.iter();
                let entries = entries.map(|(key, value)| (keys::encode(key), value.clone()));
                let entries: Vec<_> = entries.collect();
                self.set.extend(entries.iter().map(|(key, _)| key.clone()));
                self.make(Planned::OmapSet(entries));
            }
            WriteStep::XattrSet { name, value } => {
                let name = name.as_str().as_bytes().to_vec();
                self.make(Planned::SetXattr(name, value.clone()));
            }
            WriteStep::OmapRemove { keys } if keys.is_empty() => {
                self.need(Planned::Check(Check::Exists))?;
            }
            WriteStep::OmapRemove { keys } => {
                let keys = keys.iter().map(|key| keys::encode(key)).collect();
                self.need(Planned::OmapRemove(keys))?;
            }
            WriteStep::OmapRemoveRange { start, end } if start >= end => {
                self.need(Planned::Check(Check::Exists))?;
            }
            WriteStep::OmapRemoveRange { start, end } => {
                let (start, end) = (keys::encode(start), keys::encode(end));
                let set = self.set.range(start.clone()..end.clone());
                let set: Vec<Vec<u8>> = set.cloned().collect();
                self.need(Planned::OmapRemoveRange(start, end))?;
                if !set.is_empty() {
                    self.need(Planned::OmapRemove(set))?;
                }
            }
            WriteStep::XattrRemove { name } => {
                let name = name.as_str().as_bytes().to_vec();
                self.need(Planned::RemoveXattr(name))?;
            }
            WriteStep::Remove => self.remove()?,
            WriteStep::Rollback { to } => {
                let kept = sources.snapshots.get(to).and_then(Option::as_ref);
                self.roll_back(kept);
            }
            WriteStep::Truncate { size } => {
                if self.exists != Some(false) {
                    self.size = *size;
                    self.list.push(Planned::Truncate(*size));
                }
            }
            WriteStep::Zero { offset, length } => self.zero(*offset, *length),
        }
        Ok(())
    }

    /// A step that makes the object if it is not there.
    fn make(&mut self, planned: Planned) {
        if std::mem::take(&mut self.ghost) {
            // Not removed, for its locks stay: they belong to the name while it is there.
            self.become_kept(&Kept::default());
        }
        self.list.push(planned);
        self.made |= self.exists != Some(true);
        self.exists = self.exists.map(|_| true);
    }

    /// A step that fails if the object is not there.
    fn need(&mut self, planned: Planned) -> Result<(), Error> {
        if self.exists == Some(false) {
            return Err(Error::new(ErrorKind::NotFound, "a step needs an object"));
        }
        if !self.made {
            // From here on it is known to exist, or the operation has failed.
            self.exists = self.exists.or(Some(true));
        }
        self.list.push(planned);
        Ok(())
    }

    /// `None` is the end of the object.
    fn write(&mut self, offset: Option<u64>, data: &Payload) {
        if data.is_empty() {
            return self.make(Planned::Create { exclusive: false });
        }
        let mut at = offset.unwrap_or(self.size);
        for piece in pieces(data) {
            let length = piece.len() as u64;
            self.make(match offset {
                Some(_) => Planned::Write(at, piece),
                None => Planned::Append(piece),
            });
            at = at.saturating_add(length);
        }
        self.size = self.size.max(at);
    }

    fn replace(&mut self, data: &Payload) {
        let mut pieces = pieces(data).into_iter();
        self.make(Planned::WriteFull(pieces.next().unwrap_or_default()));
        for piece in pieces {
            self.make(Planned::Append(piece));
        }
        self.size = data.len();
    }

    /// Never extends, and never cuts: an operation of RADOS that zeroes through the end does.
    fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.size);
        if self.exists == Some(false) || offset >= end {
            return;
        }
        if end < self.size {
            self.list.push(Planned::Zero(offset, end - offset));
        } else {
            self.list.push(Planned::Truncate(offset));
            self.list.push(Planned::Truncate(end));
        }
    }

    /// What earlier steps did to the object does not matter.
    fn remove(&mut self) -> Result<(), Error> {
        let fine_if_missing = self.exists.is_none() && self.made;
        self.need(Planned::Check(Check::Exists))?;
        self.list.clear();
        self.list.push(Planned::Remove { fine_if_missing });
        self.exists = self.exists.map(|_| false);
        Ok(())
    }

    fn roll_back(&mut self, kept: Option<&Kept>) {
        self.list.clear();
        self.set.clear();
        let Some(kept) = kept else {
            self.ghost = self.stored;
            self.exists = Some(false);
            self.made = false;
            self.size = 0;
            return;
        };
        self.ghost = false;
        self.become_kept(kept);
        self.size = kept.data.len() as u64;
        self.made = !self.stored;
        self.exists = Some(true);
    }

    /// Data, attributes and omap become these; locks stay.
    fn become_kept(&mut self, kept: &Kept) {
        self.list.push(Planned::WriteFull(kept.data.clone()));
        let is_kept = |name: &Vec<u8>| kept.xattrs.iter().any(|(kept, _)| kept == name);
        let gone = self.xattrs.iter().filter(|name| !is_kept(name));
        let gone = gone.filter(|name| !name.starts_with(LOCK_PREFIX)).cloned();
        self.list.extend(gone.map(Planned::RemoveXattr));
        let back = kept.xattrs.iter().cloned();
        self.list
            .extend(back.map(|(name, value)| Planned::SetXattr(name, value)));
        if self.stored {
            self.list.push(Planned::OmapClear);
        }
        let chunks = kept.omap.chunks(OMAP_CHUNK);
        self.list
            .extend(chunks.map(|chunk| Planned::OmapSet(chunk.to_vec())));
    }
}

fn pieces(data: &Payload) -> Vec<Bytes> {
    let pieces: Vec<Bytes> = data
        .pieces()
        .filter(|piece| !piece.is_empty())
        .cloned()
        .collect();
    match pieces.len() > PIECES_MAX {
        true => vec![data.to_bytes()],
        false => pieces,
    }
}
