//! Every bound of the NFS front door, with its reason.

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
