//! Opening: identity, base, replay of the logs, free space.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{Error, ErrorKind};

use super::allocator::{Allocator, ReadToken, UsedBlocks};
use super::base::{Base, BaseMeta, BaseSnapshot};
use super::blocks::Blocks;
use super::checkpoint::{open_base, record_cache_bytes};
use super::core::Parts;
use super::failure::{corrupt, io_error};
use super::lock::LockTable;
use super::log::{self, Delta, Log};
use super::media::{FileName, Medium};
use super::memtable::{Memtable, View};
use super::options::{LocalOptions, PlantedBug};
use super::record::{BLOCK_BYTES_U64, Chunk, Kind, parse_key, successor};
use super::standing::Sessions;
use super::superblock::{State, Superblock};

/// What an open store starts with.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) parts: Parts,
    pub(super) log: Log,
    pub(super) superblock: Superblock,
}

pub(super) fn open(medium: &Arc<dyn Medium>, options: LocalOptions) -> Result<Opened, Error> {
    let mut superblock = identity(&**medium)?;
    if superblock.state == State::Creating {
        create(medium, &options)?;
    }
    let base = open_base(medium, &options)?;
    let snapshot = base.snapshot(0, None)?;
    let mut meta = snapshot.meta;
    drop(snapshot);
    if superblock.state == State::Closed && meta.applied_sequence < superblock.sequence {
        return Err(corrupt(format!(
            "base.redb ends at log record {}, but the store was closed at {}",
            meta.applied_sequence, superblock.sequence
        )));
    }
    let trust = options.planted_bug == Some(PlantedBug::LogChecksumIgnored);
    let scan = log::scan(&**medium, superblock.store_id, meta.applied_sequence, trust)?;
    let counters = [
        superblock.open_counter,
        scan.open_counter,
        meta.open_counter,
    ];
    superblock.open_counter = counters.into_iter().max().unwrap_or(0) + 1;
    superblock.state = State::Open;
    superblock.advance(&**medium)?;
    meta.open_counter = superblock.open_counter;
    let generation = scan.generation + 1;
    let meta = replay(medium, &base, scan, meta, options.planted_bug)?;
    let identity = (superblock.store_id, superblock.open_counter);
    let growth = log_growth_bytes(&options);
    let log = Log::start(medium, identity, generation, meta.applied_sequence, growth)?;
    let mut snapshot = base.snapshot(record_cache_bytes(&options), None)?;
    snapshot.meta.open_counter = superblock.open_counter;
    let (allocator, object_counts) = survey(&**medium, &snapshot)?;
    let parts = Parts {
        medium: Arc::clone(medium),
        blocks: Blocks::new(medium, &options, allocator),
        options,
        base,
        view: View {
            active: Arc::new(Memtable::default()),
            frozen: None,
            base: Arc::new(snapshot),
            token: Arc::new(ReadToken),
        },
        sessions: Sessions::new(superblock.store_id, superblock.open_counter),
        locks: LockTable::new(tokio::time::Instant::now()),
        object_counts,
    };
    Ok(Opened {
        parts,
        log,
        superblock,
    })
}

/// Who the store is; a new identity if the medium is empty.
fn identity(medium: &dyn Medium) -> Result<Superblock, Error> {
    let found = Superblock::read(medium)?;
    if let Some(superblock) = found.newest {
        return Ok(superblock);
    }
    for file in [
        FileName::Base,
        FileName::Data,
        FileName::Log(0),
        FileName::Log(1),
    ] {
        let len = medium
            .len(file)
            .map_err(|e| io_error(format!("looking for {}", file.path()), e))?;
        if len > 0 {
            return Err(corrupt(format!(
                "superblock: no valid copy, but there is {}",
                file.path()
            )));
        }
    }
    let mut id = [0; 16];
    SystemRandom::new()
        .fill(&mut id)
        .map_err(|_| Error::new(ErrorKind::Unavailable, "making a store id"))?;
    let mut superblock = Superblock {
        store_id: u128::from_le_bytes(id),
        generation: 0,
        open_counter: 0,
        state: State::Creating,
        sequence: 0,
    };
    superblock.advance(medium)?;
    Ok(superblock)
}

/// Makes the other files. Starts over if an earlier try was cut short.
fn create(medium: &Arc<dyn Medium>, options: &LocalOptions) -> Result<(), Error> {
    let fail = |e| io_error("making a store", e);
    let zeros = vec![0; usize::try_from(log_growth_bytes(options)).expect("at most 1 MiB")];
    for file in [
        FileName::Base,
        FileName::Data,
        FileName::Log(0),
        FileName::Log(1),
    ] {
        medium.set_len(file, 0).map_err(fail)?;
    }
    for file in [FileName::Log(0), FileName::Log(1)] {
        medium.write_at(file, 0, &zeros).map_err(fail)?;
        medium.sync(file).map_err(fail)?;
    }
    medium.sync(FileName::Data).map_err(fail)?;
    medium.sync(FileName::Base).map_err(fail)?;
    let base = open_base(medium, options)?;
    base.commit(&Delta::new(), BaseMeta::default())?;
    base.close()
}

fn replay(
    medium: &Arc<dyn Medium>,
    base: &Base,
    mut scan: log::Scan,
    mut meta: BaseMeta,
    planted_bug: Option<PlantedBug>,
) -> Result<BaseMeta, Error> {
    if planted_bug == Some(PlantedBug::ReplayStopsEarly) {
        scan.records.pop();
    }
    let Some(last) = scan.records.last() else {
        return Ok(meta);
    };
    meta.applied_sequence = last.sequence;
    tracing::info!(records = scan.records.len(), "replaying the log");
    let mut delta = Delta::new();
    for record in scan.records {
        for (block, data) in &record.blocks {
            Blocks::replay(&**medium, *block, data)?;
        }
        delta.extend(record.delta);
    }
    medium
        .sync(FileName::Data)
        .map_err(|e| io_error("syncing the data file", e))?;
    base.commit(&delta, meta)
}

/// Finds out which blocks are free, and counts objects.
fn survey(
    medium: &dyn Medium,
    base: &BaseSnapshot,
) -> Result<(Allocator, HashMap<Bytes, u64>), Error> {
    let len = medium
        .len(FileName::Data)
        .map_err(|e| io_error("looking at the data file", e))?;
    let mut used = UsedBlocks::new(len / BLOCK_BYTES_U64);
    let mut counts: HashMap<Bytes, u64> = HashMap::new();
    for kind in [Kind::Chunk, Kind::Header] {
        let end = [kind.tag() + 1];
        let mut from = Bytes::copy_from_slice(&[kind.tag()]);
        loop {
            let found = base.range(&from, &end, SURVEY_STEP)?;
            let Some((last, _)) = found.last() else { break };
            from = successor(last);
            for (key, value) in found {
                if kind == Kind::Chunk {
                    for block in Chunk::decode(&key, &value)?.0.iter().flatten() {
                        used.insert(block.block)?;
                    }
                } else if let Ok(parsed) = parse_key(&key) {
                    let pool = Bytes::copy_from_slice(parsed.pool);
                    *counts.entry(pool).or_default() += 1;
                }
            }
        }
    }
    Ok((Allocator::rebuild(&used), counts))
}

/// A log grows in steps of this.
fn log_growth_bytes(options: &LocalOptions) -> u64 {
    (options.log_bytes / 4).clamp(64 * 1024, 1024 * 1024) / 4096 * 4096
}

const SURVEY_STEP: usize = 1_024;
