//! What a page costs, counted in calls to the store and in rows read, and how batches form.

use std::sync::Arc;
use std::time::Duration;

use portico_backend::bucket::{
    Bucket, BucketOptions, Buckets, ListAfter, ListQuery, Precondition, UploadId,
};
use portico_backend::faulty::{Faulty, FaultyOptions};

use crate::bed::{Bed, ID, about, bytes, everything, fetch, key, put};

fn options() -> BucketOptions {
    BucketOptions {
        shard_keys_max: 2_000,
        ..BucketOptions::default()
    }
}

/// A bucket of `count` keys in directories of 100, and its counters.
async fn filled(count: u32) -> (Arc<Faulty>, Arc<Buckets>, Bucket) {
    let bed = Bed::new(0);
    let store = Faulty::new(bed.session("counted"), FaultyOptions::new(0));
    let node = bed.open(Arc::clone(&store) as _, &options()).await.unwrap();
    node.create(ID).await.unwrap();
    let bucket = node.bucket(ID).await.unwrap();
    let mut tasks = Vec::new();
    for worker in 0..64 {
        let bucket = bucket.clone();
        tasks.push(tokio::spawn(async move {
            for index in (worker..count).step_by(64) {
                let text = format!("{:06}/{:02}", index / 100, index % 100);
                put(&bucket, &text, "e", &[1]).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    // Splits that are on their way end.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let splits = node.stats().splits.value();
    let (frozen, frozen_us) = node.stats().freezes.cumulative();
    let all = frozen.last().copied().unwrap_or(0);
    assert_eq!(all, splits);
    // A debug build beside other tests: ten times what a node may take.
    assert!(splits > 0 && frozen_us / splits < 1_000_000, "{frozen:?}");
    // The map is known from here on.
    bucket.list(&everything()).await.unwrap();
    (store, node, bucket)
}

/// Calls and rows of one page.
async fn cost(filled: &(Arc<Faulty>, Arc<Buckets>, Bucket), query: &ListQuery) -> (u64, u64) {
    let (store, node, bucket) = filled;
    let before = (store.call_count(), node.stats().rows_scanned.value());
    let page = bucket.list(query).await.unwrap();
    assert_eq!(page.items.len(), usize::try_from(query.count_max).unwrap());
    let rows = node.stats().rows_scanned.value() - before.1;
    (store.call_count() - before.0, rows)
}

#[tokio::test]
async fn a_page_costs_the_same_in_a_large_bucket() {
    let (small, large) = (filled(3_000).await, filled(30_000).await);
    let page = |prefix: &str, delimiter: Option<&str>, after: ListAfter, count_max| ListQuery {
        prefix: prefix.to_owned(),
        delimiter: delimiter.map(ToOwned::to_owned),
        after,
        count_max,
        versions: false,
    };
    let middle = || ListAfter::Key("000012/50".to_owned());
    let queries = [
        page("", None, ListAfter::Start, 1_000),
        page("", None, middle(), 1_000),
        page("000005/", None, ListAfter::Start, 100),
        page("", Some("/"), ListAfter::Start, 20),
        page("", Some("/"), middle(), 10),
        page("00001", Some("/"), ListAfter::Start, 10),
    ];
    for query in queries {
        let ((calls, rows), (calls_large, rows_large)) =
            (cost(&small, &query).await, cost(&large, &query).await);
        assert!(
            calls_large * 2 <= calls * 3 + 2,
            "{query:?}: {calls} and {calls_large} calls"
        );
        assert!(
            rows_large * 2 <= rows * 3 + 64,
            "{query:?}: {rows} and {rows_large} rows"
        );
        let wanted = u64::from(query.count_max);
        let most = if query.delimiter.is_some() {
            wanted * 72
        } else {
            wanted + 200
        };
        assert!(rows_large <= most, "{query:?}: {rows_large} rows");
    }
}

/// Common prefixes are skipped over, not read through.
#[tokio::test]
async fn a_large_group_costs_one_step() {
    let bed = Bed::new(0);
    let node = bed.node(&options()).await;
    node.create(ID).await.unwrap();
    let bucket = node.bucket(ID).await.unwrap();
    let texts = (0..1_500).map(|index| format!("big/{index:04}"));
    let puts = texts.map(|text| {
        let bucket = bucket.clone();
        tokio::spawn(async move { put(&bucket, &text, "e", &[]).await.unwrap() })
    });
    for task in puts.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    put(&bucket, "small/1", "e", &[]).await.unwrap();
    let query = ListQuery {
        delimiter: Some("/".to_owned()),
        ..everything()
    };
    let before = node.stats().rows_scanned.value();
    let page = bucket.list(&query).await.unwrap();
    assert_eq!(page.items.len(), 2);
    let rows = node.stats().rows_scanned.value() - before;
    assert!(rows < 200, "{rows} rows");
}

#[tokio::test]
async fn waiting_changes_share_an_operation() {
    let bed = Bed::new(0);
    let store = Faulty::new(bed.session("counted"), FaultyOptions::new(0));
    let node = bed
        .open(Arc::clone(&store) as _, &BucketOptions::default())
        .await
        .unwrap();
    node.create(ID).await.unwrap();
    let bucket = node.bucket(ID).await.unwrap();
    let before = store.call_count();
    let tasks: Vec<_> = (0..256)
        .map(|index| {
            let bucket = bucket.clone();
            tokio::spawn(async move {
                let text = format!("{index}");
                put(&bucket, &text, "e", &bytes(index, 4_096))
                    .await
                    .unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let calls = store.call_count() - before;
    assert!(calls <= 32, "{calls} calls for 256 objects");
}

/// A step of reclaim stays short whatever it meets: a deleted object of many parts, an upload that
/// was aborted, a part of many objects. Another node goes on where the first one stopped.
#[tokio::test]
async fn a_step_of_reclaim_is_bounded_by_objects() {
    let bed = Bed::new(0);
    let options = BucketOptions {
        inline_bytes_max: 64,
        object_bytes: 512,
        grace_ms: 10,
        ..options()
    };
    let mut nodes = Vec::new();
    for _node in 0..2 {
        let store = Faulty::new(bed.session("counted"), FaultyOptions::new(0));
        let node = bed.open(Arc::clone(&store) as _, &options).await.unwrap();
        nodes.push((store, node));
    }
    nodes[0].1.create(ID).await.unwrap();
    let bucket = nodes[0].1.bucket(ID).await.unwrap();
    let mut stored = 0;
    for text in ["completed", "aborted"] {
        let begun = bucket.upload_begin(key(text), about(""), None).await;
        let upload = begun.unwrap().upload;
        // The first part alone is more than a step; 40 parts make a table of its own.
        for number in 1..=40 {
            let objects = if number == 1 { 1_500 } else { 30 };
            let mut part = bucket.put_part(key(text), upload, number);
            part.write(bytes(1, objects * 512).into()).await.unwrap();
            part.finish("p".to_owned(), None).await.unwrap();
            stored += objects;
        }
        if text == "aborted" {
            bucket.upload_abort(&key(text), upload).await.unwrap();
            continue;
        }
        let (parts, _) = bucket
            .upload_parts(&key(text), upload, 0, 100)
            .await
            .unwrap();
        let none = Precondition::default();
        bucket
            .upload_complete(&key(text), upload, &parts, about("m"), &none)
            .await
            .unwrap();
        bucket.delete(&key(text), None, &none).await.unwrap();
    }
    assert!(bed.objects("data").await.len() > stored);
    bed.clock.advance(1_000);
    let (mut removed, mut steps) = (0, 0);
    while !bed.objects("data").await.is_empty() {
        // The second takes over in the middle of the first one's round.
        let (store, node) = &nodes[usize::from(steps > 25)];
        let before = store.call_count();
        let outcome = node.reclaim_step().await.unwrap();
        let calls = store.call_count() - before;
        assert!(calls <= 512 + 128, "{calls} calls, {outcome:?}");
        assert!(outcome.removed <= 512, "{outcome:?}");
        removed += outcome.removed;
        steps += 1;
        assert!(steps < 1_000, "reclaim finds no end");
    }
    assert!(removed > stored as u64, "{removed} objects");
    bed.tear_down(&nodes[1].1).await;
}

/// 10,000 parts, the most that an object may have, and a page of them.
#[tokio::test]
async fn ten_thousand_parts_complete_at_once() {
    let bed = Bed::new(0);
    let node = bed.node(&BucketOptions::default()).await;
    node.create(ID).await.unwrap();
    let bucket = node.bucket(ID).await.unwrap();
    let begun = bucket.upload_begin(key("k"), about(""), None).await;
    let upload = begun.unwrap().upload;
    let workers: Vec<_> = (0..50u16)
        .map(|worker| tokio::spawn(upload_parts(bucket.clone(), upload, worker)))
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let (mut parts, mut after) = (Vec::new(), 0);
    loop {
        let page = bucket.upload_parts(&key("k"), upload, after, 1_000).await;
        let (page, truncated) = page.unwrap();
        after = page.last().unwrap().number;
        parts.extend(page);
        if !truncated {
            break;
        }
    }
    assert_eq!(parts.len(), 10_000);
    let none = Precondition::default();
    let started = tokio::time::Instant::now();
    let record = bucket
        .upload_complete(&key("k"), upload, &parts, about("m"), &none)
        .await
        .unwrap();
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    assert_eq!((record.part_count, record.size), (10_000, 20_000));
    let (_, data) = fetch(&bucket, "k").await.unwrap();
    assert_eq!(&data[..4], [1, 0, 2, 0]);
}

async fn upload_parts(bucket: Bucket, upload: UploadId, worker: u16) {
    for number in (1..=10_000).skip(usize::from(worker)).step_by(50) {
        let number: u16 = number;
        let mut part = bucket.put_part(key("k"), upload, number);
        let data = number.to_le_bytes().to_vec();
        part.write(data.into()).await.unwrap();
        part.finish(format!("p{number}"), None).await.unwrap();
    }
}
