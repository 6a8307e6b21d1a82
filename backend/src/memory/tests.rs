use super::*;
use crate::object::{LockKind, LockName, LockRequest, ReadResult, ReadStep, SnapContext};

const NAME: &str = "object";

fn id() -> ObjectId {
    ObjectId::new(&Pool::new("pool", ""), ObjectName::new(NAME))
}

fn write(offset: u64, byte: u8, length: usize) -> WriteOp {
    WriteOp::new([WriteStep::Write {
        offset,
        data: Bytes::from(vec![byte; length]).into(),
    }])
}

async fn content(store: &Arc<dyn ObjectStore>, at: Option<SnapId>) -> Result<Vec<u8>, Error> {
    let mut op = ReadOp::new([
        ReadStep::Stat,
        ReadStep::Extents {
            offset: 0,
            length: u64::MAX,
        },
    ]);
    op.at = at;
    let output = store.read(&id(), op).await?;
    let [ReadResult::Stat { size }, ReadResult::Extents(extents)] = &output.results[..] else {
        panic!("one result for each step");
    };
    let mut bytes = vec![0; usize::try_from(*size).unwrap()];
    for extent in extents {
        let at = usize::try_from(extent.offset).unwrap();
        bytes[at..at + extent.data.len()].copy_from_slice(&extent.data);
    }
    Ok(bytes)
}

#[tokio::test]
async fn a_crash_loses_buffered_pages_one_by_one_and_durable_ones_never() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..64 {
        let cluster = MemoryCluster::new(MemoryOptions {
            seed,
            ..MemoryOptions::default()
        });
        let store = cluster.session("test");
        store.write(&id(), write(0, 1, 3 * 4_096)).await.unwrap();
        let buffered = write(0, 2, 2 * 4_096).buffered();
        store.write(&id(), buffered).await.unwrap();
        store.write(&id(), write(4_096, 2, 1)).await.unwrap();
        cluster.crash();
        let error = content(&store, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let left = content(&cluster.session("test"), None).await.unwrap();
        assert_eq!(left.len(), 3 * 4_096);
        assert_eq!(
            left[4_096..5_000],
            [2; 904],
            "the durable byte and its page"
        );
        assert_eq!(left[2 * 4_096..], [1; 4_096], "never overwritten");
        assert!(left[..4_096].iter().all(|byte| *byte == left[0]));
        outcomes.insert(left[0]);
    }
    assert_eq!(outcomes, BTreeSet::from([1, 2]));
}

#[tokio::test]
async fn after_a_flush_a_crash_loses_nothing() {
    for seed in 0..16 {
        let cluster = MemoryCluster::new(MemoryOptions {
            seed,
            ..MemoryOptions::default()
        });
        let store = cluster.session("test");
        store
            .write(&id(), write(9, 7, 9_000).buffered())
            .await
            .unwrap();
        store.flush().await.unwrap();
        let before = content(&store, None).await.unwrap();
        cluster.crash();
        assert_eq!(
            content(&cluster.session("test"), None).await.unwrap(),
            before
        );
    }
}

#[tokio::test]
async fn an_object_made_by_a_buffered_write_may_vanish_and_its_space_returns() {
    let mut vanished = 0;
    for seed in 0..32 {
        let cluster = MemoryCluster::new(MemoryOptions {
            seed,
            ..MemoryOptions::default()
        });
        let store = cluster.session("test");
        store
            .write(&id(), write(0, 7, 9_000).buffered())
            .await
            .unwrap();
        cluster.crash();
        let store = cluster.session("test");
        if content(&store, None).await.is_err() {
            vanished += 1;
            assert_eq!(store.usage(&id().pool).await.unwrap().used_bytes, 0);
        }
    }
    assert!((1..32).contains(&vanished));
}

#[tokio::test]
async fn a_failed_write_leaves_no_snapshot_state_behind() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let store = cluster.session("test");
    store.write(&id(), write(0, 1, 4)).await.unwrap();
    let snapshot = store.snapshot_create(&id().pool).await.unwrap();
    let context = SnapContext {
        sequence: snapshot.0,
        snapshots: vec![snapshot],
    };
    let mut failing = write(0, 2, 4).step(WriteStep::Truncate { size: 1 << 27 });
    failing.steps.push(WriteStep::Append {
        data: Bytes::from_static(b"beyond").into(),
    });
    failing.snapshots = context.clone();
    let error = store.write(&id(), failing).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(content(&store, Some(snapshot)).await.unwrap(), [1; 4]);
    let mut second = write(0, 3, 4);
    second.snapshots = context;
    store.write(&id(), second).await.unwrap();
    assert_eq!(content(&store, Some(snapshot)).await.unwrap(), [1; 4]);
    assert_eq!(content(&store, None).await.unwrap(), [3; 4]);
}

#[tokio::test]
async fn a_session_ends_with_its_last_handle_and_keeps_its_locks() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let (first, second) = (cluster.session("test"), cluster.session("test"));
    first.write(&id(), write(0, 1, 1)).await.unwrap();
    let request = LockRequest {
        name: LockName("lock"),
        kind: LockKind::Exclusive,
        cookie: Bytes::new(),
        expiry: None,
        renew: false,
    };
    first.lock(&id(), request.clone()).await.unwrap();
    let ended = first.session();
    assert!(second.may_write(&ended).await.unwrap());
    drop(first);
    assert!(!second.may_write(&ended).await.unwrap());
    let error = second.lock(&id(), request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
}
