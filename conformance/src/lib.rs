//! Proof from outside.

pub mod contract;
pub mod model;
