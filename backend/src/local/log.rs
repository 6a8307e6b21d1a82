//! The write-ahead log: two files that take turns.
//!
//! A record holds what a batch of operations changed: records of the ordered space, and the
//! contents of small blocks. While one file takes records, the other's move to the base. Padding to
//! sectors keeps a torn append away from what was acknowledged before.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::codec::{DecodeError, Reader, Writer, crc32c};
use crate::error::Error;

use super::failure::{corrupt, io_error};
use super::media::{FileName, Medium};
use super::record::BLOCK_BYTES;

/// Changes to the ordered space; `None` removes.
pub(super) type Delta = BTreeMap<Bytes, Option<Bytes>>;

/// The log that takes records. Owned by the committer.
#[derive(Debug)]
pub(super) struct Log {
    medium: Arc<dyn Medium>,
    store_id: u128,
    open_counter: u64,
    generation: u64,
    /// Where the next record goes.
    offset: u64,
    /// Records appended but not written: they end at `offset`. Large data must be stable before
    /// the record that names its blocks can reach the disk, or a crash makes it look corrupt.
    pending: Vec<u8>,
    /// Bytes of the file that have their space.
    allocated: u64,
    /// Sequence of the next record.
    next_sequence: u64,
    /// All records up to this one are stable.
    synced_sequence: u64,
    growth_bytes: u64,
}

/// One record taken from a log.
#[derive(Debug)]
pub(super) struct LogRecord {
    pub(super) sequence: u64,
    pub(super) delta: Delta,
    pub(super) blocks: Vec<(u64, Bytes)>,
}

/// What both logs hold above a sequence.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) records: Vec<LogRecord>,
    pub(super) generation: u64,
    pub(super) open_counter: u64,
}

impl Log {
    /// Starts a new generation; its records begin behind `sequence`. All older records must be in
    /// the base.
    pub(super) fn start(
        medium: &Arc<dyn Medium>,
        (store_id, open_counter): (u128, u64),
        generation: u64,
        sequence: u64,
        growth_bytes: u64,
    ) -> Result<Self, Error> {
        let mut log = Self {
            medium: Arc::clone(medium),
            store_id,
            open_counter,
            generation: generation.wrapping_sub(1),
            offset: 0,
            pending: Vec::new(),
            allocated: 0,
            next_sequence: sequence + 1,
            synced_sequence: sequence,
            growth_bytes,
        };
        log.rotate()?;
        Ok(log)
    }

    /// Goes on in the other file. Everything in this one must be stable, and everything in the
    /// other one in the base.
    pub(super) fn rotate(&mut self) -> Result<(), Error> {
        assert_eq!(
            self.synced_sequence + 1,
            self.next_sequence,
            "synced before"
        );
        let generation = self.generation.wrapping_add(1);
        let file = file_of(generation);
        let fail = |e| io_error("starting a log", e);
        let mut writer = Writer::fragment();
        writer
            .raw(FILE_MAGIC)
            .u128(self.store_id)
            .u64(generation)
            .u64(self.next_sequence)
            .u64(self.open_counter);
        let sum = crc32c(&writer.clone().finish());
        writer.u32(sum);
        self.medium
            .write_at(file, 0, &writer.finish())
            .map_err(fail)?;
        self.generation = generation;
        self.offset = FIRST_RECORD;
        self.allocated = self.medium.len(file).map_err(fail)?;
        self.reserve(0)?;
        self.medium.sync(file).map_err(fail)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of the file in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.offset
    }

    /// Whether no record was appended since it began.
    pub(super) fn is_fresh(&self) -> bool {
        self.offset == FIRST_RECORD
    }

    pub(super) fn last_sequence(&self) -> u64 {
        self.next_sequence - 1
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced_sequence + 1 == self.next_sequence
    }

    /// Makes sure that a record of `bytes` has its space.
    ///
    /// # Errors
    /// `NoSpace`; nothing was appended.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), Error> {
        let need = self.offset + bytes;
        if need <= self.allocated {
            return Ok(());
        }
        // Zeros are written, not only allocated: a sync of data in written extents changes no
        // metadata of the file system.
        let target = need.next_multiple_of(self.growth_bytes);
        let zeros = vec![0; 64 * 1024];
        let file = file_of(self.generation);
        while self.allocated < target {
            let length = (target - self.allocated).min(zeros.len() as u64);
            let length = usize::try_from(length).expect("bounded by the buffer");
            self.medium
                .write_at(file, self.allocated, &zeros[..length])
                .map_err(|e| io_error("extending the log", e))?;
            self.allocated += length as u64;
        }
        Ok(())
    }

    /// Appends a record of `bytes` as `record_bytes` tells, for which there is space.
    pub(super) fn append(&mut self, delta: &Delta, blocks: &[(u64, Bytes)], bytes: u64) {
        let start = self.pending.len();
        let mut record = Writer::after(std::mem::take(&mut self.pending));
        let length = body_bytes(delta, blocks);
        record
            .u32(RECORD_MAGIC)
            .u32(u32::try_from(length).expect("a batch is smaller than 4 GiB"))
            .u64(self.next_sequence)
            .u64(self.generation)
            .u64(self.synced_sequence)
            .u32(0)
            .count(delta.len());
        for (key, value) in delta {
            record.bytes(key).bool(value.is_some());
            record.bytes(value.as_deref().unwrap_or_default());
        }
        record.count(blocks.len());
        for (block, data) in blocks {
            record.u64(*block).raw(data);
        }
        let padding = record.len().next_multiple_of(SECTOR);
        self.pending = record.into_vec();
        let record = &mut self.pending[start..];
        let (head, body) = record.split_at_mut(HEAD_BYTES + 4);
        assert_eq!(body.len(), length, "as it was told");
        let sum = record_sum(&head[..HEAD_BYTES], body);
        head[HEAD_BYTES..].copy_from_slice(&sum.to_le_bytes());
        self.pending.resize(padding, 0);
        assert_eq!((self.pending.len() - start) as u64, bytes, "as it was told");
        self.offset += bytes;
        self.next_sequence += 1;
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Writes what was appended. Large data that it names must be stable.
    pub(super) fn write_out(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let at = self.offset - self.pending.len() as u64;
        self.medium
            .write_at(file_of(self.generation), at, &self.pending)
            .map_err(|e| io_error("appending to the log", e))?;
        self.pending.clear();
        Ok(())
    }

    /// Makes all records stable.
    pub(super) fn sync(&mut self) -> Result<(), Error> {
        self.write_out()?;
        self.medium
            .sync(file_of(self.generation))
            .map_err(|e| io_error("syncing the log", e))?;
        self.synced_sequence = self.next_sequence - 1;
        Ok(())
    }

    /// For planted bugs only.
    pub(super) fn pretend_synced(&mut self) {
        self.synced_sequence = self.next_sequence - 1;
    }
}

/// Reads both logs: the records above `applied`, in order and without a gap.
///
/// # Errors
/// `Corrupt` if a record that was once stable is missing or damaged.
pub(super) fn scan(
    medium: &dyn Medium,
    store_id: u128,
    applied: u64,
    trust: bool,
) -> Result<Scan, Error> {
    let mut files = Vec::new();
    for file in [FileName::Log(0), FileName::Log(1)] {
        let bytes = read_all(medium, file)?;
        let head = read_file_head(&bytes, store_id);
        files.push((file, bytes, head));
    }
    let newest = files
        .iter()
        .filter_map(|(_, _, head)| head.map(|head| head.generation))
        .max();
    let mut scan = Scan {
        generation: newest.unwrap_or(0),
        ..Scan::default()
    };
    files.sort_by_key(|(_, _, head)| head.map_or(0, |head| head.generation));
    let mut expected = None;
    for (file, bytes, head) in &files {
        let Some(head) = head else {
            // Torn while it was begun, so that it holds nothing; else it is damaged.
            refuse_newer(*file, bytes, newest.unwrap_or(0))?;
            continue;
        };
        scan.open_counter = scan.open_counter.max(head.open_counter);
        if let Some(expected) = expected
            && expected != head.first_sequence
            && head.first_sequence > applied + 1
        {
            return Err(gap(*file, expected, head.first_sequence));
        }
        let last = read_records(*file, bytes, *head, applied, trust, &mut scan)?;
        expected = Some(last + 1);
    }
    let first = scan.records.first().map(|record| record.sequence);
    let oldest = first.or_else(|| {
        let newest = files.last().and_then(|(_, _, head)| *head);
        newest.map(|head| head.first_sequence)
    });
    match oldest {
        Some(oldest) if oldest > applied + 1 => Err(corrupt(format!(
            "base.redb ends at log record {applied}, but the logs begin at {oldest}"
        ))),
        _ => Ok(scan),
    }
}

/// A log that was begun once but whose head is not valid.
pub(super) fn damaged_head(medium: &dyn Medium, store_id: u128) -> Result<Option<FileName>, Error> {
    for file in [FileName::Log(0), FileName::Log(1)] {
        let bytes = read_all(medium, file)?;
        let head = &bytes[..bytes.len().min(SECTOR)];
        if head.iter().any(|byte| *byte != 0) && read_file_head(&bytes, store_id).is_none() {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

#[derive(Clone, Copy, Debug)]
struct FileHead {
    generation: u64,
    first_sequence: u64,
    open_counter: u64,
}

fn read_all(medium: &dyn Medium, file: FileName) -> Result<Vec<u8>, Error> {
    let fail = |e| io_error(format!("reading {}", file.path()), e);
    let len = medium.len(file).map_err(fail)?;
    let len = usize::try_from(len).map_err(|_| corrupt("a log larger than memory"))?;
    let mut bytes = vec![0; len];
    medium.read_at(file, 0, &mut bytes).map_err(fail)?;
    Ok(bytes)
}

fn read_file_head(bytes: &[u8], store_id: u128) -> Option<FileHead> {
    let mut reader = Reader::fragment(bytes);
    if reader.raw(FILE_MAGIC.len()).ok()? != FILE_MAGIC || reader.u128().ok()? != store_id {
        return None;
    }
    let head = FileHead {
        generation: reader.u64().ok()?,
        first_sequence: reader.u64().ok()?,
        open_counter: reader.u64().ok()?,
    };
    let length = FILE_MAGIC.len() + 16 + 24;
    (reader.u32().ok()? == crc32c(&bytes[..length])).then_some(head)
}

/// Takes the records of one file; gives the last sequence, also of those already applied.
fn read_records(
    file: FileName,
    bytes: &[u8],
    head: FileHead,
    applied: u64,
    trust: bool,
    scan: &mut Scan,
) -> Result<u64, Error> {
    let mut at = usize::try_from(FIRST_RECORD).expect("a small constant");
    let mut expected = head.first_sequence;
    while let Some(record) = read_record(bytes, at, trust) {
        if record.generation != head.generation || record.sequence != expected {
            break;
        }
        if record.sequence > applied {
            let decoded = decode_body(record.body).map_err(|e| {
                corrupt(format!("{}: record {expected} is no record", file.path())).with_source(e)
            })?;
            scan.records.push(LogRecord {
                sequence: record.sequence,
                delta: decoded.0,
                blocks: decoded.1,
            });
        }
        at += record.length.next_multiple_of(SECTOR);
        expected += 1;
    }
    // A tail may be torn. A record behind it that was written when this one was stable says that
    // it was not torn, but damaged later.
    for later in (at..bytes.len()).step_by(SECTOR) {
        let Some(record) = read_record(bytes, later, false) else {
            continue;
        };
        if record.generation == head.generation
            && record.sequence > expected
            && record.synced_sequence >= expected
            && expected > applied
        {
            return Err(corrupt(format!(
                "{}: record {expected} at byte {at} does not match its checksum",
                file.path()
            )));
        }
    }
    Ok(expected - 1)
}

fn refuse_newer(file: FileName, bytes: &[u8], newest: u64) -> Result<(), Error> {
    let first = usize::try_from(FIRST_RECORD).expect("a small constant");
    for at in (first..bytes.len()).step_by(SECTOR) {
        if let Some(record) = read_record(bytes, at, false)
            && record.generation > newest
        {
            return Err(corrupt(format!(
                "{}: the head does not match its checksum",
                file.path()
            )));
        }
    }
    Ok(())
}

fn gap(file: FileName, expected: u64, found: u64) -> Error {
    corrupt(format!(
        "{} begins at record {found}, but the log before it ends before {expected}",
        file.path()
    ))
}

struct RawRecord<'a> {
    sequence: u64,
    generation: u64,
    synced_sequence: u64,
    /// Of head and body.
    length: usize,
    body: &'a [u8],
}

fn read_record(bytes: &[u8], at: usize, trust: bool) -> Option<RawRecord<'_>> {
    let bytes = bytes.get(at..)?;
    let mut reader = Reader::fragment(bytes);
    if reader.u32().ok()? != RECORD_MAGIC {
        return None;
    }
    let length = usize::try_from(reader.u32().ok()?).ok()?;
    let sequence = reader.u64().ok()?;
    let generation = reader.u64().ok()?;
    let synced_sequence = reader.u64().ok()?;
    let sum = reader.u32().ok()?;
    let body = reader.raw(length).ok()?;
    if !trust && record_sum(&bytes[..HEAD_BYTES], body) != sum {
        return None;
    }
    Some(RawRecord {
        sequence,
        generation,
        synced_sequence,
        length: HEAD_BYTES + 4 + length,
        body,
    })
}

/// What a record takes in a log.
pub(super) fn record_bytes(delta: &Delta, blocks: &[(u64, Bytes)]) -> u64 {
    let bytes = HEAD_BYTES + 4 + body_bytes(delta, blocks);
    bytes.next_multiple_of(SECTOR) as u64
}

fn body_bytes(delta: &Delta, blocks: &[(u64, Bytes)]) -> usize {
    let value_bytes = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
    let records = delta.iter();
    let records = records.map(|(key, value)| 4 + key.len() + 1 + 4 + value_bytes(value));
    4 + records.sum::<usize>() + 4 + blocks.len() * (8 + BLOCK_BYTES)
}

fn record_sum(head: &[u8], body: &[u8]) -> u32 {
    let mut sums = [0; 8];
    sums[..4].copy_from_slice(&crc32c(head).to_le_bytes());
    sums[4..].copy_from_slice(&crc32c(body).to_le_bytes());
    crc32c(&sums)
}

fn decode_body(body: &[u8]) -> Result<(Delta, Vec<(u64, Bytes)>), DecodeError> {
    let mut reader = Reader::fragment(body);
    let mut delta = Delta::new();
    for _ in 0..reader.count(9)? {
        let key = Bytes::copy_from_slice(reader.bytes()?);
        let present = reader.bool()?;
        let value = Bytes::copy_from_slice(reader.bytes()?);
        delta.insert(key, present.then_some(value));
    }
    let mut blocks = Vec::new();
    for _ in 0..reader.count(8 + BLOCK_BYTES)? {
        let block = reader.u64()?;
        blocks.push((block, Bytes::copy_from_slice(reader.raw(BLOCK_BYTES)?)));
    }
    reader.finish()?;
    Ok((delta, blocks))
}

fn file_of(generation: u64) -> FileName {
    FileName::Log(u8::from(generation % 2 == 1))
}

const FILE_MAGIC: &[u8] = b"PORTLOG1";
const RECORD_MAGIC: u32 = 0x3152_5450;
/// Magic, length, sequence, generation, synced sequence; the checksum follows.
const HEAD_BYTES: usize = 32;
const FIRST_RECORD: u64 = 4096;
const SECTOR: usize = 512;
