//! The NFS front door.
//!
//! [`wire`] turns what a client sends into types and types into what it gets; [`session`] is what a
//! connection is at; [`op`] does what calls ask for, on what a [`filesystem`] gives and an [`export`]
//! allows. None of it does I/O: that is for [`serve`].

pub mod export;
pub mod filesystem;
pub mod limits;
pub mod op;
pub mod serve;
pub mod session;
pub mod wire;
