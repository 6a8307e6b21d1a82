//! A node dies at every call that it makes to the store.
//!
//! What it acknowledged is whole, what it was about to do is done or not, nothing that is listed is
//! unreadable, and reclaim leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use portico_backend::bucket::{Bucket, BucketId, Buckets, Error, Precondition};
use portico_backend::faulty::{End, Faulty, FaultyOptions};
use portico_backend::object::ObjectStore;

use crate::bed::{Bed, ID, On, about, all, bytes, fetch, key, put, reclaim_all, remove, tiny};

/// ETag and data of a key; `None` if it was deleted.
type Value = Option<(String, Vec<u8>)>;

/// What a script did before its node died.
#[derive(Debug, Default)]
struct Journal {
    acknowledged: BTreeMap<String, Value>,
    /// The change on its way at the end.
    open: Option<(String, Value)>,
}

impl Journal {
    async fn put(
        &mut self,
        bucket: &Bucket,
        text: &str,
        tag: u64,
        size: usize,
    ) -> Result<(), Error> {
        let (etag, data) = (format!("e{tag}"), bytes(tag, size));
        self.begin(text, Some((etag.clone(), data.clone())));
        put(bucket, text, &etag, &data).await?;
        self.acknowledge();
        Ok(())
    }

    async fn remove(&mut self, bucket: &Bucket, text: &str) -> Result<(), Error> {
        self.begin(text, None);
        remove(bucket, text).await?;
        self.acknowledge();
        Ok(())
    }

    /// Uploads parts, one of them twice and one in vain, and completes or aborts.
    async fn upload(&mut self, bucket: &Bucket, text: &str, complete: bool) -> Result<(), Error> {
        let upload = bucket
            .upload_begin(key(text), about(""), None)
            .await?
            .upload;
        let mut whole = Vec::new();
        for (number, tag) in [(1, 1), (2, 2), (2, 3), (3, 4), (4, 5)] {
            let data = bytes(tag, 600);
            let mut part = bucket.put_part(key(text), upload, number);
            part.write(data.clone().into()).await?;
            part.finish(format!("p{tag}"), None).await?;
            if [1, 3, 4].contains(&tag) {
                whole.extend_from_slice(&data);
            }
        }
        if !complete {
            return bucket.upload_abort(&key(text), upload).await;
        }
        let (mut parts, _) = bucket.upload_parts(&key(text), upload, 0, 10).await?;
        parts.pop();
        self.begin(text, Some(("m".to_owned(), whole)));
        let none = Precondition::default();
        bucket
            .upload_complete(&key(text), upload, &parts, about("m"), &none)
            .await?;
        self.acknowledge();
        Ok(())
    }

    fn begin(&mut self, text: &str, value: Value) {
        self.open = Some((text.to_owned(), value));
    }

    fn acknowledge(&mut self) {
        let (text, value) = self.open.take().expect("a change is on its way");
        self.acknowledged.insert(text, value);
    }

    /// Compares with what another node finds.
    async fn check(&self, bucket: &Bucket) {
        let mut found = BTreeMap::new();
        for record in all(bucket).await {
            let text = record.key.to_string();
            let (record, data) = fetch(bucket, &text).await.unwrap();
            found.insert(text, (record.about.etag, data));
        }
        let mut texts: Vec<&String> = self.acknowledged.keys().chain(found.keys()).collect();
        texts.sort();
        texts.dedup();
        for text in texts {
            let before = self.acknowledged.get(text).cloned().flatten();
            let now = found.get(text).cloned();
            let after = self.open.as_ref().filter(|(open, _)| open == text);
            let right = now == before || after.is_some_and(|(_, value)| *value == now);
            assert!(right, "{text}: {now:?}, acknowledged {before:?}");
        }
        let usage = bucket.usage().await.unwrap();
        assert_eq!(usage.object_count, found.len() as u64);
    }
}

/// Objects of all kinds, overwritten and deleted, uploads, splits, and reclaim of its own.
async fn work(node: &Arc<Buckets>, journal: &mut Journal) -> Result<(), Error> {
    node.create(ID).await?;
    let bucket = node.bucket(ID).await?;
    journal.put(&bucket, "small", 1, 10).await?;
    journal.put(&bucket, "large", 2, 1_500).await?;
    journal.put(&bucket, "large", 3, 1_700).await?;
    journal.put(&bucket, "small", 4, 600).await?;
    journal.upload(&bucket, "done", true).await?;
    journal.upload(&bucket, "aborted", false).await?;
    for index in 0..12 {
        let text = format!("k{index:02}");
        journal.put(&bucket, &text, 10 + index, 20).await?;
    }
    journal.remove(&bucket, "large").await?;
    journal.remove(&bucket, "k03").await?;
    for _step in 0..60 {
        node.reclaim_step().await?;
    }
    journal.put(&bucket, "done", 40, 900).await?;
    let other = BucketId(ID.0 + 1);
    node.create(other).await?;
    let bucket = node.bucket(other).await?;
    put(&bucket, "x", "x", &bytes(1, 600)).await?;
    remove(&bucket, "x").await?;
    node.delete(other).await?;
    node.close().await
}

async fn die_at(engine: On, call: u64, end: End) -> (Bed, Journal, bool, Arc<Faulty>) {
    let bed = Bed::on(engine, call);
    let link = FaultyOptions::new(call).ending(call, end);
    let store = Faulty::new(bed.session("victim"), link);
    let mut journal = Journal::default();
    if let Ok(node) = bed
        .open(Arc::clone(&store) as Arc<dyn ObjectStore>, &tiny())
        .await
    {
        let result = work(&node, &mut journal).await;
        assert_eq!(result.is_err(), store.has_ended(), "{result:?}");
    }
    let ended = store.has_ended();
    (bed, journal, ended, store)
}

async fn survive(engine: On, step: usize, end: End) -> u64 {
    let mut call = 1;
    loop {
        let (bed, journal, ended, victim) = die_at(engine, call, end).await;
        let node = bed.node(&tiny()).await;
        let store = bed.session("fencer");
        store.fence(&victim.session()).await.unwrap();
        node.create(ID).await.unwrap();
        let bucket = node.bucket(ID).await.unwrap();
        journal.check(&bucket).await;
        bed.clock.advance(1);
        reclaim_all(&node).await;
        journal.check(&bucket).await;
        let other = BucketId(ID.0 + 1);
        if let Ok(bucket) = node.bucket(other).await {
            remove(&bucket, "x").await.unwrap();
            node.delete(other).await.unwrap();
        }
        bed.tear_down(&node).await;
        if !ended {
            return call;
        }
        call += step as u64;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_call_loses_nothing_acknowledged() {
    let calls = survive(On::Memory, 1, End::Crash).await;
    assert!(calls > 150, "the script made {calls} calls");
}

#[tokio::test(start_paused = true)]
async fn a_fence_at_any_call_loses_nothing_acknowledged() {
    survive(On::Memory, 5, End::Fence).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_on_the_local_engine_loses_nothing_acknowledged() {
    survive(On::Local, 7, End::Crash).await;
}

/// One node dies at each call while shards split; the other goes on at once and is not told.
#[tokio::test(start_paused = true)]
async fn the_other_node_finishes_a_split_killed_at_any_step() {
    let mut taken_over = 0;
    for call in (2..).map(|index| index * 3) {
        let bed = Bed::new(call);
        let other = bed.node(&tiny()).await;
        other.create(ID).await.unwrap();
        let link = FaultyOptions::new(call).ending(call, End::Crash);
        let store = Faulty::new(bed.session("victim"), link);
        let mut journal = Journal::default();
        let node = bed
            .open(Arc::clone(&store) as Arc<dyn ObjectStore>, &tiny())
            .await;
        if let Ok(node) = node {
            let result = fill(&node, &mut journal).await;
            // A split in the background may meet the end when the last change is done.
            assert!(result.is_ok() || store.has_ended(), "{result:?}");
        }
        let bucket = other.bucket(ID).await.unwrap();
        journal.check(&bucket).await;
        if let Some((text, value)) = journal.open.take() {
            drop((text, value));
        }
        for index in 0..40 {
            let text = format!("{index:02}b");
            journal.put(&bucket, &text, index, 10).await.unwrap();
            let text = format!("{index:02}a");
            journal.put(&bucket, &text, 100 + index, 10).await.unwrap();
        }
        journal.check(&bucket).await;
        taken_over += other.stats().splits.value();
        let fencer = bed.session("fencer");
        fencer.fence(&store.session()).await.unwrap();
        bed.tear_down(&other).await;
        if !store.has_ended() {
            break;
        }
    }
    assert!(taken_over > 20, "{taken_over} splits by the survivor");
}

async fn fill(node: &Arc<Buckets>, journal: &mut Journal) -> Result<(), Error> {
    let bucket = node.bucket(ID).await?;
    for index in 0..16 {
        let text = format!("{:02}a", index * 7 % 16);
        journal.put(&bucket, &text, index, 10).await?;
    }
    Ok(())
}

/// A node that knows an old map meets the parent of a split whose node died after it switched the
/// map. What the parent holds is the past; what a third node wrote since is what counts.
#[tokio::test(start_paused = true)]
async fn a_frozen_shard_left_behind_by_the_map_is_not_believed() {
    for call in 2.. {
        let bed = Bed::new(call);
        let late = bed.node(&tiny()).await;
        late.create(ID).await.unwrap();
        let old = late.bucket(ID).await.unwrap();
        assert!(all(&old).await.is_empty());
        let link = FaultyOptions::new(call).ending(call, End::Crash);
        let store = Faulty::new(bed.session("victim"), link);
        let victim = bed.open(Arc::clone(&store) as _, &tiny()).await;
        if let Ok(node) = victim {
            let result = fill(&node, &mut Journal::default()).await;
            assert!(result.is_ok() || store.has_ended(), "{result:?}");
        }
        let third = bed.node(&tiny()).await;
        let bucket = third.bucket(ID).await.unwrap();
        let mut journal = Journal::default();
        for index in 0..16 {
            let text = format!("{index:02}a");
            if index % 3 == 0 {
                journal.remove(&bucket, &text).await.unwrap();
            } else {
                journal.put(&bucket, &text, 200 + index, 12).await.unwrap();
            }
        }
        for (text, value) in &journal.acknowledged {
            let found = fetch(&old, text).await;
            let found = found.map(|(record, data)| (record.about.etag, data)).ok();
            assert_eq!(found, *value, "{text} after {call} calls");
        }
        if !store.has_ended() {
            break;
        }
    }
}
