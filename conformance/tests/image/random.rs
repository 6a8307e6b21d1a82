//! Random operations on an image against `model::image`: with lost replies, crashes of the store,
//! and takeovers by another session. A run depends on its seed alone.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use portico_backend::error::{Error, ErrorKind};
use portico_backend::faulty::{CallKind, Faults, Faulty, FaultyOptions};
use portico_backend::image::{CompareMark, Image};
use portico_backend::object::{Durability, ObjectStore};
use portico_backend::random::Generator;
use portico_conformance::model::image::{BLOCK, Change, Fate, ImageModel};

use crate::bed::{Bed, NAME, content, index, new_image, payload, pools};

const OPERATIONS: u64 = 150;
const SIZE_MAX: u64 = 300 * 1_024;

struct Run {
    random: Generator,
    bed: Bed,
    /// Whether replies get lost.
    faults: bool,
    image: Image,
    former: Vec<Image>,
    model: ImageModel,
    log: Vec<String>,
}

fn session(bed: &Bed, seed: u64, faults: bool) -> Arc<dyn ObjectStore> {
    let inner = bed.session("image");
    if !faults {
        return inner;
    }
    let lossy = Faults {
        unavailable_per_mille: 20,
        busy_per_mille: 20,
        lost_reply_per_mille: 20,
        ..Faults::default()
    };
    Faulty::new(inner, FaultyOptions::new(seed).with(CallKind::Write, lossy))
}

async fn open(store: &Arc<dyn ObjectStore>) -> Image {
    // Opening may meet a lost reply, and is repeated as a user would.
    for _ in 0..50 {
        match Image::open(Arc::clone(store), &pools(), NAME).await {
            Ok(image) => return image,
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Busy) => {}
            Err(error) => panic!("opening: {error}"),
        }
    }
    panic!("opening fails for ever");
}

async fn run(bed: Bed, seed: u64, faults: bool) {
    let new = new_image(seed, 100 * 1_024);
    let store = bed.session("maker");
    Image::create(&*store, &pools(), &new).await.unwrap();
    let image = open(&session(&bed, seed, faults)).await;
    let mut run = Run {
        random: Generator::new(seed),
        bed,
        faults,
        image,
        former: Vec::new(),
        model: ImageModel::new(index(new.size_bytes)),
        log: Vec::new(),
    };
    for _ in 0..OPERATIONS {
        run.step().await;
        let shown = content(&run.image).await;
        if let Err(problem) = run.model.see(&shown) {
            panic!("seed {seed}: {problem}\n{}", run.log.join("\n"));
        }
    }
    drop(run.former);
    run.image.close().await.ok();
}

impl Run {
    async fn step(&mut self) {
        match self.random.below(20) {
            0 => self.flush().await,
            1 => self.resize().await,
            2 => self.take_over().await,
            3 => self.crash().await,
            4..6 => self.compare().await,
            6..9 => self.zero().await,
            9 => self.allocation().await,
            _ => self.write().await,
        }
    }

    fn range(&mut self) -> (u64, u64) {
        let size = self.model.size() as u64;
        let offset = self.random.below(size / 512) * 512;
        let most = if self.random.chance(300) {
            100 * 1_024
        } else {
            12_000
        };
        let length = 1 + self.random.below(most);
        (offset, length.min(size - offset))
    }

    fn fate(&self, answer: &Result<(), Error>, durability: Durability) -> Option<Fate> {
        match (answer, durability) {
            (Ok(()), Durability::Durable) => Some(Fate::Done),
            (Ok(()), Durability::Buffered) => Some(Fate::Buffered),
            // One part may have happened where another was refused.
            (Err(error), _) => {
                assert!(
                    self.faults && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Busy),
                    "{error}\n{}",
                    self.log.join("\n")
                );
                Some(Fate::Unknown)
            }
        }
    }

    fn durability(&mut self) -> Durability {
        if self.random.chance(300) {
            Durability::Buffered
        } else {
            Durability::Durable
        }
    }

    /// One write, or several at once that may meet in a block.
    async fn write(&mut self) {
        let count = if self.random.chance(300) { 3 } else { 1 };
        let mut writes = Vec::new();
        for _ in 0..count {
            let (offset, length) = self.range();
            let durability = self.durability();
            let (data, bytes) = payload(&mut self.random, length);
            self.log
                .push(format!("write {offset}+{length} {durability:?}"));
            writes.push((offset, data, durability, bytes));
        }
        let calls = writes.iter().map(|(offset, data, durability, _)| {
            self.image.write(*offset, data.clone(), *durability)
        });
        let answers = join_all(calls).await;
        let mut changes = Vec::new();
        for (answer, (offset, _, durability, data)) in answers.iter().zip(writes) {
            let offset = index(offset);
            if let Some(fate) = self.fate(answer, durability) {
                changes.push((Change { offset, data }, fate));
            }
        }
        self.model.change(&changes);
    }

    async fn zero(&mut self) {
        let (offset, length) = self.range();
        let (answer, durability) = if self.random.chance(500) {
            self.log.push(format!("discard {offset}+{length}"));
            let answer = self.image.discard(offset, length).await;
            (answer, Durability::Durable)
        } else {
            let durability = self.durability();
            self.log
                .push(format!("zero {offset}+{length} {durability:?}"));
            (
                self.image.zero(offset, length, durability).await,
                durability,
            )
        };
        let change = Change {
            offset: index(offset),
            data: vec![0; index(length)],
        };
        if let Some(fate) = self.fate(&answer, durability) {
            self.model.change(&[(change, fate)]);
        }
    }

    /// With the right or a wrong expectation.
    async fn compare(&mut self) {
        let size = self.model.size() as u64;
        let offset = self.random.below(size / 512) * 512;
        let Some(expected) = self.model.known(index(offset), 512) else {
            return;
        };
        let mut expect = expected.clone();
        let wrong = self
            .random
            .chance(400)
            .then(|| index(self.random.below(512)));
        if let Some(wrong) = wrong {
            expect[wrong] ^= 1;
        }
        let (_, data) = payload(&mut self.random, 512);
        self.log
            .push(format!("compare {offset}, wrong at {wrong:?}"));
        let mark = CompareMark {
            initiator: Arc::from("iqn.initiator"),
            lba: offset / 512,
        };
        let (expect, new) = (Bytes::from(expect), Bytes::from(data.clone()));
        let answer = self
            .image
            .compare_and_write(offset, expect, new, mark)
            .await;
        if let Some(wrong) = wrong
            && let Err(error) = &answer
            && error.kind() == ErrorKind::GuardFailed
        {
            assert_eq!(error.mismatch_offset(), Some(wrong as u64));
            return;
        }
        if let Err(error) = &answer
            && wrong.is_some()
        {
            assert!(self.faults, "{error}");
            return;
        }
        assert!(
            wrong.is_none(),
            "it compared wrong data\n{}",
            self.log.join("\n")
        );
        let change = Change {
            offset: index(offset),
            data,
        };
        if let Some(fate) = self.fate(&answer, Durability::Durable) {
            self.model.change(&[(change, fate)]);
        }
    }

    /// What is said to be a hole reads as zeros; the runs cover the image.
    async fn allocation(&mut self) {
        let size = self.image.size_bytes();
        let mut offset = 0;
        while offset < size {
            let (is_mapped, length) = self.image.allocation(offset, size - offset).await.unwrap();
            assert!(length > 0 && offset + length <= size);
            if !is_mapped {
                let bytes = self.image.read(offset, length).await.unwrap();
                assert!(bytes.to_bytes().iter().all(|byte| *byte == 0));
            }
            offset += length;
        }
    }

    async fn flush(&mut self) {
        self.log.push("flush".to_owned());
        if self.image.flush().await.is_ok() {
            self.model.flush();
        }
    }

    async fn resize(&mut self) {
        let size = 512 * (1 + self.random.below(SIZE_MAX / 512));
        self.log.push(format!("resize to {size}"));
        match self.image.resize(size).await {
            Ok(()) => {}
            Err(error) => {
                assert!(self.faults, "{error}");
                // Whoever opens the image next finds the one size or the other.
                self.take_over().await;
            }
        }
        let size = index(self.image.size_bytes());
        self.model.resize(size);
    }

    /// Another session takes the image; what the former one does fails.
    async fn take_over(&mut self) {
        self.log.push("take over".to_owned());
        let seed = self.random.next_u64();
        let next = open(&session(&self.bed, seed, self.faults)).await;
        let former = std::mem::replace(&mut self.image, next);
        assert!(self.image.epoch() > former.epoch());
        let size = index(self.image.size_bytes());
        self.model.resize(size);
        let (data, _) = payload(&mut self.random, BLOCK as u64);
        let length = data.len().min(size as u64);
        let answer = former
            .write(0, data.slice(0, length), Durability::Durable)
            .await;
        let kind = answer.unwrap_err().kind();
        let refusals = [ErrorKind::Fenced, ErrorKind::Busy, ErrorKind::Unavailable];
        assert!(
            refusals.contains(&kind) || (kind == ErrorKind::TooLarge && length > 0),
            "{kind:?}"
        );
        self.former.push(former);
        self.former.truncate(2);
    }

    /// The store loses what was not stable. Its sessions go on, as they do after a restart.
    async fn crash(&mut self) {
        let Bed::Memory(cluster) = &self.bed else {
            return;
        };
        self.log.push("crash".to_owned());
        cluster.crash();
        self.model.crash();
        let seed = self.random.next_u64();
        self.image = open(&session(&self.bed, seed, self.faults)).await;
        let size = index(self.image.size_bytes());
        self.model.resize(size);
    }
}

#[tokio::test]
async fn an_image_is_as_the_model_says_on_memory() {
    for seed in 0..30 {
        run(Bed::memory(seed), seed, false).await;
    }
}

#[tokio::test]
async fn an_image_is_as_the_model_says_with_lost_replies() {
    for seed in 100..130 {
        run(Bed::memory(seed), seed, true).await;
    }
}

#[tokio::test]
async fn an_image_is_as_the_model_says_on_local() {
    for seed in 200..206 {
        run(Bed::local(), seed, false).await;
    }
}
