//! What all suites of buckets stand on.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portico_backend::bucket::{
    Bucket, BucketId, BucketOptions, Buckets, Error, Key, ListAfter, ListItem, ListPage, ListQuery,
    Object, ObjectAbout, ObjectRecord, Precondition,
};
use portico_backend::clock::FixedClock;
use portico_backend::local::LocalStore;
use portico_backend::local::media::Medium;
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{ListCursor, ObjectStore, Pool};
use portico_conformance::crash::disk::{Image, SimDisk};
use portico_conformance::crash::tiny_options;

pub(crate) const ID: BucketId = BucketId(0xb0);

/// A store and the time its nodes go by.
#[derive(Clone, Debug)]
pub(crate) struct Bed {
    pub(crate) engine: Engine,
    pub(crate) clock: FixedClock,
}

/// What the store of a bed is.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    Memory(MemoryCluster),
    Local(Arc<LocalStore>),
}

/// Which engine a suite runs on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum On {
    Memory,
    /// With so little memory that most of it lies in files.
    Local,
}

impl Bed {
    pub(crate) fn new(seed: u64) -> Self {
        Self::on(On::Memory, seed)
    }

    pub(crate) fn on(engine: On, seed: u64) -> Self {
        let engine = match engine {
            On::Memory => Engine::Memory(MemoryCluster::new(MemoryOptions {
                seed,
                ..MemoryOptions::default()
            })),
            On::Local => {
                let medium: Arc<dyn Medium> = SimDisk::new(Image::new());
                Engine::Local(LocalStore::open_on(&medium, tiny_options(None)).unwrap())
            }
        };
        let clock = FixedClock::new(1_700_000_000_000);
        Self { engine, clock }
    }

    pub(crate) fn session(&self, purpose: &str) -> Arc<dyn ObjectStore> {
        match &self.engine {
            Engine::Memory(cluster) => cluster.session(purpose),
            Engine::Local(store) => store.session(purpose),
        }
    }

    /// A node with a session of its own.
    pub(crate) async fn node(&self, options: &BucketOptions) -> Arc<Buckets> {
        let store = self.session("node");
        self.open(store, options).await.unwrap()
    }

    pub(crate) async fn open(
        &self,
        store: Arc<dyn ObjectStore>,
        options: &BucketOptions,
    ) -> Result<Arc<Buckets>, Error> {
        let (meta, data) = (Pool::new("meta", ""), Pool::new("data", ""));
        let clock = Arc::new(self.clock.clone());
        Buckets::open(store, meta, data, clock, options.clone()).await
    }

    /// Names of all objects of a pool.
    pub(crate) async fn objects(&self, pool: &str) -> Vec<String> {
        let store = self.session("lister");
        let pool = Pool::new(pool, "");
        let mut names = Vec::new();
        let mut cursor = ListCursor::start();
        loop {
            let page = store.list(&pool, cursor, 1_000).await.unwrap();
            names.extend(page.names.iter().map(ToString::to_string));
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        names.sort();
        names
    }

    /// Deletes all keys, uploads and the bucket, and checks that nothing of it stays.
    pub(crate) async fn tear_down(&self, node: &Arc<Buckets>) {
        if let Ok(bucket) = node.bucket(ID).await {
            for record in all(&bucket).await {
                remove(&bucket, record.key.as_str()).await.unwrap();
            }
            let uploads = bucket.uploads(&everything_uploaded()).await.unwrap();
            for item in uploads.items {
                let portico_backend::bucket::UploadItem::Upload(record) = item else {
                    panic!("no delimiter was given");
                };
                bucket
                    .upload_abort(&record.key, record.upload)
                    .await
                    .unwrap();
            }
            node.delete(ID).await.unwrap();
        }
        self.clock.advance(1_000_000);
        for _round in 0..200 {
            reclaim_all(node).await;
            if self.objects("data").await.is_empty() {
                break;
            }
            // What was dropped or lost a race is removed by tasks of its own.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(self.objects("data").await, Vec::<String>::new());
        let meta = self.objects("meta").await;
        let known = |name: &String| name.starts_with("bucket.list.") || name == "bucket.writers";
        assert!(meta.iter().all(known), "{meta:?}");
    }
}

/// Small numbers, so that a few keys do what millions do otherwise.
pub(crate) fn tiny() -> BucketOptions {
    BucketOptions {
        inline_bytes_max: 64,
        object_bytes: 512,
        shard_keys_max: 12,
        grace_ms: 0,
        takeover_ms: 20,
    }
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// Bytes that tell who wrote them.
pub(crate) fn bytes(tag: u64, length: usize) -> Vec<u8> {
    (0u64..)
        .take(length)
        .map(|index| u8::try_from((index * 7 + tag * 131) % 251).unwrap())
        .collect()
}

pub(crate) fn about(etag: &str) -> ObjectAbout {
    ObjectAbout {
        etag: etag.to_owned(),
        ..ObjectAbout::default()
    }
}

pub(crate) async fn put(
    bucket: &Bucket,
    text: &str,
    etag: &str,
    data: &[u8],
) -> Result<ObjectRecord, Error> {
    put_if(bucket, text, etag, data, &Precondition::default()).await
}

pub(crate) async fn put_if(
    bucket: &Bucket,
    text: &str,
    etag: &str,
    data: &[u8],
    precondition: &Precondition,
) -> Result<ObjectRecord, Error> {
    let mut writer = bucket.put(key(text));
    for chunk in data.chunks(300) {
        writer.write(Bytes::copy_from_slice(chunk)).await?;
    }
    writer.finish(about(etag), precondition).await
}

pub(crate) async fn remove(bucket: &Bucket, text: &str) -> Result<(), Error> {
    let none = Precondition::default();
    bucket.delete(&key(text), None, &none).await.map(drop)
}

pub(crate) async fn read(object: &Object, range: Range<u64>) -> Result<Vec<u8>, Error> {
    let mut reader = object.read(range);
    let mut whole = Vec::new();
    while let Some(piece) = reader.next().await {
        whole.extend_from_slice(&piece?);
    }
    Ok(whole)
}

/// The whole of an object.
pub(crate) async fn fetch(bucket: &Bucket, text: &str) -> Result<(ObjectRecord, Vec<u8>), Error> {
    let object = bucket.get(&key(text), None).await?;
    let size = object.record().size;
    let data = read(&object, 0..size).await?;
    Ok((object.record().clone(), data))
}

pub(crate) fn everything() -> ListQuery {
    ListQuery {
        prefix: String::new(),
        delimiter: None,
        after: ListAfter::Start,
        count_max: 1_000,
        versions: false,
    }
}

pub(crate) fn everything_uploaded() -> portico_backend::bucket::UploadQuery {
    portico_backend::bucket::UploadQuery {
        prefix: String::new(),
        delimiter: None,
        after: None,
        count_max: 1_000,
    }
}

/// All objects, page by page.
pub(crate) async fn all(bucket: &Bucket) -> Vec<ObjectRecord> {
    let mut query = everything();
    let mut records = Vec::new();
    loop {
        let page = bucket.list(&query).await.unwrap();
        for item in page.items {
            match item {
                ListItem::Object(record, _) => records.push(*record),
                ListItem::CommonPrefix(text) => panic!("{text} without a delimiter"),
            }
        }
        match records.last() {
            Some(last) if page.truncated => query.after = ListAfter::Key(last.key.to_string()),
            _ => return records,
        }
    }
}

pub(crate) fn names(page: &ListPage) -> Vec<String> {
    let name = |item: &ListItem| match item {
        ListItem::CommonPrefix(text) => text.clone(),
        ListItem::Object(record, _) => record.key.to_string(),
    };
    page.items.iter().map(name).collect()
}

/// Runs reclaim until whole rounds find nothing more.
pub(crate) async fn reclaim_all(node: &Buckets) {
    let mut quiet = 0;
    for _step in 0..100_000 {
        let outcome = node.reclaim_step().await.unwrap();
        if outcome.removed > 0 {
            quiet = 0;
        } else if outcome.round_ended {
            quiet += 1;
        }
        if quiet == 4 {
            return;
        }
        // What was dropped is removed by tasks of its own.
        tokio::task::yield_now().await;
    }
    panic!("reclaim finds no end");
}
