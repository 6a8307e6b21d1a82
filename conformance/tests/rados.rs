//! The RADOS engine on a real cluster, whose configuration `PORTICO_RADOS_CONF` names. Its OSDs run
//! on this machine. `PORTICO_RADOS_CHECKS` picks the checks whose names contain it.

use std::collections::BTreeMap;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use portico_backend::error::ErrorKind;
use portico_backend::object::{
    ObjectId, ObjectName, ObjectStore, Pool, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep,
};
use portico_backend::rados::{RadosStore, wait_until_closed};
use portico_conformance::contract::{RadosHarness, run_some};
use tokio::time::{Instant, timeout};

/// A test that stops OSDs must not meet another one.
static ALONE: Mutex<()> = Mutex::new(());

fn conf() -> PathBuf {
    let conf = std::env::var_os("PORTICO_RADOS_CONF");
    PathBuf::from(conf.expect("PORTICO_RADOS_CONF names the ceph.conf of a cluster for tests"))
}

/// Runs a test by itself; the process does not end while librados shuts down.
fn alone(test: impl FnOnce() + std::panic::UnwindSafe) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let failed = catch_unwind(test);
    let closed = wait_until_closed(Duration::from_secs(60));
    if let Err(failed) = failed {
        resume_unwind(failed);
    }
    assert!(closed, "clients do not shut down");
}

fn run<F: Future<Output = ()>>(test: impl FnOnce() -> F + std::panic::UnwindSafe) {
    alone(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        runtime.expect("a runtime starts").block_on(test());
    });
}

fn id(name: &str) -> ObjectId {
    ObjectId::new(&Pool::new("contract", ""), ObjectName::new(name))
}

async fn data(store: &Arc<dyn ObjectStore>, name: &str) -> Bytes {
    let step = ReadStep::Extents {
        offset: 0,
        length: u64::MAX,
    };
    let output = store.read(&id(name), ReadOp::new([step])).await;
    let output = output.expect("the object is read");
    match &output.results[..] {
        [ReadResult::Extents(extents)] => match &extents[..] {
            [] => Bytes::new(),
            [all] => all.data.clone(),
            more => panic!("{} extents", more.len()),
        },
        other => panic!("one result for one step: {other:?}"),
    }
}

fn append(bytes: Vec<u8>) -> WriteOp {
    WriteOp::new([WriteStep::Append {
        data: Bytes::from(bytes).into(),
    }])
}

#[test]
fn rados_keeps_the_contract() {
    let wanted = std::env::var_os("PORTICO_RADOS_CHECKS").unwrap_or_default();
    let wanted = wanted.to_string_lossy().into_owned();
    alone(move || {
        let harness = RadosHarness::new(&conf(), "client.admin", 2);
        run_some(&(Arc::new(harness) as _), &wanted);
    });
}

/// The OSDs of the cluster as processes that stand still until dropped.
struct Frozen(Vec<String>);

impl Frozen {
    fn new(conf: &Path) -> Self {
        let conf = conf.to_str().expect("a path of text");
        let mut osds = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("a list of processes") {
            let path = entry.expect("a process").path();
            let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
            let is_osd = words
                .first()
                .is_some_and(|word| word.ends_with(b"ceph-osd"));
            if is_osd && words.contains(&conf.as_bytes()) {
                let name = path.file_name().expect("a number").to_string_lossy();
                osds.push(name.into_owned());
            }
        }
        assert!(!osds.is_empty(), "no ceph-osd runs with {conf}");
        let frozen = Self(osds);
        frozen.signal("-STOP");
        frozen
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(signal).args(&self.0).status();
        assert!(
            sent.expect("kill runs").success(),
            "kill {signal} {:?}",
            self.0
        );
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

const PIECE: usize = 64 * 1024;

/// A piece that tells who wrote it.
fn piece(number: u32) -> Vec<u8> {
    let mut piece = vec![0xa5; PIECE];
    piece[..4].copy_from_slice(&number.to_le_bytes());
    piece
}

fn numbers(data: &[u8]) -> BTreeMap<u32, usize> {
    let mut numbers = BTreeMap::new();
    for piece in data.chunks(PIECE) {
        assert_eq!(piece.len(), PIECE, "whole pieces only");
        assert!(
            piece[4..].iter().all(|byte| *byte == 0xa5),
            "a piece is whole"
        );
        let number = u32::from_le_bytes([piece[0], piece[1], piece[2], piece[3]]);
        *numbers.entry(number).or_default() += 1;
    }
    numbers
}

/// Wave after wave of writes to a cluster that stands still.
async fn waves(store: &RadosStore, session: &Arc<dyn ObjectStore>) -> Vec<u32> {
    let mut certainly_not = Vec::new();
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    let mut most = 0;
    for wave in 0..WAVES {
        let writes: Vec<_> = (0..WAVE)
            .map(|number| {
                let session = Arc::clone(session);
                let name = ["a", "b"][usize::from(number % 2 == 1)];
                let op = append(piece(wave * WAVE + number));
                tokio::spawn(async move { session.write(&id(name), op).await })
            })
            .collect();
        for (number, write) in (wave * WAVE..).zip(writes) {
            let error = write
                .await
                .expect("the task ends")
                .expect_err("nothing answers");
            *kinds.entry(format!("{:?}", error.kind())).or_default() += 1;
            if error.kind() == ErrorKind::Busy {
                certainly_not.push(number);
            } else {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
            most = most.max(store.stats().in_flight_bytes.value());
        }
    }
    println!("writes to a frozen cluster: {kinds:?}, at most {most} bytes in flight");
    assert!(
        most > BYTES_MAX / 2 && most <= BYTES_MAX,
        "{most} bytes in flight"
    );
    certainly_not
}

const BYTES_MAX: u64 = 4 << 20;
const WAVES: u32 = 5;
const WAVE: u32 = 200;

/// What was in flight when the cluster froze is bounded, answered "perhaps" at its deadline, and
/// applied once at most; afterwards everything goes on.
#[test]
fn a_frozen_cluster_takes_bounded_memory_and_applies_nothing_twice() {
    run(|| async {
        let harness = RadosHarness::new(&conf(), "client.admin", 1);
        let mut options = harness.options();
        options.bytes_max = BYTES_MAX;
        options.op_timeout = Duration::from_secs(1);
        options.slow_op = Duration::from_secs(1);
        let store = RadosStore::open(options).expect("the cluster is reached");
        let session = store.session("stall").expect("a session opens");
        let frozen = Frozen::new(&conf());
        let certainly_not = waves(&store, &session).await;
        let oldest = store.oldest_op().expect("something is in flight");
        assert!(oldest.age > Duration::from_secs(4), "{oldest:?}");
        drop(frozen);
        let thaw = Instant::now();
        while store.stats().in_flight.value() > 0 {
            assert!(
                thaw.elapsed() < Duration::from_secs(60),
                "the cluster thaws"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("all answered {:?} after the thaw", thaw.elapsed());
        let mut seen = BTreeMap::new();
        for name in ["a", "b"] {
            seen.extend(numbers(&data(&session, name).await));
            let op =
                append(piece(u32::MAX)).with_deadline(Instant::now() + Duration::from_secs(60));
            session.write(&id(name), op).await.expect("it goes on");
        }
        assert!(
            seen.values().all(|count| *count == 1),
            "nothing happened twice: {seen:?}"
        );
        let bytes = seen.len() * PIECE;
        assert!(
            bytes as u64 <= BYTES_MAX,
            "the cluster had {bytes} bytes of us at once"
        );
        for number in certainly_not {
            assert!(
                !seen.contains_key(&number),
                "{number} was not applied, it was said"
            );
        }
        assert!(
            store.stats().slow_ops.value() > 0,
            "slow operations are counted"
        );
    });
}

/// Whoever gives up waiting takes nothing away from the operation.
#[test]
fn dropped_operations_keep_their_memory() {
    run(|| async {
        let harness = RadosHarness::new(&conf(), "client.admin", 1);
        let store = RadosStore::open(harness.options()).expect("the cluster is reached");
        let session = store.session("drop").expect("a session opens");
        for number in 0..300 {
            let name = if number % 2 == 0 { "a" } else { "b" };
            let wait = Duration::from_micros(u64::from(number % 7) * 300);
            let op = append(piece(number));
            let object = id(name);
            drop(timeout(wait, session.write(&object, op)).await);
            let step = ReadStep::Extents {
                offset: 0,
                length: u64::MAX,
            };
            drop(timeout(wait, session.read(&object, ReadOp::new([step]))).await);
        }
        let start = Instant::now();
        while store.stats().in_flight.value() > 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "all is answered");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut seen = numbers(&data(&session, "a").await);
        seen.extend(numbers(&data(&session, "b").await));
        println!(
            "{} of 300 writes that nobody waited for happened",
            seen.len()
        );
        assert!(
            seen.values().all(|count| *count == 1),
            "nothing happened twice"
        );
        assert!(seen.len() > 30, "what was submitted happens");
    });
}

/// A paused OSD must not keep the monitors' answers from us: a fence works while others stall.
#[test]
fn a_fence_works_while_the_osds_are_frozen() {
    run(|| async {
        let harness = RadosHarness::new(&conf(), "client.admin", 1);
        let mut options = harness.options();
        options.op_timeout = Duration::from_secs(3);
        let store = RadosStore::open(options).expect("the cluster is reached");
        let taker = store.session("taker").expect("a session opens");
        let victim = store.session("victim").expect("a session opens");
        taker
            .write(&id("a"), append(piece(0)))
            .await
            .expect("it works");
        let frozen = Frozen::new(&conf());
        let late = {
            let (victim, object) = (Arc::clone(&victim), id("a"));
            tokio::spawn(async move { victim.write(&object, append(piece(1))).await })
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        let locks: Vec<_> = (0..8)
            .map(|_| {
                let (taker, object) = (Arc::clone(&taker), id("a"));
                let name = portico_backend::object::LockName("lock");
                tokio::spawn(async move { taker.lock_holders(&object, name).await })
            })
            .collect();
        let fenced = timeout(Duration::from_secs(10), taker.fence(&victim.session())).await;
        fenced.expect("the monitors answer").expect("fencing works");
        assert!(
            !taker
                .may_write(&victim.session())
                .await
                .expect("the monitors answer")
        );
        drop(frozen);
        if let Err(error) = late.await.expect("the task ends") {
            assert!(error.kind().is_perhaps_applied(), "{error}");
        }
        for lock in locks {
            drop(lock.await.expect("the task ends"));
        }
        // The write was on its way before the fence: it happened before our look, or never.
        let before = data(&taker, "a").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(data(&taker, "a").await, before);
        let error = victim.write(&id("a"), append(piece(2))).await;
        assert_eq!(error.expect_err("it is fenced").kind(), ErrorKind::Fenced);
    });
}

/// OSDs that wake up learn of a fence after they have answered others: the fencer's own operation
/// must wait for that. The monitors send a client the first map after its own by themselves, and no
/// later one, so the fencer has fenced somebody else before.
#[test]
fn nothing_lands_behind_the_fencer_while_the_osds_wake() {
    const OBJECTS: usize = 24;
    run(|| async {
        let harness = RadosHarness::new(&conf(), "client.admin", 1);
        let store = RadosStore::open(harness.options()).expect("the cluster is reached");
        for round in 0..6 {
            let taker = store.session("taker").expect("a session opens");
            let victim = store.session("victim").expect("a session opens");
            let other = store.session("other").expect("a session opens");
            taker.fence(&other.session()).await.expect("fencing works");
            let names: Vec<String> = (0..OBJECTS).map(|n| format!("{round}-{n}")).collect();
            let mut storm = tokio::task::JoinSet::new();
            for name in &names {
                taker
                    .write(&id(name), append(vec![0]))
                    .await
                    .expect("it works");
                for _ in 0..3 {
                    let (victim, name) = (Arc::clone(&victim), name.clone());
                    storm.spawn(async move {
                        while victim.write(&id(&name), append(vec![1])).await.is_ok() {}
                    });
                }
            }
            let frozen = Frozen::new(&conf());
            taker
                .fence(&victim.session())
                .await
                .expect("the monitors answer");
            let mut looks = tokio::task::JoinSet::new();
            for name in names {
                let taker = Arc::clone(&taker);
                looks.spawn(async move {
                    let size = data(&taker, &name).await.len();
                    (name, size)
                });
            }
            // They lie before the OSDs, beside what the victim has sent.
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(frozen);
            let seen = looks.join_all().await;
            storm.join_all().await;
            for (name, size) in seen {
                let after = data(&taker, &name).await.len();
                assert_eq!(after, size, "the victim wrote {name} behind our look");
            }
        }
    });
}
