//! What engines inside one process share: the checks before an operation, and watches.

pub(crate) mod admission;
pub(crate) mod watch;
