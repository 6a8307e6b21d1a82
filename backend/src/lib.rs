//! Everything below the protocols: objects, the engines that keep them, and the volumes made of
//! them.
//!
//! The ladder, bottom up; a module uses only what stands above it in this list:
//!
//! 1. [`error`], [`limits`], [`clock`], [`codec`], [`stats`], [`budget`], [`gate`], [`random`],
//!    [`connection`]: what all share;
//! 2. [`object`]: the trait [`object::ObjectStore`] and its data;
//! 3. engines ([`memory`], [`faulty`], [`local`], [`rados`]) and what they share (`engine`), which never name
//!    a volume;
//! 4. [`stripe`], [`claim`], [`catalog`], [`bucket`], [`image`], [`tree`]: volumes, which never name
//!    an engine. Both meet in `Arc<dyn ObjectStore>`, joined by the program alone;
//! 5. [`volumes`]: the catalog with what it lists;
//! 6. [`tenure`]: the volumes over one session, until that is fenced.

pub mod bucket;
pub mod budget;
pub mod catalog;
pub mod claim;
pub mod clock;
pub mod codec;
pub mod connection;
mod engine;
pub mod error;
pub mod faulty;
pub mod gate;
pub mod image;
pub mod limits;
pub mod local;
pub mod memory;
pub mod object;
pub mod rados;
pub mod random;
pub mod stats;
pub mod stripe;
pub mod tenure;
pub mod tree;
pub mod volumes;
