//! A new shard that a split fills. Only the splitter writes to it, so the version that it knows
//! guards each write: a write of unknown outcome happens once at most, and in its turn.

use std::sync::Arc;

use bytes::Bytes;

use super::entry::Entry;
use super::error::Error;
use super::row::{self, ENTRY};
use super::shard::{Phase, ShardState, Totals};
use super::{Shared, corrupt, may_pass, odd_answer, pause};
use crate::codec::DecodeError;
use crate::error::ErrorKind;
use crate::object::{
    Guard, ObjectId, Priority, ReadOp, ReadResult, ReadStep, Version, WriteOp, WriteStep,
};

/// Rows of one write.
const ROWS_PER_WRITE: usize = 512;

/// How often a write is tried over a bad link.
const TRIES_MAX: u32 = 12;

#[derive(Debug)]
pub(super) struct Child {
    shared: Arc<Shared>,
    object: ObjectId,
    state: ShardState,
    version: Version,
}

impl Child {
    /// Makes the shard. Its number is new, so if it is there, an attempt of ours made it.
    pub(super) async fn make(
        shared: &Arc<Shared>,
        object: ObjectId,
        state: ShardState,
    ) -> Result<Self, Error> {
        let entries = vec![(Bytes::from_static(row::STATE), state.encode())];
        let op = WriteOp::new([WriteStep::OmapSet { entries }]).guarded(Guard::Absent);
        let version = match shared.write_settled(&object, op).await {
            Ok(version) => version,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                shared.read_view(&object, []).await?.version
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            shared: Arc::clone(shared),
            object,
            state,
            version,
        })
    }

    pub(super) fn totals(&self) -> Totals {
        self.state.totals
    }

    /// Sets rows as the bulk copy found them. None of them is there yet.
    pub(super) async fn fill(
        &mut self,
        rows: Vec<(Bytes, Bytes)>,
        priority: Priority,
    ) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        for (row, value) in &rows {
            self.count(row, None, Some(value))?;
        }
        let steps = [WriteStep::OmapSet { entries: rows }];
        self.write(steps, priority).await
    }

    /// Makes rows what they are in the parent; `None` removes.
    pub(super) async fn update(
        &mut self,
        mut rows: Vec<(Bytes, Option<Bytes>)>,
        priority: Priority,
    ) -> Result<(), Error> {
        while !rows.is_empty() {
            let rest = rows.split_off(rows.len().min(ROWS_PER_WRITE));
            let keys: Vec<Bytes> = rows.iter().map(|(row, _)| row.clone()).collect();
            let here = self.shared.rows_of(&self.object, &keys).await?;
            let (mut set, mut removed) = (Vec::new(), Vec::new());
            for ((row, now), before) in rows.into_iter().zip(here) {
                self.count(&row, before.as_ref(), now.as_ref())?;
                match now {
                    Some(value) => set.push((row, value)),
                    None => removed.push(row),
                }
            }
            let steps = [
                WriteStep::OmapRemove { keys: removed },
                WriteStep::OmapSet { entries: set },
            ];
            self.write(steps, priority).await?;
            rows = rest;
        }
        Ok(())
    }

    /// Opens the shard, though nothing leads to it yet.
    pub(super) async fn open(&mut self) -> Result<(), Error> {
        self.state = self.state.with_phase(Phase::Open);
        let entries = vec![(Bytes::from_static(row::STATE), self.state.encode())];
        let steps = [WriteStep::OmapSet { entries }];
        self.write(steps, Priority::Urgent).await
    }

    fn count(
        &mut self,
        row: &Bytes,
        before: Option<&Bytes>,
        now: Option<&Bytes>,
    ) -> Result<(), Error> {
        let wrong = |error: DecodeError| corrupt(&self.object, error);
        let (old, new) = (
            Totals::of_row(row, before).map_err(wrong)?,
            Totals::of_row(row, now).map_err(wrong)?,
        );
        let totals = self.state.totals.plus(&new).minus(&old);
        self.state.totals = totals.ok_or_else(|| wrong(DecodeError::Field("a shard's totals")))?;
        Ok(())
    }

    async fn write(
        &mut self,
        steps: impl IntoIterator<Item = WriteStep>,
        priority: Priority,
    ) -> Result<(), Error> {
        let op = WriteOp::new(steps)
            .guarded(Guard::VersionIs(self.version))
            .with_priority(priority);
        let mut unknown = false;
        for round in 0.. {
            match self.shared.write(&self.object, op.clone()).await {
                Ok(version) => {
                    self.version = version;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::GuardFailed && unknown => {
                    self.version = self.shared.read_view(&self.object, []).await?.version;
                    return Ok(());
                }
                Err(error) if may_pass(&error) && round < TRIES_MAX => {
                    unknown |= error.kind().is_perhaps_applied();
                    pause(round).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        unreachable!("the loop ends by returning")
    }
}

impl Totals {
    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            rows: self.rows.saturating_add(other.rows),
            objects: self.objects.saturating_add(other.objects),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(&self, other: &Self) -> Option<Self> {
        Some(Self {
            rows: self.rows.checked_sub(other.rows)?,
            objects: self.objects.checked_sub(other.objects)?,
            bytes: self.bytes.checked_sub(other.bytes)?,
        })
    }

    /// What one row counts.
    fn of_row(row: &Bytes, value: Option<&Bytes>) -> Result<Self, DecodeError> {
        let Some(value) = value else {
            return Ok(Self::default());
        };
        let mut totals = Self {
            rows: 1,
            ..Self::default()
        };
        if row.first() == Some(&ENTRY) {
            let record = Entry::decode(row, value)?.record;
            if !record.delete_marker {
                totals.objects = 1;
                totals.bytes = record.size;
            }
        }
        Ok(totals)
    }
}

impl Shared {
    /// The values of rows of a shard, in their order.
    pub(super) async fn rows_of(
        &self,
        object: &ObjectId,
        keys: &[Bytes],
    ) -> Result<Vec<Option<Bytes>>, Error> {
        let keys = keys.to_vec();
        let op = ReadOp::new([ReadStep::OmapGet { keys }]);
        let output = self.read_retried(object, op).await?;
        match output.results.into_iter().next() {
            Some(ReadResult::OmapValues(values)) => Ok(values),
            _ => Err(odd_answer(object).into()),
        }
    }
}
