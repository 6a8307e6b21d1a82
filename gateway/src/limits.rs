//! Every bound of the program itself, with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes a local store may be told to fill: below that it holds nothing useful, above it no file
/// system of today is.
pub(crate) const CAPACITY_BYTES: RangeInclusive<u64> = (64 << 20)..=(1 << 60);

/// What the memory engine may hold unless told otherwise.
pub(crate) const MEMORY_CAPACITY_BYTES_DEFAULT: u64 = 1 << 30;

/// Bytes of the engine's cache: less than 1 MiB cannot hold one path through the metadata.
pub(crate) const CACHE_BYTES: RangeInclusive<u64> = (1 << 20)..=(1 << 40);

/// What the engine's cache takes unless told otherwise: little enough for a small machine.
pub(crate) const CACHE_BYTES_DEFAULT: u64 = 128 << 20;

/// Bytes of the names of pools, namespaces and clients of a cluster: what people still read.
pub(crate) const CEPH_NAME_BYTES_MAX: usize = 64;

/// Milliseconds: a healthy cluster answers in a few, and what takes an hour is no operation.
pub(crate) const SLOW_OP_MS: RangeInclusive<u64> = 1..=3_600_000;

/// A client notices, and a cluster under load does not take as long.
pub(crate) const SLOW_OP_MS_DEFAULT: u64 = 5_000;

/// Operations that a cluster has of us at once: one for each kind at least, and far fewer than
/// would take memory of their own.
pub(crate) const IN_FLIGHT_OPS: RangeInclusive<u64> = 16..=65_536;

/// Keeps a few dozen OSDs busy.
pub(crate) const IN_FLIGHT_OPS_DEFAULT: u64 = 1_024;

/// Keeps a fast network busy, and a stalled cluster from taking more.
pub(crate) const IN_FLIGHT_BYTES_DEFAULT: u64 = 256 << 20;

/// Connections: each takes a file descriptor, and a process has a million of them at most.
pub(crate) const CONNECTIONS: RangeInclusive<u64> = 1..=1_000_000;

/// Fits into the 524,288 descriptors that service managers allow, and costs little memory.
pub(crate) const CONNECTIONS_DEFAULT: u64 = 4_096;

/// Initiators with several sessions each; a session without work takes a few KiB.
pub(crate) const ISCSI_CONNECTIONS_DEFAULT: u64 = 4_096;

/// Portals of a node: each has a relative port of 16 bits that no other one of the cluster has.
pub(crate) const ISCSI_PORTALS_MAX: usize = 32;

/// Bytes in flight: enough for a few transfers at least, and a budget counts in 43 bits.
pub(crate) const MEMORY_BYTES: RangeInclusive<u64> = (16 << 20)..=(1 << 42);

/// Enough for a hundred transfers of several MiB each.
pub(crate) const MEMORY_BYTES_DEFAULT: u64 = 512 << 20;

/// Bytes per second that a client must move at least: beyond 1 MiB it would be a limit on what a
/// network may be, not on idling.
pub(crate) const TRANSFER_BYTES_PER_SECOND_MIN: RangeInclusive<u64> = 0..=(1 << 20);

/// Slower than any line that S3 is used over, and far more than a byte now and then.
pub(crate) const TRANSFER_BYTES_PER_SECOND_MIN_DEFAULT: u64 = 1_024;

/// Smallest part but the last of a multipart upload (S3 API: 5 MiB). Tests lower it.
pub(crate) const PART_BYTES_MIN: RangeInclusive<u64> = 1..=(5 << 30);

/// What the S3 API says.
pub(crate) const PART_BYTES_MIN_DEFAULT: u64 = 5 << 20;

/// Keys of one index object: a handful would split all the time, and Ceph recovers and scrubs an object
/// with more than the default poorly.
pub(crate) const SHARD_KEYS_MAX: RangeInclusive<u64> = 64..=SHARD_KEYS_MAX_DEFAULT;

/// A quarter of what Ceph warns of, as a shard may grow while it splits.
pub(crate) const SHARD_KEYS_MAX_DEFAULT: u64 = 50_000;

/// Bytes of a region's name: it is part of every credential scope.
pub(crate) const REGION_BYTES_MAX: usize = 64;

/// Bytes of a host name (RFC 1035 2.3.4).
pub(crate) const DOMAIN_BYTES_MAX: usize = 253;

/// A client that has not shaken hands by then is not going to.
pub(crate) const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long accepting pauses when the process is short of descriptors or memory, at first.
pub(crate) const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);

/// Longest pause: a client that waits a second has not given up.
pub(crate) const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How often certificate files are looked at.
pub(crate) const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long a client of the admin or metrics listener may take to send the head of a request.
pub(crate) const SIDE_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections to the admin and metrics listeners, each: a handful of tools use them.
pub(crate) const SIDE_CONNECTIONS_MAX: usize = 64;

/// How often a client that waits for a place has the longest idle connection ended.
pub(crate) const SIDE_TURN_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of a PEM file, of a credentials file, of a token file.
pub(crate) const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;

/// How long closing the store may take before the program gives up; what was acknowledged is safe.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the connections to a cluster may take to close.
pub(crate) const CLUSTER_CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long fencing the own session of images may take: initiators that wait for a reset have waited
/// for 20 seconds then, and give up after 30.
pub(crate) const CUT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a transfer to or from a cluster keeps: a piece of 4 MiB on its way and one beside it.
pub(crate) const RADOS_TRANSFER_BYTES: u64 = 8 << 20;

/// How often the monitors are asked how full the pools are: they themselves learn it every few seconds.
pub(crate) const POOLS_INTERVAL: Duration = Duration::from_secs(10);

/// Pause between two steps of one round of background work, so that clients come first.
pub(crate) const RECLAIM_STEP_PAUSE: Duration = Duration::from_millis(20);

/// How often unfinished buckets are looked for: each look reads the catalog's list of all buckets,
/// and nobody waits for it.
pub(crate) const FINISH_INTERVAL: Duration = Duration::from_secs(60);

/// Pause after the first attempt to open a session anew: a fence is rarely lifted sooner.
pub(crate) const REOPEN_PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest such pause: half a minute more is little beside what fenced a node for so long.
pub(crate) const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How often background work looks whether there is something to work on again.
pub(crate) const VACANT_PAUSE: Duration = Duration::from_secs(1);
