//! Vectors of every command: bytes in, bytes out, over an image of the memory engine.

mod bed;
mod block;
