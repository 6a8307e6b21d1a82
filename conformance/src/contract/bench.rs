//! What checks work with: stores to open and sessions that count, compare and explain.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use portico_backend::error::{Error, ErrorKind};
use portico_backend::object::{
    Limits, ObjectId, ObjectName, ObjectStore, OmapPage, Pool, ReadOp, ReadOutput, ReadResult,
    ReadStep, SnapId, Version, WriteOp, WriteStep, XattrName,
};

use super::engine::{Cluster, Harness};

/// The attributes that checks use, so that a whole state can be read.
pub(super) const XATTRS: [XattrName; 3] = [
    XattrName::new("first"),
    XattrName::new("second"),
    XattrName::new("epoch"),
];

/// The engine under test.
#[derive(Clone, Debug)]
pub struct Bench {
    harness: Arc<dyn Harness>,
    operations: Arc<AtomicU64>,
}

/// A store of the engine under test.
#[derive(Debug)]
pub struct Opened {
    cluster: Box<dyn Cluster>,
    operations: Arc<AtomicU64>,
}

/// One session and the pool it works in.
#[derive(Clone, Debug)]
pub struct Session {
    pub store: Arc<dyn ObjectStore>,
    pub pool: Pool,
    operations: Arc<AtomicU64>,
}

/// All that can be read of an object, beside its version.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct State {
    pub data: Vec<u8>,
    pub xattrs: BTreeMap<&'static str, Bytes>,
    pub omap: BTreeMap<Bytes, Bytes>,
}

impl Bench {
    pub(super) fn new(harness: Arc<dyn Harness>, operations: Arc<AtomicU64>) -> Self {
        Self {
            harness,
            operations,
        }
    }

    pub(super) fn seed_count(&self) -> u64 {
        self.harness.seed_count()
    }

    pub(super) fn patience(&self) -> u32 {
        self.harness.patience()
    }

    pub(super) fn space_lag(&self) -> Duration {
        self.harness.space_lag()
    }

    pub(super) fn maps_take_space(&self) -> bool {
        self.harness.maps_take_space()
    }

    pub(super) fn open(&self) -> Opened {
        self.open_with(None)
    }

    pub(super) fn open_with(&self, capacity_bytes: Option<u64>) -> Opened {
        Opened {
            cluster: self.harness.open(capacity_bytes),
            operations: Arc::clone(&self.operations),
        }
    }
}

impl Opened {
    pub(super) fn session(&self) -> Session {
        self.wrap(self.cluster.session("contract"))
    }

    /// A session made elsewhere, such as a faulty one.
    pub(super) fn wrap(&self, store: Arc<dyn ObjectStore>) -> Session {
        Session {
            store,
            pool: Pool::new("contract", ""),
            operations: Arc::clone(&self.operations),
        }
    }

    pub(super) async fn reopen(self) -> Self {
        Self {
            cluster: self.cluster.reopen().await,
            operations: self.operations,
        }
    }

    pub(super) fn flush_count(&self) -> Option<u64> {
        self.cluster.flush_count()
    }
}

impl Session {
    pub(super) fn id(&self, name: &str) -> ObjectId {
        ObjectId::new(&self.pool, ObjectName::new(name))
    }

    pub(super) fn limits(&self) -> Limits {
        self.store.limits(&self.pool)
    }

    /// Counts one operation.
    pub(super) fn count(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) async fn write(&self, name: &str, op: WriteOp) -> Result<Version, Error> {
        self.count();
        self.store.write(&self.id(name), op).await
    }

    pub(super) async fn read(&self, name: &str, op: ReadOp) -> Result<ReadOutput, Error> {
        self.count();
        self.store.read(&self.id(name), op).await
    }

    /// A write without guards that must work.
    pub(super) async fn put(
        &self,
        name: &str,
        steps: impl IntoIterator<Item = WriteStep>,
    ) -> Version {
        self.writes(name, WriteOp::new(steps)).await
    }

    /// A write that must work.
    pub(super) async fn writes(&self, name: &str, op: WriteOp) -> Version {
        let shown = shorten(&op);
        match self.write(name, op).await {
            Ok(version) => version,
            Err(error) => panic!("{shown} of {name}: {error}"),
        }
    }

    /// A write that must fail like this and change nothing.
    pub(super) async fn refuses(&self, name: &str, op: WriteOp, kind: ErrorKind) -> Error {
        let before = self.state(name).await;
        let shown = shorten(&op);
        let Err(error) = self.write(name, op).await else {
            panic!("{shown} of {name} works, instead of {kind:?}");
        };
        assert_eq!(error.kind(), kind, "{shown} of {name}: {error}");
        assert_eq!(self.state(name).await, before, "{shown} of {name} failed");
        error
    }

    /// A read that must work.
    pub(super) async fn reads(
        &self,
        name: &str,
        steps: impl IntoIterator<Item = ReadStep>,
    ) -> Vec<ReadResult> {
        let op = ReadOp::new(steps);
        let shown = shorten(&op);
        match self.read(name, op).await {
            Ok(output) => output.results,
            Err(error) => panic!("{shown} of {name}: {error}"),
        }
    }

    pub(super) async fn read_fails(&self, name: &str, op: ReadOp, kind: ErrorKind) -> Error {
        let shown = shorten(&op);
        match self.read(name, op).await {
            Ok(output) => panic!("{shown} of {name} gives {output:?}, instead of {kind:?}"),
            Err(error) => {
                assert_eq!(error.kind(), kind, "{shown} of {name}: {error}");
                error
            }
        }
    }

    /// Version and state; `None` if there is no such object.
    pub(super) async fn state(&self, name: &str) -> Option<(Version, State)> {
        self.state_at(name, None).await
    }

    pub(super) async fn state_at(
        &self,
        name: &str,
        at: Option<SnapId>,
    ) -> Option<(Version, State)> {
        let mut steps = vec![
            ReadStep::Stat,
            ReadStep::Extents {
                offset: 0,
                length: u64::MAX,
            },
        ];
        steps.extend(XATTRS.map(|name| ReadStep::Xattr { name }));
        steps.push(scan(b"", None, self.limits().omap_keys_max));
        let mut op = ReadOp::new(steps);
        op.at = at;
        let output = match self.read(name, op).await {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => panic!("reading the state of {name}: {error}"),
        };
        let mut state = State::default();
        let mut results = output.results.into_iter();
        let (stat, extents) = (results.next(), results.next());
        state.data = dense(stat, extents);
        for name in XATTRS {
            match results.next() {
                Some(ReadResult::Xattr(value)) => {
                    state
                        .xattrs
                        .extend(value.map(|value| (name.as_str(), value)));
                }
                other => panic!("the value of {name:?} is {other:?}"),
            }
        }
        let Some(ReadResult::OmapPage(page)) = results.next() else {
            panic!("a scan gives a page");
        };
        state.omap.extend(page.entries);
        if page.more {
            self.scan_rest(name, at, &mut state.omap).await;
        }
        Some((output.version, state))
    }

    async fn scan_rest(&self, name: &str, at: Option<SnapId>, omap: &mut BTreeMap<Bytes, Bytes>) {
        loop {
            let last = omap.keys().next_back().cloned().unwrap_or_default();
            let start = [&last[..], b"\0"].concat();
            let mut op = ReadOp::new([scan(&start, None, self.limits().omap_keys_max)]);
            op.at = at;
            let output = self
                .read(name, op)
                .await
                .expect("the object is still there");
            let [ReadResult::OmapPage(page)] = &output.results[..] else {
                panic!("a scan gives a page");
            };
            omap.extend(page.entries.iter().cloned());
            if !page.more {
                return;
            }
        }
    }

    /// The bytes of an object that must exist.
    pub(super) async fn data(&self, name: &str) -> Vec<u8> {
        self.existing(name).await.data
    }

    pub(super) async fn existing(&self, name: &str) -> State {
        match self.state(name).await {
            Some((_, state)) => state,
            None => panic!("{name} does not exist"),
        }
    }

    pub(super) async fn page(&self, name: &str, step: ReadStep) -> OmapPage {
        match &self.reads(name, [step]).await[..] {
            [ReadResult::OmapPage(page)] => page.clone(),
            other => panic!("a scan gives {other:?}"),
        }
    }
}

/// Checks what is promised of extents and fills the gaps.
fn dense(stat: Option<ReadResult>, extents: Option<ReadResult>) -> Vec<u8> {
    let (Some(ReadResult::Stat { size }), Some(ReadResult::Extents(extents))) = (stat, extents)
    else {
        panic!("each step has its result");
    };
    let mut data = vec![0; usize::try_from(size).expect("a size within memory")];
    let mut end = 0;
    for extent in extents {
        assert!(
            extent.offset >= end,
            "extents are in order and do not overlap"
        );
        let at = usize::try_from(extent.offset).expect("an offset within memory");
        end = extent.offset + extent.data.len() as u64;
        assert!(end <= size, "extents are clipped to the size");
        data[at..at + extent.data.len()].copy_from_slice(&extent.data);
    }
    data
}

pub(super) fn bytes(content: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(content.as_ref())
}

pub(super) fn write_at(offset: u64, content: impl AsRef<[u8]>) -> WriteStep {
    WriteStep::Write {
        offset,
        data: bytes(content).into(),
    }
}

pub(super) fn append(content: impl AsRef<[u8]>) -> WriteStep {
    WriteStep::Append {
        data: bytes(content).into(),
    }
}

pub(super) fn replace(content: impl AsRef<[u8]>) -> WriteStep {
    WriteStep::Replace {
        data: bytes(content).into(),
    }
}

pub(super) fn xattr(index: usize, value: impl AsRef<[u8]>) -> WriteStep {
    WriteStep::XattrSet {
        name: XATTRS[index],
        value: bytes(value),
    }
}

pub(super) fn omap<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    entries: impl IntoIterator<Item = (K, V)>,
) -> WriteStep {
    let entries = entries.into_iter();
    WriteStep::OmapSet {
        entries: entries
            .map(|(key, value)| (bytes(key), bytes(value)))
            .collect(),
    }
}

pub(super) fn omap_remove<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> WriteStep {
    WriteStep::OmapRemove {
        keys: keys.into_iter().map(bytes).collect(),
    }
}

pub(super) fn scan(start: &[u8], end: Option<&[u8]>, count_max: u32) -> ReadStep {
    ReadStep::OmapScan {
        start: bytes(start),
        end: end.map(bytes),
        keys_only: false,
        count_max,
    }
}

/// An operation as text that fits on a few lines.
pub(super) fn shorten(op: &impl fmt::Debug) -> String {
    let mut short = Short::default();
    // Running out of room is the only error, and what was written by then is enough.
    if fmt::write(&mut short, format_args!("{op:?}")).is_err() {
        short.text.push_str("...");
    }
    short.text
}

/// Keeps the beginning of a text without what repeats: payloads are the same byte many times.
#[derive(Debug, Default)]
struct Short {
    text: String,
    last: String,
    repeats: usize,
    pieces: usize,
}

impl fmt::Write for Short {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.pieces += 1;
        self.repeats = match piece == self.last {
            true => self.repeats + 1,
            false => 0,
        };
        match self.repeats {
            0 => piece.clone_into(&mut self.last),
            1..=4 => {}
            5 => self.text.push_str("..."),
            _ => {}
        }
        if self.repeats < 5 {
            self.text.push_str(piece);
        }
        match self.text.len() < 4_000 && self.pieces < 500_000 {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}
