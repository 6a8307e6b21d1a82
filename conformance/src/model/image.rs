//! What an image may hold: for each block of 4 KiB the contents that are possible, given what was
//! acknowledged, what was not, and what a crash may take away.

/// What is never torn.
pub const BLOCK: usize = 4_096;

/// One block: contents that a read may show now, and those that it may show after a crash.
#[derive(Clone, Debug)]
struct Block {
    now: Vec<Vec<u8>>,
    after_crash: Vec<Vec<u8>>,
}

/// What is known of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It returned, and was durable.
    Done,
    /// It returned, and was buffered.
    Buffered,
    /// Perhaps it happened, in whole or in part.
    Unknown,
}

/// A part of an image that a change sets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    pub offset: usize,
    pub data: Vec<u8>,
}

/// The image as far as it is known.
#[derive(Clone, Debug)]
pub struct ImageModel {
    blocks: Vec<Block>,
    size: usize,
    /// Since the last look: what is seen then is what is left, and stable.
    crashed: bool,
}

impl ImageModel {
    /// An image of zeros.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let mut model = Self {
            blocks: Vec::new(),
            size: 0,
            crashed: false,
        };
        model.resize(size);
        model
    }

    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Several changes that overlapped in time: any order is possible, block by block.
    pub fn change(&mut self, changes: &[(Change, Fate)]) {
        for (number, block) in self.blocks.iter_mut().enumerate() {
            let here: Vec<&(Change, Fate)> = changes
                .iter()
                .filter(|(change, _)| overlap(number, change).is_some())
                .collect();
            if here.is_empty() {
                continue;
            }
            let before = block.clone();
            block.now.clear();
            block.after_crash.clear();
            for order in orders(here.len()) {
                let mut after = before.clone();
                for index in order {
                    let (change, fate) = here[index];
                    after.change(number, change, *fate);
                }
                block.now.extend(after.now);
                block.after_crash.extend(after.after_crash);
            }
            block.now = distinct(std::mem::take(&mut block.now));
            block.after_crash = distinct(std::mem::take(&mut block.after_crash));
        }
    }

    /// Everything that returned is stable.
    pub fn flush(&mut self) {
        for block in &mut self.blocks {
            block.after_crash.clone_from(&block.now);
        }
    }

    /// What was not stable may be gone.
    pub fn crash(&mut self) {
        for block in &mut self.blocks {
            block.now.clone_from(&block.after_crash);
        }
        self.crashed = true;
    }

    /// What is behind the size is gone, and is zeros if it comes again.
    pub fn resize(&mut self, size: usize) {
        let zeros = Block {
            now: vec![vec![0; BLOCK]],
            after_crash: vec![vec![0; BLOCK]],
        };
        self.blocks.resize(size.div_ceil(BLOCK), zeros);
        let kept = size % BLOCK;
        if size < self.size
            && kept > 0
            && let Some(last) = self.blocks.last_mut()
        {
            for content in last.now.iter_mut().chain(&mut last.after_crash) {
                content[kept..].fill(0);
            }
        }
        self.size = size;
    }

    /// Takes in what a read of everything shows: from here on that is so.
    ///
    /// # Errors
    /// The first block that shows what it can't.
    pub fn see(&mut self, content: &[u8]) -> Result<(), String> {
        if content.len() != self.size {
            return Err(format!("{} bytes instead of {}", content.len(), self.size));
        }
        for (number, block) in self.blocks.iter_mut().enumerate() {
            let start = number * BLOCK;
            let mut shown = content[start..content.len().min(start + BLOCK)].to_vec();
            shown.resize(BLOCK, 0);
            if !block.now.contains(&shown) {
                let possible: Vec<Option<usize>> = block
                    .now
                    .iter()
                    .map(|content| content.iter().zip(&shown).position(|(a, b)| a != b))
                    .collect();
                return Err(format!(
                    "block {number} shows what it can't; first differences from what is possible: \
                     {possible:?}"
                ));
            }
            block.now = vec![shown];
            if self.crashed {
                block.after_crash.clone_from(&block.now);
            }
        }
        self.crashed = false;
        Ok(())
    }

    /// The content of a range, if it is known.
    #[must_use]
    pub fn known(&self, offset: usize, length: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length);
        for at in offset..offset + length {
            match self.blocks[at / BLOCK].now.as_slice() {
                [one] => bytes.push(one[at % BLOCK]),
                _ => return None,
            }
        }
        Some(bytes)
    }
}

impl Block {
    fn change(&mut self, number: usize, change: &Change, fate: Fate) {
        let changed = |contents: &[Vec<u8>]| -> Vec<Vec<u8>> {
            let changed = contents.iter().map(|old| overlaid(number, old, change));
            changed.collect()
        };
        let now = changed(&self.now);
        match fate {
            // What it does not touch is as it was, stable or not.
            Fate::Done => {
                self.after_crash = changed(&self.after_crash);
                self.now.clone_from(&now);
            }
            Fate::Buffered => self.now.clone_from(&now),
            Fate::Unknown => self.now.extend(now.iter().cloned()),
        }
        self.after_crash.extend(now);
    }
}

fn overlap(block: usize, change: &Change) -> Option<(usize, usize)> {
    let from = change.offset.max(block * BLOCK);
    let to = (change.offset + change.data.len()).min((block + 1) * BLOCK);
    (from < to).then_some((from, to))
}

fn overlaid(block: usize, old: &[u8], change: &Change) -> Vec<u8> {
    let mut new = old.to_vec();
    if let Some((from, to)) = overlap(block, change) {
        let source = &change.data[from - change.offset..to - change.offset];
        new[from - block * BLOCK..to - block * BLOCK].copy_from_slice(source);
    }
    new
}

fn distinct(mut contents: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    contents.sort();
    contents.dedup();
    contents
}

/// All orders of a few things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for order in orders(count - 1) {
        for at in 0..count {
            let mut longer = order.clone();
            longer.insert(at, count - 1);
            all.push(longer);
        }
    }
    all
}
