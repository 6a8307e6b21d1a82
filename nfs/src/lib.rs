//! The NFS front door.
//!
//! [`wire`] turns what a client sends into types and types into what it gets; [`session`] is what a
//! connection is at; [`op`] does what calls ask for, on what a [`filesystem`] gives and an [`export`]
//! allows. All of it is without I/O. Who drives a connection is not built yet.

pub mod export;
pub mod filesystem;
pub mod limits;
pub mod op;
pub mod session;
pub mod wire;
