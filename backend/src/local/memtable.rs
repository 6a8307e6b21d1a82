//! Records not yet in the base, and the view that lies over both.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::error::Error;

use super::allocator::ReadToken;
use super::base::BaseSnapshot;
use super::log::Delta;
use super::record::successor;

/// Records of one generation of the log. Changes until it is frozen.
#[derive(Debug, Default)]
pub(super) struct Memtable {
    map: RwLock<Delta>,
    bytes: AtomicU64,
}

impl Memtable {
    pub(super) fn value(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.get(key).cloned()
    }

    pub(super) fn publish(&self, delta: Delta) {
        let mut added = 0;
        let mut removed = 0;
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in delta {
            let key_bytes = key.len();
            added += entry_bytes(key_bytes, value.as_ref());
            if let Some(old) = map.insert(key, value) {
                removed += entry_bytes(key_bytes, old.as_ref());
            }
        }
        drop(map);
        self.bytes.fetch_add(added, Ordering::Relaxed);
        self.bytes.fetch_sub(removed, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn len(&self) -> u64 {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of a frozen table.
    pub(super) fn with_all<T>(&self, apply: impl FnOnce(&Delta) -> T) -> T {
        apply(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn range(&self, start: &[u8], end: &[u8], count_max: usize) -> Entries {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        delta_range(&map, start, end, count_max)
    }
}

fn entry_bytes(key_bytes: usize, value: Option<&Bytes>) -> u64 {
    // The tree's own share and the counted pointers of key and value.
    const OVERHEAD: usize = 120;
    (OVERHEAD + key_bytes + value.map_or(0, Bytes::len)) as u64
}

type Entries = Vec<(Bytes, Option<Bytes>)>;

fn delta_range(delta: &Delta, start: &[u8], end: &[u8], count_max: usize) -> Entries {
    if start >= end {
        return Vec::new();
    }
    let bounds = (Bound::Included(start), Bound::Excluded(end));
    delta
        .range::<[u8], _>(bounds)
        .take(count_max)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// All published records at some moment. Cheap to clone; must not be kept: it holds back space.
#[derive(Debug)]
pub(super) struct View {
    pub(super) active: Arc<Memtable>,
    pub(super) frozen: Option<Arc<Memtable>>,
    pub(super) base: Arc<BaseSnapshot>,
    pub(super) token: Arc<ReadToken>,
}

/// A view and changes over it that nobody else sees yet, the newest first.
#[derive(Debug)]
pub(super) struct Layers<'a> {
    pub(super) deltas: SmallVec<[&'a Delta; 2]>,
    pub(super) view: &'a View,
}

impl<'a> Layers<'a> {
    pub(super) fn of_view(view: &'a View) -> Self {
        Self {
            deltas: SmallVec::new(),
            view,
        }
    }

    pub(super) fn value(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        match self.value_in_memory(key) {
            Some(value) => Ok(value),
            None => self.view.base.value(key),
        }
    }

    /// `None`: only the base's file knows.
    pub(super) fn value_in_memory(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.deltas
            .iter()
            .find_map(|delta| delta.get(key).cloned())
            .or_else(|| self.view.active.value(key))
            .or_else(|| self.view.frozen.as_ref().and_then(|table| table.value(key)))
            .or_else(|| self.view.base.value_in_memory(key))
    }

    /// Up to `count_max` records of `start..end`, and whether there may be more behind them.
    pub(super) fn range(
        &self,
        start: &[u8],
        end: &[u8],
        count_max: usize,
    ) -> Result<(Vec<(Bytes, Bytes)>, bool), Error> {
        let mut found = Vec::new();
        let mut from = Bytes::copy_from_slice(start);
        loop {
            let wanted = (count_max - found.len() + 1).max(16);
            let (merged, horizon) = self.merge_once(&from, end, wanted)?;
            for (key, value) in merged {
                let Some(value) = value else { continue };
                if found.len() == count_max {
                    return Ok((found, true));
                }
                found.push((key, value));
            }
            match horizon {
                None => return Ok((found, false)),
                Some(horizon) => from = successor(&horizon),
            }
        }
    }

    /// The merged records up to the horizon: the last key that all layers were asked for.
    fn merge_once(
        &self,
        start: &[u8],
        end: &[u8],
        wanted: usize,
    ) -> Result<(Delta, Option<Bytes>), Error> {
        let mut merged = BTreeMap::new();
        let mut horizon: Option<Bytes> = None;
        let mut take = |entries: Entries| {
            if entries.len() == wanted
                && let Some((last, _)) = entries.last()
                && horizon.as_ref().is_none_or(|horizon| last < horizon)
            {
                horizon = Some(last.clone());
            }
            for (key, value) in entries {
                // Newer layers come first.
                merged.entry(key).or_insert(value);
            }
        };
        for delta in &self.deltas {
            take(delta_range(delta, start, end, wanted));
        }
        take(self.view.active.range(start, end, wanted));
        if let Some(frozen) = &self.view.frozen {
            take(frozen.range(start, end, wanted));
        }
        let base = self.view.base.range(start, end, wanted)?;
        take(base.into_iter().map(|(k, v)| (k, Some(v))).collect());
        if let Some(horizon) = &horizon {
            merged.split_off(&successor(horizon));
        }
        Ok((merged, horizon))
    }
}
