//! The calls on a tree, a file for each: what POSIX asks of a file system, in the shape of NFS
//! (RFC 1813), whose calls name nodes by handles.
//!
//! A call is answered when what it changed, and what it has seen, is logged: no crash takes it
//! back. Calls that change something take a [`Keep`](super::Keep): the answer is logged with them.

mod access;
mod commit;
mod create;
mod getattr;
mod link;
mod lookup;
mod make;
mod mkdir;
mod mknod;
mod read;
mod readdir;
mod readlink;
mod remove;
mod rename;
mod rmdir;
mod setattr;
mod statfs;
mod symlink;
mod write;

pub use commit::Verifier;
pub use create::HowToCreate;
pub use make::{Made, SetAttributes, SetTime};
pub use read::ReadAnswer;
pub use readdir::{Listed, Listing};
pub use rename::Renamed;
pub use statfs::Space;
pub use write::{Stability, Written};
