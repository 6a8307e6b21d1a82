use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::clock::FixedClock;
use crate::memory::{MemoryCluster, MemoryOptions};
use crate::object::{ReadResult, ReadStep, WriteStep};

const ID: BucketId = BucketId(7);

fn options() -> BucketOptions {
    BucketOptions {
        inline_bytes_max: 64,
        object_bytes: 1_024,
        shard_keys_max: 50_000,
        grace_ms: 0,
        takeover_ms: 50,
    }
}

async fn node(cluster: &MemoryCluster, options: BucketOptions) -> Arc<Buckets> {
    node_of(cluster.session("test"), options).await
}

async fn node_of(store: Arc<dyn ObjectStore>, options: BucketOptions) -> Arc<Buckets> {
    let clock = Arc::new(FixedClock::new(1_000));
    let (meta, data) = (Pool::new("meta", ""), Pool::new("data", ""));
    Buckets::open(store, meta, data, clock, options)
        .await
        .unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn bytes(length: usize) -> Bytes {
    (0..length)
        .map(|i| u8::try_from(i % 251).unwrap())
        .collect::<Vec<u8>>()
        .into()
}

fn about(etag: &str) -> ObjectAbout {
    ObjectAbout {
        etag: etag.to_owned(),
        ..ObjectAbout::default()
    }
}

async fn put(bucket: &Bucket, text: &str, data: Bytes) -> Result<ObjectRecord, Error> {
    let mut writer = bucket.put(key(text));
    for chunk in data.chunks(100) {
        writer.write(Bytes::copy_from_slice(chunk)).await?;
    }
    writer.finish(about(text), &Precondition::default()).await
}

async fn read(object: &Object, range: std::ops::Range<u64>) -> Result<Vec<u8>, Error> {
    let mut reader = object.read(range);
    let mut whole = Vec::new();
    while let Some(piece) = reader.next().await {
        whole.extend_from_slice(&piece?);
    }
    Ok(whole)
}

fn everything() -> ListQuery {
    ListQuery {
        prefix: String::new(),
        delimiter: None,
        after: ListAfter::Start,
        count_max: 1_000,
        versions: false,
    }
}

fn names(page: &ListPage) -> Vec<String> {
    let name = |item: &ListItem| match item {
        ListItem::CommonPrefix(text) => format!("{text}*"),
        ListItem::Object(record, _) => record.key.to_string(),
    };
    page.items.iter().map(name).collect()
}

#[tokio::test]
async fn what_is_put_is_read_listed_and_deleted() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let node = node(&cluster, options()).await;
    assert!(matches!(node.bucket(ID).await, Err(Error::NoSuchBucket)));
    node.create(ID).await.unwrap();
    node.create(ID).await.unwrap();
    let bucket = node.bucket(ID).await.unwrap();
    for (text, size) in [("empty", 0), ("small", 64), ("large", 65), ("huge", 5_000)] {
        let record = put(&bucket, text, bytes(size)).await.unwrap();
        assert_eq!(record.size, size as u64);
        let object = bucket.get(&key(text), None).await.unwrap();
        assert_eq!(object.record(), &record);
        assert_eq!(read(&object, 0..record.size).await.unwrap(), bytes(size));
        let inner = size as u64 / 3..size as u64 / 2;
        let slice = bytes(size).slice(size / 3..size / 2);
        assert_eq!(read(&object, inner).await.unwrap(), slice);
    }
    let page = bucket.list(&everything()).await.unwrap();
    assert_eq!(names(&page), ["empty", "huge", "large", "small"]);
    let usage = bucket.usage().await.unwrap();
    assert_eq!((usage.object_count, usage.bytes), (4, 5_129));
    assert!(matches!(node.delete(ID).await, Err(Error::BucketNotEmpty)));
    put(&bucket, "huge", bytes(1)).await.unwrap();
    for text in ["empty", "huge", "large", "small", "none"] {
        bucket
            .delete(&key(text), None, &Precondition::default())
            .await
            .unwrap();
    }
    assert!(matches!(
        bucket.head(&key("huge"), None).await,
        Err(Error::NoSuchKey)
    ));
    assert_eq!(bucket.usage().await.unwrap(), BucketUsage::default());
    node.delete(ID).await.unwrap();
    assert!(matches!(
        put(&bucket, "late", bytes(1)).await,
        Err(Error::NoSuchBucket)
    ));
    assert!(matches!(node.bucket(ID).await, Err(Error::NoSuchBucket)));
}

#[tokio::test]
async fn common_prefixes_and_pages() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let node = node(&cluster, options()).await;
    node.create(ID).await.unwrap();
    let bucket = node.bucket(ID).await.unwrap();
    for text in ["a", "a/1", "a/2", "b/1", "b/2/3", "c", "\u{10ffff}"] {
        put(&bucket, text, bytes(1)).await.unwrap();
    }
    let mut query = ListQuery {
        delimiter: Some("/".to_owned()),
        count_max: 2,
        ..everything()
    };
    let page = bucket.list(&query).await.unwrap();
    assert_eq!(
        (names(&page), page.truncated),
        (vec!["a".into(), "a/*".into()], true)
    );
    query.after = ListAfter::Key("a/".to_owned());
    let page = bucket.list(&query).await.unwrap();
    assert_eq!(
        (names(&page), page.truncated),
        (vec!["b/*".into(), "c".into()], true)
    );
    query.after = ListAfter::Key("c".to_owned());
    let page = bucket.list(&query).await.unwrap();
    assert_eq!(
        (names(&page), page.truncated),
        (vec!["\u{10ffff}".into()], false)
    );
    query.after = ListAfter::Start;
    query.prefix = "b/".to_owned();
    let page = bucket.list(&query).await.unwrap();
    assert_eq!(
        (names(&page), page.truncated),
        (vec!["b/1".into(), "b/2/*".into()], false)
    );
}

#[tokio::test]
async fn a_multipart_upload_becomes_an_object() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let node = node(&cluster, options()).await;
    node.create(ID).await.unwrap();
    let bucket = node.bucket(ID).await.unwrap();
    let upload = bucket
        .upload_begin(key("k"), about(""), None)
        .await
        .unwrap();
    let mut whole = Vec::new();
    for number in 1..=40 {
        for data in [bytes(5), bytes(2_000 + usize::from(number))] {
            let mut part = bucket.put_part(key("k"), upload.upload, number);
            part.write(data.clone()).await.unwrap();
            part.finish(format!("{number}.{}", data.len()), None)
                .await
                .unwrap();
        }
        whole.extend_from_slice(&bytes(2_000 + usize::from(number)));
    }
    let parts = bucket
        .upload_parts(&key("k"), upload.upload, 0, 1_000)
        .await
        .unwrap()
        .0;
    assert_eq!(parts.len(), 40);
    let none = Precondition::default();
    let complete =
        || bucket.upload_complete(&upload.key, upload.upload, &parts, about("x-40"), &none);
    let record = complete().await.unwrap();
    assert_eq!(complete().await.unwrap(), record);
    assert_eq!(record.part_count, 40);
    let object = bucket.get(&key("k"), None).await.unwrap();
    assert_eq!(read(&object, 0..record.size).await.unwrap(), whole);
    assert_eq!(
        read(&object, 3_000..9_001).await.unwrap(),
        whole[3_000..9_001]
    );
    assert_eq!(bucket.parts(&object).await.unwrap(), parts);
    assert!(matches!(
        bucket.upload_abort(&key("k"), upload.upload).await,
        Err(Error::NoSuchUpload)
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_split_under_writers_of_two_nodes() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let small = BucketOptions {
        shard_keys_max: 40,
        ..options()
    };
    let nodes = [
        node(&cluster, small.clone()).await,
        node(&cluster, small).await,
    ];
    nodes[0].create(ID).await.unwrap();
    let mut tasks = Vec::new();
    for worker in 0..8 {
        let bucket = nodes[worker % 2].bucket(ID).await.unwrap();
        tasks.push(tokio::spawn(async move {
            for index in 0..60 {
                let text = format!("{:03}/{worker}", (index * 37) % 61);
                let data = bytes(index * 4);
                put(&bucket, &text, data.clone()).await.unwrap();
                let object = bucket.get(&key(&text), None).await.unwrap();
                let size = data.len() as u64;
                assert_eq!(read(&object, 0..size).await.unwrap(), data);
                if index % 5 == 0 {
                    bucket
                        .delete(&key(&text), None, &Precondition::default())
                        .await
                        .unwrap();
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for node in &nodes {
        let bucket = node.bucket(ID).await.unwrap();
        let page = bucket.list(&everything()).await.unwrap();
        assert_eq!(page.items.len(), 8 * 48);
        assert_eq!(bucket.usage().await.unwrap().object_count, 8 * 48);
    }
    let splits: u64 = nodes.iter().map(|node| node.stats().splits.value()).sum();
    assert!(splits > 10, "{splits} splits");
}

/// Runs reclaim until a round finds nothing more.
async fn reclaim_all(node: &Buckets) {
    let mut quiet = 0;
    for _step in 0..10_000 {
        let outcome = node.reclaim_step().await.unwrap();
        if outcome.removed > 0 {
            quiet = 0;
        }
        if outcome.round_ended {
            quiet += 1;
        }
        if quiet == 3 {
            return;
        }
    }
    panic!("reclaim finds no end");
}

/// Names of all objects in a pool.
async fn objects(cluster: &MemoryCluster, pool: &str) -> Vec<String> {
    let store = cluster.session("lister");
    let pool = Pool::new(pool, "");
    let mut names = Vec::new();
    let mut cursor = crate::object::ListCursor::start();
    loop {
        let page = store.list(&pool, cursor, 100).await.unwrap();
        names.extend(page.names.iter().map(ToString::to_string));
        match page.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    names.sort();
    names
}

#[tokio::test]
async fn nothing_stays_behind() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let node = node(&cluster, options()).await;
    node.create(ID).await.unwrap();
    let bucket = node.bucket(ID).await.unwrap();
    put(&bucket, "a", bytes(5_000)).await.unwrap();
    put(&bucket, "a", bytes(6_000)).await.unwrap();
    put(&bucket, "b", bytes(3_000)).await.unwrap();
    let mut dropped = bucket.put(key("c"));
    dropped.write(bytes(5_000)).await.unwrap();
    drop(dropped);
    let upload = bucket
        .upload_begin(key("m"), about(""), None)
        .await
        .unwrap();
    for number in [1, 1, 2, 3] {
        let mut part = bucket.put_part(key("m"), upload.upload, number);
        part.write(bytes(2_000)).await.unwrap();
        part.finish("e".to_owned(), None).await.unwrap();
    }
    let parts = bucket
        .upload_parts(&key("m"), upload.upload, 0, 2)
        .await
        .unwrap();
    assert!(parts.1);
    let none = Precondition::default();
    bucket
        .upload_complete(&key("m"), upload.upload, &parts.0, about("m"), &none)
        .await
        .unwrap();
    reclaim_all(&node).await;
    // 6,000 bytes, 3,000 bytes and two parts of 2,000 bytes.
    assert_eq!(objects(&cluster, "data").await.len(), 6 + 3 + 2 + 2);
    let object = bucket.get(&key("m"), None).await.unwrap();
    assert_eq!(read(&object, 0..4_000).await.unwrap().len(), 4_000);
    for text in ["a", "b", "m"] {
        bucket.delete(&key(text), None, &none).await.unwrap();
    }
    node.delete(ID).await.unwrap();
    reclaim_all(&node).await;
    assert_eq!(objects(&cluster, "data").await, Vec::<String>::new());
    let left = objects(&cluster, "meta").await;
    assert!(
        left.iter()
            .all(|name| name.starts_with("bucket.list.") || name == "bucket.writers"),
        "{left:?}"
    );
}

/// Changes of one batch share a write, but not its failure for want of room.
#[tokio::test]
async fn a_deletion_beside_puts_that_find_no_room_happens() {
    let cluster = MemoryCluster::new(MemoryOptions {
        capacity_bytes: 1 << 20,
        ..MemoryOptions::default()
    });
    let options = BucketOptions {
        inline_bytes_max: 4_096,
        object_bytes: 8_192,
        ..options()
    };
    let node = node(&cluster, options).await;
    node.create(ID).await.unwrap();
    let bucket = node.bucket(ID).await.unwrap();
    let mut count = 0;
    while put(&bucket, &count.to_string(), bytes(4_000)).await.is_ok() {
        count += 1;
    }
    assert!(count > 10, "{count} objects fit");
    let (zero, always) = (key("0"), Precondition::default());
    let batches = node.stats().batches.value();
    let (first, deleted, second) = tokio::join!(
        put(&bucket, "first", bytes(4_000)),
        bucket.delete(&zero, None, &always),
        put(&bucket, "second", bytes(4_000)),
    );
    for refused in [first, second] {
        let Err(Error::Store(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
    deleted.unwrap();
    assert_eq!(node.stats().batches.value(), batches + 1);
    assert!(bucket.head(&zero, None).await.is_err());
    put(&bucket, "third", bytes(3_000)).await.unwrap();
}

/// A fence that was lifted before its victim noticed leaves a session that may write, but whose
/// data others have taken for left behind.
#[tokio::test]
async fn a_writer_that_others_ended_ends_its_session() {
    let row = writer::writer_row(1);
    for done in [true, false] {
        let cluster = MemoryCluster::new(MemoryOptions::default());
        let node = node(&cluster, options()).await;
        node.create(ID).await.unwrap();
        let bucket = node.bucket(ID).await.unwrap();
        put(&bucket, "small", bytes(10)).await.unwrap();
        let object = writer::writers_object(&Pool::new("meta", ""));
        let ended = writer::WriterRecord {
            ended: true,
            ..writer_record(&cluster, 1).await.unwrap()
        };
        let entries = vec![(row.clone(), ended.encode())];
        let keys = vec![row.clone()];
        let step = match done {
            true => WriteStep::OmapRemove { keys },
            false => WriteStep::OmapSet { entries },
        };
        let other = cluster.session("other");
        other.write(&object, WriteOp::new([step])).await.unwrap();
        let is_fenced = |outcome: Result<_, Error>| match outcome {
            Err(Error::Store(error)) => error.kind() == ErrorKind::Fenced,
            Ok(_) | Err(_) => false,
        };
        assert!(is_fenced(put(&bucket, "large", bytes(5_000)).await));
        assert!(is_fenced(put(&bucket, "small", bytes(10)).await));
    }
}

/// Once something of it was examined it is ended, whatever becomes of the fence.
#[tokio::test]
async fn a_fenced_writer_is_on_record_as_ended_before_its_fence_may_go() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let victim = cluster.session("victim");
    let first = node_of(Arc::clone(&victim), options()).await;
    first.create(ID).await.unwrap();
    let bucket = first.bucket(ID).await.unwrap();
    put(&bucket, "large", bytes(5_000)).await.unwrap();
    let other = cluster.session("other");
    other.fence(&victim.session()).await.unwrap();
    let second = node_of(other, options()).await;
    assert!(!writer_record(&cluster, 1).await.unwrap().ended);
    let record = loop {
        second.reclaim_step().await.unwrap();
        match writer_record(&cluster, 1).await {
            Some(record) if record.examined == 0 => {}
            record => break record.expect("a few hundred ids take several steps"),
        }
    };
    assert!(record.ended, "{record:?}");
}

/// What the store knows of a writer.
async fn writer_record(cluster: &MemoryCluster, number: u64) -> Option<writer::WriterRecord> {
    let object = writer::writers_object(&Pool::new("meta", ""));
    let keys = vec![writer::writer_row(number)];
    let read = ReadOp::new([ReadStep::OmapGet { keys }]);
    let output = cluster.session("look").read(&object, read).await.unwrap();
    let Some(ReadResult::OmapValues(values)) = output.results.into_iter().next() else {
        panic!("one result for one step");
    };
    let value = values.into_iter().next().unwrap();
    value.map(|value| writer::WriterRecord::decode(&value).unwrap())
}
