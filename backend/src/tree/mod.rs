//! A file system: directories, files and links, below one root.
//!
//! [`record`] says what is stored of each, [`access`] who may do what, [`verb`] what can be done.
//! `docs/tree-format.md` says what lies where and what must hold. One session serves a tree at a
//! time, under a [`Claim`](crate::claim::Claim).

pub mod access;
mod cookie;
mod data;
mod error;
mod header;
mod load;
pub mod lock;
mod log;
mod node;
mod place;
mod reap;
pub mod record;
mod row;
mod serve;
mod shared;
mod split;
#[cfg(test)]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a model names the kinds of nodes that it tells apart"
)]
mod tests;
pub mod verb;
mod view;

pub use error::TreeError;
pub use header::TreeQuota;
pub use log::record::{CLIENT_BYTES_MAX, KeptReply, RESULT_BYTES_MAX};
pub use node::{Around, Attributes, Before, HANDLE_BYTES, Handle};
pub use place::TreePools;
pub use serve::{Keep, NewTree, Tree};
pub use shared::TreeOptions;
pub use view::Caller;
