//! NFS version 3 (RFC 1813): arguments and results of all procedures.
//!
//! What a record bounds and the standard does not (a name, a path) is read at any length: its type tells
//! the status that the operation answers. What breaks the standard is a `WireError`, answered
//! `GARBAGE_ARGS`.

pub mod attributes;
pub mod change;
pub mod create;
pub mod data;
pub mod directory;
pub mod filesystem;
pub mod handle;
pub mod inquire;
pub mod name;
mod procedure;
pub mod status;

pub use procedure::{Arguments, Procedure, Results};

/// The program's number and version.
pub const PROGRAM: u32 = 100_003;
pub const VERSION: u32 = 3;

#[cfg(test)]
mod tests;
