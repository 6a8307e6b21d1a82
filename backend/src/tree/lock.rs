//! Who holds what of a file: opens and byte ranges, in one table for all protocols.
//!
//! Pure, and in memory only: what is held is reclaimed from whoever serves next. Ranges follow
//! POSIX (`fcntl`): an owner's new lock replaces what it held there, and ranges that touch are one.

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;

/// Ranges and opens of all files together: some 200 bytes each.
pub const LOCKS_MAX: usize = 1 << 20;

/// Bytes of a client's and of an owner's name each (NLM and NFSv4 allow 1,024).
pub const OWNER_BYTES_MAX: usize = 1_024;

/// Whose rules an owner follows.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum OwnerKind {
    Nfs4,
    Nlm,
    Smb,
}

/// Who holds a lock. Owners of different kinds never are the same.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Owner {
    pub kind: OwnerKind,
    pub client: Bytes,
    pub owner: Bytes,
}

/// Bytes `start..end` of a file; `u64::MAX` is the end of every file. Never empty.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LockRange {
    start: u64,
    end: u64,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LockMode {
    Exclusive,
    Shared,
}

/// What an open does with a file, or keeps others from doing.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Share {
    pub read: bool,
    pub write: bool,
}

/// A byte range that somebody holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeldRange {
    pub owner: Owner,
    pub range: LockRange,
    pub mode: LockMode,
}

/// An open of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Open {
    pub owner: Owner,
    pub access: Share,
    /// What others may not.
    pub deny: Share,
}

/// Why something is not held.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Denied {
    /// Somebody opened the file in a way that excludes it.
    Open(Open),
    /// Somebody holds a range of it.
    Range(HeldRange),
    /// The table is full, or a name is too long.
    Limit,
}

/// Told whose lock or open is in somebody's way, of which inode. Called under the table's lock: it
/// notes that and returns.
pub type Recall = Box<dyn Fn(u64, &Owner) + Send + Sync>;

/// The table. Inodes are named by their numbers.
#[derive(Default)]
pub struct LockTable {
    files: HashMap<u64, FileLocks>,
    count: usize,
    recall: Option<Recall>,
}

#[derive(Debug, Default)]
struct FileLocks {
    opens: Vec<Open>,
    ranges: Vec<HeldRange>,
}

impl Owner {
    fn is_within_limits(&self) -> bool {
        self.client.len() <= OWNER_BYTES_MAX && self.owner.len() <= OWNER_BYTES_MAX
    }
}

impl LockRange {
    /// `length` bytes from `start` on; 0, and what goes beyond, is up to the end of every file.
    ///
    /// `None` for a start at which no byte can be.
    #[must_use]
    pub fn new(start: u64, length: u64) -> Option<Self> {
        let end = match length {
            0 => u64::MAX,
            length => start.saturating_add(length),
        };
        (start < end).then_some(Self { start, end })
    }

    #[must_use]
    pub fn start(self) -> u64 {
        self.start
    }

    /// `None` is the end of every file.
    #[must_use]
    pub fn length(self) -> Option<u64> {
        (self.end < u64::MAX).then_some(self.end - self.start)
    }

    fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    fn touches(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

impl Share {
    fn meets(self, other: Self) -> bool {
        (self.read && other.read) || (self.write && other.write)
    }
}

impl LockTable {
    #[must_use]
    pub fn new(recall: Option<Recall>) -> Self {
        Self {
            recall,
            ..Self::default()
        }
    }

    /// Takes a range, in place of what the owner holds there.
    ///
    /// # Errors
    /// `Range` with the first lock of somebody else that is in the way; `Limit`.
    pub fn lock(
        &mut self,
        inode: u64,
        owner: &Owner,
        range: LockRange,
        mode: LockMode,
    ) -> Result<(), Denied> {
        if let Some(held) = self.test(inode, owner, range, mode) {
            self.tell(inode, &held.owner);
            return Err(Denied::Range(held));
        }
        // The worst is a lock within a larger one, which then is two.
        if self.count + 2 > LOCKS_MAX || !owner.is_within_limits() {
            return Err(Denied::Limit);
        }
        self.edit(inode, |file| {
            file.carve(owner, range);
            file.add(owner, range, mode);
        });
        Ok(())
    }

    /// What keeps this owner from locking the range, if something does.
    #[must_use]
    pub fn test(
        &self,
        inode: u64,
        owner: &Owner,
        range: LockRange,
        mode: LockMode,
    ) -> Option<HeldRange> {
        let is_in_the_way = |held: &&HeldRange| {
            let excludes = mode == LockMode::Exclusive || held.mode == LockMode::Exclusive;
            excludes && held.owner != *owner && held.range.overlaps(range)
        };
        self.files
            .get(&inode)?
            .ranges
            .iter()
            .find(is_in_the_way)
            .cloned()
    }

    /// Gives a range back; what is not held there is fine.
    ///
    /// # Errors
    /// `Limit` if that would cut a lock in two for which there is no room.
    pub fn unlock(&mut self, inode: u64, owner: &Owner, range: LockRange) -> Result<(), Denied> {
        if self.count >= LOCKS_MAX {
            return Err(Denied::Limit);
        }
        self.edit(inode, |file| file.carve(owner, range));
        Ok(())
    }

    /// Opens a file, besides what the owner has open already.
    ///
    /// # Errors
    /// `Open` with the first one of somebody else that excludes it; `Limit`.
    pub fn open(&mut self, inode: u64, open: &Open) -> Result<(), Denied> {
        let is_in_the_way = |other: &&Open| {
            let excludes = other.deny.meets(open.access) || open.deny.meets(other.access);
            excludes && other.owner != open.owner
        };
        let opens = self.files.get(&inode).map(|file| &file.opens);
        let in_the_way = opens.and_then(|opens| opens.iter().find(is_in_the_way));
        if let Some(other) = in_the_way.cloned() {
            self.tell(inode, &other.owner);
            return Err(Denied::Open(other));
        }
        if self.count >= LOCKS_MAX || !open.owner.is_within_limits() {
            return Err(Denied::Limit);
        }
        self.edit(inode, |file| file.opens.push(open.clone()));
        Ok(())
    }

    /// Closes one open of this owner with this access. Says whether there was one.
    pub fn close(&mut self, inode: u64, owner: &Owner, access: Share) -> bool {
        let mut was_open = false;
        self.edit(inode, |file| {
            let is_meant = |open: &Open| open.owner == *owner && open.access == access;
            if let Some(at) = file.opens.iter().position(is_meant) {
                file.opens.swap_remove(at);
                was_open = true;
            }
        });
        was_open
    }

    /// Whether somebody has the file open: it stays although its last name goes.
    #[must_use]
    pub fn is_open(&self, inode: u64) -> bool {
        let file = self.files.get(&inode);
        file.is_some_and(|file| !file.opens.is_empty())
    }

    /// Takes everything from the owners that are meant: those of a client that is gone, say.
    /// Gives the inodes whose locks changed: somebody may wait for them.
    pub fn release(&mut self, is_meant: impl Fn(&Owner) -> bool) -> Vec<u64> {
        let inodes: Vec<u64> = self.files.keys().copied().collect();
        let mut changed = Vec::new();
        for inode in inodes {
            let before = self.count;
            self.edit(inode, |file| {
                file.opens.retain(|open| !is_meant(&open.owner));
                file.ranges.retain(|held| !is_meant(&held.owner));
            });
            if self.count != before {
                changed.push(inode);
            }
        }
        changed
    }

    fn tell(&self, inode: u64, owner: &Owner) {
        if let Some(recall) = &self.recall {
            recall(inode, owner);
        }
    }

    /// Changes a file's locks and counts them.
    fn edit(&mut self, inode: u64, change: impl FnOnce(&mut FileLocks)) {
        let file = self.files.entry(inode).or_default();
        let before = file.count();
        change(file);
        let after = file.count();
        if after == 0 {
            self.files.remove(&inode);
        }
        self.count = self.count + after - before;
    }
}

impl fmt::Debug for LockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTable")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl FileLocks {
    fn count(&self) -> usize {
        self.opens.len() + self.ranges.len()
    }

    /// Takes `range` out of what the owner holds.
    fn carve(&mut self, owner: &Owner, range: LockRange) {
        let is_meant = |held: &mut HeldRange| held.owner == *owner && held.range.overlaps(range);
        let cut: Vec<HeldRange> = self.ranges.extract_if(.., is_meant).collect();
        for held in cut {
            let left = (held.range.start, range.start);
            let right = (range.end, held.range.end);
            for (start, end) in [left, right] {
                if start < end {
                    let range = LockRange { start, end };
                    self.ranges.push(HeldRange {
                        range,
                        ..held.clone()
                    });
                }
            }
        }
    }

    /// Adds a range where the owner holds nothing; joined with those of its kind that it touches.
    fn add(&mut self, owner: &Owner, range: LockRange, mode: LockMode) {
        let is_meant = |held: &mut HeldRange| {
            held.owner == *owner && held.mode == mode && held.range.touches(range)
        };
        let joined = self.ranges.extract_if(.., is_meant);
        let range = joined.fold(range, |whole, held| LockRange {
            start: whole.start.min(held.range.start),
            end: whole.end.max(held.range.end),
        });
        let owner = owner.clone();
        self.ranges.push(HeldRange { owner, range, mode });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::random::Generator;

    const BYTES: u64 = 24;

    /// The last one stands for all behind the others.
    const BYTES_AND_REST: u64 = BYTES + 1;

    fn owner(number: u64) -> Owner {
        Owner {
            kind: OwnerKind::Nlm,
            client: vec![u8::try_from(number % 2).unwrap()].into(),
            owner: vec![u8::try_from(number).unwrap()].into(),
        }
    }

    fn range(start: u64, length: u64) -> LockRange {
        LockRange::new(start, length).unwrap()
    }

    /// Per byte, and owner, what is held.
    type Bytewise = Vec<[Option<LockMode>; 3]>;

    fn is_free(bytes: &Bytewise, who: usize, range: LockRange, mode: LockMode) -> bool {
        let end = usize::try_from(range.end.min(BYTES_AND_REST)).unwrap();
        bytes[usize::try_from(range.start).unwrap()..end]
            .iter()
            .all(|byte| {
                (0..3).all(|other| {
                    let both = [Some(mode), byte[other]];
                    other == who
                        || byte[other].is_none()
                        || !both.contains(&Some(LockMode::Exclusive))
                })
            })
    }

    #[test]
    fn ranges_are_those_of_a_table_of_bytes() {
        for seed in 0..50 {
            let mut random = Generator::new(seed);
            let mut table = LockTable::new(None);
            let mut bytes: Bytewise = vec![[None; 3]; usize::try_from(BYTES_AND_REST).unwrap()];
            for _ in 0..200 {
                let who = random.below(3);
                let start = random.below(BYTES);
                let range = range(start, random.below(BYTES - start + 1));
                let mode = match random.chance(500) {
                    true => LockMode::Exclusive,
                    false => LockMode::Shared,
                };
                let slot = usize::try_from(who).unwrap();
                let held = if random.chance(400) {
                    table.unlock(1, &owner(who), range).unwrap();
                    None
                } else {
                    let is_free = is_free(&bytes, slot, range, mode);
                    let locked = table.lock(1, &owner(who), range, mode);
                    assert_eq!(locked.is_ok(), is_free, "{who} {range:?} {mode:?}");
                    if !is_free {
                        continue;
                    }
                    Some(mode)
                };
                for (at, byte) in (0..).zip(&mut bytes) {
                    if (range.start..range.end).contains(&at) {
                        byte[slot] = held;
                    }
                }
                let runs = count_runs(&bytes);
                assert_eq!(table.count, runs, "ranges that touch are one");
            }
        }
    }

    fn count_runs(bytes: &Bytewise) -> usize {
        let runs = |who: usize| {
            let mut before = None;
            let mut count = 0;
            for byte in bytes {
                count += usize::from(byte[who].is_some() && byte[who] != before);
                before = byte[who];
            }
            count
        };
        (0..3).map(runs).sum()
    }

    #[test]
    fn a_range_of_length_zero_goes_to_the_end() {
        assert_eq!(range(5, 0).length(), None);
        assert_eq!(range(5, u64::MAX).length(), None);
        assert_eq!(range(5, 3).length(), Some(3));
        assert_eq!(LockRange::new(u64::MAX, 0), None);
    }

    #[test]
    fn opens_exclude_what_they_deny_and_their_owner_is_told() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&told);
        let mut table = LockTable::new(Some(Box::new(move |inode, owner| {
            noted.lock().unwrap().push((inode, owner.clone()));
        })));
        let (read, write) = (
            Share {
                read: true,
                write: false,
            },
            Share {
                read: false,
                write: true,
            },
        );
        let open = |number, access, deny| Open {
            owner: owner(number),
            access,
            deny,
        };
        let reader = open(0, read, write);
        table.open(1, &reader).unwrap();
        table.open(1, &open(1, read, Share::default())).unwrap();
        let writer = open(1, write, Share::default());
        assert_eq!(table.open(1, &writer), Err(Denied::Open(reader)));
        assert_eq!(*told.lock().unwrap(), [(1, owner(0))]);
        table.open(2, &writer).unwrap();
        assert!(table.close(1, &owner(0), read));
        assert!(!table.close(1, &owner(0), read));
        table.open(1, &writer).unwrap();
        assert!(table.is_open(1));
        let mut changed = table.release(|owner| owner.client == vec![1]);
        changed.sort_unstable();
        assert_eq!(changed, [1, 2]);
        assert!(!table.is_open(1) && !table.is_open(2));
        assert_eq!((table.count, table.files.len()), (0, 0));
    }
}
