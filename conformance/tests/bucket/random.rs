//! Random operations on two sessions in turn, against the model, with and without a bad link.

use std::sync::Arc;
use std::time::Duration;

use portico_backend::bucket::{
    Bucket, Buckets, Error, EtagMatch, ListAfter, ListQuery, Precondition, UploadId, UploadItem,
};
use portico_backend::faulty::{CallKind, Faults, Faulty, FaultyOptions};
use portico_backend::random::Generator;
use portico_conformance::model::bucket::{ModelBucket, ModelObject, ModelPart, is_unknown};

use crate::bed::{
    Bed, ID, On, about, all, bytes, everything_uploaded, fetch, key, names, put_if, read,
    reclaim_all, remove, tiny,
};

/// Letters of keys: what must be escaped, delimiters and a wide character.
const LETTERS: [&str; 7] = ["a", "b", "/", "\0", "\u{1}", "\u{2}", "\u{10ffff}"];

/// A link that delays, refuses and loses replies.
const BAD_LINK: Faults = Faults {
    delay_max: Duration::from_millis(3),
    unavailable_per_mille: 40,
    busy_per_mille: 20,
    lost_reply_per_mille: 60,
};

struct Run {
    random: Generator,
    model: ModelBucket,
    nodes: [Arc<Buckets>; 2],
    buckets: [Bucket; 2],
    bed: Bed,
    count: u64,
    /// Changes whose outcome the store left open.
    unknown: u64,
}

impl Run {
    async fn new(engine: On, seed: u64, faults: Option<Faults>) -> Self {
        let bed = Bed::on(engine, seed);
        let options = tiny();
        let calm = bed.node(&options).await;
        calm.create(ID).await.unwrap();
        let mut nodes = Vec::new();
        for number in 0..2 {
            let mut link = FaultyOptions::new(seed * 2 + number);
            if let Some(faults) = faults {
                link = link
                    .with(CallKind::Read, faults)
                    .with(CallKind::Write, faults);
            }
            let store = Faulty::new(bed.session("faulty"), link);
            nodes.push(bed.open(store, &options).await.unwrap());
        }
        let nodes: [Arc<Buckets>; 2] = nodes.try_into().unwrap();
        let buckets = [
            nodes[0].bucket(ID).await.unwrap(),
            nodes[1].bucket(ID).await.unwrap(),
        ];
        Self {
            random: Generator::new(seed),
            model: ModelBucket::default(),
            nodes,
            buckets,
            bed,
            count: 0,
            unknown: 0,
        }
    }

    fn bucket(&mut self) -> Bucket {
        self.buckets[usize::try_from(self.random.below(2)).unwrap()].clone()
    }

    fn text(&mut self) -> String {
        let length = 1 + self.random.below(4);
        let letter = |_| LETTERS[usize::try_from(self.random.below(7)).unwrap()];
        (0..length).map(letter).collect()
    }

    fn size(&mut self) -> usize {
        let bound = [1, 65, 600, 2_000][usize::try_from(self.random.below(4)).unwrap()];
        usize::try_from(self.random.below(bound)).unwrap()
    }

    fn precondition(&mut self, text: &str) -> Precondition {
        let etag = self
            .model
            .objects
            .get(text)
            .map(|object| object.etag.clone());
        let other = "other".to_owned();
        let one = EtagMatch::OneOf(vec![etag.unwrap_or(other)]);
        match self.random.below(8) {
            0 => Precondition {
                if_match: Some(one),
                ..Precondition::default()
            },
            1 => Precondition {
                if_none_match: Some(EtagMatch::Any),
                ..Precondition::default()
            },
            2 => Precondition {
                if_none_match: Some(one),
                ..Precondition::default()
            },
            _ => Precondition::default(),
        }
    }

    async fn step(&mut self) {
        self.count += 1;
        self.bed.clock.advance(self.random.below(3));
        match self.random.below(16) {
            0..=4 => self.put().await,
            5..=7 => self.delete().await,
            8 => self.tag().await,
            9 => self.begin().await,
            10..=11 => self.part().await,
            12 => self.end_upload().await,
            13 => self.list().await,
            14 => self.get().await,
            _ => {
                let node = usize::try_from(self.random.below(2)).unwrap();
                let _unused = self.nodes[node].reclaim_step().await.is_ok();
            }
        }
    }

    async fn put(&mut self) {
        let text = self.text();
        let precondition = self.precondition(&text);
        let object = ModelObject {
            data: bytes(self.count, self.size()),
            etag: format!("e{}", self.count),
            ..ModelObject::default()
        };
        let bucket = self.bucket();
        let result = put_if(&bucket, &text, &object.etag, &object.data, &precondition).await;
        let mut after = self.model.clone();
        let expected = after.put(&text, object, &precondition);
        match (result, expected) {
            (Ok(record), Ok(())) => {
                assert_eq!(record.about.etag, after.objects[&text].etag);
                self.model = after;
            }
            (Err(Error::PreconditionFailed(got)), Err(failure)) => assert_eq!(got, failure),
            (Err(error), _) if is_unknown(&error) => self.settle(&text, after).await,
            (result, expected) => panic!("{text:?}: {result:?}, expected {expected:?}"),
        }
    }

    async fn delete(&mut self) {
        let text = self.text();
        let precondition = self.precondition(&text);
        let bucket = self.bucket();
        let result = bucket.delete(&key(&text), None, &precondition).await;
        let mut after = self.model.clone();
        let expected = after.delete(&text, &precondition);
        match (result, expected) {
            (Ok(outcome), Ok(existed)) => {
                assert_eq!(outcome.deleted.is_some(), existed, "{text:?}");
                self.model = after;
            }
            (Err(Error::PreconditionFailed(got)), Err(failure)) => assert_eq!(got, failure),
            (Err(error), _) if is_unknown(&error) => self.settle(&text, after).await,
            (result, expected) => panic!("{text:?}: {result:?}, expected {expected:?}"),
        }
    }

    async fn tag(&mut self) {
        let text = self.text();
        let tags = vec![("n".to_owned(), self.count.to_string())];
        let bucket = self.bucket();
        let result = bucket.set_tags(&key(&text), None, tags.clone()).await;
        let mut after = self.model.clone();
        let object = after.objects.get_mut(&text);
        let there = object.is_some();
        if let Some(object) = object {
            object.tags = tags;
        }
        match result {
            Ok(_) => {
                assert!(there);
                self.model = after;
            }
            Err(Error::NoSuchKey) => assert!(!there, "{text:?}"),
            Err(error) if is_unknown(&error) => self.settle(&text, after).await,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// After an unknown outcome the key is as before or as after, and stays so.
    async fn settle(&mut self, text: &str, after: ModelBucket) {
        self.unknown += 1;
        loop {
            let found = match fetch(&self.buckets[0], text).await {
                Ok((record, _)) => Some((record.about.etag, record.about.tags)),
                Err(Error::NoSuchKey) => None,
                Err(error) if is_unknown(&error) => continue,
                Err(error) => panic!("{error:?}"),
            };
            let of = |model: &ModelBucket| {
                let object = model.objects.get(text);
                object.map(|object| (object.etag.clone(), object.tags.clone()))
            };
            if found == of(&after) {
                self.model = after;
            } else {
                assert_eq!(found, of(&self.model), "{text:?}");
            }
            return;
        }
    }

    async fn begin(&mut self) {
        if self.model.uploads.len() > 3 {
            return;
        }
        let text = self.text();
        match self
            .bucket()
            .upload_begin(key(&text), about(""), None)
            .await
        {
            Ok(record) => {
                let upload = (text, record.upload.0);
                self.model.uploads.insert(upload, Default::default());
            }
            Err(error) => {
                assert!(is_unknown(&error), "{error:?}");
                self.settle_uploads().await;
            }
        }
    }

    /// After an unknown outcome takes over which uploads there are.
    async fn settle_uploads(&mut self) {
        self.unknown += 1;
        loop {
            let page = match self.buckets[0].uploads(&everything_uploaded()).await {
                Ok(page) => page,
                Err(error) => {
                    assert!(is_unknown(&error), "{error:?}");
                    continue;
                }
            };
            let mut found = std::collections::BTreeMap::new();
            for item in page.items {
                let UploadItem::Upload(record) = item else {
                    panic!("no delimiter was given");
                };
                let id = (record.key.to_string(), record.upload.0);
                let parts = self.model.uploads.remove(&id).unwrap_or_default();
                found.insert(id, parts);
            }
            self.model.uploads = found;
            return;
        }
    }

    fn any_upload(&mut self) -> Option<(String, u128)> {
        let count = self.model.uploads.len() as u64;
        let index = self.random.below(count.max(1));
        let index = usize::try_from(index).unwrap();
        self.model.uploads.keys().nth(index).cloned()
    }

    async fn part(&mut self) {
        let Some((text, upload)) = self.any_upload() else {
            return;
        };
        let number = u16::try_from(1 + self.random.below(30)).unwrap();
        let part = ModelPart {
            data: bytes(self.count, self.size()),
            etag: format!("p{}", self.count),
        };
        let mut writer = self.bucket().put_part(key(&text), UploadId(upload), number);
        let result = match writer.write(part.data.clone().into()).await {
            Ok(()) => writer.finish(part.etag.clone(), None).await,
            Err(error) => Err(error),
        };
        let id = (text, upload);
        match result {
            Ok(_) => {
                self.model
                    .uploads
                    .get_mut(&id)
                    .unwrap()
                    .insert(number, part);
            }
            Err(error) => {
                assert!(is_unknown(&error), "{error:?}");
                // Nobody needs this upload any more.
                self.model.uploads.remove(&id);
                let mut ended = false;
                while !ended {
                    let result = self.buckets[0]
                        .upload_abort(&key(&id.0), UploadId(upload))
                        .await;
                    ended = matches!(result, Ok(()) | Err(Error::NoSuchUpload));
                }
            }
        }
    }

    async fn end_upload(&mut self) {
        let Some((text, upload)) = self.any_upload() else {
            return;
        };
        let bucket = self.bucket();
        let listed = bucket
            .upload_parts(&key(&text), UploadId(upload), 0, 1_000)
            .await;
        let Ok((mut parts, _)) = listed else {
            return;
        };
        let stored = &self.model.uploads[&(text.clone(), upload)];
        assert!(
            parts
                .iter()
                .map(|part| (part.number, &part.etag))
                .eq(stored.iter().map(|(number, part)| (*number, &part.etag)))
        );
        parts.retain(|_| self.random.below(4) > 0);
        if parts.is_empty() {
            match bucket.upload_abort(&key(&text), UploadId(upload)).await {
                Ok(()) => {
                    self.model.uploads.remove(&(text, upload));
                }
                Err(error) => {
                    assert!(is_unknown(&error), "{error:?}");
                    self.settle_uploads().await;
                }
            }
            return;
        }
        let numbers: Vec<u16> = parts.iter().map(|part| part.number).collect();
        let etag = format!("m{}", self.count);
        let (id, none) = (UploadId(upload), Precondition::default());
        let result = bucket
            .upload_complete(&key(&text), id, &parts, about(&etag), &none)
            .await;
        let mut after = self.model.clone();
        after.complete(&text, upload, &numbers, &etag);
        match result {
            Ok(record) => {
                assert_eq!(usize::try_from(record.part_count).unwrap(), numbers.len());
                self.model = after;
            }
            Err(error) => {
                assert!(is_unknown(&error), "{error:?}");
                self.settle(&text, after).await;
                self.settle_uploads().await;
            }
        }
    }

    async fn list(&mut self) {
        let mut query = ListQuery {
            prefix: String::new(),
            delimiter: None,
            after: ListAfter::Start,
            count_max: u32::try_from(self.random.below(12)).unwrap(),
            versions: false,
        };
        if self.random.below(2) == 0 {
            query.prefix = LETTERS[usize::try_from(self.random.below(7)).unwrap()].to_owned();
        }
        if self.random.below(2) == 0 {
            query.delimiter = Some(LETTERS[usize::try_from(self.random.below(5)).unwrap()].into());
        }
        if self.random.below(2) == 0 {
            query.after = ListAfter::Key(self.text());
        }
        let bucket = self.bucket();
        match bucket.list(&query).await {
            Ok(page) => {
                let expected = self.model.list(&query);
                assert_eq!(names(&page), expected.names, "{query:?}");
                assert_eq!(page.truncated, expected.truncated, "{query:?}");
            }
            Err(error) => assert!(is_unknown(&error), "{error:?}"),
        }
    }

    async fn get(&mut self) {
        let text = self.text();
        let bucket = self.bucket();
        let object = match bucket.get(&key(&text), None).await {
            Ok(object) => object,
            Err(Error::NoSuchKey) => {
                assert!(!self.model.objects.contains_key(&text), "{text:?}");
                return;
            }
            Err(error) => {
                assert!(is_unknown(&error), "{error:?}");
                return;
            }
        };
        let expected = &self.model.objects[&text];
        let size = object.record().size;
        assert_eq!(size, expected.data.len() as u64);
        assert_eq!(object.record().about.etag, expected.etag);
        assert_eq!(object.record().about.tags, expected.tags);
        let start = self.random.below(size + 1);
        let end = start + self.random.below(size - start + 1);
        match read(&object, start..end).await {
            Ok(data) => {
                let range = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
                assert_eq!(data, expected.data[range]);
            }
            Err(error) => assert!(is_unknown(&error), "{error:?}"),
        }
        if let Ok(parts) = bucket.parts(&object).await {
            assert!(
                parts
                    .iter()
                    .map(|part| part.size)
                    .eq(expected.parts.iter().copied())
            );
        }
    }

    /// Compares everything through a session without faults, then takes all away.
    async fn finish(self) {
        let calm = self.bed.node(&tiny()).await;
        let bucket = calm.bucket(ID).await.unwrap();
        let records = all(&bucket).await;
        let found = records.iter().map(|record| record.key.to_string());
        assert!(found.eq(self.model.objects.keys().cloned()));
        for (text, object) in &self.model.objects {
            let (record, data) = fetch(&bucket, text).await.unwrap();
            assert_eq!((&record.about.etag, &data), (&object.etag, &object.data));
        }
        assert_eq!(bucket.usage().await.unwrap(), self.model.usage());
        for text in self.model.objects.keys() {
            remove(&bucket, text).await.unwrap();
        }
        for node in &self.nodes {
            let _unused = node.close().await.is_ok();
        }
        drop(self.buckets);
        drop(self.nodes);
        // Tasks of the two nodes end, and with them their sessions.
        tokio::time::sleep(Duration::from_secs(120)).await;
        reclaim_all(&calm).await;
        self.bed.tear_down(&calm).await;
    }
}

async fn run(engine: On, seed: u64, steps: u32, faults: Option<Faults>) -> (u64, u64) {
    let mut run = Run::new(engine, seed, faults).await;
    for _step in 0..steps {
        run.step().await;
    }
    let splits = run.nodes.iter().map(|node| node.stats().splits.value());
    let outcome = (splits.sum(), run.unknown);
    run.finish().await;
    outcome
}

#[tokio::test(start_paused = true)]
async fn random_operations_match_the_model() {
    let mut splits = 0;
    for seed in 0..16 {
        splits += run(On::Memory, seed, 400, None).await.0;
    }
    assert!(splits > 60, "{splits} splits");
}

#[tokio::test(start_paused = true)]
async fn random_operations_over_a_bad_link_match_the_model() {
    let mut splits = 0;
    for seed in 100..116 {
        splits += run(On::Memory, seed, 300, Some(BAD_LINK)).await.0;
    }
    assert!(splits > 30, "{splits} splits");
}

#[tokio::test(start_paused = true)]
async fn random_operations_on_the_local_engine_match_the_model() {
    let mut splits = 0;
    for seed in 200..203 {
        splits += run(On::Local, seed, 300, None).await.0;
        splits += run(On::Local, seed, 200, Some(BAD_LINK)).await.0;
    }
    assert!(splits > 10, "{splits} splits");
}
