//! The iSCSI front door.
//!
//! So far the bytes and the commands: [`wire`] turns what an initiator sends into types and types
//! into what it gets, without I/O; [`scsi`] does what a command asks of a logical unit. Sessions and
//! the program's part follow; until they do, the program serves no iSCSI.

pub mod scsi;
pub mod wire;
