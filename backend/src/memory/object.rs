//! One object: what guards, steps and questions mean.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use bytes::Bytes;

use super::data::Data;
use crate::error::{Error, ErrorKind};
use crate::object::{Guard, OmapPage, ReadResult, ReadStep, Version, WriteStep, XattrName};

/// The state of an object, of a missing one too.
#[derive(Clone, Debug, Default)]
pub(super) struct Object {
    /// If not, everything else is empty.
    pub(super) exists: bool,
    pub(super) version: Version,
    pub(super) data: Data,
    xattrs: BTreeMap<XattrName, Bytes>,
    omap: Omap,
}

/// What a step needs to know of other objects and of snapshots.
#[derive(Debug)]
pub(super) enum Foreign {
    /// The bytes that `CloneRange` copies.
    Bytes(Vec<u8>),
    /// The state that `Rollback` goes back to.
    State(Box<Object>),
}

/// The bytes of an object that a step may have changed.
pub(super) type Touched = Range<u64>;

const EVERYTHING: Touched = 0..u64::MAX;
const NOTHING: Touched = 0..0;

/// Space that an object takes beside its content.
const OBJECT_BYTES: u64 = 256;

impl Object {
    /// 0 for a missing object, whatever it was.
    pub(super) fn version_now(&self) -> Version {
        match self.exists {
            true => self.version,
            false => Version(0),
        }
    }

    /// Guards hold in the order given, or the first that does not is the error.
    pub(super) fn check(&self, guards: &[Guard]) -> Result<(), Error> {
        guards.iter().try_for_each(|guard| self.check_one(guard))
    }

    fn check_one(&self, guard: &Guard) -> Result<(), Error> {
        let holds = match guard {
            Guard::Absent if self.exists => return Err(failed(ErrorKind::AlreadyExists, guard)),
            Guard::Absent => true,
            Guard::XattrAtMost { name, value } => match self.xattrs.get(name) {
                None => true,
                Some(stored) => <[u8; 8]>::try_from(&stored[..])
                    .is_ok_and(|bytes| u64::from_be_bytes(bytes) <= *value),
            },
            Guard::BytesAre { .. }
            | Guard::Exists
            | Guard::OmapIs { .. }
            | Guard::VersionIs(_)
            | Guard::XattrIs { .. }
                if !self.exists =>
            {
                return Err(failed(ErrorKind::NotFound, guard));
            }
            Guard::BytesAre { offset, data } => {
                let stored = self.data.read(*offset, data.len() as u64);
                if let Some(at) = (0..data.len()).find(|at| stored[*at] != data[*at]) {
                    return Err(Error::new(ErrorKind::GuardFailed, "comparing bytes")
                        .with_mismatch_offset(offset + at as u64));
                }
                true
            }
            Guard::Exists => true,
            Guard::OmapIs { key, value } => self.omap.entries.get(key) == value.as_ref(),
            Guard::VersionIs(version) => self.version == *version,
            Guard::XattrIs { name, value } => self.xattrs.get(name) == Some(value),
        };
        if holds {
            return Ok(());
        }
        Err(failed(ErrorKind::GuardFailed, guard))
    }

    /// The state changes only if this is `Ok`; otherwise the caller restores it.
    pub(super) fn apply(
        &mut self,
        step: &WriteStep,
        foreign: &mut impl Iterator<Item = Foreign>,
    ) -> Result<Touched, Error> {
        let size = self.data.size();
        match step {
            WriteStep::Append { data } => return Ok(self.put(size, &data.to_bytes())),
            WriteStep::CloneRange { offset, .. } => {
                if let Some(Foreign::Bytes(bytes)) = foreign.next() {
                    return Ok(self.put(*offset, &bytes));
                }
            }
            WriteStep::Create => self.exists = true,
            WriteStep::OmapRemove { keys } => {
                self.need("removing keys")?;
                keys.iter().for_each(|key| self.omap.set(key.clone(), None));
            }
            WriteStep::OmapRemoveRange { start, end } => {
                self.need("removing a range of keys")?;
                for key in self.omap.keys(start, Some(end)) {
                    self.omap.set(key, None);
                }
            }
            WriteStep::OmapSet { entries } => {
                self.exists = true;
                for (key, value) in entries {
                    self.omap.set(key.clone(), Some(value.clone()));
                }
            }
            WriteStep::Remove => {
                self.need("removing an object")?;
                self.become_state(Self::default());
                return Ok(EVERYTHING);
            }
            WriteStep::Replace { data } => {
                self.data.truncate(0);
                self.put(0, &data.to_bytes());
                return Ok(EVERYTHING);
            }
            WriteStep::Rollback { .. } => {
                if let Some(Foreign::State(state)) = foreign.next() {
                    self.become_state(*state);
                }
                return Ok(EVERYTHING);
            }
            WriteStep::Truncate { size: new_size } if self.exists => {
                self.data.truncate(*new_size);
                return Ok(size.min(*new_size)..u64::MAX);
            }
            WriteStep::Write { offset, data } => return Ok(self.put(*offset, &data.to_bytes())),
            WriteStep::XattrRemove { name } => {
                self.need("removing an attribute")?;
                self.xattrs.remove(name);
            }
            WriteStep::XattrSet { name, value } => {
                self.exists = true;
                self.xattrs.insert(*name, value.clone());
            }
            WriteStep::Zero { offset, length } => {
                self.data.zero(*offset, *length);
                return Ok(*offset..offset.saturating_add(*length));
            }
            WriteStep::Truncate { .. } => {}
        }
        Ok(NOTHING)
    }

    /// The answer to one question; of a missing object, as if it were empty.
    pub(super) fn answer(&self, step: &ReadStep) -> ReadResult {
        match step {
            ReadStep::Extents { offset, length } => {
                ReadResult::Extents(self.data.extents(*offset, *length))
            }
            ReadStep::OmapGet { keys } => {
                let values = keys.iter().map(|key| self.omap.entries.get(key).cloned());
                ReadResult::OmapValues(values.collect())
            }
            ReadStep::OmapScan {
                start,
                end,
                keys_only,
                count_max,
            } => {
                let mut entries = self.omap.range(start, end.as_ref());
                let page = entries.by_ref().take(*count_max as usize);
                let page = page.map(|(key, value)| match keys_only {
                    true => (key.clone(), Bytes::new()),
                    false => (key.clone(), value.clone()),
                });
                ReadResult::OmapPage(OmapPage {
                    entries: page.collect(),
                    more: entries.next().is_some(),
                })
            }
            ReadStep::Stat => ReadResult::Stat {
                size: self.data.size(),
            },
            ReadStep::Xattr { name } => ReadResult::Xattr(self.xattrs.get(name).cloned()),
        }
    }

    pub(super) fn bytes_used(&self) -> u64 {
        let xattrs = self.xattrs.iter();
        let xattr_bytes: usize = xattrs.map(|(name, v)| name.as_str().len() + v.len()).sum();
        let content = self.data.bytes_used() + xattr_bytes as u64 + self.omap.bytes;
        if self.exists {
            OBJECT_BYTES + content
        } else {
            0
        }
    }

    /// All but the omap, whose changes undo themselves; cheap.
    pub(super) fn without_omap(&self) -> Self {
        Self {
            exists: self.exists,
            version: self.version,
            data: self.data.clone(),
            xattrs: self.xattrs.clone(),
            omap: Omap::default(),
        }
    }

    /// The changes since the last `commit` or `revert` are final.
    pub(super) fn commit(&mut self) {
        self.omap.undo.clear();
    }

    /// Takes back the changes since the last `commit` or `revert`; `before` is `without_omap` of
    /// that time.
    pub(super) fn revert(&mut self, before: Self) {
        let mut omap = std::mem::take(&mut self.omap);
        omap.revert();
        *self = Self { omap, ..before };
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Touched {
        let size = self.data.size();
        self.exists = true;
        self.data.write(offset, bytes);
        offset.min(size)..offset + bytes.len() as u64
    }

    fn become_state(&mut self, state: Self) {
        for key in self.omap.keys(&Bytes::new(), None) {
            self.omap.set(key, None);
        }
        for (key, value) in state.omap.entries {
            self.omap.set(key, Some(value));
        }
        self.exists = state.exists;
        self.data = state.data;
        self.xattrs = state.xattrs;
    }

    fn need(&self, what: &str) -> Result<(), Error> {
        match self.exists {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotFound, what)),
        }
    }
}

/// Keys and values with a log of what they were, since a copy of a large map costs too much.
#[derive(Clone, Debug, Default)]
struct Omap {
    entries: BTreeMap<Bytes, Bytes>,
    /// Of all keys and values.
    bytes: u64,
    undo: Vec<(Bytes, Option<Bytes>)>,
}

impl Omap {
    fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        let old = self.put(key.clone(), value);
        self.undo.push((key, old));
    }

    fn revert(&mut self) {
        while let Some((key, old)) = self.undo.pop() {
            self.put(key, old);
        }
    }

    fn put(&mut self, key: Bytes, value: Option<Bytes>) -> Option<Bytes> {
        let key_bytes = key.len();
        let new_bytes = value.as_ref().map_or(0, |new| key_bytes + new.len());
        let old = match value {
            Some(value) => self.entries.insert(key, value),
            None => self.entries.remove(&key),
        };
        let old_bytes = old.as_ref().map_or(0, |old| key_bytes + old.len());
        self.bytes = self.bytes + new_bytes as u64 - old_bytes as u64;
        old
    }

    /// An end before the start is an empty range.
    fn range(&self, start: &Bytes, end: Option<&Bytes>) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        let end = match end {
            Some(end) => Bound::Excluded(end.max(start)),
            None => Bound::Unbounded,
        };
        self.entries
            .range::<Bytes, _>((Bound::Included(start), end))
    }

    fn keys(&self, start: &Bytes, end: Option<&Bytes>) -> Vec<Bytes> {
        self.range(start, end).map(|(key, _)| key.clone()).collect()
    }
}

fn failed(kind: ErrorKind, guard: &Guard) -> Error {
    let name = match guard {
        Guard::Absent => "Absent",
        Guard::BytesAre { .. } => "BytesAre",
        Guard::Exists => "Exists",
        Guard::OmapIs { .. } => "OmapIs",
        Guard::VersionIs(_) => "VersionIs",
        Guard::XattrAtMost { .. } => "XattrAtMost",
        Guard::XattrIs { .. } => "XattrIs",
    };
    Error::new(kind, format!("checking guard {name}"))
}
