//! Vectors of every command: bytes in, bytes out, over an image of the memory engine.

mod bed;
mod block;
mod conditions;
mod data;
mod model;
mod provisioning;
mod table;
