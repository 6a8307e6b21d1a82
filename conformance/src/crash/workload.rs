//! A seeded run of operations and what is known about each object at each moment of it.

use std::sync::Arc;

use bytes::Bytes;
use portico_backend::error::ErrorKind;
use portico_backend::local::LocalStore;
use portico_backend::local::media::Medium;
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{
    Durability, ObjectId, ObjectName, ObjectStore, Payload, Pool, ReadOp, ReadResult, ReadStep,
    WriteOp, WriteStep, XattrName,
};
use portico_backend::random::Generator;
use ring::digest::{Context, SHA256};

use super::disk::{Event, Image, SimDisk};
use super::tiny_options;

/// All that can be read of an object, in short. `None`: it does not exist.
pub type Digest = Option<[u8; 8]>;

/// One state of an object.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Events before the operation began: a cut there can't show it.
    pub began: u64,
    /// Events when it was known to be stable: a cut from there on must not lose it.
    pub stable: u64,
    pub digest: Digest,
    /// For failure messages.
    pub what: String,
}

/// A recorded run.
#[derive(Debug)]
pub struct History {
    pub initial: Image,
    pub events: Vec<Event>,
    /// The disk at the end, after a clean close if `closed`.
    pub end: Image,
    /// States of each object, the oldest first.
    pub objects: Vec<(ObjectId, Vec<Moment>)>,
    pub checkpoints: u64,
    /// Operations that found the disk full.
    pub refused: u64,
}

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub operations: u64,
    pub planted_bug: Option<portico_backend::local::PlantedBug>,
    /// Whether the store is closed at the end.
    pub close: bool,
    /// Writes and syncs fail from this one after opening on.
    pub fails_at: Option<u64>,
    /// Room on the disk, once the store is open. At the end everything is removed and written
    /// again.
    pub disk_bytes: Option<u64>,
}

impl Plan {
    #[must_use]
    pub fn new(seed: u64, operations: u64) -> Self {
        Self {
            seed,
            operations,
            planted_bug: None,
            close: false,
            fails_at: None,
            disk_bytes: None,
        }
    }
}

/// Runs the workload and records it.
///
/// # Panics
/// If the engine answers otherwise than the memory engine.
pub async fn record(plan: Plan) -> History {
    let disk = SimDisk::new(Image::new());
    let medium: Arc<dyn Medium> = Arc::<SimDisk>::clone(&disk);
    let store = LocalStore::open_on(&medium, tiny_options(plan.planted_bug))
        .expect("an empty disk becomes a store");
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let mut run = Run {
        random: Generator::new(plan.seed),
        disk: Arc::clone(&disk),
        session: store.session("crash suite"),
        oracle: cluster.session("oracle"),
        objects: (0..OBJECTS).map(first_moment).collect(),
        failed: false,
        refused: 0,
    };
    if let Some(at) = plan.fails_at {
        disk.fail_after(at, plan.seed);
    }
    if let Some(bytes) = plan.disk_bytes {
        disk.set_capacity(bytes);
    }
    let mut done = 0;
    while done < plan.operations && !run.failed {
        done += run.step().await;
    }
    if plan.disk_bytes.is_some() {
        run.remove_all_and_begin_again().await;
    }
    if plan.close && !run.failed {
        store.close().expect("the disk works");
    }
    if run.failed {
        let op = WriteOp::new([WriteStep::Create]);
        let refused = run.session.write(&object(OBJECTS), op).await;
        let kind = refused.expect_err("a failed store refuses writes").kind();
        assert_eq!(kind, ErrorKind::Unavailable);
    }
    let checkpoints = store.stats().checkpoints.value();
    let objects = std::mem::take(&mut run.objects);
    let refused = run.refused;
    drop((store, run));
    History {
        initial: Image::new(),
        events: disk.events(),
        end: disk.image(),
        objects,
        checkpoints,
        refused,
    }
}

struct Run {
    random: Generator,
    disk: Arc<SimDisk>,
    session: Arc<dyn ObjectStore>,
    oracle: Arc<dyn ObjectStore>,
    objects: Vec<(ObjectId, Vec<Moment>)>,
    /// The disk began to fail.
    failed: bool,
    refused: u64,
}

impl Run {
    /// One operation, or several at once on different objects. Gives their number.
    async fn step(&mut self) -> u64 {
        if self.random.chance(60) {
            self.flush().await;
            return 1;
        }
        let count = if self.random.chance(300) {
            2 + self.random.below(3)
        } else {
            1
        };
        let first = self.random.below(OBJECTS);
        let mut writes = Vec::new();
        for number in (first..first + count).map(|number| number % OBJECTS) {
            let op = self.operation(count == 1);
            writes.push((index(number), op));
        }
        let began = self.disk.position();
        let tasks = writes.iter().map(|(number, op)| {
            let session = Arc::clone(&self.session);
            let (object, op) = (self.objects[*number].0.clone(), op.clone());
            tokio::spawn(async move { session.write(&object, op).await })
        });
        let tasks: Vec<_> = tasks.collect();
        for (task, (number, op)) in tasks.into_iter().zip(writes) {
            let answer = task.await.expect("a write does not panic");
            if answer
                .as_ref()
                .is_err_and(|e| e.kind() == ErrorKind::NoSpace)
            {
                self.refused += 1;
                continue;
            }
            let stable = match (&answer, op.durability) {
                (Ok(_), Durability::Durable) => self.disk.position(),
                (Ok(_), Durability::Buffered) | (Err(_), _) => u64::MAX,
            };
            let answer = answer.map(|_| ()).map_err(|error| error.kind());
            self.failed |= answer == Err(ErrorKind::Unavailable);
            let object = self.objects[number].0.clone();
            let what = format!("{op:?}").chars().take(300).collect();
            let expected = self.oracle.write(&object, op).await;
            let expected = expected.map(|_| ()).map_err(|error| error.kind());
            if answer != Err(ErrorKind::Unavailable) {
                assert_eq!(answer, expected, "{object}: {what}");
            }
            let digest = digest(&*self.oracle, &object).await;
            self.objects[number].1.push(Moment {
                began,
                stable,
                digest: digest.expect("the memory engine reads"),
                what,
            });
        }
        count
    }

    /// Removing works on a full disk, and what it frees can be used.
    async fn remove_all_and_begin_again(&mut self) {
        for step in [
            WriteStep::Remove,
            WriteStep::Append {
                data: self.payload(),
            },
        ] {
            for number in 0..self.objects.len() {
                let began = self.disk.position();
                let object = self.objects[number].0.clone();
                let op = WriteOp::new([step.clone()]);
                let answer = self.session.write(&object, op.clone()).await;
                let answer = answer.map(|_| ()).map_err(|error| error.kind());
                let expected = self.oracle.write(&object, op).await;
                let expected = expected.map(|_| ()).map_err(|error| error.kind());
                assert_eq!(answer, expected, "{object}: {step:.20?}");
                let digest = digest(&*self.oracle, &object).await;
                self.objects[number].1.push(Moment {
                    began,
                    stable: self.disk.position(),
                    digest: digest.expect("the memory engine reads"),
                    what: format!("{step:?}").chars().take(300).collect(),
                });
            }
        }
    }

    async fn flush(&mut self) {
        if self.session.flush().await.is_err() {
            self.failed = true;
            return;
        }
        let position = self.disk.position();
        for (_, moments) in &mut self.objects {
            for moment in moments {
                moment.stable = moment.stable.min(position);
            }
        }
    }

    fn operation(&mut self, alone: bool) -> WriteOp {
        let mut op = WriteOp::default();
        let is_buffered = self.random.chance(200);
        let steps = 1 + self.random.below(3);
        for _ in 0..steps {
            op = op.step(self.plain_step());
            if !is_buffered {
                op = op.step(self.other_step(alone));
            }
        }
        if is_buffered {
            return op.buffered();
        }
        if self.random.chance(40) {
            op = op.step(WriteStep::Remove);
        }
        op
    }

    fn plain_step(&mut self) -> WriteStep {
        let offset = self.random.below(20_000);
        match self.random.below(10) {
            0 => WriteStep::Append {
                data: self.payload(),
            },
            1 => WriteStep::Replace {
                data: self.payload(),
            },
            2 => WriteStep::Truncate { size: offset },
            3 => WriteStep::Zero {
                offset,
                length: 1 + self.random.below(15_000),
            },
            4 => WriteStep::Create,
            5 => WriteStep::Write {
                offset: offset / 4096 * 4096,
                data: self.payload(),
            },
            _ => WriteStep::Write {
                offset,
                data: self.payload(),
            },
        }
    }

    fn other_step(&mut self, alone: bool) -> WriteStep {
        let key = |number: u64| Bytes::from(format!("key{number:02}"));
        let number = self.random.below(20);
        match self.random.below(8) {
            0 => WriteStep::XattrSet {
                name: XATTRS[index(number % 3)],
                value: self.bytes(100),
            },
            1 if alone => WriteStep::CloneRange {
                source: object(self.random.below(OBJECTS)),
                source_offset: self.random.below(8_000),
                offset: self.random.below(8_000),
                length: self.random.below(9_000),
            },
            2 => WriteStep::OmapRemoveRange {
                start: key(number),
                end: key(number + 3),
            },
            3 => WriteStep::OmapRemove {
                keys: vec![key(number), key(number + 1)],
            },
            _ => {
                let count = 1 + self.random.below(3);
                let keys = number..number + count;
                WriteStep::OmapSet {
                    entries: keys.map(|number| (key(number), self.bytes(300))).collect(),
                }
            }
        }
    }

    fn payload(&mut self) -> Payload {
        let most = if self.random.chance(250) {
            14_000
        } else {
            3_000
        };
        Payload::from(self.bytes(most))
    }

    /// At least one byte that can be told from those of other calls.
    fn bytes(&mut self, most: u64) -> Bytes {
        let length = 1 + self.random.below(most);
        let mut bytes = Vec::with_capacity(index(length) + 8);
        while bytes.len() < index(length) {
            bytes.extend_from_slice(&self.random.next_u64().to_le_bytes());
        }
        bytes.truncate(index(length));
        Bytes::from(bytes)
    }
}

/// What a store says about an object.
///
/// # Errors
/// The kind, unless the object is `NotFound`: that is an answer.
pub async fn digest(store: &dyn ObjectStore, object: &ObjectId) -> Result<Digest, ErrorKind> {
    let mut steps = vec![
        ReadStep::Stat,
        ReadStep::Extents {
            offset: 0,
            length: u64::MAX,
        },
        ReadStep::OmapScan {
            start: Bytes::new(),
            end: None,
            keys_only: false,
            count_max: 1_000,
        },
    ];
    steps.extend(XATTRS.map(|name| ReadStep::Xattr { name }));
    let output = match store.read(object, ReadOp::new(steps)).await {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.kind()),
    };
    let mut context = Context::new(&SHA256);
    let mut put = |bytes: &[u8]| {
        context.update(&(bytes.len() as u64).to_le_bytes());
        context.update(bytes);
    };
    let mut size = 0;
    for result in &output.results {
        match result {
            ReadResult::Stat { size: stat_size } => size = *stat_size,
            ReadResult::Extents(extents) => {
                let mut content = vec![0; index(size)];
                for extent in extents {
                    let at = index(extent.offset);
                    content[at..at + extent.data.len()].copy_from_slice(&extent.data);
                }
                put(&content);
            }
            ReadResult::Xattr(value) => put(value.as_deref().unwrap_or(b"none")),
            ReadResult::OmapPage(page) => {
                for (key, value) in &page.entries {
                    put(key);
                    put(value);
                }
            }
            ReadResult::OmapValues(_) => {}
        }
    }
    let digest = context.finish();
    let first = digest.as_ref().first_chunk();
    Ok(Some(*first.expect("32 bytes")))
}

fn first_moment(number: u64) -> (ObjectId, Vec<Moment>) {
    let moment = Moment {
        began: 0,
        stable: 0,
        digest: None,
        what: "nothing yet".to_owned(),
    };
    (object(number), vec![moment])
}

fn object(number: u64) -> ObjectId {
    let pool = Pool::new("pool", "crash");
    ObjectId::new(&pool, ObjectName::new(&format!("object{number}")))
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

const OBJECTS: u64 = 6;
const XATTRS: [XattrName; 3] = [
    XattrName::new("a"),
    XattrName::new("b"),
    XattrName::new("c"),
];
