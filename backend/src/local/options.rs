//! How a store is opened, and what it counts.

use std::time::Duration;

use crate::stats::{Counter, Gauge, LatencyHistogram};

/// How a store is opened. The defaults suit a gateway of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LocalOptions {
    /// Bytes that blocks and records may take; `None`: as much as the device holds.
    pub capacity_bytes: Option<u64>,
    /// Records kept in memory before they move to the base. While some move, twice this much comes
    /// beside them and, of those who are not held back, three times.
    pub memtable_bytes: u64,
    /// Bytes of one log before its records move to the base.
    pub log_bytes: u64,
    /// Bytes of blocks and of base pages kept in memory.
    pub cache_bytes: u64,
    /// Space kept so that removing works on a full disk.
    pub reserve_bytes: u64,
    /// Data of one step up to this size goes through the log; larger data goes straight to its
    /// blocks.
    pub inline_bytes_max: u32,
    /// When so long hardly anything was written, records and freed blocks in memory move to the
    /// base, so that their space is given back; `None`: they wait for the next writes.
    pub quiet_checkpoint: Option<Duration>,
    /// A mistake made on purpose, to show that the crash suite sees it.
    pub planted_bug: Option<PlantedBug>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            capacity_bytes: None,
            memtable_bytes: 16 * 1024 * 1024,
            log_bytes: 64 * 1024 * 1024,
            cache_bytes: 128 * 1024 * 1024,
            reserve_bytes: 16 * 1024 * 1024,
            inline_bytes_max: 32 * 1024,
            quiet_checkpoint: Some(Duration::from_secs(5)),
            planted_bug: None,
        }
    }
}

/// Mistakes that the crash suite must catch. Never set outside tests.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PlantedBug {
    /// The log is not synced before the answer.
    LogSyncSkipped,
    /// Large data is not synced before the log.
    DataSyncSkipped,
    /// Small data is not synced before its log is given up.
    CheckpointDataSyncSkipped,
    /// The base is not synced when it commits.
    BaseSyncSkipped,
    /// A log is given up before the base has its records.
    LogDroppedEarly,
    /// A block is used again as soon as it is freed.
    BlockReusedEarly,
    /// Checksums of blocks are not looked at.
    BlockChecksumIgnored,
    /// Checksums of base pages are not looked at.
    PageChecksumIgnored,
    /// Checksums of log records are not looked at.
    LogChecksumIgnored,
    /// Small data is not in the log.
    InlineDataNotLogged,
    /// Replay ends one record early.
    ReplayStopsEarly,
    /// A flush answers without a sync.
    FlushSkipped,
}

impl PlantedBug {
    pub const ALL: [Self; 12] = [
        Self::LogSyncSkipped,
        Self::DataSyncSkipped,
        Self::CheckpointDataSyncSkipped,
        Self::BaseSyncSkipped,
        Self::LogDroppedEarly,
        Self::BlockReusedEarly,
        Self::BlockChecksumIgnored,
        Self::PageChecksumIgnored,
        Self::LogChecksumIgnored,
        Self::InlineDataNotLogged,
        Self::ReplayStopsEarly,
        Self::FlushSkipped,
    ];
}

/// What an open store counts.
#[derive(Debug, Default)]
pub struct LocalStats {
    /// From the call to the start of its batch.
    pub queue_time: LatencyHistogram,
    /// From the start of its batch to the answer.
    pub service_time: LatencyHistogram,
    pub read_time: LatencyHistogram,
    /// Syncs of the log.
    pub log_flushes: Counter,
    pub log_flush_time: LatencyHistogram,
    /// How long writers were held back because records came faster than the base takes them.
    pub held_back_time: LatencyHistogram,
    /// Syncs of the data file.
    pub data_flushes: Counter,
    pub checkpoints: Counter,
    pub checkpoint_time: LatencyHistogram,
    pub batches: Counter,
    /// Batches committed without leaving the calling thread.
    pub batches_here: Counter,
    pub writes: Counter,
    pub reads: Counter,
    /// Reads answered without leaving the calling thread.
    pub reads_cached: Counter,
    pub log_bytes: Counter,
    pub data_bytes_written: Counter,
    pub data_bytes_read: Counter,
    /// Blocks, pages or records that did not match their checksum.
    pub corruptions: Counter,
    pub blocks_used_bytes: Gauge,
    /// Records in memory.
    pub memtable_bytes: Gauge,
}
