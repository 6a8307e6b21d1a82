//! Images from outside: random operations against a model, crashes, takeovers, and a power cut at
//! every write of the disk below.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod bed;
mod cuts;
mod random;
