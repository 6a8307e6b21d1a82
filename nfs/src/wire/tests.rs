//! What holds of every message: it is read as it was written, a part of it is refused, and no count in it
//! is believed.

mod every;
mod random;

pub(crate) use random::{Generator, Random};
