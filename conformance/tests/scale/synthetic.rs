//! A store that keeps no bulk data: what was written from one known pattern is noted as a place in
//! it, and given back from there. All else goes to another engine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use portico_backend::error::Error;
use portico_backend::object::{
    Extent, Limits, ListCursor, ListPage, LockHolder, LockName, LockRequest, NotifyOutcome,
    ObjectId, ObjectStore, Payload, Pool, ReadOp, ReadOutput, ReadResult, ReadStep, Reply,
    SessionId, SnapId, Usage, Version, Watch, WriteOp, WriteStep,
};
use portico_backend::random::Generator;

/// Bytes after which the pattern begins again; a prime, so that no two units of a part and no two
/// parts that are near each other look alike.
const PERIOD: u64 = 65_521;

/// Bytes of one write, at most.
const WRITE_BYTES_MAX: u64 = 4 << 20;

/// Shorter writes are stored as they are.
const WRITE_BYTES_MIN: u64 = 64 * 1024;

/// Bytes by which a place in the pattern is known.
const MARK_BYTES: usize = 16;

/// Endless bytes that tell where they come from.
#[derive(Debug)]
pub(crate) struct Pattern {
    bytes: Bytes,
    places: HashMap<Bytes, u64>,
}

impl Pattern {
    pub(crate) fn new() -> Arc<Self> {
        let mut random = Generator::new(5);
        let period: Vec<u8> = (0..PERIOD)
            .map(|_| u8::try_from(random.below(256)).unwrap())
            .collect();
        let count = usize::try_from(WRITE_BYTES_MAX + 2 * PERIOD).unwrap();
        let bytes: Bytes = period.into_iter().cycle().take(count).collect();
        let mark = |place: u64| {
            let at = usize::try_from(place).unwrap();
            (bytes.slice(at..at + MARK_BYTES), place)
        };
        let places: HashMap<_, _> = (0..PERIOD).map(mark).collect();
        assert_eq!(places.len() as u64, PERIOD);
        Arc::new(Self { bytes, places })
    }

    /// `length` bytes from a place on, without a copy.
    pub(crate) fn slice(&self, place: u64, length: u64) -> Bytes {
        let at = usize::try_from(place % PERIOD).unwrap();
        self.bytes.slice(at..at + usize::try_from(length).unwrap())
    }

    /// Where data comes from; `None` if it is not of the pattern.
    fn place_of(&self, data: &Payload) -> Option<u64> {
        let mut pieces = data.pieces();
        let (Some(piece), None) = (pieces.next(), pieces.next()) else {
            return None;
        };
        if data.len() < WRITE_BYTES_MIN {
            return None;
        }
        let place = *self.places.get(&piece[..MARK_BYTES])?;
        let last = piece.len() - MARK_BYTES;
        let end = self.slice(place + last as u64, MARK_BYTES as u64);
        assert_eq!(piece[last..], end[..], "a write goes on in the pattern");
        Some(place)
    }
}

/// What is known of an object whose data is not stored.
#[derive(Clone, Copy, Debug)]
struct Noted {
    /// The place of its byte 0.
    place: u64,
    size: u64,
}

/// Writer, counter and number of an object of stored data.
type Name = (u64, u64, u64);

#[derive(Debug)]
pub(crate) struct Synthetic {
    inner: Arc<dyn ObjectStore>,
    pattern: Arc<Pattern>,
    noted: Arc<Mutex<HashMap<Name, Noted>>>,
}

impl Synthetic {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, pattern: &Arc<Pattern>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            pattern: Arc::clone(pattern),
            noted: Arc::default(),
        })
    }

    /// Objects whose data is not stored, and their bytes.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let noted = self.noted();
        let bytes = noted.values().map(|one| one.size).sum();
        (noted.len() as u64, bytes)
    }

    fn noted(&self) -> MutexGuard<'_, HashMap<Name, Noted>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, object: &ObjectId) -> Option<Noted> {
        self.noted().get(&name(object)?).copied()
    }

    /// Notes data of the pattern; gives back what is left for the engine.
    fn note(&self, object: &ObjectId, op: WriteOp) -> Option<WriteOp> {
        let Some(name) = name(object) else {
            return Some(op);
        };
        let mut rest = op.clone();
        rest.steps.clear();
        for step in op.steps {
            if let WriteStep::Write { offset, data } = &step
                && let Some(place) = self.pattern.place_of(data)
            {
                let place = (place + PERIOD - offset % PERIOD) % PERIOD;
                let mut noted = self.noted();
                let one = noted.entry(name).or_insert(Noted { place, size: 0 });
                assert_eq!(one.place, place, "an object is one piece of the pattern");
                one.size = one.size.max(offset + data.len());
            } else if step == WriteStep::Remove && self.noted().remove(&name).is_some() {
                // The engine has what was written beside the data, if anything was.
                if name.2 == 0 {
                    rest.steps.push(step);
                }
            } else {
                rest.steps.push(step);
            }
        }
        (!rest.steps.is_empty()).then_some(rest)
    }

    fn answer(&self, noted: Noted, step: &ReadStep) -> Option<ReadResult> {
        match *step {
            ReadStep::Stat => Some(ReadResult::Stat { size: noted.size }),
            ReadStep::Extents { offset, length } => {
                let length = length.min(noted.size.saturating_sub(offset));
                let data = self.pattern.slice(noted.place + offset, length);
                Some(ReadResult::Extents(vec![Extent { offset, data }]))
            }
            ReadStep::OmapGet { .. } | ReadStep::OmapScan { .. } | ReadStep::Xattr { .. } => None,
        }
    }
}

/// `bucket.data.WRITER.COUNTER.NUMBER`.
fn name(object: &ObjectId) -> Option<Name> {
    let ids = object.name.prefix().strip_prefix("bucket.data.")?;
    let (writer, counter) = ids.split_once('.')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(writer)?, number(counter)?, object.name.number()?))
}

impl ObjectStore for Synthetic {
    fn limits(&self, pool: &Pool) -> Limits {
        self.inner.limits(pool)
    }

    fn read<'a>(&'a self, object: &'a ObjectId, op: ReadOp) -> Reply<'a, ReadOutput> {
        if let Some(noted) = self.find(object) {
            let answers = op.steps.iter().map(|step| self.answer(noted, step));
            if let Some(results) = answers.collect::<Option<Vec<_>>>() {
                let version = Version(1);
                return Box::pin(async move { Ok(ReadOutput { version, results }) });
            }
        }
        self.inner.read(object, op)
    }

    fn try_read_cached(&self, object: &ObjectId, op: &ReadOp) -> Option<Result<ReadOutput, Error>> {
        match self.find(object) {
            Some(_) => None,
            None => self.inner.try_read_cached(object, op),
        }
    }

    fn write<'a>(&'a self, object: &'a ObjectId, op: WriteOp) -> Reply<'a, Version> {
        match self.note(object, op) {
            Some(rest) => self.inner.write(object, rest),
            None => Box::pin(async { Ok(Version(1)) }),
        }
    }

    fn list<'a>(
        &'a self,
        pool: &'a Pool,
        cursor: ListCursor,
        count_max: u32,
    ) -> Reply<'a, ListPage> {
        self.inner.list(pool, cursor, count_max)
    }

    fn lock<'a>(&'a self, object: &'a ObjectId, request: LockRequest) -> Reply<'a, ()> {
        self.inner.lock(object, request)
    }

    fn unlock<'a>(&'a self, object: &'a ObjectId, name: LockName, cookie: Bytes) -> Reply<'a, ()> {
        self.inner.unlock(object, name, cookie)
    }

    fn lock_holders<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
    ) -> Reply<'a, Vec<LockHolder>> {
        self.inner.lock_holders(object, name)
    }

    fn lock_break<'a>(
        &'a self,
        object: &'a ObjectId,
        name: LockName,
        holder: LockHolder,
    ) -> Reply<'a, ()> {
        self.inner.lock_break(object, name, holder)
    }

    fn watch<'a>(&'a self, object: &'a ObjectId) -> Reply<'a, Box<dyn Watch>> {
        self.inner.watch(object)
    }

    fn notify<'a>(
        &'a self,
        object: &'a ObjectId,
        payload: Bytes,
        timeout: Duration,
    ) -> Reply<'a, NotifyOutcome> {
        self.inner.notify(object, payload, timeout)
    }

    fn session(&self) -> SessionId {
        self.inner.session()
    }

    fn open_session<'a>(&'a self, purpose: &'a str) -> Reply<'a, Arc<dyn ObjectStore>> {
        self.inner.open_session(purpose)
    }

    fn fence<'a>(&'a self, victim: &'a SessionId) -> Reply<'a, ()> {
        self.inner.fence(victim)
    }

    fn may_write<'a>(&'a self, session: &'a SessionId) -> Reply<'a, bool> {
        self.inner.may_write(session)
    }

    fn snapshot_create<'a>(&'a self, pool: &'a Pool) -> Reply<'a, SnapId> {
        self.inner.snapshot_create(pool)
    }

    fn snapshot_remove<'a>(&'a self, pool: &'a Pool, snapshot: SnapId) -> Reply<'a, ()> {
        self.inner.snapshot_remove(pool, snapshot)
    }

    fn flush(&self) -> Reply<'_, ()> {
        self.inner.flush()
    }

    fn usage<'a>(&'a self, pool: &'a Pool) -> Reply<'a, Usage> {
        self.inner.usage(pool)
    }
}
