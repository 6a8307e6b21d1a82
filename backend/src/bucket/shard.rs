//! A shard: one omap object that holds the rows of a range of keys. This is its state row, and
//! what a batch of changes sees of it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::row;
use crate::codec::{DecodeError, Reader, Writer};
use crate::object::{OmapPage, ReadOp, ReadOutput, ReadResult, ReadStep, Version, WriteStep};

const VERSION: u8 = 2;

/// The row `s` of a shard. Every change of the shard reads and guards it, every scan reads it in
/// the same operation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ShardState {
    pub(super) phase: Phase,
    /// Goes up with each change of the phase.
    pub(super) generation: u64,
    /// The first place that belongs to the shard; see [`row::place`].
    pub(super) start: Bytes,
    /// The first place behind the shard; `None` for the last one.
    pub(super) end: Option<Bytes>,
    pub(super) totals: Totals,
    /// Rows of the log.
    pub(super) logged: u64,
}

/// What a shard holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Totals {
    /// Rows that belong to keys.
    pub(super) rows: u64,
    /// Versions with data, delete markers left out.
    pub(super) objects: u64,
    /// Bytes of these.
    pub(super) bytes: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    Open,
    /// Open, and every change is logged for whoever copies.
    Splitting(Split),
    /// Nothing changes until the split ends or is given up.
    Frozen(Split),
    /// The map names others for these keys.
    Moved,
    /// Being filled by a split; no map names it.
    Filling,
    /// Empty, and closed by a deletion of the bucket that has not ended.
    Closing {
        deletion: u128,
    },
}

/// Where the rows go: those before `at` to the shard `left`, the others to `right`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Split {
    pub(super) at: Bytes,
    pub(super) left: u64,
    pub(super) right: u64,
    /// The writer who does it.
    pub(super) writer: u64,
}

impl ShardState {
    pub(super) fn open(start: Bytes, end: Option<Bytes>) -> Self {
        Self {
            phase: Phase::Open,
            generation: 1,
            start,
            end,
            totals: Totals::default(),
            logged: 0,
        }
    }

    /// Rows of keys and of the log.
    pub(super) fn all_rows(&self) -> u64 {
        self.totals.rows.saturating_add(self.logged)
    }

    /// Whether rows at `place` belong here.
    pub(super) fn covers(&self, place: &[u8]) -> bool {
        self.start.as_ref() <= place && self.end.as_ref().is_none_or(|end| place < end.as_ref())
    }

    pub(super) fn with_phase(&self, phase: Phase) -> Self {
        Self {
            phase,
            generation: self.generation + 1,
            ..self.clone()
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        out.u64(self.generation)
            .bytes(&self.start)
            .bool(self.end.is_some())
            .bytes(self.end.as_deref().unwrap_or_default())
            .u64(self.totals.rows)
            .u64(self.totals.objects)
            .u64(self.totals.bytes)
            .u64(self.logged);
        match &self.phase {
            Phase::Open => {
                out.u8(0);
            }
            Phase::Splitting(split) => put_split(out.u8(1), split),
            Phase::Frozen(split) => put_split(out.u8(2), split),
            Phase::Moved => {
                out.u8(3);
            }
            Phase::Filling => {
                out.u8(4);
            }
            Phase::Closing { deletion } => {
                out.u8(5).u128(*deletion);
            }
        }
        out.finish()
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, version) = Reader::new(value, VERSION)?;
        let generation = reader.u64()?;
        let start = Bytes::copy_from_slice(reader.bytes()?);
        let has_end = reader.bool()?;
        let end = Bytes::copy_from_slice(reader.bytes()?);
        let totals = Totals {
            rows: reader.u64()?,
            objects: reader.u64()?,
            bytes: reader.u64()?,
        };
        // Version 1 did not count them.
        let logged = if version < 2 { 0 } else { reader.u64()? };
        let phase = match reader.u8()? {
            0 => Phase::Open,
            1 => Phase::Splitting(take_split(&mut reader)?),
            2 => Phase::Frozen(take_split(&mut reader)?),
            3 => Phase::Moved,
            4 => Phase::Filling,
            5 => Phase::Closing {
                deletion: reader.u128()?,
            },
            _ => return Err(DecodeError::Field("the phase of a shard")),
        };
        reader.finish()?;
        Ok(Self {
            phase,
            generation,
            start,
            end: has_end.then_some(end),
            totals,
            logged,
        })
    }
}

fn put_split(out: &mut Writer, split: &Split) {
    out.bytes(&split.at)
        .u64(split.left)
        .u64(split.right)
        .u64(split.writer);
}

fn take_split(reader: &mut Reader<'_>) -> Result<Split, DecodeError> {
    Ok(Split {
        at: Bytes::copy_from_slice(reader.bytes()?),
        left: reader.u64()?,
        right: reader.u64()?,
        writer: reader.u64()?,
    })
}

/// Rows of a shard as of one version, and what a batch changes of them.
#[derive(Debug)]
pub(super) struct View {
    pub(super) version: Version,
    pub(super) state: ShardState,
    rows: BTreeMap<Bytes, Bytes>,
    edits: BTreeMap<Bytes, Edit>,
    objects: i64,
    bytes: i64,
}

#[derive(Debug)]
struct Edit {
    existed: bool,
    value: Option<Bytes>,
}

impl View {
    /// Reads the state beside `steps`; the results of these become rows of the view.
    pub(super) fn read_op(steps: impl IntoIterator<Item = ReadStep>) -> ReadOp {
        let state = ReadStep::OmapGet {
            keys: vec![Bytes::from_static(row::STATE)],
        };
        ReadOp::new(std::iter::once(state).chain(steps))
    }

    /// `op` is what [`View::read_op`] made, `output` its answer.
    pub(super) fn new(op: &ReadOp, output: ReadOutput) -> Result<Self, DecodeError> {
        let mut results = op.steps.iter().zip(output.results);
        let state = match results.next() {
            Some((_, ReadResult::OmapValues(values))) => match values.first() {
                Some(Some(value)) => ShardState::decode(value)?,
                _ => return Err(DecodeError::Field("the state of a shard")),
            },
            _ => return Err(DecodeError::Field("the state of a shard")),
        };
        let mut rows = BTreeMap::new();
        for result in results {
            match result {
                (ReadStep::OmapGet { keys }, ReadResult::OmapValues(values)) => {
                    for (key, value) in keys.iter().zip(values) {
                        if let Some(value) = value {
                            rows.insert(key.clone(), value);
                        }
                    }
                }
                (_, ReadResult::OmapPage(OmapPage { entries, .. })) => rows.extend(entries),
                _ => return Err(DecodeError::Field("an answer of the store")),
            }
        }
        Ok(Self {
            version: output.version,
            state,
            rows,
            edits: BTreeMap::new(),
            objects: 0,
            bytes: 0,
        })
    }

    /// The row as earlier changes of the batch left it.
    pub(super) fn row(&self, row: &[u8]) -> Option<&Bytes> {
        match self.edits.get(row) {
            Some(edit) => edit.value.as_ref(),
            None => self.rows.get(row),
        }
    }

    /// The first row in `range`.
    pub(super) fn first(&self, range: &row::RowRange) -> Option<(&Bytes, &Bytes)> {
        let bounds = range.start.clone()..range.end.clone();
        let edited = self
            .edits
            .range(bounds.clone())
            .find_map(|(row, edit)| Some((row, edit.value.as_ref()?)));
        let unedited = self
            .rows
            .range(bounds)
            .find(|(row, _)| !self.edits.contains_key(*row));
        match (edited, unedited) {
            (Some(one), Some(other)) => Some(if one.0 < other.0 { one } else { other }),
            (one, other) => one.or(other),
        }
    }

    /// All rows in `range` that were read, as they were read.
    pub(super) fn rows_in(&self, range: &row::RowRange) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.rows.range(range.start.clone()..range.end.clone())
    }

    /// Sets a row that was read, or is known not to exist.
    pub(super) fn set(&mut self, row: Bytes, value: Bytes) {
        self.edit(row, Some(value), false);
    }

    /// Removes a row that exists; it need not have been read.
    pub(super) fn remove(&mut self, row: Bytes) {
        self.edit(row, None, true);
    }

    /// An object of `bytes` came or went.
    pub(super) fn count_object(&mut self, came: bool, bytes: u64) {
        let bytes = i64::try_from(bytes).expect("an object is at most 5 TiB");
        let sign = if came { 1 } else { -1 };
        self.objects += sign;
        self.bytes += sign * bytes;
    }

    pub(super) fn is_changed(&self) -> bool {
        !self.edits.is_empty()
    }

    /// The steps that make the changes, and the state of the shard then. `marker` is the row by which
    /// the batch is recognised.
    pub(super) fn steps(&self, marker: (Bytes, Bytes)) -> (Vec<WriteStep>, ShardState) {
        let (mut set, mut removed) = (Vec::new(), Vec::new());
        let mut totals = self.state.totals;
        for (row, edit) in &self.edits {
            match &edit.value {
                Some(value) => {
                    set.push((row.clone(), value.clone()));
                    totals.rows += u64::from(!edit.existed);
                }
                None => {
                    if edit.existed {
                        removed.push(row.clone());
                        totals.rows = totals.rows.saturating_sub(1);
                    }
                }
            }
        }
        let mut logged = self.state.logged;
        if matches!(self.state.phase, Phase::Splitting(_)) {
            logged = logged.saturating_add(self.edits.len() as u64);
            for (index, row) in (0..).zip(self.edits.keys()) {
                set.push((row::log(self.version.0, index), row.clone()));
            }
        }
        totals.objects = totals.objects.saturating_add_signed(self.objects);
        totals.bytes = totals.bytes.saturating_add_signed(self.bytes);
        let state = ShardState {
            totals,
            logged,
            ..self.state.clone()
        };
        set.push((Bytes::from_static(row::STATE), state.encode()));
        set.push(marker);
        let mut steps = Vec::with_capacity(2);
        if !removed.is_empty() {
            steps.push(WriteStep::OmapRemove { keys: removed });
        }
        steps.push(WriteStep::OmapSet { entries: set });
        (steps, state)
    }

    fn edit(&mut self, row: Bytes, value: Option<Bytes>, exists: bool) {
        let existed = match self.edits.get(&row) {
            Some(edit) => edit.existed,
            None => exists || self.rows.contains_key(&row),
        };
        self.edits.insert(row, Edit { existed, value });
    }
}
