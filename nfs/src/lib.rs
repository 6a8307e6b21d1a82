//! The NFS front door.
//!
//! [`wire`] turns what a client sends into types and types into what it gets, without I/O. What a call
//! does, and who drives a connection, is not built yet.

pub mod limits;
pub mod wire;
