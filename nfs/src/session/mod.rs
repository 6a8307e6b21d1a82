//! What a connection is at, without I/O: bytes in, calls out, replies in any order, bytes out.
//!
//! [`connection`] bounds what a client has under way, [`call`] tells calls from what is answered at
//! once, [`request`] is what a call asks for, [`reply_cache`] answers calls that come again. Time is
//! passed in.

pub mod call;
pub mod connection;
mod output;
pub mod reply_cache;
pub mod request;
#[cfg(test)]
mod tests;
