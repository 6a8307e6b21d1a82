//! Proof from outside.
