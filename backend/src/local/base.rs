//! The ordered base: a redb file over pages that carry checksums.
//!
//! redb verifies its own checksums only when it repairs, so each page lies beside a CRC here and
//! is never given out without a look at it. Every commit is two-phase and records the allocator's
//! state (redb's "quick repair"), so opening after a power cut reads synced pages alone and a
//! mismatch is damage whenever it is seen.

use std::collections::HashMap;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use redb::{
    Database, ReadOnlyTable, ReadableDatabase, StorageBackend, StorageError, TableDefinition,
    TableError,
};

use crate::codec::crc32c;
use crate::error::{Error, ErrorKind};

use super::failure::{corrupt, io_error};
use super::log::Delta;
use super::media::{FileName, Medium, read_anywhere};
use super::options::PlantedBug;

/// The base of an open store.
#[derive(Debug)]
pub(super) struct Base {
    db: Mutex<Option<Database>>,
}

/// The base as of one commit.
pub(super) struct BaseSnapshot {
    records: ReadOnlyTable<&'static [u8], &'static [u8]>,
    pub(super) meta: BaseMeta,
    cache: RecordCache,
}

/// Records read lately, so that a hot one costs no walk of the tree and no thread. What is in it
/// holds for one commit; the next snapshot takes over what the commit did not change.
#[derive(Debug)]
struct RecordCache {
    records: Mutex<(HashMap<Bytes, Option<Bytes>>, u64)>,
    bytes_max: u64,
}

/// What the base knows about itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct BaseMeta {
    /// Log records up to this one are in the base.
    pub(super) applied_sequence: u64,
    /// Bytes of keys and values.
    pub(super) record_bytes: u64,
    /// Upper half of object versions given out so far.
    pub(super) open_counter: u64,
}

impl std::fmt::Debug for BaseSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BaseSnapshot").field(&self.meta).finish()
    }
}

impl Base {
    pub(super) fn open(
        medium: &Arc<dyn Medium>,
        cache_bytes: u64,
        planted_bug: Option<PlantedBug>,
    ) -> Result<Self, Error> {
        Self::open_pages(Pages::new(medium, planted_bug, None)?, cache_bytes)
    }

    /// Opens without changing the medium: changes stay in memory.
    pub(super) fn open_overlay(medium: &Arc<dyn Medium>, cache_bytes: u64) -> Result<Self, Error> {
        let overlay = Some(HashMap::new());
        Self::open_pages(Pages::new(medium, None, overlay)?, cache_bytes)
    }

    fn open_pages(pages: Pages, cache_bytes: u64) -> Result<Self, Error> {
        let db = Database::builder()
            .set_cache_size(usize::try_from(cache_bytes).unwrap_or(usize::MAX))
            .create_with_backend(pages)
            .map_err(|e| database_error("opening base.redb", e))?;
        Ok(Self {
            db: Mutex::new(Some(db)),
        })
    }

    /// Verifies redb's own checksums; `false` if something had to be repaired.
    pub(super) fn check_integrity(&self) -> Result<bool, Error> {
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        opened(db.as_mut())?
            .check_integrity()
            .map_err(|e| database_error("checking base.redb", e))
    }

    /// Applies changes and makes them stable. Gives the new state of the record bytes.
    pub(super) fn commit(&self, delta: &Delta, mut meta: BaseMeta) -> Result<BaseMeta, Error> {
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let mut write = opened(db.as_ref())?
            .begin_write()
            .map_err(|e| redb_error("writing base.redb", e))?;
        write.set_quick_repair(true);
        {
            let mut records = write.open_table(RECORDS).map_err(table_error)?;
            for (key, value) in delta {
                let old = match value {
                    Some(value) => {
                        meta.record_bytes += (key.len() + value.len()) as u64;
                        records.insert(&**key, &**value)
                    }
                    None => records.remove(&**key),
                };
                let old = old.map_err(|e| storage_error("writing base.redb", e))?;
                if let Some(old) = old {
                    let bytes = (key.len() + old.value().len()) as u64;
                    meta.record_bytes = meta.record_bytes.saturating_sub(bytes);
                }
            }
            let mut table = write.open_table(META).map_err(table_error)?;
            for (name, value) in [
                (APPLIED_SEQUENCE, meta.applied_sequence),
                (RECORD_BYTES, meta.record_bytes),
                (OPEN_COUNTER, meta.open_counter),
            ] {
                table
                    .insert(name, value)
                    .map_err(|e| storage_error("writing base.redb", e))?;
            }
        }
        write
            .commit()
            .map_err(|e| redb_error("committing base.redb", e))?;
        Ok(meta)
    }

    /// The state now; keeps what `before` has in memory and `changed` leaves valid.
    pub(super) fn snapshot(
        &self,
        cache_bytes: u64,
        before: Option<(&BaseSnapshot, &Delta)>,
    ) -> Result<BaseSnapshot, Error> {
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let read = opened(db.as_ref())?
            .begin_read()
            .map_err(|e| redb_error("reading base.redb", e))?;
        let records = read.open_table(RECORDS).map_err(table_error)?;
        let table = read.open_table(META).map_err(table_error)?;
        let value = |name| {
            table
                .get(name)
                .map_err(|e| storage_error("reading base.redb", e))?
                .map(|value| value.value())
                .ok_or_else(|| corrupt(format!("base.redb has no {name}")))
        };
        let meta = BaseMeta {
            applied_sequence: value(APPLIED_SEQUENCE)?,
            record_bytes: value(RECORD_BYTES)?,
            open_counter: value(OPEN_COUNTER)?,
        };
        let cache = RecordCache {
            records: Mutex::default(),
            bytes_max: cache_bytes,
        };
        if let Some((before, changed)) = before {
            let mut kept = std::mem::take(&mut *before.cache.locked());
            for key in changed.keys() {
                if let Some(old) = kept.0.remove(key) {
                    kept.1 = kept.1.saturating_sub(cached_bytes(key, old.as_ref()));
                }
            }
            *cache.locked() = kept;
        }
        Ok(BaseSnapshot {
            records,
            meta,
            cache,
        })
    }

    /// Closes the file. Snapshots must be gone, or redb can't record a clean end.
    pub(super) fn close(&self) -> Result<(), Error> {
        let db = self
            .db
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match db {
            None => Ok(()),
            Some(db) => db
                .close()
                .map_err(|e| database_error("closing base.redb", e)),
        }
    }
}

fn opened<T>(db: Option<T>) -> Result<T, Error> {
    db.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the store was closed"))
}

impl BaseSnapshot {
    pub(super) fn value(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        if let Some(cached) = self.value_in_memory(key) {
            return Ok(cached);
        }
        let found = self
            .records
            .get(key)
            .map_err(|e| storage_error("reading base.redb", e))?;
        let found = found.map(|value| Bytes::copy_from_slice(value.value()));
        self.cache.insert(key, found.clone());
        Ok(found)
    }

    /// `None`: not read lately.
    pub(super) fn value_in_memory(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.cache.locked().0.get(key).cloned()
    }

    /// Whether the base holds nothing, so that what lies over it knows all.
    pub(super) fn is_empty(&self) -> bool {
        self.meta.record_bytes == 0
    }

    /// The first `count_max` records of `start..end`.
    pub(super) fn range(
        &self,
        start: &[u8],
        end: &[u8],
        count_max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, Error> {
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        let range = self
            .records
            .range::<&[u8]>(bounds)
            .map_err(|e| storage_error("reading base.redb", e))?;
        range
            .take(count_max)
            .map(|entry| {
                let (key, value) = entry.map_err(|e| storage_error("reading base.redb", e))?;
                Ok((
                    Bytes::copy_from_slice(key.value()),
                    Bytes::copy_from_slice(value.value()),
                ))
            })
            .collect()
    }
}

impl RecordCache {
    fn locked(&self) -> MutexGuard<'_, (HashMap<Bytes, Option<Bytes>>, u64)> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, key: &[u8], value: Option<Bytes>) {
        let bytes = cached_bytes(key, value.as_ref());
        let mut records = self.locked();
        if records.1 + bytes > self.bytes_max {
            // Rare, and cheaper than an order of use for each record.
            records.0.clear();
            records.1 = 0;
        }
        if records
            .0
            .insert(Bytes::copy_from_slice(key), value)
            .is_none()
        {
            records.1 += bytes;
        }
    }
}

fn cached_bytes(key: &[u8], value: Option<&Bytes>) -> u64 {
    const OVERHEAD: usize = 150;
    (OVERHEAD + key.len() + value.map_or(0, Bytes::len)) as u64
}

fn table_error(error: TableError) -> Error {
    let context = "opening a table of base.redb";
    if let TableError::Storage(error) = error {
        return storage_error(context, error);
    }
    corrupt(context).with_source(error)
}

fn database_error(context: &str, error: redb::DatabaseError) -> Error {
    if let redb::DatabaseError::Storage(error) = error {
        return storage_error(context, error);
    }
    Error::new(ErrorKind::Unavailable, context).with_source(error)
}

fn redb_error(context: &str, error: impl Into<redb::Error>) -> Error {
    let error = error.into();
    if let redb::Error::Io(error) = error {
        return io_error(context, error);
    }
    let kind = if matches!(error, redb::Error::Corrupted(_)) {
        ErrorKind::Corrupt
    } else {
        ErrorKind::Unavailable
    };
    Error::new(kind, context).with_source(error)
}

fn storage_error(context: &str, error: StorageError) -> Error {
    redb_error(context, error)
}

const RECORDS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("records");
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const APPLIED_SEQUENCE: &str = "applied_sequence";
const RECORD_BYTES: &str = "record_bytes";
const OPEN_COUNTER: &str = "open_counter";

/// redb's pages, each beside its checksum. Page 0, redb's header, has two copies: it is written in
/// place, and a torn or flipped one must not take the store along.
#[derive(Debug)]
struct Pages {
    medium: Arc<dyn Medium>,
    planted_bug: Option<PlantedBug>,
    header: Mutex<HeaderPage>,
    /// Bytes of the file, which nobody else changes.
    stored: AtomicU64,
    /// Bytes written since the last sync.
    unsynced: AtomicU64,
    /// `Some`: changes stay here.
    overlay: Option<Mutex<Overlay>>,
}

#[derive(Debug, Default)]
struct Overlay {
    pages: HashMap<u64, Vec<u8>>,
    len: Option<u64>,
}

#[derive(Debug)]
struct HeaderPage {
    page: Vec<u8>,
    /// Generation of the copy that is stable.
    synced: u64,
    /// Whether the other copy was written since.
    dirty: bool,
}

impl Pages {
    fn new(
        medium: &Arc<dyn Medium>,
        planted_bug: Option<PlantedBug>,
        overlay: Option<HashMap<u64, Vec<u8>>>,
    ) -> Result<Self, Error> {
        let mut header = HeaderPage {
            page: vec![0; PAGE],
            synced: 0,
            dirty: false,
        };
        let fail = |e| io_error("reading the header of base.redb", e);
        let len = medium.len(FileName::Base).map_err(fail)?;
        if len >= HEADER_COPIES * STRIDE {
            let mut valid = false;
            for copy in 0..HEADER_COPIES {
                let mut bytes = vec![0; STRIDE_USIZE];
                medium
                    .read_at(FileName::Base, copy * STRIDE, &mut bytes)
                    .map_err(fail)?;
                let Some(generation) = page_tag(&bytes, copy) else {
                    continue;
                };
                if generation > header.synced {
                    valid = true;
                    header.synced = generation;
                    header.page.copy_from_slice(&bytes[..PAGE]);
                }
            }
            if !valid {
                return Err(corrupt(
                    "base.redb: no copy of the header matches its checksum",
                ));
            }
        }
        Ok(Self {
            medium: Arc::clone(medium),
            planted_bug,
            header: Mutex::new(header),
            stored: AtomicU64::new(len),
            unsynced: AtomicU64::new(0),
            overlay: overlay.map(|pages| Mutex::new(Overlay { pages, len: None })),
        })
    }

    fn header(&self) -> MutexGuard<'_, HeaderPage> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overlay(&self) -> Option<MutexGuard<'_, Overlay>> {
        let overlay = self.overlay.as_ref()?;
        Some(overlay.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn write_header(&self, offset: usize, data: &[u8]) -> io::Result<()> {
        let mut header = self.header();
        let target = header
            .page
            .get_mut(offset..offset + data.len())
            .ok_or_else(|| invalid("a write across the header's end"))?;
        target.copy_from_slice(data);
        if self.overlay.is_some() {
            return Ok(());
        }
        // The stable copy stays as it is until the other one is stable.
        let generation = header.synced + 1;
        let copy = generation % HEADER_COPIES;
        let bytes = tagged(&header.page, copy, generation);
        header.dirty = true;
        self.medium
            .write_at(FileName::Base, copy * STRIDE, &bytes)?;
        self.stored
            .fetch_max((copy + 1) * STRIDE, Ordering::Relaxed);
        Ok(())
    }

    fn write_pages(&self, first: u64, data: &[u8]) -> io::Result<()> {
        if let Some(mut overlay) = self.overlay() {
            for (page, index) in data.chunks_exact(PAGE).zip(first..) {
                overlay.pages.insert(index, page.to_vec());
            }
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(data.len() / PAGE * STRIDE_USIZE);
        for (page, index) in data.chunks_exact(PAGE).zip(first..) {
            bytes.extend_from_slice(&tagged(page, index + 1, 0));
        }
        let at = page_offset(first);
        match self.medium.write_at(FileName::Base, at, &bytes) {
            Err(e) if e.kind() == io::ErrorKind::StorageFull => {
                // The reserve is for this moment: records of removals must reach the base.
                self.medium.set_len(FileName::Reserve, 0)?;
                self.medium.sync(FileName::Reserve)?;
                self.medium.write_at(FileName::Base, at, &bytes)?;
            }
            result => result?,
        }
        let length = bytes.len() as u64;
        self.stored.fetch_max(at + length, Ordering::Relaxed);
        let unsynced = self.unsynced.fetch_add(length, Ordering::Relaxed) + length;
        if unsynced >= UNSYNCED_BYTES_MAX {
            // One sync of all that a checkpoint writes would keep syncs of the log waiting.
            return self.sync_data();
        }
        Ok(())
    }

    fn read_pages(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        let count = out.len() / PAGE;
        let (mut one, mut many) = ([0; STRIDE_USIZE], Vec::new());
        let bytes = if count == 1 {
            &mut one[..]
        } else {
            many.resize(count * STRIDE_USIZE, 0);
            &mut many[..]
        };
        let stored = self.stored.load(Ordering::Relaxed);
        let stored = stored.saturating_sub(page_offset(first));
        let stored = usize::try_from(stored)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let at = page_offset(first);
        read_anywhere(&*self.medium, FileName::Base, at, &mut bytes[..stored])?;
        let overlay = self.overlay();
        let pages = out
            .chunks_exact_mut(PAGE)
            .zip(bytes.chunks_exact(STRIDE_USIZE));
        for ((page, stored), index) in pages.zip(first..) {
            if let Some(kept) = overlay.as_ref().and_then(|o| o.pages.get(&index)) {
                page.copy_from_slice(kept);
                continue;
            }
            if page_tag(stored, index + 1).is_none()
                && self.planted_bug != Some(PlantedBug::PageChecksumIgnored)
            {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("base.redb: page {index} does not match its checksum"),
                ));
            }
            page.copy_from_slice(&stored[..PAGE]);
        }
        Ok(())
    }
}

impl StorageBackend for Pages {
    fn len(&self) -> io::Result<u64> {
        if let Some(len) = self.overlay().and_then(|overlay| overlay.len) {
            return Ok(len);
        }
        let stored = self.stored.load(Ordering::Relaxed);
        if stored < HEADER_COPIES * STRIDE {
            return Ok(0);
        }
        Ok((1 + (stored - HEADER_COPIES * STRIDE) / STRIDE) * PAGE_U64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset < PAGE_U64 {
            let at = usize::try_from(offset).expect("below a page");
            let header = self.header();
            let source = header
                .page
                .get(at..at + out.len())
                .ok_or_else(|| invalid("a read across the header's end"))?;
            out.copy_from_slice(source);
            return Ok(());
        }
        whole_pages(offset, out.len())?;
        self.read_pages(offset / PAGE_U64, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        whole_pages(len, 0)?;
        if let Some(mut overlay) = self.overlay() {
            overlay.len = Some(len);
            return Ok(());
        }
        let pages = (len / PAGE_U64).saturating_sub(1);
        let stored = (HEADER_COPIES + pages) * STRIDE;
        self.medium.set_len(FileName::Base, stored)?;
        self.stored.store(stored, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.overlay.is_some() || self.planted_bug == Some(PlantedBug::BaseSyncSkipped) {
            return Ok(());
        }
        let mut header = self.header();
        self.unsynced.store(0, Ordering::Relaxed);
        self.medium.sync(FileName::Base)?;
        if header.dirty {
            header.synced += 1;
            header.dirty = false;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset < PAGE_U64 {
            return self.write_header(usize::try_from(offset).expect("below a page"), data);
        }
        whole_pages(offset, data.len())?;
        self.write_pages(offset / PAGE_U64, data)
    }
}

/// Copies of redb's header that do not match their checksum. One of them may be torn after a crash.
pub(super) fn damaged_header_copies(medium: &dyn Medium) -> Result<Vec<u64>, Error> {
    let mut damaged = Vec::new();
    for copy in 0..HEADER_COPIES {
        let mut bytes = vec![0; STRIDE_USIZE];
        medium
            .read_at(FileName::Base, copy * STRIDE, &mut bytes)
            .map_err(|e| io_error("reading the header of base.redb", e))?;
        if page_tag(&bytes, copy).is_none() {
            damaged.push(copy);
        }
    }
    Ok(damaged)
}

/// A page and its tag: checksum, index or copy, generation.
fn tagged(page: &[u8], index: u64, generation: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(STRIDE_USIZE);
    bytes.extend_from_slice(page);
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    let sum = crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.resize(STRIDE_USIZE, 0);
    bytes
}

/// The generation of a page that matches its tag.
fn page_tag(stored: &[u8], index: u64) -> Option<u64> {
    let (covered, rest) = stored.split_at_checked(PAGE + 16)?;
    if rest.get(..4)? != crc32c(covered).to_le_bytes()
        || covered[PAGE..PAGE + 8] != index.to_le_bytes()
    {
        return None;
    }
    let generation = covered[PAGE + 8..].try_into().ok()?;
    Some(u64::from_le_bytes(generation))
}

fn page_offset(index: u64) -> u64 {
    (index - 1 + HEADER_COPIES) * STRIDE
}

fn whole_pages(offset: u64, length: usize) -> io::Result<()> {
    if offset.is_multiple_of(PAGE_U64) && length.is_multiple_of(PAGE) {
        Ok(())
    } else {
        Err(invalid("an access that is not of whole pages"))
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

const PAGE: usize = 4096;
const PAGE_U64: u64 = 4096;
/// A page and a sector for its tag, so that both stay aligned to sectors.
const STRIDE: u64 = 4608;
const STRIDE_USIZE: usize = 4608;
const HEADER_COPIES: u64 = 2;
const UNSYNCED_BYTES_MAX: u64 = 8 * 1024 * 1024;
