//! A file system: directories, files and links, below one root.
//!
//! [`record`] says what is stored of each, [`access`] who may do what.

pub mod access;
pub mod record;
