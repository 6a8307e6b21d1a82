//! The memory engine: the executable specification of the object model, and the store of tests.
//!
//! One mutex, no tricks: where its behaviour and the words of [`crate::object`] differ, one of the
//! two is wrong. It forgets everything when the last handle is dropped. Read on in `slot` and
//! `object`; `session` only carries operations there.

mod data;
mod lock;
mod object;
mod session;
mod slot;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use self::object::Object;
use self::session::MemorySession;
use self::slot::{Slot, WriteContext};
use crate::engine::admission;
use crate::error::{Error, ErrorKind};
use crate::limits::{OBJECT_BYTES_MAX, OMAP_KEYS_PER_OP_MAX, OP_BYTES_MAX};
use crate::object::{
    CloneRange, Guard, Limits, ListCursor, ListPage, ObjectId, ObjectName, ObjectStore, Pool,
    ReadOp, ReadOutput, SessionId, SnapId, Usage, Version, WriteOp, WriteStep,
};
use crate::random::{Generator, hash};

/// All that the object model knows of.
pub const LIMITS: Limits = Limits {
    object_bytes_max: OBJECT_BYTES_MAX,
    op_bytes_max: OP_BYTES_MAX,
    omap_keys_max: OMAP_KEYS_PER_OP_MAX,
    omap_value_bytes_max: 64 * 1024,
    omap: true,
    snapshots: true,
    clone_range: CloneRange::Copy,
    sparse_reads: true,
    buffered: true,
    stream_read_bytes: 1024 * 1024,
    stream_write_bytes: 2 * 1024 * 1024,
    discard_bytes: 4_096,
};

/// A store of objects in memory, of which any number of sessions is opened. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MemoryCluster(Arc<Mutex<State>>);

#[derive(Clone, Copy, Debug)]
pub struct MemoryOptions {
    /// Bytes that all pools together may hold.
    pub capacity_bytes: u64,
    /// Decides the order of listings and what a crash loses.
    pub seed: u64,
    /// Lower ones than [`LIMITS`] imitate another engine.
    pub limits: Limits,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            capacity_bytes: 1 << 40,
            seed: 0,
            limits: LIMITS,
        }
    }
}

impl MemoryCluster {
    #[must_use]
    pub fn new(options: MemoryOptions) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Generator::new(options.seed),
            options,
            pools: BTreeMap::new(),
            sessions: HashMap::new(),
            session_count: 0,
            sequence: 0,
            used_bytes: 0,
        })))
    }

    /// Opens a session; it ends when its last handle is dropped.
    #[must_use]
    pub fn session(&self, purpose: &str) -> Arc<dyn ObjectStore> {
        Arc::new(MemorySession::open(self.clone(), purpose))
    }

    /// What a power cut does: all sessions end, and of what was written `Buffered` since the last
    /// flush any part may be lost, at 4 KiB grain.
    pub fn crash(&self) {
        let mut state = self.state();
        let state = &mut *state;
        for standing in state.sessions.values_mut() {
            standing.end();
        }
        for pool in state.pools.values_mut() {
            for slot in pool.slots.values_mut() {
                slot.crash(&mut state.random);
            }
            pool.slots.retain(|_, slot| !slot.is_empty());
        }
        state.count_used_bytes();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    options: MemoryOptions,
    random: Generator,
    pools: BTreeMap<Pool, PoolState>,
    sessions: HashMap<SessionId, Standing>,
    session_count: u64,
    /// The last version, snapshot or notification number given out. One count for all makes each
    /// greater than all before of its kind.
    sequence: u64,
    used_bytes: u64,
}

/// What a session may still do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Open,
    Ended,
    Fenced,
}

impl Standing {
    fn end(&mut self) {
        if *self == Self::Open {
            *self = Self::Ended;
        }
    }
}

#[derive(Debug, Default)]
struct PoolState {
    /// The hash of a name comes first, so that listings are in no order that anybody might rely on.
    slots: BTreeMap<(u64, ObjectName), Slot>,
    snapshots: BTreeSet<SnapId>,
}

impl State {
    fn read(&mut self, id: &ObjectId, op: &ReadOp) -> Result<ReadOutput, Error> {
        admission::check_read(op, &self.options.limits)?;
        let missing = Object::default();
        let key = self.key(&id.name);
        let pool = self.pools.entry(id.pool.clone()).or_default();
        let slot = pool.slots.get(&key);
        let object = match (slot, op.at) {
            (None, None) => &missing,
            (Some(slot), None) => &slot.head,
            (Some(slot), Some(at)) => slot.at(at, &pool.snapshots)?.unwrap_or(&missing),
            (None, Some(at)) if pool.snapshots.contains(&at) => &missing,
            (None, Some(_)) => return Err(Error::new(ErrorKind::NotFound, "reading a snapshot")),
        };
        object.check(&op.guards)?;
        let asks_absent = op.guards.contains(&Guard::Absent);
        if !object.exists && !asks_absent {
            return Err(Error::new(ErrorKind::NotFound, format!("reading {id}")));
        }
        Ok(ReadOutput {
            version: object.version_now(),
            results: op.steps.iter().map(|step| object.answer(step)).collect(),
        })
    }

    fn write(&mut self, id: &ObjectId, op: &WriteOp) -> Result<Version, Error> {
        admission::check_write(id, op, &self.options.limits)?;
        let key = self.key(&id.name);
        self.pools.entry(id.pool.clone()).or_default();
        if let Some(slot) = self.slot(id) {
            slot.head.check(&op.guards)?;
        } else {
            Object::default().check(&op.guards)?;
        }
        let sources = op.steps.iter().filter_map(|step| self.clone_source(step));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let version = Version(self.next_number());
        let pool = self.pools.entry(id.pool.clone()).or_default();
        let slot = pool.slots.entry(key.clone()).or_default();
        let bytes_before = slot.bytes_used();
        let done = slot.write(
            op,
            WriteContext {
                version,
                free_bytes: self.options.capacity_bytes.saturating_sub(self.used_bytes),
                snapshots: &pool.snapshots,
                sources,
                object_bytes_max: self.options.limits.object_bytes_max,
            },
        );
        self.used_bytes = self.used_bytes - bytes_before + slot.bytes_used();
        let version = if slot.head.exists {
            slot.head.version
        } else {
            version
        };
        if slot.is_empty() {
            pool.slots.remove(&key);
        }
        done.map(|()| version)
    }

    /// The bytes that a `CloneRange` copies; `None` for other steps.
    fn clone_source(&self, step: &WriteStep) -> Option<Result<Vec<u8>, Error>> {
        let WriteStep::CloneRange {
            source,
            source_offset,
            length,
            ..
        } = step
        else {
            return None;
        };
        let pool = self.pools.get(&source.pool);
        let slot = pool.and_then(|pool| pool.slots.get(&self.key(&source.name)));
        Some(match slot.map(|slot| &slot.head) {
            Some(head) if head.exists => Ok(head.data.read(*source_offset, *length)),
            Some(_) | None => Err(Error::new(ErrorKind::NotFound, format!("cloning {source}"))),
        })
    }

    fn list(&mut self, pool: &Pool, cursor: &ListCursor, count_max: u32) -> ListPage {
        let Some(pool) = self.pools.get(pool) else {
            return ListPage {
                names: Vec::new(),
                next: None,
            };
        };
        let start = decode_cursor(cursor);
        let slots = pool
            .slots
            .range(start..)
            .filter(|(_, slot)| slot.head.exists);
        let mut keys = slots.map(|(key, _)| key);
        let names = keys.by_ref().take(count_max as usize);
        let names = names.map(|(_, name)| name.clone()).collect();
        let next = keys.next().map(encode_cursor);
        ListPage { names, next }
    }

    /// The slot of an object that exists.
    fn existing(&mut self, id: &ObjectId) -> Result<&mut Slot, Error> {
        let slot = self.slot(id).filter(|slot| slot.head.exists);
        slot.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("looking for {id}")))
    }

    fn slot(&mut self, id: &ObjectId) -> Option<&mut Slot> {
        let key = self.key(&id.name);
        self.pools.get_mut(&id.pool)?.slots.get_mut(&key)
    }

    fn snapshot_create(&mut self, pool: &Pool) -> Result<SnapId, Error> {
        admission::check_snapshots(&self.options.limits)?;
        let snapshot = SnapId(self.next_number());
        let pool = self.pools.entry(pool.clone()).or_default();
        pool.snapshots.insert(snapshot);
        Ok(snapshot)
    }

    fn snapshot_remove(&mut self, pool: &Pool, snapshot: SnapId) -> Result<(), Error> {
        admission::check_snapshots(&self.options.limits)?;
        let state = self.pools.entry(pool.clone()).or_default();
        if !state.snapshots.remove(&snapshot) {
            return Err(Error::new(ErrorKind::NotFound, "removing a snapshot"));
        }
        for slot in state.slots.values_mut() {
            slot.forget_snapshot(snapshot);
        }
        state.slots.retain(|_, slot| !slot.is_empty());
        self.count_used_bytes();
        Ok(())
    }

    fn flush(&mut self) {
        let slots = self
            .pools
            .values_mut()
            .flat_map(|pool| pool.slots.values_mut());
        slots.for_each(Slot::flush);
    }

    fn usage(&self, pool: &Pool) -> Usage {
        let slots = self
            .pools
            .get(pool)
            .into_iter()
            .flat_map(|pool| pool.slots.values());
        Usage {
            capacity_bytes: self.options.capacity_bytes,
            used_bytes: self.used_bytes,
            object_count: slots.filter(|slot| slot.head.exists).count() as u64,
        }
    }

    fn fence(&mut self, victim: &SessionId) {
        self.sessions.insert(victim.clone(), Standing::Fenced);
        let slots = self
            .pools
            .values_mut()
            .flat_map(|pool| pool.slots.values_mut());
        slots.for_each(|slot| slot.watchers.remove_session(victim));
    }

    fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn count_used_bytes(&mut self) {
        let slots = self.pools.values().flat_map(|pool| pool.slots.values());
        self.used_bytes = slots.map(Slot::bytes_used).sum();
    }

    fn key(&self, name: &ObjectName) -> (u64, ObjectName) {
        let order = hash(self.options.seed, name.to_string().as_bytes());
        (order, name.clone())
    }
}

/// The cursor is the key to go on with; the start is an empty one.
fn encode_cursor((order, name): &(u64, ObjectName)) -> ListCursor {
    let bytes = [&order.to_be_bytes()[..], name.to_string().as_bytes()].concat();
    ListCursor(Bytes::from(bytes))
}

fn decode_cursor(cursor: &ListCursor) -> (u64, ObjectName) {
    match cursor.0.split_first_chunk::<8>() {
        Some((order, name)) => (
            u64::from_be_bytes(*order),
            ObjectName::new(&String::from_utf8_lossy(name)),
        ),
        None => (0, ObjectName::new("\0")),
    }
}

#[cfg(test)]
mod tests;
