//! The S3 front door.
//!
//! Read in this order: [`wire`] (bytes to typed requests), [`auth`] (who asks), then the verbs, and
//! [`serve`] (one connection).

pub mod auth;
pub mod error;
pub mod limits;
mod op;
pub mod serve;
pub mod stats;
pub mod wire;
