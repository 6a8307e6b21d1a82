//! SCSI: what a command asks of a logical unit, and what comes of it.
//!
//! [`command`] is what passes between a session and the command set: plain data, so that it can be
//! printed, compared, fuzzed and forwarded. Nothing here knows PDUs or connections.

pub mod command;
