//! Every bound of the iSCSI front door, with its reason.

use std::time::Duration;

/// `MaxRecvDataSegmentLength` of this side: a burst in four PDUs, and little to hold for one.
pub const RECEIVE_DATA_BYTES_MAX: u32 = 256 << 10;

/// The data segment of a PDU before a side has declared its own (RFC 7143 section 13.12).
pub const LOGIN_DATA_BYTES_MAX: u32 = 8_192;

/// `MaxBurstLength`: the data of one R2T.
pub const BURST_BYTES_MAX: u32 = 1 << 20;

/// `FirstBurstLength`: what a place in the command window costs, so not more than the default.
pub const FIRST_BURST_BYTES_MAX: u32 = 64 << 10;

/// `MaxOutstandingR2T` of a task.
pub const OUTSTANDING_R2T_MAX: u32 = 8;

/// `MaxConnections` of a session.
pub const SESSION_CONNECTIONS_MAX: u32 = 8;

/// Bytes of a place in the command window at least: pings and texts bring data along whatever was
/// negotiated.
pub const PLACE_BYTES_MIN: u64 = 4 << 10;

/// Commands that an idle session may send at once.
pub const WINDOW_IDLE: usize = 4;

/// Commands of one session in work and in its window together.
pub const WINDOW_MAX: usize = 128;

/// Immediate SCSI commands of one session in work: they have no place in the window and take one
/// beside it.
pub const IMMEDIATE_TASKS_MAX: usize = 8;

/// Task management functions of one session in work.
pub const MANAGEMENT_MAX: usize = 16;

/// PDUs of a connection that wait for commands before them (several connections a session).
pub const HELD_PDUS_MAX: usize = WINDOW_MAX;

/// Bytes of replies that wait for a client to take them; beyond that nothing more is read from it.
pub const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Bytes of such replies that nobody reserved: what a ping brings back, texts, rejects. A client that
/// takes no replies costs this and what comes with one more PDU.
pub const OUTPUT_LOOSE_BYTES_MAX: usize = 32 << 10;

/// PDUs of one such queue, since many are short.
pub const OUTPUT_PDUS_MAX: usize = 4_096;

/// Login requests of one login; CHAP and all stages take 5.
pub const LOGIN_REQUESTS_MAX: u32 = 32;

/// How long a login may take from the first byte of a connection. Initiators give up after 5 to 60
/// seconds.
pub const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);

/// How long an initiator may be silent before it is asked whether it lives.
pub const NOP_INTERVAL: Duration = Duration::from_secs(15);

/// How long it may be silent altogether. A program that has its initiator inside, as those over
/// libiscsi, may sleep for a minute without a look at its connection, and lives all the same.
pub const SILENCE_MAX: Duration = Duration::from_secs(75);

/// How long a task may wait for data that it asked for: what it reserved is missing elsewhere.
pub const DATA_OUT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a client may take none of its replies.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a reset waits for writes that were aborted and cannot be recalled. Initiators wait 10 to
/// 30 seconds for its answer.
pub const RESET_TIMEOUT: Duration = Duration::from_secs(20);

/// How long an initiator has to log out after it was asked to.
pub const LOGOUT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections in all, those in their login included.
pub const CONNECTIONS_MAX: usize = 4_096;

/// Connections of one address that have not logged in: half-open ones of one client must not keep
/// others out.
pub const ADDRESS_LOGINS_MAX: usize = 256;

/// Sessions in all: target session identifying handles have 16 bits.
pub const SESSIONS_MAX: usize = 4_096;

/// Bytes of a target's or an initiator's name (RFC 7143 section 4.2.7.1).
pub const NAME_BYTES_MAX: usize = 223;

/// Bytes of a read into a connection's buffer at most, if no longer PDU has begun; it starts with the
/// least.
pub const READ_BYTES_MAX: usize = 64 << 10;

/// Data segments up to this many bytes are copied out of what was read. Longer ones keep that, which
/// is four times their length at most.
pub const COPIED_BYTES_MAX: usize = 16 << 10;

/// Bytes of a read of a connection that has little to say.
pub const READ_BYTES_MIN: usize = 8 << 10;

const _: () = assert!(FIRST_BURST_BYTES_MAX <= BURST_BYTES_MAX);
const _: () = assert!(LOGIN_DATA_BYTES_MAX <= RECEIVE_DATA_BYTES_MAX);
const _: () = assert!(READ_BYTES_MAX <= 4 * COPIED_BYTES_MAX);
const _: () = assert!(OUTPUT_LOOSE_BYTES_MAX < OUTPUT_BYTES_MAX);
const _: () = assert!(WINDOW_IDLE < WINDOW_MAX);
const _: () = assert!(NOP_INTERVAL.as_secs() < SILENCE_MAX.as_secs());
