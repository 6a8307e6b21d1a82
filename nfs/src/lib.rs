//! The NFS front door.
//!
//! [`wire`] turns what a client sends into types and types into what it gets, without I/O; [`session`] is
//! what a connection is at. What a call does, and who drives a connection, is not built yet.

pub mod limits;
pub mod session;
pub mod wire;
