//! Offline verification: every invariant of `docs/format.md`, without changing a byte.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::codec::crc32c;
use crate::error::{Error, chain};

use super::allocator::{ReadToken, UsedBlocks};
use super::base::{Base, BaseSnapshot, damaged_header_copies};
use super::change::chunk_index;
use super::failure::{corrupt, io_error};
use super::log;
use super::media::{Directory, FileName, Medium};
use super::memtable::{Layers, Memtable, View};
use super::record::{
    BLOCK_BYTES, BLOCK_BYTES_U64, CHUNK_BLOCKS, Chunk, Header, Kind, decode_holders, describe,
    parse_key, successor, unseal,
};
use super::superblock::{State, Superblock};

/// What a check found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// One sentence for each broken invariant: file, object or key, and what is wrong.
    pub problems: Vec<String>,
    /// Problems beyond those listed.
    pub problems_left_out: u64,
    pub objects: u64,
    pub records: u64,
    pub blocks: u64,
    pub log_records: u64,
}

impl Report {
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Verifies the store in `directory`.
///
/// # Errors
/// `Busy` if it is open, `NotFound` if there is none. What is wrong with it is in the report.
pub fn check(directory: &Path) -> Result<Report, Error> {
    let medium: Arc<dyn Medium> = Arc::new(Directory::open_read_only(directory)?);
    Ok(check_on(&medium))
}

/// The same on any medium.
#[must_use]
pub fn check_on(medium: &Arc<dyn Medium>) -> Report {
    let mut check = Check {
        medium,
        report: Report::default(),
        used: UsedBlocks::new(0),
        inline: HashMap::new(),
        object: None,
    };
    if let Err(error) = check.run() {
        check.problem(chain(&error));
    }
    check.report
}

struct Check<'a> {
    medium: &'a Arc<dyn Medium>,
    report: Report,
    used: UsedBlocks,
    /// Small blocks that only the log has for certain.
    inline: HashMap<u64, Bytes>,
    /// Header of the object whose records are being looked at.
    object: Option<(Bytes, Option<Header>)>,
}

impl Check<'_> {
    fn problem(&mut self, problem: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(problem);
        } else {
            self.report.problems_left_out += 1;
        }
    }

    fn run(&mut self) -> Result<(), Error> {
        let medium = self.medium;
        let found = Superblock::read(&**medium)?;
        let Some(superblock) = found.newest else {
            return Err(corrupt("superblock: no valid copy"));
        };
        let is_closed = superblock.state == State::Closed;
        if superblock.state == State::Creating {
            // Making it was cut short; opening starts over.
            return Ok(());
        }
        if is_closed {
            self.check_copies(&superblock, found.damaged)?;
        }
        let base = Base::open_overlay(medium, CACHE_BYTES)?;
        let snapshot = base.snapshot(0, None)?;
        let applied = snapshot.meta.applied_sequence;
        if is_closed && applied != superblock.sequence {
            self.problem(format!(
                "base.redb ends at log record {applied}, but the store was closed at {}",
                superblock.sequence
            ));
        }
        let scan = log::scan(&**medium, superblock.store_id, applied, false)?;
        self.report.log_records = scan.records.len() as u64;
        if is_closed && !scan.records.is_empty() {
            self.problem("log: records that the base does not have in a closed store".to_owned());
        }
        let active = Memtable::default();
        let mut data_end = self.data_blocks()?;
        for record in scan.records {
            for (block, data) in record.blocks {
                data_end = data_end.max(block + 1);
                self.inline.insert(block, data);
            }
            active.publish(record.delta);
        }
        self.used = UsedBlocks::new(data_end);
        self.check_record_bytes(&snapshot)?;
        let view = View {
            active: Arc::new(active),
            frozen: None,
            base: Arc::new(snapshot),
            token: Arc::new(ReadToken),
        };
        self.check_records(&Layers::of_view(&view))?;
        drop(view);
        if !base.check_integrity()? {
            self.problem(
                "base.redb: redb had to repair its own checksums or free pages".to_owned(),
            );
        }
        Ok(())
    }

    /// What has two copies: the store opens with one, but its owner should know.
    fn check_copies(
        &mut self,
        superblock: &Superblock,
        damaged: Option<String>,
    ) -> Result<(), Error> {
        if let Some(damaged) = damaged {
            self.problem(damaged);
        }
        for copy in damaged_header_copies(&**self.medium)? {
            self.problem(format!(
                "base.redb: copy {copy} of the header does not match its checksum"
            ));
        }
        if let Some(file) = log::damaged_head(&**self.medium, superblock.store_id)? {
            self.problem(format!(
                "{}: the head does not match its checksum",
                file.path()
            ));
        }
        Ok(())
    }

    fn data_blocks(&self) -> Result<u64, Error> {
        let len = self
            .medium
            .len(FileName::Data)
            .map_err(|e| io_error("looking at the data file", e))?;
        Ok(len / BLOCK_BYTES_U64)
    }

    fn check_record_bytes(&mut self, base: &BaseSnapshot) -> Result<(), Error> {
        let mut bytes = 0;
        let mut from = Bytes::new();
        loop {
            let found = base.range(&from, KEYS_END, STEP)?;
            let Some((last, _)) = found.last() else { break };
            from = successor(last);
            bytes += found
                .iter()
                .map(|(k, v)| (k.len() + v.len()) as u64)
                .sum::<u64>();
        }
        if bytes != base.meta.record_bytes {
            self.problem(format!(
                "base.redb: records take {bytes} bytes, but record_bytes says {}",
                base.meta.record_bytes
            ));
        }
        Ok(())
    }

    fn check_records(&mut self, layers: &Layers<'_>) -> Result<(), Error> {
        let mut from = Bytes::new();
        loop {
            let (found, more) = layers.range(&from, KEYS_END, STEP)?;
            let Some((last, _)) = found.last() else { break };
            from = successor(last);
            for (key, value) in &found {
                self.report.records += 1;
                if let Err(error) = self.check_record(layers, key, value) {
                    self.problem(chain(&error));
                }
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn check_record(
        &mut self,
        layers: &Layers<'_>,
        key: &Bytes,
        value: &Bytes,
    ) -> Result<(), Error> {
        let parsed = parse_key(key)
            .map_err(|e| corrupt(format!("the key {}", key.escape_ascii())).with_source(e))?;
        unseal(key, value)?;
        let mut header_key = vec![Kind::Header.tag()];
        header_key.extend_from_slice(&key[1..key.len() - parsed.sub.len()]);
        let header_key = Bytes::from(header_key);
        if self
            .object
            .as_ref()
            .is_none_or(|(key, _)| *key != header_key)
        {
            let header = match layers.value(&header_key)? {
                Some(value) => Some(Header::decode(&header_key, &value)?),
                None => None,
            };
            self.object = Some((header_key, header));
        }
        let Some((_, Some(header))) = &self.object else {
            return Err(corrupt(format!("{} belongs to no object", describe(key))));
        };
        let header = *header;
        match parsed.kind {
            Kind::Header => self.report.objects += 1,
            Kind::Chunk => self.check_chunk(key, parsed.sub, value, header)?,
            Kind::Lock => drop(decode_holders(key, value)?),
            Kind::Omap | Kind::Xattr => {}
        }
        Ok(())
    }

    fn check_chunk(
        &mut self,
        key: &Bytes,
        sub: &[u8],
        value: &Bytes,
        header: Header,
    ) -> Result<(), Error> {
        let chunk = Chunk::decode(key, value)?;
        let first = chunk_index(sub)?.saturating_mul(CHUNK_BLOCKS);
        for (block, number) in chunk.0.iter().zip(first..) {
            let Some(block) = block else { continue };
            self.report.blocks += 1;
            let start = number.saturating_mul(BLOCK_BYTES_U64);
            if start >= header.size {
                self.problem(format!(
                    "{}: block {number} is behind the end",
                    describe(key)
                ));
                continue;
            }
            self.used
                .insert(block.block)
                .map_err(|e| corrupt(describe(key)).with_source(e))?;
            let mut content = vec![0; BLOCK_BYTES];
            match self.inline.get(&block.block) {
                Some(data) => content.copy_from_slice(data),
                None => self
                    .medium
                    .read_at(FileName::Data, block.block * BLOCK_BYTES_U64, &mut content)
                    .map_err(|e| io_error(describe(key), e))?,
            }
            if crc32c(&content) != block.sum {
                self.problem(format!(
                    "{}: data block {} does not match its checksum",
                    describe(key),
                    block.block
                ));
                continue;
            }
            let live = usize::try_from((header.size - start).min(BLOCK_BYTES_U64)).unwrap_or(0);
            if content[live..].iter().any(|byte| *byte != 0) {
                self.problem(format!(
                    "{}: bytes behind the end are not zero",
                    describe(key)
                ));
            }
        }
        Ok(())
    }
}

/// Above all keys.
const KEYS_END: &[u8] = &[0xff];
const STEP: usize = 1_024;
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
const PROBLEMS_MAX: usize = 1_000;
