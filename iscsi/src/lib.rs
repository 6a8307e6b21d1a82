//! The iSCSI front door.
//!
//! [`wire`] turns what an initiator sends into types and types into what it gets, without I/O.
//! [`session`] is the protocol above it: logins, commands in their order, data, task management.
//! [`serve`] drives one connection. [`target`] says what there is and who may use it, [`units`] what
//! a session sees of the command set, and [`scsi`] does what a command asks of a logical unit.
//! Which images are units, and who sees them, is the program's business.

pub mod limits;
pub mod scsi;
pub mod serve;
pub mod session;
pub mod stats;
pub mod target;
pub mod units;
pub mod wire;
