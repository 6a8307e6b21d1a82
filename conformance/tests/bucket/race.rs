//! What happens at the same time, on two sessions over one store.

use std::sync::Arc;
use std::time::Duration;

use portico_backend::bucket::{Bucket, BucketOptions, Buckets, Error, EtagMatch, Precondition};
use portico_backend::error::ErrorKind;
use portico_backend::faulty::{CallKind, Faults, Faulty, FaultyOptions};
use portico_backend::memory::{MemoryCluster, MemoryOptions};

use crate::bed::{
    Bed, Engine, ID, about, all, bytes, fetch, key, put, put_if, read, reclaim_all, remove, tiny,
};

async fn two_nodes(bed: &Bed, options: &BucketOptions) -> ([Arc<Buckets>; 2], [Bucket; 2]) {
    let nodes = [bed.node(options).await, bed.node(options).await];
    nodes[0].create(ID).await.unwrap();
    let buckets = [
        nodes[0].bucket(ID).await.unwrap(),
        nodes[1].bucket(ID).await.unwrap(),
    ];
    (nodes, buckets)
}

/// Two nodes with slow links, so that what one does falls between the steps of the other.
async fn slow_nodes(bed: &Bed, seed: u64) -> ([Arc<Buckets>; 2], [Bucket; 2]) {
    let faults = Faults {
        delay_max: Duration::from_millis(5),
        ..Faults::default()
    };
    let mut nodes = Vec::new();
    for number in 0..2 {
        let link = FaultyOptions::new(seed * 2 + number)
            .with(CallKind::Read, faults)
            .with(CallKind::Write, faults);
        let store = Faulty::new(bed.session("slow"), link);
        nodes.push(bed.open(store, &patient()).await.unwrap());
    }
    let nodes: [Arc<Buckets>; 2] = nodes.try_into().unwrap();
    nodes[0].create(ID).await.unwrap();
    let buckets = [
        nodes[0].bucket(ID).await.unwrap(),
        nodes[1].bucket(ID).await.unwrap(),
    ];
    (nodes, buckets)
}

/// Slow links are no reason to take anything over.
fn patient() -> BucketOptions {
    BucketOptions {
        takeover_ms: 2_000,
        ..tiny()
    }
}

#[tokio::test(start_paused = true)]
async fn of_fifty_conditional_puts_exactly_one_wins() {
    for round in 0..10 {
        let bed = Bed::new(round);
        let (nodes, buckets) = slow_nodes(&bed, round).await;
        let mut tasks = Vec::new();
        for index in 0..50u64 {
            let bucket = buckets[usize::try_from(index % 2).unwrap()].clone();
            let size = if index % 3 == 0 { 1_000 } else { 10 };
            tasks.push(tokio::spawn(async move {
                let absent = Precondition {
                    if_none_match: Some(EtagMatch::Any),
                    ..Precondition::default()
                };
                let etag = format!("e{index}");
                put_if(&bucket, "lock", &etag, &bytes(index, size), &absent).await
            }));
        }
        let mut winners = Vec::new();
        for (index, task) in (0..).zip(tasks) {
            match task.await.unwrap() {
                Ok(record) => winners.push((index, record)),
                Err(Error::PreconditionFailed(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        let [(index, record)] = winners.as_slice() else {
            panic!("{} winners", winners.len());
        };
        let (found, data) = fetch(&buckets[1], "lock").await.unwrap();
        assert_eq!(&found, record);
        assert_eq!(data, bytes(*index, data.len()));
        bed.tear_down(&nodes[0]).await;
    }
}

/// Each reads, adds one and writes only if nobody came between: no addition is lost.
#[tokio::test(start_paused = true)]
async fn compare_and_swap_loses_no_update() {
    let bed = Bed::new(0);
    let (_nodes, buckets) = slow_nodes(&bed, 0).await;
    put(&buckets[0], "counter", "0", &[]).await.unwrap();
    let mut tasks = Vec::new();
    for worker in 0..4 {
        let bucket = buckets[worker % 2].clone();
        tasks.push(tokio::spawn(async move {
            let mut done = 0;
            while done < 25 {
                let etag = bucket.head(&key("counter"), None).await.unwrap().about.etag;
                let next = (etag.parse::<u64>().unwrap() + 1).to_string();
                let unchanged = Precondition {
                    if_match: Some(EtagMatch::OneOf(vec![etag])),
                    ..Precondition::default()
                };
                match put_if(&bucket, "counter", &next, &[], &unchanged).await {
                    Ok(_) => done += 1,
                    Err(Error::PreconditionFailed(_)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let record = buckets[1].head(&key("counter"), None).await.unwrap();
    assert_eq!(record.about.etag, "100");
}

#[tokio::test(start_paused = true)]
async fn of_complete_and_abort_one_wins() {
    let bed = Bed::new(0);
    let (nodes, buckets) = slow_nodes(&bed, 0).await;
    let (mut completed, mut aborted) = (0, 0);
    for round in 0..40 {
        let text = format!("k{round}");
        let begun = buckets[0].upload_begin(key(&text), about(""), None).await;
        let upload = begun.unwrap().upload;
        let mut part = buckets[1].put_part(key(&text), upload, 1);
        part.write(bytes(round, 700).into()).await.unwrap();
        let part = part.finish("p".to_owned(), None).await.unwrap();
        let (one, other) = (buckets[0].clone(), buckets[1].clone());
        let (name, none) = (key(&text), Precondition::default());
        let parts = [part];
        let completing = one.upload_complete(&name, upload, &parts, about("m"), &none);
        let aborting = other.upload_abort(&name, upload);
        match tokio::join!(completing, aborting) {
            (Ok(_), Err(Error::NoSuchUpload)) => {
                completed += 1;
                let (_, data) = fetch(&buckets[1], &text).await.unwrap();
                assert_eq!(data, bytes(round, 700));
            }
            (Err(Error::NoSuchUpload), Ok(())) => {
                aborted += 1;
                let found = buckets[1].head(&name, None).await;
                assert!(matches!(found, Err(Error::NoSuchKey)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(completed + aborted, 40);
    reclaim_all(&nodes[1]).await;
    assert_eq!(all(&buckets[0]).await.len(), completed);
    bed.tear_down(&nodes[0]).await;
}

#[tokio::test]
async fn a_slow_get_outlives_an_overwrite_until_the_grace_is_over() {
    let bed = Bed::new(0);
    let options = BucketOptions {
        grace_ms: 60_000,
        ..tiny()
    };
    let (nodes, buckets) = two_nodes(&bed, &options).await;
    put(&buckets[0], "k", "old", &bytes(1, 5_000))
        .await
        .unwrap();
    let object = buckets[0].get(&key("k"), None).await.unwrap();
    let mut reader = object.read(0..5_000);
    let mut whole = reader.next().await.unwrap().unwrap().to_vec();
    put(&buckets[1], "k", "new", &bytes(2, 700)).await.unwrap();
    bed.clock.advance(59_999);
    reclaim_all(&nodes[1]).await;
    reclaim_all(&nodes[0]).await;
    while let Some(piece) = reader.next().await {
        whole.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(whole, bytes(1, 5_000));
    bed.clock.advance(1);
    reclaim_all(&nodes[1]).await;
    // What is gone is an error, never zeros.
    match read(&object, 0..5_000).await {
        Err(Error::Store(error)) => assert_eq!(error.kind(), ErrorKind::Corrupt),
        other => panic!("{other:?}"),
    }
    assert_eq!(fetch(&buckets[0], "k").await.unwrap().1, bytes(2, 700));
    bed.clock.advance(60_000);
    bed.tear_down(&nodes[0]).await;
}

/// A long upload of one node while the other one reclaims all the time, and the same node too.
#[tokio::test]
async fn an_upload_is_safe_from_reclaim_until_its_link() {
    let bed = Bed::new(0);
    let (nodes, buckets) = two_nodes(&bed, &tiny()).await;
    let mut writer = buckets[0].put(key("k"));
    let begun = buckets[0].upload_begin(key("m"), about(""), None).await;
    let upload = begun.unwrap().upload;
    let mut part = buckets[0].put_part(key("m"), upload, 1);
    for chunk in bytes(1, 6_000).chunks(500) {
        writer.write(chunk.to_vec().into()).await.unwrap();
        part.write(chunk.to_vec().into()).await.unwrap();
        bed.clock.advance(600_000);
        reclaim_all(&nodes[1]).await;
        reclaim_all(&nodes[0]).await;
    }
    let none = Precondition::default();
    writer.finish(about("k"), &none).await.unwrap();
    let part = part.finish("p".to_owned(), None).await.unwrap();
    reclaim_all(&nodes[1]).await;
    buckets[1]
        .upload_complete(&key("m"), upload, &[part], about("m"), &none)
        .await
        .unwrap();
    nodes[0].close().await.unwrap();
    reclaim_all(&nodes[1]).await;
    assert_eq!(fetch(&buckets[1], "k").await.unwrap().1, bytes(1, 6_000));
    assert_eq!(fetch(&buckets[1], "m").await.unwrap().1, bytes(1, 6_000));
    bed.tear_down(&nodes[1]).await;
}

/// Puts race with deletions of the bucket: what was acknowledged is there, or the bucket is not.
#[tokio::test(start_paused = true)]
async fn a_put_lands_before_a_deletion_or_fails() {
    let (mut deleted, mut kept) = (0, 0);
    for round in 0..60 {
        let bed = Bed::new(round);
        let (nodes, buckets) = slow_nodes(&bed, round).await;
        for index in 0..16u64 {
            put(&buckets[0], &format!("{index}"), "x", &[1])
                .await
                .unwrap();
        }
        for index in 0..16u64 {
            remove(&buckets[0], &format!("{index}")).await.unwrap();
        }
        let bucket = buckets[0].clone();
        let writing = tokio::spawn(async move {
            let mut done = Vec::new();
            for index in 0..(round % 8) {
                let text = format!("{}", index * 3);
                match put(&bucket, &text, "x", &bytes(1, 100)).await {
                    Ok(_) => done.push(text),
                    Err(Error::NoSuchBucket) => break,
                    Err(error) => panic!("{error:?}"),
                }
                if index % 2 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            done
        });
        let result = nodes[1].delete(ID).await;
        let done = writing.await.unwrap();
        match result {
            Ok(()) => {
                deleted += 1;
                assert_eq!(done, Vec::<String>::new());
                let late = put(&buckets[0], "late", "x", &[1]).await;
                assert!(matches!(late, Err(Error::NoSuchBucket)), "{late:?}");
            }
            Err(Error::BucketNotEmpty) => {
                kept += 1;
                put(&buckets[0], "late", "x", &[1]).await.unwrap();
                let found = all(&buckets[1]).await;
                assert_eq!(found.len(), done.len() + 1);
            }
            Err(error) => panic!("{error:?}"),
        }
        bed.tear_down(&nodes[1]).await;
    }
    assert!(deleted > 5 && kept > 0, "{deleted} deleted, {kept} kept");
}

/// Two sessions write the same keys over slow links while shards split; whatever was acknowledged
/// last is there, and versions order by commit.
#[tokio::test(start_paused = true)]
async fn two_sessions_write_across_splits() {
    for seed in 0..6 {
        let bed = Bed::new(seed);
        bed.node(&tiny()).await.create(ID).await.unwrap();
        let faults = Faults {
            delay_max: Duration::from_millis(4),
            lost_reply_per_mille: 30,
            ..Faults::default()
        };
        let mut tasks = Vec::new();
        for session in 0..2 {
            let link = FaultyOptions::new(seed * 2 + session)
                .with(CallKind::Read, faults)
                .with(CallKind::Write, faults);
            let store = Faulty::new(bed.session("slow"), link);
            let node = bed.open(store, &tiny()).await.unwrap();
            for worker in 0..4 {
                let node = Arc::clone(&node);
                tasks.push(tokio::spawn(async move {
                    let bucket = node.bucket(ID).await.unwrap();
                    let mut last = 0;
                    for index in 0..40u64 {
                        let own = format!("{:02}/{session}/{worker}", index * 11 % 40);
                        put(&bucket, &own, "own", &bytes(index, 90)).await.unwrap();
                        let record = put(&bucket, "shared", "s", &[]).await.unwrap();
                        assert!(record.sequence > last);
                        last = record.sequence;
                    }
                    (node.stats().splits.value(), last)
                }));
            }
        }
        let mut last = 0;
        for task in tasks {
            last = last.max(task.await.unwrap().1);
        }
        let calm = bed.node(&tiny()).await;
        let bucket = calm.bucket(ID).await.unwrap();
        assert_eq!(all(&bucket).await.len(), 40 * 8 + 1);
        let shared = bucket.head(&key("shared"), None).await.unwrap();
        assert_eq!(shared.sequence, last);
        assert_eq!(bucket.usage().await.unwrap().object_count, 40 * 8 + 1);
    }
}

/// A clock that goes back moves neither the order of versions nor the time of the last change.
#[tokio::test]
async fn time_never_goes_back_for_a_key() {
    let bed = Bed::new(0);
    let (_nodes, buckets) = two_nodes(&bed, &tiny()).await;
    let first = put(&buckets[0], "k", "1", &[]).await.unwrap();
    bed.clock.set(5);
    let second = put(&buckets[1], "k", "2", &[]).await.unwrap();
    assert!(second.sequence > first.sequence);
    assert_eq!(second.modified_ms, first.modified_ms);
}

/// A full store refuses new data; deleting works and gives space back.
#[tokio::test]
async fn a_full_store_still_deletes() {
    let mut bed = Bed::new(0);
    bed.engine = Engine::Memory(MemoryCluster::new(MemoryOptions {
        capacity_bytes: 2_000_000,
        ..MemoryOptions::default()
    }));
    let (nodes, buckets) = two_nodes(&bed, &tiny()).await;
    let mut count = 0;
    let error = loop {
        match put(&buckets[0], &format!("{count}"), "e", &bytes(1, 4_000)).await {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    let Error::Store(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(count > 10, "{count} objects fit");
    for index in 0..count {
        remove(&buckets[1], &format!("{index}")).await.unwrap();
    }
    bed.clock.advance(1);
    reclaim_all(&nodes[1]).await;
    put(&buckets[0], "k", "e", &bytes(1, 4_000)).await.unwrap();
    bed.tear_down(&nodes[0]).await;
}

/// Of parts of one number the one that finished last is there as a whole.
#[tokio::test]
async fn the_part_that_finishes_last_wins() {
    let bed = Bed::new(0);
    let (nodes, buckets) = two_nodes(&bed, &tiny()).await;
    let begun = buckets[0].upload_begin(key("k"), about(""), None).await;
    let upload = begun.unwrap().upload;
    let mut early = buckets[0].put_part(key("k"), upload, 1);
    early.write(bytes(1, 900).into()).await.unwrap();
    let mut late = buckets[1].put_part(key("k"), upload, 1);
    late.write(bytes(2, 300).into()).await.unwrap();
    let lost = late.finish("late".to_owned(), None).await.unwrap();
    let won = early.finish("early".to_owned(), None).await.unwrap();
    let none = Precondition::default();
    let stale = buckets[0]
        .upload_complete(&key("k"), upload, &[lost], about("m"), &none)
        .await;
    assert!(matches!(stale, Err(Error::InvalidPart { number: 1 })));
    buckets[0]
        .upload_complete(&key("k"), upload, &[won], about("m"), &none)
        .await
        .unwrap();
    assert_eq!(fetch(&buckets[1], "k").await.unwrap().1, bytes(1, 900));
    let mut after = buckets[1].put_part(key("k"), upload, 2);
    after.write(bytes(3, 900).into()).await.unwrap();
    let refused = after.finish("p".to_owned(), None).await;
    assert!(matches!(refused, Err(Error::NoSuchUpload)));
    bed.tear_down(&nodes[1]).await;
}
