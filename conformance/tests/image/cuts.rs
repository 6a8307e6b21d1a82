//! The power goes at every write and sync of the disk below an image: what was acknowledged is
//! there, no block of 4 KiB is torn, and what was taken away never comes back.

use std::sync::Arc;

use portico_backend::error::{ErrorKind, chain};
use portico_backend::image::{CompareMark, Image};
use portico_backend::local::media::Medium;
use portico_backend::local::{LocalStore, PlantedBug};
use portico_backend::object::Durability;
use portico_backend::random::Generator;
use portico_conformance::crash::disk::{Cuts, Event, Image as Disk, Loss, SimDisk};
use portico_conformance::crash::tiny_options;
use portico_conformance::model::image::BLOCK;

use crate::bed::{NAME, content, index, new_image, payload, pools};

const SIZE: u64 = 160 * 1_024;

/// Changes of one run; each makes some ten cut points.
const OPERATIONS: u64 = 40;

/// A block as of one moment; `None` behind the end of the image.
#[derive(Clone, Debug)]
struct Moment {
    /// Events before the change began: a cut there can't show it.
    began: u64,
    /// Events when it was known to be stable: a cut from there on must not lose it.
    stable: u64,
    content: Option<Vec<u8>>,
    what: String,
}

/// A recorded run.
struct History {
    events: Vec<Event>,
    /// Events when the image was there.
    created: u64,
    blocks: Vec<Vec<Moment>>,
}

struct Recorder {
    random: Generator,
    disk: Arc<SimDisk>,
    image: Image,
    now: Vec<u8>,
    blocks: Vec<Vec<Moment>>,
}

async fn record(seed: u64, operations: u64, planted_bug: Option<PlantedBug>) -> History {
    let disk = SimDisk::new(Disk::new());
    let medium: Arc<dyn Medium> = Arc::<SimDisk>::clone(&disk);
    let local = LocalStore::open_on(&medium, tiny_options(planted_bug)).unwrap();
    let store = local.session("image");
    let new = new_image(seed, SIZE / 2);
    Image::create(&*store, &pools(), &new).await.unwrap();
    let image = Image::open(store, &pools(), NAME).await.unwrap();
    let created = disk.position();
    let first = |number: u64| {
        vec![Moment {
            began: 0,
            stable: 0,
            content: (number * (BLOCK as u64) < SIZE / 2).then(|| vec![0; BLOCK]),
            what: "nothing yet".to_owned(),
        }]
    };
    let mut recorder = Recorder {
        random: Generator::new(seed),
        disk: Arc::clone(&disk),
        now: vec![0; index(SIZE / 2)],
        image,
        blocks: (0..SIZE / BLOCK as u64).map(first).collect(),
    };
    for _ in 0..operations {
        recorder.step().await;
        assert!(content(&recorder.image).await == recorder.now);
    }
    let blocks = std::mem::take(&mut recorder.blocks);
    drop((recorder, local));
    History {
        events: disk.events(),
        created,
        blocks,
    }
}

impl Recorder {
    async fn step(&mut self) {
        let began = self.disk.position();
        let size = self.now.len() as u64;
        let offset = 512 * self.random.below(size / 512);
        let length = (512 * (1 + self.random.below(40))).min(size - offset);
        let range = index(offset)..index(offset + length);
        let what;
        let mut stable = true;
        match self.random.below(16) {
            0 => {
                what = "flush".to_owned();
                self.image.flush().await.unwrap();
                let position = self.disk.position();
                let moments = self.blocks.iter_mut().flatten();
                moments.for_each(|moment| moment.stable = moment.stable.min(position));
            }
            1 | 2 => {
                let size = BLOCK as u64 * (8 + self.random.below(SIZE / BLOCK as u64 - 7));
                what = format!("resize to {size}");
                self.image.resize(size).await.unwrap();
                self.now.resize(index(size), 0);
            }
            3..6 => {
                what = format!("discard {offset}+{length}");
                self.image.discard(offset, length).await.unwrap();
                self.now[range].fill(0);
            }
            6 => {
                let (new, data) = payload(&mut self.random, 512);
                what = format!("compare {offset}");
                let range = range.start..range.start + 512;
                let expect = self.now[range.clone()].to_vec().into();
                let mark = CompareMark {
                    initiator: Arc::from("x"),
                    lba: offset / 512,
                };
                let answer = self
                    .image
                    .compare_and_write(offset, expect, new.to_bytes(), mark);
                answer.await.unwrap();
                self.now[range].copy_from_slice(&data);
            }
            7..10 => {
                let (new, data) = payload(&mut self.random, length);
                what = format!("buffered write {offset}+{length}");
                stable = false;
                let write = self.image.write(offset, new, Durability::Buffered);
                write.await.unwrap();
                self.now[range].copy_from_slice(&data);
            }
            _ => {
                let (new, data) = payload(&mut self.random, length);
                what = format!("write {offset}+{length}");
                let write = self.image.write(offset, new, Durability::Durable);
                write.await.unwrap();
                self.now[range].copy_from_slice(&data);
            }
        }
        self.note(began, stable, &what);
    }

    /// Every block that is not as it was.
    fn note(&mut self, began: u64, stable: bool, what: &str) {
        let position = self.disk.position();
        for (number, moments) in self.blocks.iter_mut().enumerate() {
            let content = self.now.get(number * BLOCK..(number + 1) * BLOCK);
            let last = moments.last().expect("a first moment");
            if last.content.as_deref() != content {
                moments.push(Moment {
                    began,
                    stable: if stable { position } else { u64::MAX },
                    content: content.map(<[u8]>::to_vec),
                    what: what.to_owned(),
                });
            }
        }
    }
}

/// Cuts at every event; gives the number of cut points.
async fn verify(history: &History, seed: u64) -> Result<u64, String> {
    let mut cuts = Cuts::new(Disk::new(), &history.events);
    let mut count = 0;
    loop {
        let position = cuts.position();
        let mut losses = vec![Loss::Nothing];
        if cuts.has_pending() {
            losses.extend([Loss::Everything, Loss::Some(seed ^ (position << 8))]);
        }
        for loss in losses {
            judge(history, position, cuts.image(loss))
                .await
                .map_err(|problem| {
                    format!("cut at event {position}, losing {loss:?}: {problem}")
                })?;
            count += 1;
        }
        if !cuts.advance() {
            return Ok(count);
        }
    }
}

async fn judge(history: &History, position: u64, disk: Disk) -> Result<(), String> {
    let medium: Arc<dyn Medium> = SimDisk::new(disk);
    let local = LocalStore::open_on(&medium, tiny_options(None))
        .map_err(|error| format!("the store does not open: {}", chain(&error)))?;
    let image = match Image::open(local.session("judge"), &pools(), NAME).await {
        Ok(image) => image,
        Err(error) if error.kind() == ErrorKind::NotFound && position < history.created => {
            return Ok(());
        }
        Err(error) => return Err(format!("the image does not open: {}", chain(&error))),
    };
    // Growing shows whether anything is left behind the end.
    let shown = content(&image).await;
    image.resize(SIZE).await.map_err(|error| chain(&error))?;
    let grown = content(&image).await;
    if grown[shown.len()..].iter().any(|byte| *byte != 0) {
        return Err("old data lies behind the end".to_owned());
    }
    for (number, moments) in history.blocks.iter().enumerate() {
        let found = shown.get(number * BLOCK..(number + 1) * BLOCK);
        let stable = moments
            .iter()
            .rposition(|moment| moment.stable <= position)
            .unwrap_or(0);
        let mut allowed = moments[stable..]
            .iter()
            .enumerate()
            .filter(|(at, moment)| *at == 0 || moment.began < position)
            .map(|(_, moment)| moment);
        if !allowed
            .clone()
            .any(|moment| moment.content.as_deref() == found)
        {
            let expected = allowed.next().map_or("", |moment| &moment.what);
            let known = moments
                .iter()
                .find(|moment| moment.content.as_deref() == found);
            let known = known.map_or("a state that never was", |moment| &moment.what);
            return Err(format!(
                "block {number} is not as after [{expected}] or later, but as after [{known}]"
            ));
        }
    }
    Ok(())
}

async fn cut_everywhere(seed: u64) {
    let history = record(seed, OPERATIONS, None).await;
    match verify(&history, seed).await {
        Ok(count) => {
            println!("seed {seed}: cut points: {count}");
            assert!(count > 500, "{count}");
        }
        Err(problem) => panic!("seed {seed}: {problem}"),
    }
}

#[tokio::test]
async fn a_power_cut_anywhere_loses_nothing_acknowledged_of_plain_objects() {
    cut_everywhere(3).await;
}

#[tokio::test]
async fn a_power_cut_anywhere_loses_nothing_acknowledged_of_three_striped_objects() {
    cut_everywhere(1).await;
}

#[tokio::test]
async fn a_power_cut_anywhere_loses_nothing_acknowledged_of_two_striped_objects() {
    cut_everywhere(2).await;
}

/// A suite that finds nothing proves nothing. The seeds are the first ones that find it.
#[tokio::test]
async fn an_engine_that_does_not_sync_is_found_out() {
    for (bug, seed) in [
        (PlantedBug::LogSyncSkipped, 0),
        (PlantedBug::FlushSkipped, 2),
    ] {
        let history = record(seed, OPERATIONS, Some(bug)).await;
        let problem = verify(&history, seed).await.err();
        println!("{bug:?}: {problem:?}");
        assert!(problem.is_some(), "{bug:?} was not noticed");
    }
}
