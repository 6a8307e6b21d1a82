//! The bytes of an object as pages that are there or read as zeros.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;

use crate::object::Extent;
use crate::random::Generator;

/// The grain of space and of what a crash may lose.
pub(super) const PAGE_BYTES: u64 = 4_096;

/// Invariants: each page has `PAGE_BYTES` bytes; none begins at or behind `size`; bytes behind
/// `size` are zero. Cloning shares the pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    size: u64,
    pages: BTreeMap<u64, Bytes>,
}

impl Data {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn bytes_used(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES
    }

    /// Writing nothing changes nothing.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let within = index(at % PAGE_BYTES);
            let (piece, behind) = rest.split_at(rest.len().min(index(PAGE_BYTES) - within));
            self.change_page(at / PAGE_BYTES, |page| {
                page[within..within + piece.len()].copy_from_slice(piece);
            });
            at += piece.len() as u64;
            rest = behind;
        }
        if !data.is_empty() {
            self.size = self.size.max(at);
        }
    }

    /// Clipped to the size. Pages that are covered as far as the object goes are given back.
    pub(super) fn zero(&mut self, offset: u64, length: u64) {
        let mut end = offset.saturating_add(length).min(self.size);
        if end == self.size {
            end = end.next_multiple_of(PAGE_BYTES);
        }
        let mut at = offset;
        while at < end {
            let page_end = (at / PAGE_BYTES + 1) * PAGE_BYTES;
            let piece_end = page_end.min(end);
            if piece_end - at == PAGE_BYTES {
                self.pages.remove(&(at / PAGE_BYTES));
            } else if self.pages.contains_key(&(at / PAGE_BYTES)) {
                let range = index(at % PAGE_BYTES)..index(piece_end - (page_end - PAGE_BYTES));
                self.change_page(at / PAGE_BYTES, |page| page[range].fill(0));
            }
            at = piece_end;
        }
    }

    pub(super) fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
        }
        self.size = size;
    }

    /// The bytes that are there, clipped to the size; neighbouring pages come as one extent.
    pub(super) fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        let end = offset.saturating_add(length).min(self.size);
        if end <= offset {
            return Vec::new();
        }
        let mut runs: Vec<(u64, Vec<Bytes>)> = Vec::new();
        let mut run_end = None;
        for (page, bytes) in self.pages_in(offset..end) {
            let page_start = page * PAGE_BYTES;
            let from = offset.max(page_start);
            let to = end.min(page_start + PAGE_BYTES);
            let piece = bytes.slice(index(from - page_start)..index(to - page_start));
            match runs.last_mut() {
                Some((_, pieces)) if run_end == Some(from) => pieces.push(piece),
                _ => runs.push((from, vec![piece])),
            }
            run_end = Some(to);
        }
        let joined = runs.into_iter().map(|(offset, pieces)| Extent {
            offset,
            data: match pieces.as_slice() {
                [one] => one.clone(),
                several => Bytes::from(several.concat()),
            },
        });
        joined.collect()
    }

    /// `length` bytes; those that are not there are zeros.
    pub(super) fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; index(length)];
        for extent in self.extents(offset, length) {
            let at = index(extent.offset - offset);
            bytes[at..at + extent.data.len()].copy_from_slice(&extent.data);
        }
        bytes
    }

    /// Takes over the pages of `range` and the size from `newer`, and the page in which that ends
    /// if nothing lies behind it any more.
    pub(super) fn adopt(&mut self, newer: &Self, range: Range<u64>) {
        if newer.size < self.size {
            let end_page = newer.size / PAGE_BYTES;
            self.pages.split_off(&end_page);
            if let Some(bytes) = newer.pages.get(&end_page) {
                self.pages.insert(end_page, bytes.clone());
            }
        }
        let stale: Vec<u64> = self.pages_in(range.clone()).map(|(page, _)| page).collect();
        for page in stale {
            self.pages.remove(&page);
        }
        for (page, bytes) in newer.pages_in(range) {
            self.pages.insert(page, bytes.clone());
        }
        self.size = newer.size;
    }

    /// What a crash may leave of `self` where only `stable` is promised: each page and the size
    /// are the one or the other. A page in which the object ends goes with the size, or cutting it
    /// there would tear it.
    pub(super) fn crashed(&self, stable: &Self, random: &mut Generator) -> Self {
        let mut left = Self {
            size: self.size.max(stable.size),
            pages: BTreeMap::new(),
        };
        let pages: BTreeSet<u64> = self
            .pages
            .keys()
            .chain(stable.pages.keys())
            .copied()
            .collect();
        let ends = if random.chance(500) { self } else { stable };
        for page in pages {
            let either = if random.chance(500) { self } else { stable };
            let kept = if page == ends.size / PAGE_BYTES {
                ends
            } else {
                either
            };
            if let Some(bytes) = kept.pages.get(&page) {
                left.pages.insert(page, bytes.clone());
            }
        }
        left.truncate(ends.size);
        left
    }

    fn pages_in(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Bytes)> {
        let pages =
            range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES).max(range.start / PAGE_BYTES);
        self.pages.range(pages).map(|(page, bytes)| (*page, bytes))
    }

    fn change_page(&mut self, page: u64, change: impl FnOnce(&mut [u8])) {
        let mut bytes = match self.pages.get(&page) {
            Some(old) => old.to_vec(),
            None => vec![0; index(PAGE_BYTES)],
        };
        change(&mut bytes);
        self.pages.insert(page, Bytes::from(bytes));
    }
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("limits keep an object within memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(length: usize, byte: u8) -> Data {
        let mut data = Data::default();
        data.write(0, &vec![byte; length]);
        data
    }

    #[test]
    fn a_crash_tears_no_page_where_the_object_ends() {
        let (old, new) = (data(1_000, 1), data(4_096, 2));
        for seed in 0..50 {
            let left = new.crashed(&old, &mut Generator::new(seed));
            let shown = left.read(0, PAGE_BYTES);
            assert!(shown == old.read(0, PAGE_BYTES) || shown == new.read(0, PAGE_BYTES));
        }
    }

    #[test]
    fn what_a_smaller_size_cut_off_does_not_come_back() {
        let mut stable = data(12_000, 1);
        let mut newer = stable.clone();
        newer.truncate(5_000);
        stable.adopt(&newer, 0..1);
        stable.truncate(12_000);
        assert!(stable.read(5_000, 7_000).iter().all(|byte| *byte == 0));
    }
}
