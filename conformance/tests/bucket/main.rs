//! Buckets from outside: random operations against a model, faults, crashes at every call, races
//! and the cost of a page. Two sessions over one store throughout.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod bed;
mod cost;
mod crash;
mod race;
mod random;
