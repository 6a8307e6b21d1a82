//! Proof from outside.

pub mod contract;
pub mod crash;
pub mod model;
