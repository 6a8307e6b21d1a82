//! The S3 front door as a whole, over streams in memory and in paused time.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod connection;
mod fence;
mod harness;
mod multipart;
mod objects;
