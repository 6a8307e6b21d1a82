//! A disk in memory that remembers what was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use portico_backend::local::media::{FileName, Medium};
use portico_backend::random::Generator;

/// Contents of all files.
pub type Image = BTreeMap<FileName, Vec<u8>>;

/// What was done to the disk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    Write {
        file: FileName,
        offset: u64,
        data: Bytes,
    },
    SetLen {
        file: FileName,
        len: u64,
    },
    Sync {
        file: FileName,
    },
}

impl Event {
    fn file(&self) -> FileName {
        match self {
            Self::Write { file, .. } | Self::SetLen { file, .. } | Self::Sync { file } => *file,
        }
    }
}

/// Which of the unsynced writes are on the disk when the power goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Loss {
    Nothing,
    Everything,
    /// Each write by chance, and one of them torn at 512 bytes.
    Some(u64),
}

/// The medium of a recorded run.
#[derive(Debug)]
pub struct SimDisk(Mutex<State>);

#[derive(Debug)]
struct State {
    files: Image,
    /// What every file held at its last sync.
    stable: Image,
    events: Vec<Event>,
    capacity_bytes: u64,
    /// Pages that take space: written, or allocated.
    taken: BTreeMap<FileName, BTreeSet<u64>>,
    /// The number of the write or sync that fails, and of all after it.
    fails_at: Option<u64>,
    done: u64,
    random: Generator,
}

impl SimDisk {
    /// A disk that holds `image`, all of it stable.
    #[must_use]
    pub fn new(image: Image) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            stable: image.clone(),
            files: image,
            events: Vec::new(),
            capacity_bytes: u64::MAX,
            taken: BTreeMap::new(),
            fails_at: None,
            done: 0,
            random: Generator::new(0),
        })))
    }

    /// From the `number`th write or sync from now on, all fail; a failed sync loses some of what it
    /// should have made stable, as the kernel's cache does.
    pub fn fail_after(&self, number: u64, seed: u64) {
        let mut state = self.state();
        state.stable = state.files.clone();
        state.fails_at = Some(state.done + number);
        state.random = Generator::new(seed);
    }

    /// From now on the disk has room for this many bytes. Holes take none.
    pub fn set_capacity(&self, bytes: u64) {
        let mut state = self.state();
        state.capacity_bytes = bytes;
        let files: Vec<_> = state.files.iter().map(|(f, b)| (*f, b.len())).collect();
        for (file, len) in files {
            let pages = 0..(len as u64).div_ceil(PAGE);
            state.taken.entry(file).or_default().extend(pages);
        }
    }

    /// Events so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.state().events.len() as u64
    }

    /// The events of the run.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.state().events.clone()
    }

    #[must_use]
    pub fn image(&self) -> Image {
        self.state().files.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn change(&mut self, event: Event) -> io::Result<()> {
        self.done += 1;
        let fails = self.fails_at.is_some_and(|at| self.done >= at);
        if let Event::Sync { file } = event {
            if fails {
                let stable = self.stable.get(&file).cloned().unwrap_or_default();
                let live = self.files.entry(file).or_default();
                lose_sectors(live, &stable, &mut self.random);
                return Err(io::Error::other("the disk failed"));
            }
            if self.fails_at.is_some() {
                let live = self.files.get(&file).cloned().unwrap_or_default();
                self.stable.insert(file, live);
            }
        } else if fails {
            return Err(io::Error::other("the disk failed"));
        } else {
            self.take_room(&event)?;
        }
        apply(&mut self.files, &event);
        self.events.push(event);
        Ok(())
    }

    fn allocate(&mut self, file: FileName, len: u64) -> io::Result<()> {
        let old = self.files.get(&file).map_or(0, Vec::len) as u64;
        if old >= len {
            return Ok(());
        }
        self.take_pages(file, old, len)?;
        self.change(Event::SetLen { file, len })
    }

    fn take_room(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Write { file, offset, data } => {
                self.take_pages(*file, *offset, offset + data.len() as u64)
            }
            Event::SetLen { file, len } => {
                let first_gone = len.div_ceil(PAGE);
                self.taken.entry(*file).or_default().split_off(&first_gone);
                Ok(())
            }
            Event::Sync { .. } => Ok(()),
        }
    }

    fn take_pages(&mut self, file: FileName, start: u64, end: u64) -> io::Result<()> {
        if self.capacity_bytes == u64::MAX {
            return Ok(());
        }
        let used: usize = self.taken.values().map(BTreeSet::len).sum();
        let pages = start / PAGE..end.div_ceil(PAGE);
        let taken = self.taken.entry(file).or_default();
        let missing = pages.clone().filter(|page| !taken.contains(page)).count();
        if (used + missing) as u64 * PAGE > self.capacity_bytes {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        taken.extend(pages);
        Ok(())
    }
}

impl Medium for SimDisk {
    fn len(&self, file: FileName) -> io::Result<u64> {
        Ok(self.state().files.get(&file).map_or(0, Vec::len) as u64)
    }

    fn read_at(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let start = index(offset);
        let source = state
            .files
            .get(&file)
            .and_then(|bytes| bytes.get(start..start.checked_add(buffer.len())?))
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        buffer.copy_from_slice(source);
        Ok(())
    }

    fn write_at(&self, file: FileName, offset: u64, data: &[u8]) -> io::Result<()> {
        let data = Bytes::copy_from_slice(data);
        self.state().change(Event::Write { file, offset, data })
    }

    fn set_len(&self, file: FileName, len: u64) -> io::Result<()> {
        self.state().change(Event::SetLen { file, len })
    }

    fn allocate(&self, file: FileName, len: u64) -> io::Result<()> {
        self.state().allocate(file, len)
    }

    fn sync(&self, file: FileName) -> io::Result<()> {
        self.state().change(Event::Sync { file })
    }

    fn device_bytes(&self) -> Option<u64> {
        None
    }

    fn free_bytes(&self) -> Option<u64> {
        let state = self.state();
        let used: usize = state.taken.values().map(BTreeSet::len).sum();
        let capacity = Some(state.capacity_bytes).filter(|bytes| *bytes < u64::MAX)?;
        Some(capacity.saturating_sub(used as u64 * PAGE))
    }
}

/// Goes through the cut points of a run, from the first to the last.
#[derive(Debug)]
pub struct Cuts<'a> {
    events: &'a [Event],
    /// Files as of their last sync.
    stable: Image,
    /// Events since, by their number.
    pending: BTreeMap<FileName, Vec<usize>>,
    at: usize,
}

impl<'a> Cuts<'a> {
    #[must_use]
    pub fn new(initial: Image, events: &'a [Event]) -> Self {
        Self {
            events,
            stable: initial,
            pending: BTreeMap::new(),
            at: 0,
        }
    }

    /// The number of events that happened before the power goes.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at as u64
    }

    /// Goes on by one event; `false` behind the last.
    pub fn advance(&mut self) -> bool {
        let Some(event) = self.events.get(self.at) else {
            return false;
        };
        let pending = self.pending.entry(event.file()).or_default();
        if matches!(event, Event::Sync { .. }) {
            for number in pending.drain(..) {
                apply(&mut self.stable, &self.events[number]);
            }
        } else {
            pending.push(self.at);
        }
        self.at += 1;
        true
    }

    /// Whether there is anything that can be lost.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.pending.values().any(|pending| !pending.is_empty())
    }

    /// What the disk may hold if the power goes now.
    #[must_use]
    pub fn image(&self, loss: Loss) -> Image {
        let mut image = self.stable.clone();
        let mut random = match loss {
            Loss::Everything => return image,
            Loss::Nothing => Generator::new(0),
            Loss::Some(seed) => Generator::new(seed),
        };
        let total: usize = self.pending.values().map(Vec::len).sum();
        let torn = random.below(total.max(1) as u64);
        let mut count = 0;
        for pending in self.pending.values() {
            let mut lengths_kept = true;
            for number in pending {
                let event = &self.events[*number];
                let is_torn = count == torn;
                count += 1;
                match (loss, event) {
                    (Loss::Nothing | Loss::Everything, _) => apply(&mut image, event),
                    // A file system keeps the order of changes of length.
                    (Loss::Some(_), Event::SetLen { .. }) => {
                        lengths_kept = lengths_kept && random.chance(700);
                        if lengths_kept {
                            apply(&mut image, event);
                        }
                    }
                    (Loss::Some(_), _) if is_torn => tear(&mut image, event, &mut random),
                    (Loss::Some(_), _) if random.chance(500) => apply(&mut image, event),
                    (Loss::Some(_), _) => {}
                }
            }
        }
        image
    }
}

fn apply(image: &mut Image, event: &Event) {
    let bytes = image.entry(event.file()).or_default();
    match event {
        Event::Write { offset, data, .. } => {
            let start = index(*offset);
            if bytes.len() < start + data.len() {
                bytes.resize(start + data.len(), 0);
            }
            bytes[start..start + data.len()].copy_from_slice(data);
        }
        Event::SetLen { len, .. } => bytes.resize(index(*len), 0),
        Event::Sync { .. } => {}
    }
}

/// Some sectors of a write.
fn tear(image: &mut Image, event: &Event, random: &mut Generator) {
    let Event::Write { file, offset, data } = event else {
        return;
    };
    let mut at = 0;
    while at < data.len() {
        let sector_end = SECTOR - (index(*offset) + at) % SECTOR;
        let end = (at + sector_end).min(data.len());
        if random.chance(500) {
            let piece = Event::Write {
                file: *file,
                offset: offset + at as u64,
                data: data.slice(at..end),
            };
            apply(image, &piece);
        }
        at = end;
    }
}

/// Puts back some sectors as they were at the last sync.
fn lose_sectors(live: &mut [u8], stable: &[u8], random: &mut Generator) {
    for (number, sector) in live.chunks_mut(SECTOR).enumerate() {
        let at = number * SECTOR;
        let old = stable.get(at..(at + sector.len()).min(stable.len()));
        let mut before = vec![0; sector.len()];
        if let Some(old) = old {
            before[..old.len()].copy_from_slice(old);
        }
        if before != sector && random.chance(500) {
            sector.copy_from_slice(&before);
        }
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a disk in memory")
}

const SECTOR: usize = 512;
const PAGE: u64 = 4096;
