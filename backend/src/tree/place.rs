//! Which object and which key a row lies under, and where data lies.

use std::sync::Arc;

use bytes::Bytes;

use super::cookie::HASH_END;
use super::row::Row;
use crate::object::{ObjectId, ObjectName, Pool};

/// Inodes of one object.
const INODES_PER_OBJECT: u64 = 4_096;

/// Where trees lie.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TreePools {
    /// What files hold. Needs no omap.
    pub data: Pool,
    /// All else. Needs an omap.
    pub meta: Pool,
}

/// Where the objects of one tree lie.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) pools: TreePools,
    pub(super) id: u64,
    inodes: Arc<str>,
}

impl Place {
    pub(super) fn new(pools: &TreePools, id: u64) -> Self {
        Self {
            pools: pools.clone(),
            id,
            inodes: Arc::from(format!("tree.inodes.{id:016x}")),
        }
    }

    /// Holds the claim, what the tree is, and its totals.
    pub(super) fn header(&self) -> ObjectId {
        self.meta(ObjectName::new(&format!("tree.header.{:016x}", self.id)))
    }

    pub(super) fn log(&self) -> ObjectId {
        self.meta(ObjectName::new(&format!("tree.log.{:016x}", self.id)))
    }

    pub(super) fn orphans(&self) -> ObjectId {
        self.meta(ObjectName::new(&format!("tree.orphans.{:016x}", self.id)))
    }

    /// The shard of a directory whose hashes begin at `start`.
    pub(super) fn shard(&self, directory: u64, start: u64) -> ObjectId {
        let prefix = format!("tree.directory.{:016x}.{directory:016x}", self.id);
        self.meta(ObjectName::numbered(&Arc::from(prefix), start))
    }

    pub(super) fn inodes(&self, block: u64) -> ObjectId {
        self.meta(ObjectName::numbered(&self.inodes, block))
    }

    /// What the names of a file's data objects begin with.
    pub(super) fn data_prefix(&self, inode: u64) -> Arc<str> {
        Arc::from(format!("tree.data.{:016x}.{inode:016x}", self.id))
    }

    pub(super) fn data(&self, prefix: &Arc<str>, number: u64) -> ObjectId {
        ObjectId::new(&self.pools.data, ObjectName::numbered(prefix, number))
    }

    /// Where a row lies. `shard_count` is that of its directory; other rows don't ask.
    pub(super) fn row(&self, row: Row, shard_count: u32) -> (ObjectId, Bytes) {
        match row {
            Row::Entries { directory, hash } => {
                let (start, _) = shard_of(hash, shard_count);
                (self.shard(directory, start), number_key(hash))
            }
            Row::Inode(number) => (self.inodes(number / INODES_PER_OBJECT), number_key(number)),
            Row::Orphan(number) => (self.orphans(), number_key(number)),
            Row::Totals => (self.header(), Bytes::from_static(TOTALS_KEY)),
        }
    }

    fn meta(&self, name: ObjectName) -> ObjectId {
        ObjectId::new(&self.pools.meta, name)
    }
}

const TOTALS_KEY: &[u8] = b"totals";

/// Numbers in keys are big-endian: their order is that of the numbers.
pub(super) fn number_key(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

pub(super) fn number_of(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

/// The shard that a hash lies in, as `start..end` of hashes, of a directory of so many shards.
///
/// Shards are split in the order of their starts: of `2^k + n` shards, those of the lowest `n`
/// prefixes of `k` bits are split into two, all others not yet. A split leaves the lower half
/// where it is.
pub(super) fn shard_of(hash: u64, shard_count: u32) -> (u64, u64) {
    let level = shard_count.ilog2();
    let split = u64::from(shard_count - (1 << level));
    let width = HASH_END >> level;
    let prefix = hash / width;
    let width = if prefix < split { width / 2 } else { width };
    let start = hash / width * width;
    (start, start + width)
}

/// Which shard a directory of so many shards splits next: `start..end`, and the middle, where the
/// new one starts.
pub(super) fn next_split(shard_count: u32) -> (u64, u64, u64) {
    let level = shard_count.ilog2();
    let width = HASH_END >> level;
    let start = u64::from(shard_count - (1 << level)) * width;
    (start, start + width / 2, start + width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_all_hashes_once_and_a_split_halves_one() {
        let shards = |count| {
            let mut found = Vec::new();
            let mut at = 0;
            while at < HASH_END {
                let (start, end) = shard_of(at, count);
                assert_eq!(start, at);
                assert_eq!(shard_of(end - 1, count), (start, end));
                found.push((start, end));
                at = end;
            }
            assert_eq!(at, HASH_END);
            found
        };
        for count in 1..70 {
            let before = shards(count);
            assert_eq!(before.len(), usize::try_from(count).unwrap());
            let (start, middle, end) = next_split(count);
            let mut after = before;
            let at = after
                .iter()
                .position(|shard| *shard == (start, end))
                .unwrap();
            after.splice(at..=at, [(start, middle), (middle, end)]);
            assert_eq!(after, shards(count + 1));
        }
    }
}
