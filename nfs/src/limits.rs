//! Every bound of the NFS front door, with its reason.

use std::time::Duration;

/// Bytes of one READ or WRITE, and of a listing: what Linux and macOS ask for at most over TCP.
pub const DATA_BYTES_MAX: u32 = 1 << 20;

/// Bytes of one record: the data of a WRITE, and before it the heads of a call with credential and
/// verifier at their longest (less than 1 KiB), and some room.
pub const RECORD_BYTES_MAX: u32 = DATA_BYTES_MAX + 2_048;

/// Fragments of one record, empty ones too. 1 MiB in fragments of 4,000 bytes, the buffer of older RPC
/// libraries, takes 263.
pub const RECORD_FRAGMENTS_MAX: u32 = 512;

/// A file handle that clients of VMware take. The standard allows 64 (RFC 1813 section 2.4).
pub const HANDLE_BYTES_MAX: usize = 56;

/// A name in a directory: what Linux file systems have, and what PATHCONF tells.
pub const NAME_BYTES_MAX: usize = 255;

/// The content of a symbolic link: `PATH_MAX` of Linux without its terminating zero.
pub const PATH_BYTES_MAX: usize = 4_095;

/// Items of a list that is read: what other servers' lists hold at most. What is served reads none.
pub const LIST_ITEMS_MAX: usize = 1 << 16;

/// Data of a reply up to this size is copied into the bytes before it: a part of its own costs more.
pub const COPIED_BYTES_MAX: usize = 512;

/// Calls of one connection that are under way: Linux sends up to 65,536 unasked, and 64 keep any disk busy.
pub const CALLS_MAX: usize = 64;

/// Bytes that calls of one connection and their replies occupy; a last one may go beyond it. Eight READs
/// or WRITEs of 1 MiB are more than a line has under way.
pub const CONNECTION_BYTES_MAX: usize = 8 << 20;

/// Bytes of a record that are read without a permit, and of one read from the socket: the calls of all
/// procedures but WRITE and long SYMLINKs are shorter.
pub const READ_AHEAD_BYTES: usize = 4_096;

/// Bytes of a reply without data and listing: the longest (RENAME, CREATE) has less than 300.
pub const REPLY_BYTES: usize = 512;

/// Bytes of a call, without its xid, that tell it from others: all but data and the longest SYMLINKs.
pub const CHECKSUM_BYTES_MAX: usize = 2_048;

/// Results that are kept for a call that comes again: those of every call that changes something are
/// shorter than `REPLY_BYTES`. What is logged with a change may have as many.
pub const KEPT_RESULTS_BYTES_MAX: usize = 1_024;

/// What a kept reply takes in memory beside its results: keys in three tables.
pub const KEPT_REPLY_BYTES: usize = 256;

/// Bytes of the replies that are kept for one client: 2,000 of them, and a client waits for 64 at most.
pub const CLIENT_REPLY_BYTES_MAX: usize = 1 << 20;

/// Bytes of all replies that are kept.
pub const REPLY_BYTES_TOTAL_MAX: usize = 64 << 20;

/// A kept reply is forgotten then: clients send again after one to ten minutes, and in hours an xid may
/// come anew.
pub const REPLY_AGE_MS_MAX: u64 = 20 * 60 * 1_000;

/// Copies of a running call that wait for its reply: a client that sends more has them ignored.
pub const WAITERS_MAX: usize = 4;

/// What DUMP of MOUNT tells at most.
pub const MOUNTS_MAX: usize = 4_096;

/// Connections that are served at once: a client has one for each server, or up to 16 by `nconnect`.
pub const CONNECTIONS_MAX: usize = 1_000;

/// A connection on which nothing moves and no call runs ends then. Clients close theirs after five
/// minutes, and connect anew when they need one.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(6 * 60);

/// Parts of one write to a socket.
pub const WRITE_SLICES_MAX: usize = 64;

/// Bytes of a datagram: what clients of MOUNT and of port mappers read at most.
pub const DATAGRAM_BYTES_MAX: usize = 8_800;
