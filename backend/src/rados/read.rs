//! Reading: questions of one operation as one operation of the cluster.

use std::ffi::CString;
use std::sync::Arc;

use bytes::Bytes;

use super::code::NOT_FOUND;
use super::connect::text;
use super::flow::Kind;
use super::keys;
use super::librados::View;
use super::librados::{AT_LEAST, Answers, Code, EQUAL, IoCtx, Pairs, Read, ReadOp as Question};
use super::plan::{self, Check, Facts};
use super::session::{Attempt, Session, object_text};
use crate::engine::admission;
use crate::error::{Error, ErrorKind};
use crate::limits::OBJECT_BYTES_MAX;
use crate::object::{
    Extent, Guard, ObjectId, OmapPage, ReadOp, ReadOutput, ReadResult, ReadStep, Version,
};

/// What an entry of a scan is taken for before it is known.
const ENTRY_BYTES: u64 = 1_024;

/// What a read keeps beside its data.
const READ_BYTES: u64 = 4_096;

/// A list of guards and questions that owns its texts.
#[derive(Debug, Default)]
pub(super) struct Questions {
    list: Vec<Owned>,
    /// Bytes that the answers may take.
    bytes: u64,
}

#[derive(Debug)]
enum Owned {
    Guard(Check),
    Stat,
    Bytes(u64, usize),
    Xattrs,
    OmapGet(Vec<Vec<u8>>),
    OmapScan(CString, CString, u64),
    OmapKeys(CString, u64),
}

/// The answer of the cluster: the version, or the error; and the slots.
type Answered = (Result<u64, Code>, Answers);

impl Questions {
    pub(super) fn of_guards(list: Vec<Check>) -> Self {
        let mut questions = Self::default();
        questions.list.push(Owned::Guard(Check::Exists));
        let others = list.into_iter().filter(|guard| *guard != Check::Exists);
        questions.list.extend(others.map(Owned::Guard));
        questions
    }

    fn ask(&mut self, question: Owned, bytes: u64) -> usize {
        self.bytes += bytes;
        self.list.push(question);
        self.list.len() - 1
    }

    pub(super) fn stat(&mut self) -> usize {
        self.ask(Owned::Stat, 0)
    }

    pub(super) fn xattrs(&mut self) -> usize {
        self.ask(Owned::Xattrs, READ_BYTES)
    }

    /// `length` is not 0, which RADOS takes for "all".
    pub(super) fn bytes(&mut self, offset: u64, length: u64) -> usize {
        assert!(length > 0, "nothing is not asked for");
        let room = usize::try_from(length).expect("at most an object");
        self.ask(Owned::Bytes(offset, room), length)
    }

    pub(super) fn scan(&mut self, after: CString, prefix: CString, count: u32) -> usize {
        let count = u64::from(count);
        self.ask(Owned::OmapScan(after, prefix, count), count * ENTRY_BYTES)
    }

    /// The offset at which a comparison of bytes found the first difference.
    fn mismatch(&self, answers: &Answers) -> Option<u64> {
        self.list.iter().enumerate().find_map(|(slot, one)| {
            let Owned::Guard(Check::Bytes(offset, _)) = one else {
                return None;
            };
            Some(offset + Code(answers.code(slot)).mismatch()?)
        })
    }
}

impl Session {
    /// One operation on one version of the object.
    pub(super) async fn ask(
        &self,
        io: &Arc<IoCtx>,
        id: &ObjectId,
        questions: &Questions,
        attempt: &Attempt,
    ) -> Result<Answered, Error> {
        let object = object_text(id)?;
        let bytes = READ_BYTES + questions.bytes;
        let place = self.enter(id, Kind::Read, attempt, bytes).await?;
        let submitted = {
            let mut op = Question::new(io);
            for one in &questions.list {
                push(&mut op, one);
            }
            op.submit(io, &object, place)
        };
        let underway = submitted.map_err(|code| self.error(code, "reading", id))?;
        let done = underway.wait().await;
        let (answers, place) = done.cargo;
        drop(place);
        if done.result.is_err_and(Code::is_fenced) {
            self.fenced_by_another();
        }
        Ok((done.result.map(|()| done.version), answers))
    }

    /// Whether all guards hold: the version of an object that exists, `None` for a missing one.
    pub(super) async fn check(
        &self,
        io: &Arc<IoCtx>,
        id: &ObjectId,
        guards: &[Guard],
        attempt: &Attempt,
    ) -> Result<Option<u64>, Error> {
        let (list, absent) = plan::guards(guards);
        let questions = Questions::of_guards(list);
        let (result, answers) = self.ask(io, id, &questions, attempt).await?;
        match result {
            Ok(_) if absent => Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("checking that {id} does not exist"),
            )),
            Ok(version) => Ok(Some(version)),
            Err(NOT_FOUND) if plan::hold_on_missing(guards) => Ok(None),
            Err(code) => Err(self.guard_error(code, id, &questions, &answers)),
        }
    }

    fn guard_error(
        &self,
        code: Code,
        id: &ObjectId,
        questions: &Questions,
        answers: &Answers,
    ) -> Error {
        let error = self.error(code, "reading", id);
        match questions.mismatch(answers) {
            Some(offset) if code.mismatch().is_some() => error.with_mismatch_offset(offset),
            _ => error,
        }
    }

    pub(super) async fn read_now(
        &self,
        id: &ObjectId,
        op: &ReadOp,
        attempt: &Attempt,
    ) -> Result<ReadOutput, Error> {
        let limits = self.facts(&id.pool)?.limits;
        admission::check_read(op, &limits)?;
        let io = match op.at {
            Some(at) => self.context(&id.pool, View::At(at.0))?,
            None => self.head(&id.pool)?,
        };
        if op.guards.contains(&Guard::Absent) {
            let checked = self.check(&io, id, &op.guards, attempt).await;
            self.check_snapshot_read(id, op, attempt).await?;
            checked?;
            return Ok(ReadOutput {
                version: Version(0),
                results: op.steps.iter().map(of_nothing).collect(),
            });
        }
        let (guards, _) = plan::guards(&op.guards);
        let mut questions = Questions::of_guards(guards);
        let mut slots = Vec::with_capacity(op.steps.len());
        let mut xattrs = None;
        for step in &op.steps {
            slots.push(question(&mut questions, step, &mut xattrs)?);
        }
        let (result, mut answers) = self.ask(&io, id, &questions, attempt).await?;
        self.check_snapshot_read(id, op, attempt).await?;
        let version = match result {
            Ok(version) => Version(version),
            Err(code) => return Err(self.guard_error(code, id, &questions, &answers)),
        };
        let xattrs = xattrs.map(|slot| answers.xattrs(slot)).unwrap_or_default();
        let results = op.steps.iter().zip(slots);
        let results = results.map(|(step, slot)| result_of(step, slot, &mut answers, &xattrs));
        Ok(ReadOutput {
            version,
            results: results.collect(),
        })
    }

    /// After a read at a snapshot: it was not removed before.
    async fn check_snapshot_read(
        &self,
        id: &ObjectId,
        op: &ReadOp,
        attempt: &Attempt,
    ) -> Result<(), Error> {
        match op.at {
            Some(at) => self.check_snapshot(&id.pool, at, attempt).await,
            None => Ok(()),
        }
    }

    /// Size, version and perhaps names of attributes; `None` if there is no such object.
    pub(super) async fn facts_of(
        &self,
        io: &Arc<IoCtx>,
        id: &ObjectId,
        with_xattrs: bool,
        attempt: &Attempt,
    ) -> Result<Option<Facts>, Error> {
        let mut questions = Questions::default();
        let stat = questions.stat();
        let xattrs = with_xattrs.then(|| questions.xattrs());
        let (result, mut answers) = self.ask(io, id, &questions, attempt).await?;
        match result {
            Ok(version) => {
                let xattrs = xattrs.map(|slot| answers.xattrs(slot)).unwrap_or_default();
                Ok(Some(Facts {
                    size: answers.size(stat),
                    version,
                    xattrs: xattrs.into_iter().map(|(name, _)| name).collect(),
                }))
            }
            Err(NOT_FOUND) => Ok(None),
            Err(code) => Err(self.error(code, "reading", id)),
        }
    }
}

fn push(op: &mut Question, one: &Owned) {
    match one {
        Owned::Guard(guard) => push_guard(op, guard),
        Owned::Stat => op.push(&Read::Stat),
        Owned::Bytes(offset, length) => op.push(&Read::Bytes(*offset, *length)),
        Owned::Xattrs => op.push(&Read::Xattrs),
        Owned::OmapGet(keys) => {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            op.push(&Read::OmapGet(&keys));
        }
        Owned::OmapScan(after, prefix, count) => op.push(&Read::OmapScan(after, prefix, *count)),
        Owned::OmapKeys(after, count) => op.push(&Read::OmapKeys(after, *count)),
    }
}

fn push_guard(op: &mut Question, guard: &Check) {
    let name = |name: &str| text(name).expect("names of attributes hold no NUL");
    match guard {
        Check::Bytes(offset, data) => op.push(&Read::Compare(*offset, data)),
        Check::Exists => op.push(&Read::AssertExists),
        Check::Omap(key, value) => op.push(&Read::CompareOmap(key, value)),
        Check::Version(version) => op.push(&Read::AssertVersion(*version)),
        Check::Xattr(attribute, value) => {
            op.push(&Read::CompareXattr(&name(attribute), EQUAL, value));
        }
        Check::XattrAtMost(attribute, value) => {
            op.push(&Read::CompareXattr(&name(attribute), AT_LEAST, value));
        }
    }
}

/// Asks what a step asks; the slot of its answer, if it needs one.
fn question(
    questions: &mut Questions,
    step: &ReadStep,
    xattrs: &mut Option<usize>,
) -> Result<usize, Error> {
    Ok(match step {
        ReadStep::Stat => questions.stat(),
        ReadStep::Xattr { .. } => *xattrs.get_or_insert_with(|| questions.xattrs()),
        ReadStep::Extents { offset, length } => {
            let length = *(length.min(&OBJECT_BYTES_MAX.saturating_sub(*offset)));
            match length {
                // Answered by nothing.
                0 => usize::MAX,
                _ => questions.bytes(*offset, length),
            }
        }
        ReadStep::OmapGet { keys } => {
            let keys: Vec<Vec<u8>> = keys.iter().map(|key| keys::encode(key)).collect();
            let bytes = keys.len() as u64 * ENTRY_BYTES;
            questions.ask(Owned::OmapGet(keys), bytes)
        }
        ReadStep::OmapScan {
            start,
            end,
            keys_only,
            count_max,
        } => {
            let after = cstring(keys::just_before(start))?;
            let count = count_max.saturating_add(1);
            if *keys_only {
                let count = u64::from(count);
                questions.ask(Owned::OmapKeys(after, count), count * ENTRY_BYTES / 8)
            } else {
                let prefix = keys::shared_prefix(start, end.as_deref());
                questions.scan(after, cstring(prefix)?, count)
            }
        }
    })
}

fn cstring(bytes: Vec<u8>) -> Result<CString, Error> {
    CString::new(bytes)
        .map_err(|_| Error::new(ErrorKind::Unsupported, "a key that could not be encoded"))
}

fn of_nothing(step: &ReadStep) -> ReadResult {
    match step {
        ReadStep::Stat => ReadResult::Stat { size: 0 },
        ReadStep::Xattr { .. } => ReadResult::Xattr(None),
        ReadStep::Extents { .. } => ReadResult::Extents(Vec::new()),
        ReadStep::OmapGet { keys } => ReadResult::OmapValues(vec![None; keys.len()]),
        ReadStep::OmapScan { .. } => ReadResult::OmapPage(OmapPage::default()),
    }
}

fn result_of(step: &ReadStep, slot: usize, answers: &mut Answers, xattrs: &Pairs) -> ReadResult {
    match step {
        ReadStep::Stat => ReadResult::Stat {
            size: answers.size(slot),
        },
        ReadStep::Xattr { name } => {
            let found = xattrs
                .iter()
                .find(|(one, _)| one == name.as_str().as_bytes());
            ReadResult::Xattr(found.map(|(_, value)| Bytes::copy_from_slice(value)))
        }
        ReadStep::Extents { .. } if slot == usize::MAX => ReadResult::Extents(Vec::new()),
        ReadStep::Extents { offset, .. } => {
            let data = answers.take_bytes(slot);
            let extent = Extent {
                offset: *offset,
                data,
            };
            let extents = Some(extent).filter(|extent| !extent.data.is_empty());
            ReadResult::Extents(extents.into_iter().collect())
        }
        ReadStep::OmapGet { keys } => {
            let found: std::collections::HashMap<Vec<u8>, Vec<u8>> =
                answers.omap(slot).into_iter().collect();
            let value = |key: &Bytes| found.get(&keys::encode(key));
            let values = keys
                .iter()
                .map(|key| value(key).map(|v| Bytes::copy_from_slice(v)));
            ReadResult::OmapValues(values.collect())
        }
        ReadStep::OmapScan {
            start,
            end,
            count_max,
            ..
        } => ReadResult::OmapPage(page(
            answers.omap(slot),
            answers.more(slot),
            start,
            end.as_ref(),
            *count_max,
        )),
    }
}

/// The cluster was asked for one entry more than the page may hold, so that `more` is true exactly
/// if a key of the range remains.
fn page(
    found: Pairs,
    mut truncated: bool,
    start: &Bytes,
    end: Option<&Bytes>,
    count_max: u32,
) -> OmapPage {
    let mut entries = Vec::with_capacity(found.len());
    for (stored, value) in found {
        // A key that nobody of ours could have set is not ours to show.
        let Some(key) = keys::decode(&stored).map(Bytes::from) else {
            continue;
        };
        if key < *start {
            continue;
        }
        if end.is_some_and(|end| key >= *end) {
            truncated = false;
            break;
        }
        entries.push((key, Bytes::from(value)));
    }
    let room = usize::try_from(count_max).expect("32 bits fit");
    let too_many = entries.len() > room;
    entries.truncate(room);
    if !too_many && truncated && end.is_some() && entries.len() > 1 {
        // The cluster gave less than asked. Whether the next key is in the range is not known, but
        // the last one is.
        entries.pop();
    }
    OmapPage {
        entries,
        more: too_many || truncated,
    }
}
