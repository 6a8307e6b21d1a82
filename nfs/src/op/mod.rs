//! What calls do: one file per procedure, on what a [file system](crate::filesystem) gives.
//!
//! [`nfs3`], [`mount`] and [`portmap`] are the programs, [`admit`] decides who may do what with which
//! file system, [`fault`] which errors a procedure may answer.

pub mod admit;
pub mod fault;
pub mod mount;
pub mod nfs3;
pub mod portmap;
