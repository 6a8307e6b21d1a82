use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::object::{
    Durability, Guard, ListCursor, LockKind, LockName, LockRequest, ObjectId, ObjectName, Payload,
    Pool, Priority, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep, XattrName,
};
use crate::stats::Counter;

fn options() -> LocalOptions {
    LocalOptions {
        memtable_bytes: 64 * 1024,
        log_bytes: 512 * 1024,
        cache_bytes: 1024 * 1024,
        reserve_bytes: 256 * 1024,
        ..LocalOptions::default()
    }
}

fn object(name: &str) -> ObjectId {
    ObjectId::new(&Pool::new("pool", ""), ObjectName::new(name))
}

fn data(byte: u8, length: usize) -> Payload {
    Payload::from(Bytes::from(vec![byte; length]))
}

async fn bytes_of(store: &Arc<dyn ObjectStore>, object: &ObjectId, length: u64) -> Vec<u8> {
    let read = ReadOp::new([ReadStep::Extents { offset: 0, length }]);
    let output = store.read(object, read).await.unwrap();
    let ReadResult::Extents(extents) = &output.results[0] else {
        panic!("asked for extents");
    };
    let mut bytes = Vec::new();
    for extent in extents {
        bytes.resize(usize::try_from(extent.offset).unwrap(), 0);
        bytes.extend_from_slice(&extent.data);
    }
    bytes
}

async fn write(store: &Arc<dyn ObjectStore>, object: &ObjectId, step: WriteStep) {
    store.write(object, WriteOp::new([step])).await.unwrap();
}

fn open(path: &Path) -> (Arc<LocalStore>, Arc<dyn ObjectStore>) {
    let store = LocalStore::open(path, options()).unwrap();
    let session = store.session("test");
    (store, session)
}

#[tokio::test]
async fn what_was_written_is_there_after_a_close_and_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let (small, large) = (object("small"), object("large"));
    let (store, session) = open(directory.path());
    write(&session, &small, WriteStep::Append { data: data(1, 100) }).await;
    write(
        &session,
        &small,
        WriteStep::Append {
            data: data(2, 5_000),
        },
    )
    .await;
    let write_large = WriteStep::Write {
        offset: 1_000,
        data: data(3, 300_000),
    };
    write(&session, &large, write_large).await;
    let entries = vec![(Bytes::from("k"), Bytes::from("v"))];
    write(&session, &small, WriteStep::OmapSet { entries }).await;
    let mut expected_small = vec![1; 100];
    expected_small.extend([2; 5_000]);
    let mut expected_large = vec![0; 1_000];
    expected_large.extend([3; 300_000]);
    assert_eq!(bytes_of(&session, &small, 1 << 20).await, expected_small);
    assert_eq!(bytes_of(&session, &large, 1 << 20).await, expected_large);
    drop((store, session));
    let report = check(directory.path()).unwrap();
    assert_eq!(report.problems, [""; 0]);
    assert!(report.log_records > 0);
    for round in 0..3 {
        let (store, session) = open(directory.path());
        assert_eq!(bytes_of(&session, &small, 1 << 20).await, expected_small);
        assert_eq!(bytes_of(&session, &large, 1 << 20).await, expected_large);
        let read = ReadOp::new([ReadStep::OmapGet {
            keys: vec![Bytes::from("k"), Bytes::from("l")],
        }]);
        let output = session.read(&small, read).await.unwrap();
        let values = vec![Some(Bytes::from("v")), None];
        assert_eq!(output.results, [ReadResult::OmapValues(values)]);
        if round == 1 {
            store.close().unwrap();
        }
    }
}

#[tokio::test]
async fn a_store_is_open_once() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(directory.path());
    let error = LocalStore::open(directory.path(), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.context().contains(&std::process::id().to_string()));
    assert!(error.context().contains(directory.path().to_str().unwrap()));
    drop((store, session));
    open(directory.path());
}

#[tokio::test]
async fn many_checkpoints_lose_nothing_and_space_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(directory.path());
    let pool = Pool::new("pool", "");
    for round in 0..40_u8 {
        for index in 0..16 {
            let target = object(&format!("o{index}"));
            let step = WriteStep::Replace {
                data: data(round, 10_000 + index),
            };
            write(&session, &target, step).await;
        }
    }
    assert!(store.stats().checkpoints.value() > 3);
    for index in 0..16 {
        let target = object(&format!("o{index}"));
        assert_eq!(
            bytes_of(&session, &target, 1 << 20).await,
            vec![39; 10_000 + index]
        );
    }
    let page = session.list(&pool, ListCursor::start(), 100).await.unwrap();
    assert_eq!(page.names.len(), 16);
    for index in 0..16 {
        write(&session, &object(&format!("o{index}")), WriteStep::Remove).await;
    }
    assert_eq!(session.usage(&pool).await.unwrap().object_count, 0);
    store.close().unwrap();
    drop((store, session));
    assert_eq!(check(directory.path()).unwrap().problems, [""; 0]);
    let (_store, session) = open(directory.path());
    let usage = session.usage(&pool).await.unwrap();
    assert_eq!((usage.object_count, usage.used_bytes), (0, 0));
}

#[tokio::test]
async fn a_quiet_store_gives_space_back_although_a_lock_is_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let span = Duration::from_millis(400);
    let quiet = LocalOptions {
        quiet_checkpoint: Some(span),
        ..LocalOptions::default()
    };
    let store = LocalStore::open(directory.path(), quiet).unwrap();
    let session = store.session("test");
    let target = object("o");
    write(&session, &target, WriteStep::Create).await;
    let large = data(1, 1 << 20);
    write(
        &session,
        &object("gone"),
        WriteStep::Replace { data: large },
    )
    .await;
    write(&session, &object("gone"), WriteStep::Remove).await;
    let pool = Pool::new("pool", "");
    let held = session.usage(&pool).await.unwrap().used_bytes;
    assert!(held > 1 << 20, "{held} bytes before the store is quiet");
    let lock = |renew| LockRequest {
        name: LockName("lock"),
        kind: LockKind::Exclusive,
        cookie: Bytes::from("c"),
        expiry: Some(Duration::from_secs(60)),
        renew,
    };
    session.lock(&target, lock(false)).await.unwrap();
    let began = tokio::time::Instant::now();
    while session.usage(&pool).await.unwrap().used_bytes > 64 << 10 {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "nothing came back"
        );
        tokio::time::sleep(span / 4).await;
        session.lock(&target, lock(true)).await.unwrap();
    }
    assert_eq!(store.stats().checkpoints.value(), 1);
    // What little is left is not worth another.
    tokio::time::sleep(3 * span).await;
    assert_eq!(store.stats().checkpoints.value(), 1);
}

/// Reads of a store that was opened just now, so that nothing but its files knows the answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_reads_need_no_other_thread_and_long_ones_take_one() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(directory.path());
    let target = object("o");
    let key = |index: u32| Bytes::from(format!("{index:04}"));
    let entries = (0..200).map(|index| (key(index), key(index))).collect();
    write(&session, &target, WriteStep::OmapSet { entries }).await;
    let replace = WriteStep::Replace {
        data: data(5, 1 << 20),
    };
    write(&session, &target, replace).await;
    store.close().unwrap();
    drop((store, session));
    let (store, session) = open(directory.path());
    let scan = |count_max| ReadStep::OmapScan {
        start: Bytes::new(),
        end: None,
        keys_only: false,
        count_max,
    };
    let extents = |length| ReadStep::Extents { offset: 0, length };
    let mut here = 0;
    for (step, is_short) in [
        (scan(10), true),
        (scan(150), false),
        (extents(100_000), true),
        (extents(1 << 20), false),
        (ReadStep::Stat, true),
    ] {
        let answer = session.read(&target, ReadOp::new([step.clone()])).await;
        match &answer.unwrap().results[0] {
            ReadResult::OmapPage(page) => {
                let ReadStep::OmapScan { count_max, .. } = step else {
                    panic!("{step:?} is no scan")
                };
                let expected = (0..count_max).map(|index| (key(index), key(index)));
                assert!(page.more);
                assert_eq!(page.entries, expected.collect::<Vec<_>>());
            }
            ReadResult::Extents(extents) => {
                let ReadStep::Extents { length, .. } = step else {
                    panic!("{step:?} reads no data")
                };
                assert_eq!(extents[0].data.len() as u64, length);
                assert!(extents[0].data.iter().all(|byte| *byte == 5));
            }
            other
            @ (ReadResult::Stat { .. } | ReadResult::Xattr(_) | ReadResult::OmapValues(_)) => {
                assert_eq!(other, &ReadResult::Stat { size: 1 << 20 });
            }
        }
        here += u64::from(is_short);
        assert_eq!(store.stats().reads_cached.value(), here, "{step:?}");
    }
}

#[tokio::test]
async fn memory_alone_answers_a_scan_while_the_base_is_empty() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(directory.path());
    let target = object("o");
    let entries = vec![(Bytes::from("k"), Bytes::from("v"))];
    let set = WriteStep::OmapSet { entries };
    write(&session, &target, set).await;
    let scan = ReadOp::new([ReadStep::OmapScan {
        start: Bytes::new(),
        end: None,
        keys_only: false,
        count_max: 10,
    }]);
    let answer = session.try_read_cached(&target, &scan).unwrap().unwrap();
    let ReadResult::OmapPage(page) = &answer.results[0] else {
        panic!("asked for a page")
    };
    assert_eq!(page.entries, [(Bytes::from("k"), Bytes::from("v"))]);
    store.close().unwrap();
    drop((store, session));
    let (_store, session) = open(directory.path());
    assert!(session.try_read_cached(&target, &scan).is_none());
}

#[tokio::test]
async fn concurrent_durable_writes_share_their_syncs() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(directory.path());
    let before = store.stats().log_flushes.value();
    let writes = (0..64).map(|index| {
        let session = Arc::clone(&session);
        tokio::spawn(async move {
            let step = WriteStep::Write {
                offset: 0,
                data: data(7, 512),
            };
            write(&session, &object(&format!("o{index}")), step).await;
        })
    });
    for write in writes.collect::<Vec<_>>() {
        write.await.unwrap();
    }
    let flushes = store.stats().log_flushes.value() - before;
    assert!(flushes < 20, "{flushes} syncs for 64 writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buffered_writes_need_no_other_thread_and_a_flush_makes_them_stable() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(directory.path());
    let writes = |first: u8, durability| {
        let writes = (first..first + 8).map(|index| {
            let session = Arc::clone(&session);
            let step = WriteStep::Write {
                offset: 0,
                data: data(index, 4_096),
            };
            let op = WriteOp {
                durability,
                ..WriteOp::new([step])
            };
            let target = object(&format!("o{index}"));
            async move { session.write(&target, op).await.unwrap() }
        });
        futures_util::future::join_all(writes)
    };
    let figures = || {
        let stats = store.stats();
        [&stats.batches, &stats.batches_here, &stats.log_flushes].map(Counter::value)
    };
    tokio::spawn(writes(0, Durability::Buffered)).await.unwrap();
    assert_eq!(figures(), [1, 1, 0]);
    session.flush().await.unwrap();
    assert_eq!(figures(), [1, 1, 1]);
    tokio::spawn(writes(8, Durability::Durable)).await.unwrap();
    let [_, here, flushes] = figures();
    assert!(here == 1 && flushes > 1, "{here} here, {flushes} flushes");
    drop((store, session));
    let (_store, session) = open(directory.path());
    for index in 0..16 {
        let target = object(&format!("o{index}"));
        assert_eq!(bytes_of(&session, &target, 8_192).await, [index; 4_096]);
    }
}

#[tokio::test]
async fn locks_outlive_the_process_and_expire_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(directory.path());
    let target = object("o");
    write(&session, &target, WriteStep::Create).await;
    let request = |expiry| LockRequest {
        name: LockName("lock"),
        kind: LockKind::Exclusive,
        cookie: Bytes::from("c"),
        expiry,
        renew: false,
    };
    let hour = Some(Duration::from_secs(3_600));
    session.lock(&target, request(hour)).await.unwrap();
    let owner = session.session();
    drop((store, session));
    let (_store, session) = open(directory.path());
    assert_ne!(session.session(), owner);
    assert!(!session.may_write(&owner).await.unwrap());
    let holders = session
        .lock_holders(&target, LockName("lock"))
        .await
        .unwrap();
    assert_eq!(holders[0].session, owner);
    let error = session.lock(&target, request(hour)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    let broken = session.lock_break(&target, LockName("lock"), holders[0].clone());
    broken.await.unwrap();
    session.lock(&target, request(hour)).await.unwrap();
}

#[tokio::test]
async fn a_full_store_answers_no_space_and_removing_makes_room() {
    let directory = tempfile::tempdir().unwrap();
    let capacity = LocalOptions {
        capacity_bytes: Some(4 << 20),
        ..options()
    };
    let store = LocalStore::open(directory.path(), capacity).unwrap();
    let session = store.session("test");
    for round in 0..3 {
        let mut count = 0;
        let error = loop {
            let step = WriteStep::Write {
                offset: 0,
                data: data(round, 100_000),
            };
            let target = object(&format!("o{count}"));
            match session.write(&target, WriteOp::new([step])).await {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(count > 30, "only {count} objects in round {round}");
        for index in 0..count {
            let target = object(&format!("o{index}"));
            assert_eq!(
                bytes_of(&session, &target, 200_000).await,
                vec![round; 100_000]
            );
            write(&session, &target, WriteStep::Remove).await;
        }
    }
    let xattr = WriteStep::XattrSet {
        name: XattrName::new("x"),
        value: Bytes::from("1"),
    };
    let guarded = WriteOp::new([xattr]).guarded(Guard::Absent);
    session.write(&object("last"), guarded).await.unwrap();
}

/// Every object holds one byte value all over and says which in an attribute; a read that sees two
/// versions at once, or a block that was used again, shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_one_version_while_checkpoints_run() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(directory.path());
    let mark = XattrName::new("mark");
    let step = move |value: u8| {
        let length = if value.is_multiple_of(3) {
            70_000
        } else {
            6_000
        };
        let xattr = WriteStep::XattrSet {
            name: mark,
            value: Bytes::from(vec![value]),
        };
        let replace = WriteStep::Replace {
            data: data(value, length),
        };
        WriteOp::new([replace, xattr])
    };
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..4 {
        let target = object(&format!("o{index}"));
        session.write(&target, step(0)).await.unwrap();
        let writer = Arc::clone(&session);
        let written = target.clone();
        tasks.spawn(async move {
            for value in 0..120_u8 {
                writer.write(&written, step(value)).await.unwrap();
            }
        });
        for _ in 0..2 {
            let (reader, target) = (Arc::clone(&session), target.clone());
            tasks.spawn(async move {
                for _ in 0..300 {
                    let extents = ReadStep::Extents {
                        offset: 0,
                        length: 1 << 20,
                    };
                    let read = ReadOp::new([extents, ReadStep::Xattr { name: mark }]);
                    let output = reader.read(&target, read).await.unwrap();
                    let [ReadResult::Extents(extents), ReadResult::Xattr(Some(value))] =
                        &output.results[..]
                    else {
                        panic!("one result for each step");
                    };
                    let mut bytes = extents.iter().flat_map(|extent| extent.data.iter());
                    assert!(bytes.all(|byte| *byte == value[0]));
                }
            });
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert!(store.stats().checkpoints.value() > 2);
    store.close().unwrap();
    drop((store, session));
    assert_eq!(check(directory.path()).unwrap().problems, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_many_wait_for_is_not_held_back() {
    let directory = tempfile::tempdir().unwrap();
    let (store, session) = open(directory.path());
    let object = object("o");
    // Paused time goes on when nobody has anything to do but to wait.
    let took = async |priority| {
        store.core.pace.limit(1, Duration::from_secs(1));
        for priority in [Priority::Client, Priority::Background] {
            store.core.pace.turn(64 * 1024 * 60, priority).await;
        }
        let began = tokio::time::Instant::now();
        let step = WriteStep::Append { data: data(1, 10) };
        let op = WriteOp::new([step]).with_priority(priority);
        session.write(&object, op).await.unwrap();
        began.elapsed()
    };
    assert!(took(Priority::Client).await > Duration::from_secs(50));
    assert!(took(Priority::Urgent).await < Duration::from_secs(1));
    assert!(took(Priority::Background).await > Duration::from_secs(50));
}
