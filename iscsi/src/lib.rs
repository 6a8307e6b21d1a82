//! The iSCSI front door.
//!
//! So far the bytes: [`wire`] turns what an initiator sends into types and types into what it gets,
//! without I/O. Sessions, the SCSI command set and the program's part follow; until they do, the
//! program serves no iSCSI.

pub mod scsi;
pub mod wire;
