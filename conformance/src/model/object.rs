//! A naive model of a pool: plain vectors and maps, whole copies for snapshots and for undoing.

use std::collections::BTreeMap;

use portico_backend::error::ErrorKind;
use portico_backend::object::{
    Guard, LockKind, LockRequest, ReadOp, ReadResult, ReadStep, SessionId, SnapId, Version,
    WriteOp, WriteStep,
};

/// One object, without any thought of space.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Thing {
    pub bytes: Vec<u8>,
    pub attributes: BTreeMap<String, Vec<u8>>,
    pub map: BTreeMap<Vec<u8>, Vec<u8>>,
    pub version: u64,
}

/// Who holds a lock: session, cookie and kind.
pub type Holder = (SessionId, Vec<u8>, LockKind);

type Things = BTreeMap<String, Thing>;

/// A pool whose writes all carry its whole snapshot context.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub things: Things,
    pub snapshots: BTreeMap<u64, Things>,
    pub locks: BTreeMap<(String, String), Vec<Holder>>,
}

/// Why an operation must fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refusal {
    pub kind: ErrorKind,
    pub mismatch_offset: Option<u64>,
}

impl From<ErrorKind> for Refusal {
    fn from(kind: ErrorKind) -> Self {
        Self {
            kind,
            mismatch_offset: None,
        }
    }
}

impl Model {
    /// Changes the object; its version is noted by `written`.
    ///
    /// # Errors
    /// The refusal that an engine must answer.
    pub fn write(&mut self, name: &str, op: &WriteOp) -> Result<(), Refusal> {
        let before = self.things.get(name);
        guards(before, &op.guards)?;
        let mut after = before.cloned();
        for step in &op.steps {
            after = self.step(name, after, step)?;
        }
        match after {
            Some(thing) => {
                self.things.insert(name.to_owned(), thing);
            }
            None => {
                self.things.remove(name);
                self.locks.retain(|(object, _), _| object != name);
            }
        }
        Ok(())
    }

    pub fn written(&mut self, name: &str, version: Version) {
        if let Some(thing) = self.things.get_mut(name) {
            thing.version = version.0;
        }
    }

    /// A lock may raise the version of an object, and of snapshots that still share its state.
    pub fn locked(&mut self, name: &str, version: Version) {
        let Some(thing) = self.things.get_mut(name) else {
            return;
        };
        let before = std::mem::replace(&mut thing.version, version.0);
        for things in self.snapshots.values_mut() {
            if let Some(kept) = things.get_mut(name).filter(|kept| kept.version == before) {
                kept.version = version.0;
            }
        }
    }

    /// Compares an engine's answers with what they must be; `Err` says what differs.
    ///
    /// # Errors
    /// The text for the one who reads the report.
    pub fn compare(&self, name: &str, op: &ReadOp, results: &[ReadResult]) -> Result<(), String> {
        let nothing = Thing::default();
        let thing = self.at(name, op.at).ok().flatten().unwrap_or(&nothing);
        if results.len() != op.steps.len() {
            return Err(format!("{} results", results.len()));
        }
        for (step, result) in op.steps.iter().zip(results) {
            compare_step(thing, step, result)?;
        }
        Ok(())
    }

    /// # Errors
    /// The refusal that an engine must answer to this question.
    pub fn read(&self, name: &str, op: &ReadOp) -> Result<u64, Refusal> {
        let thing = self.at(name, op.at)?;
        guards(thing, &op.guards)?;
        match thing {
            Some(thing) => Ok(thing.version),
            None if op.guards.contains(&Guard::Absent) => Ok(0),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// # Errors
    /// `NotFound` if there is no such snapshot.
    pub fn at(&self, name: &str, at: Option<SnapId>) -> Result<Option<&Thing>, Refusal> {
        let things = match at {
            None => &self.things,
            Some(id) => self.snapshots.get(&id.0).ok_or(ErrorKind::NotFound)?,
        };
        Ok(things.get(name))
    }

    /// # Errors
    /// As an engine must answer.
    pub fn lock(
        &mut self,
        name: &str,
        session: &SessionId,
        request: &LockRequest,
    ) -> Result<(), ErrorKind> {
        if !self.things.contains_key(name) {
            return Err(ErrorKind::NotFound);
        }
        let key = (name.to_owned(), request.name.0.to_owned());
        let holders = self.locks.entry(key).or_default();
        let mine = |holder: &Holder| holder.0 == *session && holder.1 == request.cookie;
        let others: Vec<Holder> = holders.iter().filter(|one| !mine(one)).cloned().collect();
        if others.len() < holders.len() && !request.renew {
            return Err(ErrorKind::Locked);
        }
        let shared = request.kind == LockKind::Shared;
        if others
            .iter()
            .any(|other| !shared || other.2 == LockKind::Exclusive)
        {
            return Err(ErrorKind::Locked);
        }
        *holders = others;
        holders.push((session.clone(), request.cookie.to_vec(), request.kind));
        Ok(())
    }

    /// # Errors
    /// As an engine must answer.
    pub fn unlock(
        &mut self,
        name: &str,
        lock: &str,
        session: &SessionId,
        cookie: &[u8],
    ) -> Result<(), ErrorKind> {
        let key = (name.to_owned(), lock.to_owned());
        let holders = self.locks.get_mut(&key).ok_or(ErrorKind::NotFound)?;
        let at = holders
            .iter()
            .position(|one| one.0 == *session && one.1 == cookie);
        holders.remove(at.ok_or(ErrorKind::NotFound)?);
        Ok(())
    }

    /// The bytes that a clone copies: of the source as it was before the operation.
    fn copied(&self, step: &WriteStep) -> Result<Vec<u8>, Refusal> {
        let WriteStep::CloneRange {
            source,
            source_offset,
            length,
            ..
        } = step
        else {
            return Ok(Vec::new());
        };
        let source = self.things.get(&source.name.to_string());
        let source = source.ok_or(ErrorKind::NotFound)?;
        let range = *source_offset..source_offset + length;
        Ok(range.map(|at| source.byte(at)).collect())
    }

    fn step(
        &self,
        name: &str,
        thing: Option<Thing>,
        step: &WriteStep,
    ) -> Result<Option<Thing>, Refusal> {
        let made = || thing.clone().unwrap_or_default();
        let there = || thing.clone().ok_or(Refusal::from(ErrorKind::NotFound));
        Ok(match step {
            WriteStep::Create => Some(made()),
            WriteStep::Append { data } => Some(made().appended(&data.to_bytes())),
            WriteStep::Write { offset, data } => Some(made().written(*offset, &data.to_bytes())),
            WriteStep::Replace { data } => {
                let mut new = made();
                new.bytes = data.to_bytes().to_vec();
                Some(new)
            }
            WriteStep::CloneRange { offset, .. } => {
                Some(made().written(*offset, &self.copied(step)?))
            }
            WriteStep::XattrSet { name, value } => {
                let mut new = made();
                new.attributes
                    .insert(name.as_str().to_owned(), value.to_vec());
                Some(new)
            }
            WriteStep::OmapSet { entries } => {
                let mut new = made();
                let entries = entries
                    .iter()
                    .map(|(key, value)| (key.to_vec(), value.to_vec()));
                new.map.extend(entries);
                Some(new)
            }
            WriteStep::Rollback { to } => self.at(name, Some(*to))?.cloned(),
            WriteStep::Truncate { size } => thing.map(|mut old| {
                old.bytes.resize(place(*size), 0);
                old
            }),
            WriteStep::Zero { offset, length } => thing.map(|mut old| {
                let range = old
                    .bytes
                    .iter_mut()
                    .skip(place(*offset))
                    .take(place(*length));
                range.for_each(|byte| *byte = 0);
                old
            }),
            WriteStep::Remove => there().map(|_| None)?,
            WriteStep::XattrRemove { name } => {
                let mut new = there()?;
                new.attributes.remove(name.as_str());
                Some(new)
            }
            WriteStep::OmapRemove { keys } => {
                let mut new = there()?;
                new.map
                    .retain(|key, _| !keys.iter().any(|removed| removed == key));
                Some(new)
            }
            WriteStep::OmapRemoveRange { start, end } => {
                let mut new = there()?;
                new.map
                    .retain(|key, _| key < &start.to_vec() || key >= &end.to_vec());
                Some(new)
            }
        })
    }
}

impl Thing {
    fn appended(self, data: &[u8]) -> Self {
        let end = self.bytes.len() as u64;
        self.written(end, data)
    }

    fn written(mut self, offset: u64, data: &[u8]) -> Self {
        if data.is_empty() {
            return self;
        }
        let end = place(offset) + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes.splice(place(offset)..end, data.iter().copied());
        self
    }

    fn byte(&self, at: u64) -> u8 {
        self.bytes.get(place(at)).copied().unwrap_or(0)
    }
}

fn guards(thing: Option<&Thing>, guards: &[Guard]) -> Result<(), Refusal> {
    for guard in guards {
        match (guard, thing) {
            (Guard::Absent, Some(_)) => return Err(ErrorKind::AlreadyExists.into()),
            (Guard::Absent | Guard::XattrAtMost { .. }, None) => {}
            (_, None) => return Err(ErrorKind::NotFound.into()),
            (guard, Some(thing)) => compare_guard(thing, guard)?,
        }
    }
    Ok(())
}

fn compare_guard(thing: &Thing, guard: &Guard) -> Result<(), Refusal> {
    let holds = match guard {
        Guard::Absent => false,
        Guard::Exists => true,
        Guard::VersionIs(version) => thing.version == version.0,
        Guard::OmapIs { key, value } => {
            thing.map.get(&key.to_vec()) == value.as_ref().map(|value| value.to_vec()).as_ref()
        }
        Guard::XattrIs { name, value } => {
            thing.attributes.get(name.as_str()) == Some(&value.to_vec())
        }
        Guard::XattrAtMost { name, value } => {
            let stored = thing.attributes.get(name.as_str());
            stored.is_none_or(|stored| stored.as_slice() <= value.to_be_bytes().as_slice())
        }
        Guard::BytesAre { offset, data } => {
            let differs = |at: &u64| thing.byte(offset + at) != data[place(*at)];
            if let Some(at) = (0..data.len() as u64).find(differs) {
                return Err(Refusal {
                    kind: ErrorKind::GuardFailed,
                    mismatch_offset: Some(offset + at),
                });
            }
            true
        }
    };
    match holds {
        true => Ok(()),
        false => Err(ErrorKind::GuardFailed.into()),
    }
}

fn compare_step(thing: &Thing, step: &ReadStep, result: &ReadResult) -> Result<(), String> {
    let same = match (step, result) {
        (ReadStep::Stat, ReadResult::Stat { size }) => *size == thing.bytes.len() as u64,
        (ReadStep::Xattr { name }, ReadResult::Xattr(value)) => {
            let value = value.as_ref().map(|value| value.to_vec());
            thing.attributes.get(name.as_str()) == value.as_ref()
        }
        (ReadStep::OmapGet { keys }, ReadResult::OmapValues(values)) => {
            let expected = keys.iter().map(|key| thing.map.get(&key.to_vec()).cloned());
            expected.eq(values
                .iter()
                .map(|value| value.as_ref().map(|value| value.to_vec())))
        }
        (ReadStep::Extents { offset, length }, ReadResult::Extents(extents)) => {
            let end = offset.saturating_add(*length).min(thing.bytes.len() as u64);
            let mut seen = vec![0; place(end.saturating_sub(*offset))];
            for extent in extents {
                let at = place(extent.offset - offset);
                seen[at..at + extent.data.len()].copy_from_slice(&extent.data);
            }
            (*offset..end)
                .zip(seen)
                .all(|(at, byte)| thing.byte(at) == byte)
        }
        (
            ReadStep::OmapScan {
                start,
                end,
                keys_only,
                count_max,
            },
            ReadResult::OmapPage(page),
        ) => {
            let within = |key: &[u8]| key >= start && end.as_ref().is_none_or(|end| key < end);
            let all: Vec<(&Vec<u8>, &Vec<u8>)> =
                thing.map.iter().filter(|(key, _)| within(key)).collect();
            let count = page.entries.len();
            let hidden = Vec::new();
            let shown = all.iter().map(|(key, value)| match keys_only {
                true => (*key, &hidden),
                false => (*key, *value),
            });
            let begins = shown.zip(&page.entries).all(|((key, value), entry)| {
                entry.0 == key.as_slice() && entry.1 == value.as_slice()
            });
            count <= all.len().min(*count_max as usize)
                && begins
                && page.more == (count < all.len())
                && (count > 0 || all.is_empty() || *count_max == 0)
        }
        _ => false,
    };
    match same {
        true => Ok(()),
        false => Err(format!("{step:?} gives {result:?}")),
    }
}

fn place(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
