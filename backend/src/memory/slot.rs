//! The place of an object: its state now, at snapshots and after a crash; locks and watches.

use std::collections::{BTreeMap, BTreeSet};

use super::data::Data;
use super::lock::Locks;
use super::object::{Foreign, Object, Touched};
use crate::engine::watch::Watchers;
use crate::error::{Error, ErrorKind};
use crate::object::{Durability, SnapContext, SnapId, Version, WriteOp, WriteStep};
use crate::random::Generator;

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) head: Object,
    /// What is promised after a crash, where that differs from `head`.
    stable: Option<Stable>,
    /// States before writes, by the newest snapshot that has that state.
    preserved: BTreeMap<SnapId, Preserved>,
    /// The newest snapshot that any write knew of.
    snap_sequence: u64,
    pub(super) locks: Locks,
    pub(super) watchers: Watchers,
}

#[derive(Debug)]
struct Stable {
    exists: bool,
    data: Data,
}

#[derive(Debug)]
struct Preserved {
    state: Object,
    snapshots: BTreeSet<SnapId>,
}

/// What a write needs from outside its object.
#[derive(Debug)]
pub(super) struct WriteContext<'a> {
    pub(super) version: Version,
    pub(super) free_bytes: u64,
    /// The existing snapshots of the pool.
    pub(super) snapshots: &'a BTreeSet<SnapId>,
    /// The bytes for each `CloneRange`, in order.
    pub(super) sources: Vec<Vec<u8>>,
    pub(super) object_bytes_max: u64,
}

impl Slot {
    /// All steps or none. Guards were checked.
    pub(super) fn write(&mut self, op: &WriteOp, context: WriteContext<'_>) -> Result<(), Error> {
        let before = self.head.without_omap();
        let bytes_before = self.bytes_used();
        let sequence_before = self.snap_sequence;
        let (version, free_bytes) = (context.version, context.free_bytes);
        let preserved = self.preserve(&op.snapshots, context.snapshots);
        let touched = self.apply_all(op, context).and_then(|touched| {
            let grown = self.bytes_used().saturating_sub(bytes_before);
            match grown > free_bytes && !op.is_forced() {
                true => Err(Error::new(ErrorKind::NoSpace, "writing an object")),
                false => Ok(touched),
            }
        });
        match touched {
            Ok(touched) => {
                self.head.commit();
                if self.head.exists || before.exists {
                    self.head.version = version;
                }
                self.settle(op.durability, before, &touched);
                if !self.head.exists {
                    self.locks = Locks::default();
                    self.watchers = Watchers::default();
                }
                Ok(())
            }
            Err(error) => {
                self.head.revert(before);
                self.snap_sequence = sequence_before;
                if let Some(snapshot) = preserved {
                    self.preserved.remove(&snapshot);
                }
                Err(error)
            }
        }
    }

    fn apply_all(
        &mut self,
        op: &WriteOp,
        context: WriteContext<'_>,
    ) -> Result<Vec<Touched>, Error> {
        let mut sources = context.sources.into_iter().map(Foreign::Bytes);
        let mut touched = Vec::with_capacity(op.steps.len());
        for step in &op.steps {
            touched.push(if let WriteStep::Rollback { to } = step {
                let state = self.at(*to, context.snapshots)?.cloned();
                let state = Foreign::State(Box::new(state.unwrap_or_default()));
                self.head.apply(step, &mut std::iter::once(state))?
            } else {
                self.head.apply(step, &mut sources)?
            });
            if self.head.data.size() > context.object_bytes_max {
                return Err(Error::new(ErrorKind::TooLarge, "growing an object"));
            }
        }
        Ok(touched)
    }

    /// Keeps the state before a write for the snapshots that have not kept one yet.
    fn preserve(&mut self, context: &SnapContext, existing: &BTreeSet<SnapId>) -> Option<SnapId> {
        let since = self.snap_sequence;
        self.snap_sequence = since.max(context.sequence);
        let wanted = context.snapshots.iter().copied();
        let snapshots: BTreeSet<SnapId> = wanted
            .filter(|snapshot| snapshot.0 > since && existing.contains(snapshot))
            .collect();
        let newest = snapshots.last().copied().filter(|_| self.head.exists)?;
        let state = self.head.clone();
        self.preserved
            .insert(newest, Preserved { state, snapshots });
        Some(newest)
    }

    /// The state as of a snapshot; `None` if the object did not exist then.
    pub(super) fn at(
        &self,
        snapshot: SnapId,
        existing: &BTreeSet<SnapId>,
    ) -> Result<Option<&Object>, Error> {
        if !existing.contains(&snapshot) {
            return Err(Error::new(ErrorKind::NotFound, "looking for a snapshot"));
        }
        let state = match self.preserved.range(snapshot..).next() {
            Some((_, kept)) => Some(&kept.state).filter(|_| kept.snapshots.contains(&snapshot)),
            None => Some(&self.head).filter(|_| snapshot.0 > self.snap_sequence),
        };
        Ok(state.filter(|state| state.exists))
    }

    pub(super) fn forget_snapshot(&mut self, snapshot: SnapId) {
        self.preserved.retain(|_, kept| {
            kept.snapshots.remove(&snapshot);
            !kept.snapshots.is_empty()
        });
    }

    /// Notes what of the object is stable now. A durable write makes stable what it touched and
    /// that the object exists, and nothing else: the least that the model promises.
    fn settle(&mut self, durability: Durability, before: Object, touched: &[Touched]) {
        if durability == Durability::Buffered {
            self.stable.get_or_insert(Stable {
                exists: before.exists,
                data: before.data,
            });
        } else if let Some(stable) = &mut self.stable {
            stable.exists = true;
            for range in touched {
                stable.data.adopt(&self.head.data, range.clone());
            }
            if !self.head.exists {
                self.stable = None;
            }
        }
    }

    pub(super) fn flush(&mut self) {
        self.stable = None;
    }

    /// Loses a part of what is not stable.
    pub(super) fn crash(&mut self, random: &mut Generator) {
        self.watchers = Watchers::default();
        let Some(stable) = self.stable.take() else {
            return;
        };
        if !stable.exists && random.chance(500) {
            self.head = Object::default();
            self.locks = Locks::default();
        } else {
            self.head.data = self.head.data.crashed(&stable.data, random);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.head.exists && self.preserved.is_empty()
    }

    pub(super) fn bytes_used(&self) -> u64 {
        let kept = self.preserved.values().map(|kept| kept.state.bytes_used());
        self.head.bytes_used() + kept.sum::<u64>()
    }
}
