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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::XattrName;

    const NAME: XattrName = XattrName::new("name");

    fn facts(size: u64) -> Facts {
        Facts {
            size,
            version: 7,
            xattrs: vec![b"gone".to_vec(), b"lock.x".to_vec()],
        }
    }

    fn planned(steps_of: Vec<WriteStep>, basis: Basis<'_>) -> Vec<Planned> {
        steps(&WriteOp::new(steps_of), basis, &Sources::default()).unwrap()
    }

    fn zero(offset: u64, length: u64) -> WriteStep {
        WriteStep::Zero { offset, length }
    }

    fn append(data: &'static [u8]) -> WriteStep {
        WriteStep::Append {
            data: Bytes::from_static(data).into(),
        }
    }

    #[test]
    fn zeroing_never_cuts_and_never_extends() {
        let facts = facts(100);
        let of = |offset, length| planned(vec![zero(offset, length)], Basis::Present(&facts));
        assert_eq!(of(10, 20), [Planned::Zero(10, 20)]);
        let through = [Planned::Truncate(10), Planned::Truncate(100)];
        assert_eq!(of(10, 90), through);
        assert_eq!(of(10, u64::MAX), through);
        assert_eq!(of(100, 5), []);
        assert_eq!(planned(vec![zero(0, 9)], Basis::Missing), []);
        // What earlier steps make of the size counts.
        let list = planned(
            vec![append(b"0123456789"), zero(100, 50)],
            Basis::Present(&facts),
        );
        assert_eq!(list[1..], [Planned::Truncate(100), Planned::Truncate(110)]);
    }

    #[test]
    fn a_removed_object_needs_no_earlier_steps() {
        let remove = |fine_if_missing| vec![Planned::Remove { fine_if_missing }];
        let of = |steps| planned(steps, Basis::Blind);
        assert_eq!(of(vec![WriteStep::Remove]), remove(false));
        assert_eq!(of(vec![append(b"x"), WriteStep::Remove]), remove(true));
        let attribute = WriteStep::XattrRemove { name: NAME };
        let list = of(vec![attribute, append(b"x"), WriteStep::Remove]);
        assert_eq!(list, remove(false), "the first step needs an object");
        let op = WriteOp::new([WriteStep::Remove]);
        assert!(steps(&op, Basis::Missing, &Sources::default()).is_err());
    }

    #[test]
    fn a_removed_range_takes_keys_of_the_same_operation() {
        let set = WriteStep::OmapSet {
            entries: vec![("a".into(), "1".into()), ("c".into(), "1".into())],
        };
        let range = WriteStep::OmapRemoveRange {
            start: "a".into(),
            end: "b".into(),
        };
        let list = planned(vec![set, range], Basis::Blind);
        assert_eq!(list[2], Planned::OmapRemove(vec![b"a".to_vec()]));
        let empty = WriteStep::OmapRemoveRange {
            start: "b".into(),
            end: "a".into(),
        };
        let list = planned(vec![empty], Basis::Blind);
        assert_eq!(
            list,
            [Planned::Check(Check::Exists)],
            "an end before the start"
        );
    }

    #[test]
    fn a_missing_object_is_made_sure_of_where_something_is_made() {
        let truncate = WriteStep::Truncate { size: 3 };
        let list = planned(vec![truncate.clone(), append(b"x")], Basis::Missing);
        let create = Planned::Create { exclusive: true };
        assert_eq!(list, [create, Planned::Append(Bytes::from_static(b"x"))]);
        assert_eq!(planned(vec![truncate], Basis::Missing), []);
    }

    #[test]
    fn rolling_back_leaves_locks_and_drops_what_came_before() {
        let facts = facts(100);
        let to = SnapId(3);
        let kept = Kept {
            data: Bytes::from_static(b"old"),
            xattrs: vec![(b"name".to_vec(), Bytes::from_static(b"v"))],
            omap: vec![],
        };
        let mut sources = Sources::default();
        sources.snapshots.insert(to, Some(kept));
        let op = WriteOp::new([append(b"lost"), WriteStep::Rollback { to }]);
        let list = steps(&op, Basis::Present(&facts), &sources).unwrap();
        let expected = [
            Planned::WriteFull(Bytes::from_static(b"old")),
            Planned::RemoveXattr(b"gone".to_vec()),
            Planned::SetXattr(b"name".to_vec(), Bytes::from_static(b"v")),
            Planned::OmapClear,
        ];
        assert_eq!(list, expected);
        // To before it was made: it goes, unless something makes it again.
        sources.snapshots.insert(to, None);
        let list = steps(&op, Basis::Present(&facts), &sources).unwrap();
        let remove = Planned::Remove {
            fine_if_missing: false,
        };
        assert_eq!(list, [remove]);
        let op = WriteOp::new([WriteStep::Rollback { to }, append(b"new")]);
        let list = steps(&op, Basis::Present(&facts), &sources).unwrap();
        assert_eq!(list[0], Planned::WriteFull(Bytes::new()));
        assert_eq!(
            list.last(),
            Some(&Planned::Append(Bytes::from_static(b"new")))
        );
    }

    #[test]
    fn guards_ask_for_an_object_once_and_end_at_absent() {
        let (list, absent) = guards(&[
            Guard::XattrAtMost {
                name: NAME,
                value: 9,
            },
            Guard::VersionIs(crate::object::Version(0)),
            Guard::Exists,
            Guard::Absent,
            Guard::Exists,
        ]);
        let most = Check::XattrAtMost("name", 9_u64.to_be_bytes());
        let expected = [most, Check::Exists, Check::Version(u64::MAX)];
        assert_eq!((list.as_slice(), absent), (&expected[..], true));
    }
}
