//! Writing: an operation of the object model as one operation of the cluster.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::code::{EXISTS, NOT_FOUND};
use super::connect::text;
use super::flow::Kind;
use super::librados::{
    AT_LEAST, Code, EQUAL, FULL_FORCE, FULL_TRY, IoCtx, View, Write, WriteOp as Change,
};
use super::plan::{self, Basis, Check, Facts, Planned, Sources};
use super::read::Questions;
use super::session::{Attempt, Session, object_text};
use crate::engine::admission;
use crate::error::{Error, ErrorKind};
use crate::limits::OBJECT_BYTES_MAX;
use crate::object::{Guard, ObjectId, SnapId, Version, WriteOp, WriteStep};

/// How often an operation is planned anew because the object was not as it was planned on. Each
/// time another write of the object came first.
const PLANS_MAX: usize = 64;

/// What a write keeps beside its payload.
const WRITE_BYTES: u64 = 4_096;

/// A write and where it goes.
#[derive(Debug)]
struct Job<'a> {
    io: Arc<IoCtx>,
    id: &'a ObjectId,
    op: &'a WriteOp,
    attempt: &'a Attempt,
}

/// The outcome of one plan.
enum Tried {
    Done(Version),
    /// The object is not as assumed, and nothing happened. The next plan assumes this.
    Stale(Assumed),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Assumed {
    Nothing,
    Missing,
}

impl Session {
    pub(super) async fn write_now(
        &self,
        id: &ObjectId,
        op: &WriteOp,
        attempt: &Attempt,
    ) -> Result<Version, Error> {
        let limits = self.facts(&id.pool)?.limits;
        admission::check_write(id, op, &limits)?;
        let snapshots = op.snapshots.snapshots.iter().map(|one| one.0).collect();
        let io = self.context(&id.pool, View::Now(op.snapshots.sequence, snapshots))?;
        let job = Job {
            io,
            id,
            op,
            attempt,
        };
        let sources = match self.sources(id, op, attempt).await {
            Ok(sources) => sources,
            Err(error) => {
                // The guards come first.
                self.check_job(&job).await?;
                return Err(error);
            }
        };
        let mut assumed = match op.guards.contains(&Guard::Absent) {
            true => Assumed::Missing,
            false => Assumed::Nothing,
        };
        for _ in 0..PLANS_MAX {
            match self.try_plan(&job, &sources, assumed).await? {
                Tried::Done(version) => return Ok(version),
                Tried::Stale(next) => assumed = next,
            }
        }
        let text = format!("writing {id}: others changed it {PLANS_MAX} times meanwhile");
        Err(Error::new(ErrorKind::Busy, text))
    }

    async fn check_job(&self, job: &Job<'_>) -> Result<Option<u64>, Error> {
        let guards = &job.op.guards;
        self.check(&job.io, job.id, guards, job.attempt).await
    }

    async fn try_plan(
        &self,
        job: &Job<'_>,
        sources: &Sources,
        assumed: Assumed,
    ) -> Result<Tried, Error> {
        let Job {
            io,
            id,
            op,
            attempt,
        } = job;
        let rolls_back = |step: &WriteStep| matches!(step, WriteStep::Rollback { .. });
        let facts = match plan::needs_facts(op) {
            true => {
                let with_xattrs = op.steps.iter().any(rolls_back);
                Some(self.facts_of(io, id, with_xattrs, attempt).await?)
            }
            false => None,
        };
        let basis = match (&facts, assumed) {
            (Some(Some(facts)), _) => Basis::Present(facts),
            (Some(None), _) | (None, Assumed::Missing) => Basis::Missing,
            (None, Assumed::Nothing) => Basis::Blind,
        };
        let list = match plan::steps(op, basis, sources) {
            Ok(list) => list,
            Err(error) => {
                let version = self.check_job(job).await?;
                let stale = matches!(basis, Basis::Missing) && version.is_some();
                return match stale {
                    true => Ok(Tried::Stale(Assumed::Nothing)),
                    false => Err(error),
                };
            }
        };
        if list.is_empty() {
            let version = self.check_job(job).await?;
            return Ok(Tried::Done(Version(version.unwrap_or_default())));
        }
        let Some(list) = guarded(&op.guards, basis, list) else {
            // Guards that never hold on what there is say how.
            self.check_job(job).await?;
            return Ok(Tried::Stale(Assumed::Nothing));
        };
        let flags = match op.is_forced() {
            true => FULL_TRY | FULL_FORCE,
            false => FULL_TRY,
        };
        match self.submit(io, id, list, flags, attempt).await? {
            Ok(version) => Ok(Tried::Done(Version(version))),
            Err(code) => self.failed(job, basis, code).await,
        }
    }

    /// What an error of the cluster means for a plan.
    async fn failed(&self, job: &Job<'_>, basis: Basis<'_>, code: Code) -> Result<Tried, Error> {
        let Job { id, op, .. } = job;
        let of_version = |guard: &Guard| matches!(guard, Guard::VersionIs(_));
        match (basis, code) {
            (Basis::Missing, EXISTS) => {
                // Perhaps a guard says so; otherwise it was made meanwhile.
                if op.guards.contains(&Guard::Absent) {
                    self.check_job(job).await?;
                    return Ok(Tried::Stale(Assumed::Missing));
                }
                return Ok(Tried::Stale(Assumed::Nothing));
            }
            (Basis::Blind, NOT_FOUND)
                if !op.guards.is_empty() && plan::hold_on_missing(&op.guards) =>
            {
                return Ok(Tried::Stale(Assumed::Missing));
            }
            (Basis::Present(_), NOT_FOUND) => return Ok(Tried::Stale(Assumed::Nothing)),
            (Basis::Present(_), code)
                if code.is_other_version() && !op.guards.iter().any(of_version) =>
            {
                return Ok(Tried::Stale(Assumed::Nothing));
            }
            _ => {}
        }
        let error = self.error(code, "writing", id);
        let Some(offset) = code.mismatch() else {
            return Err(error);
        };
        let (checks, _) = plan::guards(&op.guards);
        let compared = checks.iter().filter_map(|check| {
            let Check::Bytes(start, _) = check else {
                return None;
            };
            Some(*start)
        });
        let mut compared = compared.fuse();
        Err(match (compared.next(), compared.next()) {
            (Some(start), None) => error.with_mismatch_offset(start + offset),
            // The answer does not say which; the object may have changed since.
            _ => match self.check_job(job).await {
                Err(checked) if checked.kind() == ErrorKind::GuardFailed => checked,
                Ok(_) | Err(_) => error,
            },
        })
    }

    /// One operation, all or nothing.
    pub(super) async fn submit(
        &self,
        io: &Arc<IoCtx>,
        id: &ObjectId,
        list: Vec<Planned>,
        flags: i32,
        attempt: &Attempt,
    ) -> Result<Result<u64, Code>, Error> {
        let object = object_text(id)?;
        let bytes = WRITE_BYTES + list.iter().map(payload_bytes).sum::<u64>();
        let place = self.enter(id, Kind::Write, attempt, bytes).await?;
        let submitted = {
            let mut change = Change::new(io);
            for planned in &list {
                push(&mut change, planned)?;
            }
            change.submit(io, &object, flags, (list, place))
        };
        let underway = match submitted {
            Ok(underway) => underway,
            Err(code) => return Ok(Err(code)),
        };
        let done = underway.wait().await;
        Ok(done.result.map(|()| done.version))
    }

    /// Reads what steps copy from elsewhere.
    async fn sources(
        &self,
        id: &ObjectId,
        op: &WriteOp,
        attempt: &Attempt,
    ) -> Result<Sources, Error> {
        let mut sources = Sources::default();
        let mut copied = 0_u64;
        for step in &op.steps {
            if let WriteStep::CloneRange {
                source,
                source_offset,
                length,
                ..
            } = step
            {
                copied = copied.saturating_add(*length);
                if copied > self.facts(&id.pool)?.limits.op_bytes_max {
                    let text = format!("cloning {copied} bytes into {id} in one operation");
                    return Err(Error::new(ErrorKind::TooLarge, text));
                }
                let range = (*source_offset, *length);
                let bytes = self.range(source, range, attempt).await?;
                sources.ranges.push(bytes);
            } else if let WriteStep::Rollback { to } = step
                && !sources.snapshots.contains_key(to)
            {
                let kept = self.state_at(id, *to, attempt).await?;
                sources.snapshots.insert(*to, kept);
            }
        }
        Ok(sources)
    }

    /// The bytes of a range, with zeros behind the object's end.
    async fn range(
        &self,
        source: &ObjectId,
        (offset, length): (u64, u64),
        attempt: &Attempt,
    ) -> Result<Bytes, Error> {
        let io = self.head(&source.pool)?;
        let mut questions = Questions::of_guards(Vec::new());
        let room = length.min(OBJECT_BYTES_MAX.saturating_sub(offset));
        let slot = (room > 0).then(|| questions.bytes(offset, room));
        let (result, mut answers) = self.ask(&io, source, &questions, attempt).await?;
        result.map_err(|code| self.error(code, "cloning", source))?;
        let data = slot
            .map(|slot| answers.take_bytes(slot))
            .unwrap_or_default();
        let length = usize::try_from(length).expect("checked against the limits");
        if data.len() == length {
            return Ok(data);
        }
        let mut padded = BytesMut::from(&data[..]);
        padded.resize(length, 0);
        Ok(padded.freeze())
    }

    /// The whole of an object at a snapshot.
    async fn state_at(
        &self,
        id: &ObjectId,
        at: SnapId,
        attempt: &Attempt,
    ) -> Result<Option<plan::Kept>, Error> {
        let io = self.context(&id.pool, View::At(at.0))?;
        let state = self.kept(&io, id, attempt).await;
        self.check_snapshot(&id.pool, at, attempt).await?;
        state
    }
}

/// The whole list for a basis; `None` if the guards hold on no object of it.
fn guarded(guards: &[Guard], basis: Basis<'_>, steps: Vec<Planned>) -> Option<Vec<Planned>> {
    let (mut list, absent) = plan::guards(guards);
    match basis {
        // `steps` make sure that it is missing.
        Basis::Missing => return plan::hold_on_missing(guards).then_some(steps),
        Basis::Present(_) if absent => return None,
        Basis::Present(Facts { version, .. }) => {
            if !list.contains(&Check::Exists) {
                list.push(Check::Exists);
            }
            list.push(Check::Version(*version));
        }
        Basis::Blind => {}
    }
    let checks = list.into_iter().map(Planned::Check);
    Some(checks.chain(steps).collect())
}

fn payload_bytes(planned: &Planned) -> u64 {
    let bytes = match planned {
        Planned::Append(data)
        | Planned::Check(Check::Bytes(_, data))
        | Planned::SetXattr(_, data)
        | Planned::Write(_, data)
        | Planned::WriteFull(data) => data.len(),
        Planned::OmapSet(entries) => entries.iter().map(|(k, v)| k.len() + v.len()).sum(),
        Planned::OmapRemove(keys) => keys.iter().map(Vec::len).sum(),
        Planned::Check(_)
        | Planned::Create { .. }
        | Planned::Lock(..)
        | Planned::OmapClear
        | Planned::OmapRemoveRange(..)
        | Planned::Remove { .. }
        | Planned::RemoveXattr(_)
        | Planned::Truncate(_)
        | Planned::Zero(..) => 0,
    };
    bytes as u64
}

fn push(change: &mut Change, planned: &Planned) -> Result<(), Error> {
    match planned {
        Planned::Append(data) => change.push(&Write::Append(data)),
        Planned::Check(check) => push_check(change, check)?,
        Planned::Create { exclusive } => change.push(&Write::Create(*exclusive)),
        Planned::Lock(method, input) => {
            change.push(&Write::Execute(c"lock", &text(method)?, input));
        }
        Planned::OmapClear => change.push(&Write::OmapClear),
        Planned::OmapRemove(keys) => {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            change.push(&Write::OmapRemove(&keys));
        }
        Planned::OmapRemoveRange(start, end) => change.push(&Write::OmapRemoveRange(start, end)),
        Planned::OmapSet(entries) => {
            let keys: Vec<&[u8]> = entries.iter().map(|(key, _)| key.as_slice()).collect();
            let values: Vec<&[u8]> = entries.iter().map(|(_, value)| &value[..]).collect();
            change.push(&Write::OmapSet(&keys, &values));
        }
        Planned::Remove { fine_if_missing } => {
            change.push(&Write::Remove);
            if *fine_if_missing {
                change.push(&Write::FailOk);
            }
        }
        Planned::RemoveXattr(name) => change.push(&Write::RemoveXattr(&name_text(name)?)),
        Planned::SetXattr(name, value) => {
            change.push(&Write::SetXattr(&name_text(name)?, value));
        }
        Planned::Truncate(size) => change.push(&Write::Truncate(*size)),
        Planned::Write(offset, data) => change.push(&Write::Write(*offset, data)),
        Planned::WriteFull(data) => change.push(&Write::WriteFull(data)),
        Planned::Zero(offset, length) => change.push(&Write::Zero(*offset, *length)),
    }
    Ok(())
}

fn name_text(name: &[u8]) -> Result<std::ffi::CString, Error> {
    std::ffi::CString::new(name)
        .map_err(|_| Error::new(ErrorKind::Unsupported, "an attribute's name holds a NUL"))
}

fn push_check(change: &mut Change, check: &Check) -> Result<(), Error> {
    match check {
        Check::Bytes(offset, data) => change.push(&Write::Compare(*offset, data)),
        Check::Exists => change.push(&Write::AssertExists),
        Check::Omap(key, value) => change.push(&Write::CompareOmap(key, value)),
        Check::Version(version) => change.push(&Write::AssertVersion(*version)),
        Check::Xattr(name, value) => {
            change.push(&Write::CompareXattr(&text(name)?, EQUAL, value));
        }
        Check::XattrAtMost(name, value) => {
            change.push(&Write::CompareXattr(&text(name)?, AT_LEAST, value));
        }
    }
    Ok(())
}
