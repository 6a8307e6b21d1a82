//! The largest object that S3 allows: 5 TiB in 10,000 parts. Its data is noted, not stored; all
//! that a bucket writes about it is real.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use portico_backend::bucket::{
    Bucket, BucketOptions, Buckets, Error, Key, ObjectAbout, ObjectRecord, PartRecord,
    Precondition, UploadId,
};
use portico_backend::clock::FixedClock;
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use tokio::time::Instant;

use crate::synthetic::{Pattern, Synthetic};
use crate::{LARGE, is_full_size, open};

/// Bytes of one call to a writer.
const CHUNK: u64 = 2 << 20;

const WORKERS: u16 = 4;

/// What a step of reclaim may remove.
const REMOVED_MAX: u64 = 512;

const COMPLETION_MAX: Duration = Duration::from_secs(2);

const STEP_MAX: Duration = Duration::from_secs(1);

/// Parts of one size, but for the last.
#[derive(Clone, Copy, Debug)]
struct Plan {
    parts: u16,
    size: u64,
}

impl Plan {
    fn now() -> Self {
        if is_full_size() {
            Self {
                parts: 10_000,
                size: 5 << 40,
            }
        } else {
            Self {
                parts: 40,
                size: ((40 * 30) << 20) - 1_001,
            }
        }
    }

    fn part_size(self) -> u64 {
        self.size.div_ceil(u64::from(self.parts))
    }

    /// Bytes of the object in a part.
    fn range(self, number: u16) -> Range<u64> {
        let start = self.part_size() * u64::from(number - 1);
        start..(start + self.part_size()).min(self.size)
    }

    /// The part that holds a byte.
    fn part_of(self, at: u64) -> u16 {
        u16::try_from(at / self.part_size()).unwrap() + 1
    }
}

/// Where the pattern of a part begins.
fn place(number: u16) -> u64 {
    u64::from(number) * 40_503
}

struct Bed {
    plan: Plan,
    pattern: Arc<Pattern>,
    store: Arc<Synthetic>,
    clock: FixedClock,
    node: Arc<Buckets>,
    bucket: Bucket,
}

impl Bed {
    async fn new() -> Self {
        let pattern = Pattern::new();
        let cluster = MemoryCluster::new(MemoryOptions::default());
        let store = Synthetic::new(cluster.session("scale"), &pattern);
        let clock = FixedClock::new(1_700_000_000_000);
        let options = BucketOptions::default();
        let node = open(Arc::clone(&store) as _, Arc::new(clock.clone()), options).await;
        node.create(LARGE).await.unwrap();
        let bucket = node.bucket(LARGE).await.unwrap();
        Self {
            plan: Plan::now(),
            pattern,
            store,
            clock,
            node,
            bucket,
        }
    }

    async fn put_part(&self, upload: UploadId, number: u16, size: u64) {
        let mut part = self.bucket.put_part(key(), upload, number);
        let mut at = 0;
        while at < size {
            let length = CHUNK.min(size - at);
            let data = self.pattern.slice(place(number) + at, length);
            part.write(data).await.unwrap();
            at += length;
        }
        part.finish(format!("p{number}"), None).await.unwrap();
    }

    async fn put_all(self: &Arc<Self>, upload: UploadId) {
        let workers: Vec<_> = (1..=WORKERS)
            .map(|first| {
                let bed = Arc::clone(self);
                tokio::spawn(async move {
                    let step = usize::from(WORKERS);
                    for number in (first..=bed.plan.parts).step_by(step) {
                        let range = bed.plan.range(number);
                        bed.put_part(upload, number, range.end - range.start).await;
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.await.unwrap();
        }
    }

    async fn parts(&self, upload: UploadId) -> Vec<PartRecord> {
        let (mut parts, mut after, mut more) = (Vec::new(), 0, true);
        while more {
            let page = self.bucket.upload_parts(&key(), upload, after, 1_000).await;
            let (page, truncated) = page.unwrap();
            after = page.last().unwrap().number;
            parts.extend(page);
            more = truncated;
        }
        assert_eq!(parts.len(), usize::from(self.plan.parts));
        parts
    }

    async fn complete(&self, upload: UploadId) -> Result<ObjectRecord, Error> {
        let parts = self.parts(upload).await;
        let (about, none) = (ObjectAbout::default(), Precondition::default());
        let started = Instant::now();
        let result = self
            .bucket
            .upload_complete(&key(), upload, &parts, about, &none)
            .await;
        let elapsed = started.elapsed();
        println!("completion: {:.1} ms", elapsed.as_secs_f64() * 1e3);
        assert!(elapsed < COMPLETION_MAX, "{elapsed:?}");
        result
    }

    /// What the bytes of a range must be.
    fn expected(&self, range: Range<u64>) -> Vec<u8> {
        let (mut whole, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let number = self.plan.part_of(at);
            let part = self.plan.range(number);
            let length = (part.end.min(range.end) - at).min(CHUNK);
            let from = place(number) + (at - part.start);
            whole.extend_from_slice(&self.pattern.slice(from, length));
            at += length;
        }
        whole
    }

    async fn check_reads(&self) {
        let object = self.bucket.get(&key(), None).await.unwrap();
        let (size, part) = (self.plan.size, self.plan.part_size());
        let middle = self.plan.range(self.plan.parts / 2).end;
        let ranges = [
            0..(3 << 20) + 7,
            part - 5..part + 5,
            part - (2 << 20)..part + (2 << 20) + 1,
            middle - 1..middle,
            middle..middle + 1,
            middle - (5 << 20)..middle + 9,
            size / 2 + 4_097..size / 2 + (6 << 20),
            self.plan.range(self.plan.parts).start - 100..size,
            size - 1..size,
        ];
        for range in ranges {
            // The last part is read whole only where it is small.
            let range = range.start..range.end.min(range.start + (32 << 20));
            let (mut found, mut reader) = (Vec::new(), object.read(range.clone()));
            while let Some(piece) = reader.next().await {
                found.extend_from_slice(&piece.unwrap());
            }
            assert!(found == self.expected(range.clone()), "{range:?}");
        }
    }

    /// Runs reclaim until whole rounds find nothing more; no step does much.
    async fn reclaim(&self, what: &str) {
        let (started, mut steps, mut quiet) = (Instant::now(), 0u64, 0);
        let (mut removed, mut longest) = (0, Duration::ZERO);
        while quiet < 2 {
            let begun = Instant::now();
            let outcome = self.node.reclaim_step().await.unwrap();
            longest = longest.max(begun.elapsed());
            assert!(outcome.removed <= REMOVED_MAX, "{outcome:?}");
            steps += 1;
            removed += outcome.removed;
            if outcome.removed > 0 {
                quiet = 0;
            } else if outcome.round_ended {
                quiet += 1;
            }
        }
        println!(
            "{what}: {removed} objects removed in {steps} steps and {:.1} s, longest step {:.1} ms",
            started.elapsed().as_secs_f64(),
            longest.as_secs_f64() * 1e3
        );
        assert!(longest < STEP_MAX, "{longest:?}");
    }
}

fn key() -> Key {
    Key::new("the largest object").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_5_tib_in_10_000_parts() {
    let bed = Arc::new(Bed::new().await);
    let (plan, bucket) = (bed.plan, &bed.bucket);
    let begun = bucket.upload_begin(key(), ObjectAbout::default(), None);
    let upload = begun.await.unwrap().upload;
    let started = Instant::now();
    bed.put_all(upload).await;
    let (objects, bytes) = bed.store.totals();
    println!(
        "{} parts, {objects} data objects, {bytes} bytes in {:.1} s",
        plan.parts,
        started.elapsed().as_secs_f64()
    );
    assert_eq!(bytes, plan.size);
    if is_full_size() {
        let last = plan.range(plan.parts);
        bed.put_part(upload, plan.parts, last.end - last.start + 1)
            .await;
        let refused = bed.complete(upload).await;
        assert!(matches!(refused, Err(Error::EntityTooLarge)), "{refused:?}");
        bed.put_part(upload, plan.parts, last.end - last.start)
            .await;
    }
    let record = bed.complete(upload).await.unwrap();
    assert_eq!(record.size, plan.size);
    let record = bucket.head(&key(), None).await.unwrap();
    assert_eq!(
        (record.size, record.part_count),
        (plan.size, plan.parts.into())
    );
    bed.check_reads().await;
    // The part that was replaced, and all part rows.
    bed.clock.advance(10_000_000);
    bed.reclaim("after completion").await;
    assert_eq!(bed.store.totals(), (objects, plan.size));
    bed.check_reads().await;

    bucket
        .delete(&key(), None, &Precondition::default())
        .await
        .unwrap();
    bed.reclaim("within the grace").await;
    assert_eq!(bed.store.totals(), (objects, plan.size));
    bed.clock.advance(10_000_000);
    bed.reclaim("after deletion").await;
    assert_eq!(bed.store.totals(), (0, 0));
}
