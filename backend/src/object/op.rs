//! Operations as data: guards and steps that all hold and happen, or none.
//!
//! What a step does to an object that does not exist: `Create`, `Write`, `Append`, `Replace`,
//! `XattrSet`, `OmapSet`, `CloneRange` and `Rollback` make it; `Zero` and `Truncate` do nothing;
//! the removing steps fail with `NotFound`. Removing an attribute or a key that is not there is
//! fine on an object that exists.

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{ObjectId, SnapId, Version, XattrName};
use crate::limits::FORCED_BYTES_MAX;

/// A change of one object.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WriteOp {
    pub guards: SmallVec<[Guard; 2]>,
    pub steps: SmallVec<[WriteStep; 2]>,
    pub durability: Durability,
    pub when_full: WhenFull,
    pub snapshots: SnapContext,
    /// After this time the answer is `Unavailable`, and the operation may still happen.
    pub deadline: Option<Instant>,
    pub priority: Priority,
}

/// A question to one object.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReadOp {
    pub guards: SmallVec<[Guard; 2]>,
    pub steps: SmallVec<[ReadStep; 2]>,
    /// The state as of a snapshot instead of now.
    pub at: Option<SnapId>,
    /// After this time the answer is `Unavailable`.
    pub deadline: Option<Instant>,
    pub priority: Priority,
}

/// A condition on the object before the operation. `BytesAre`, `OmapIs`, `XattrIs` and `VersionIs`
/// on a missing object are `NotFound`, as on RADOS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Guard {
    /// Fails with `AlreadyExists`.
    Absent,
    /// Bytes beyond the object's end count as zeros. The error carries the offset of the first
    /// difference.
    BytesAre {
        offset: u64,
        data: Bytes,
    },
    /// Fails with `NotFound`.
    Exists,
    /// `None`: the key is not there. RADOS takes a missing key for an empty value, so a value that
    /// is guarded is never empty.
    OmapIs {
        key: Bytes,
        value: Option<Bytes>,
    },
    VersionIs(Version),
    /// The epoch guard: holds if the attribute, 8 bytes big-endian, is at most `value`. A missing
    /// attribute, also of a missing object, holds. See [`WriteStep::epoch_set`].
    XattrAtMost {
        name: XattrName,
        value: u64,
    },
    /// The value is not empty, as with `OmapIs`; a missing attribute does not hold.
    XattrIs {
        name: XattrName,
        value: Bytes,
    },
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WriteStep {
    Append {
        data: Payload,
    },
    /// Copies the bytes `source_offset..source_offset + length` of `source`, in the same pool, to
    /// `offset`. The source is read as of some moment during the operation. Bytes beyond its end
    /// are zeros.
    CloneRange {
        source: ObjectId,
        source_offset: u64,
        offset: u64,
        length: u64,
    },
    /// Makes the object if it is not there; `Guard::Absent` makes that exclusive.
    Create,
    OmapRemove {
        keys: Vec<Bytes>,
    },
    /// `start..end`, without `end`.
    OmapRemoveRange {
        start: Bytes,
        end: Bytes,
    },
    OmapSet {
        entries: Vec<(Bytes, Bytes)>,
    },
    /// The last step of an operation, if it is there. Locks and watches go too.
    Remove,
    /// The object's bytes are `data` and nothing else; attributes and omap stay.
    Replace {
        data: Payload,
    },
    /// Data, attributes and omap become what they were at the snapshot.
    Rollback {
        to: SnapId,
    },
    /// Cuts, or extends with zeros.
    Truncate {
        size: u64,
    },
    Write {
        offset: u64,
        data: Payload,
    },
    XattrRemove {
        name: XattrName,
    },
    XattrSet {
        name: XattrName,
        value: Bytes,
    },
    /// Makes the range read as zeros and returns its space where `Limits::discard_bytes` allows.
    /// Never extends the object.
    Zero {
        offset: u64,
        length: u64,
    },
}

impl WriteStep {
    /// Sets what [`Guard::XattrAtMost`] compares.
    #[must_use]
    pub fn epoch_set(name: XattrName, value: u64) -> Self {
        Self::XattrSet {
            name,
            value: Bytes::copy_from_slice(&value.to_be_bytes()),
        }
    }

    /// Whether the step may make the object's data larger.
    #[must_use]
    pub fn takes_data_space(&self) -> bool {
        match self {
            Self::Append { .. }
            | Self::CloneRange { .. }
            | Self::Rollback { .. }
            | Self::Write { .. } => true,
            Self::Replace { data } => !data.is_empty(),
            Self::Create
            | Self::OmapRemove { .. }
            | Self::OmapRemoveRange { .. }
            | Self::OmapSet { .. }
            | Self::Remove
            | Self::Truncate { .. }
            | Self::XattrRemove { .. }
            | Self::XattrSet { .. }
            | Self::Zero { .. } => false,
        }
    }

    /// Whether the step may be `Buffered`.
    #[must_use]
    pub fn is_plain_data(&self) -> bool {
        match self {
            Self::Append { .. }
            | Self::Create
            | Self::Replace { .. }
            | Self::Truncate { .. }
            | Self::Write { .. }
            | Self::Zero { .. } => true,
            Self::CloneRange { .. }
            | Self::OmapRemove { .. }
            | Self::OmapRemoveRange { .. }
            | Self::OmapSet { .. }
            | Self::Remove
            | Self::Rollback { .. }
            | Self::XattrRemove { .. }
            | Self::XattrSet { .. } => false,
        }
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReadStep {
    Extents {
        offset: u64,
        length: u64,
    },
    OmapGet {
        keys: Vec<Bytes>,
    },
    /// Keys in `start..end`; `None` is the end of the map. `count_max` is at most
    /// `Limits::omap_keys_max`.
    OmapScan {
        start: Bytes,
        end: Option<Bytes>,
        keys_only: bool,
        count_max: u32,
    },
    Stat,
    Xattr {
        name: XattrName,
    },
}

/// When a write is on stable storage.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Durability {
    /// After the next `flush`. After a crash it may be lost in whole or in part, at 4 KiB grain.
    Buffered,
    /// When the call returns.
    #[default]
    Durable,
}

/// What a write does on a full pool. What takes away at least as much as it adds is accepted anyway.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum WhenFull {
    /// Draws on what the engine keeps back, while that lasts. For small records without which
    /// nothing could be removed: who serves, who writes, what is under way. Only attributes, omap
    /// and removing steps, `FORCED_BYTES_MAX` at most; anything else counts as `Refuse`. On RADOS:
    /// `OPERATION_FULL_FORCE`.
    Force,
    /// Fails with `NoSpace`.
    #[default]
    Refuse,
}

/// Who waits. An engine that queues serves the classes in this order without starving the last.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Priority {
    #[default]
    Client,
    /// On behalf of the other node of a pair.
    Forward,
    Background,
    /// Short and rare, while many wait for it: an engine that slows writers down lets it pass.
    Urgent,
}

/// The snapshots that a write preserves, as the volume knows them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SnapContext {
    /// The newest snapshot id the volume ever had; 0 for none.
    pub sequence: u64,
    /// Existing snapshots, newest first.
    pub snapshots: Vec<SnapId>,
}

/// Bytes in pieces, written one behind the other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Payload(SmallVec<[Bytes; 1]>);

impl Payload {
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.iter().map(|piece| piece.len() as u64).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter()
    }

    /// `length` bytes from `offset` on, without copying.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn slice(&self, offset: u64, length: u64) -> Self {
        let mut slices = SmallVec::new();
        let (mut skip, mut rest) = (offset, length);
        for piece in &self.0 {
            let piece_bytes = piece.len() as u64;
            let from = skip.min(piece_bytes);
            let to = from + rest.min(piece_bytes - from);
            skip -= from;
            rest -= to - from;
            if from < to {
                let index = |at: u64| usize::try_from(at).expect("within a slice");
                slices.push(piece.slice(index(from)..index(to)));
            }
        }
        assert_eq!(rest, 0, "a slice lies in its payload");
        Self(slices)
    }

    /// All pieces as one; copies only if there are several.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self.0.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            several => Bytes::from(several.concat()),
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(SmallVec::from_buf([bytes]))
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(pieces: Vec<Bytes>) -> Self {
        Self(SmallVec::from_vec(pieces))
    }
}

impl WriteOp {
    /// An operation of these steps without guards.
    #[must_use]
    pub fn new(steps: impl IntoIterator<Item = WriteStep>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn guarded(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }

    #[must_use]
    pub fn step(mut self, step: WriteStep) -> Self {
        self.steps.push(step);
        self
    }

    #[must_use]
    pub fn buffered(mut self) -> Self {
        self.durability = Durability::Buffered;
        self
    }

    #[must_use]
    pub fn forced_when_full(mut self) -> Self {
        self.when_full = WhenFull::Force;
        self
    }

    /// Whether it may draw on what the engine keeps back.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.when_full == WhenFull::Force
            && self.payload_bytes() <= FORCED_BYTES_MAX
            && self.steps.iter().all(|step| !step.takes_data_space())
    }

    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Bytes of data, keys and values it carries, for limits and permits.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.steps.iter().map(step_bytes).sum()
    }
}

impl ReadOp {
    /// A question of these steps without guards.
    #[must_use]
    pub fn new(steps: impl IntoIterator<Item = ReadStep>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn guarded(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }

    #[must_use]
    pub fn step(mut self, step: ReadStep) -> Self {
        self.steps.push(step);
        self
    }

    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

fn step_bytes(step: &WriteStep) -> u64 {
    match step {
        WriteStep::Append { data }
        | WriteStep::Replace { data }
        | WriteStep::Write { data, .. } => data.len(),
        WriteStep::OmapRemove { keys } => keys.iter().map(|key| key.len() as u64).sum(),
        WriteStep::OmapSet { entries } => entries
            .iter()
            .map(|(key, value)| (key.len() + value.len()) as u64)
            .sum(),
        WriteStep::OmapRemoveRange { start, end } => (start.len() + end.len()) as u64,
        WriteStep::XattrSet { value, .. } => value.len() as u64,
        WriteStep::CloneRange { .. }
        | WriteStep::Create
        | WriteStep::Remove
        | WriteStep::Rollback { .. }
        | WriteStep::Truncate { .. }
        | WriteStep::XattrRemove { .. }
        | WriteStep::Zero { .. } => 0,
    }
}
