//! Errors of the medium, and the state after one.

use std::io;
use std::sync::OnceLock;

use crate::error::{Error, ErrorKind};

/// An I/O error with its kind: a full medium is `NoSpace`, bytes that are not what was written are
/// `Corrupt`, all else is `Unavailable`.
pub(super) fn io_error(context: impl Into<String>, source: io::Error) -> Error {
    use io::ErrorKind as Io;
    let cause = source.kind();
    let kind = if matches!(cause, Io::StorageFull | Io::QuotaExceeded) {
        ErrorKind::NoSpace
    } else if matches!(cause, Io::InvalidData | Io::UnexpectedEof) {
        ErrorKind::Corrupt
    } else {
        ErrorKind::Unavailable
    };
    Error::new(kind, context).with_source(source)
}

pub(super) fn corrupt(context: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, context)
}

/// Set by the first failed write or sync. From then on the store refuses writes until it is opened
/// again: what the kernel dropped is not in its cache any more, so a second sync would lie.
#[derive(Debug, Default)]
pub(super) struct Poison(OnceLock<String>);

impl Poison {
    pub(super) fn set(&self, error: &Error) {
        let text = crate::error::chain(error);
        if self.0.set(text).is_ok() {
            tracing::error!(error = %crate::error::chain(error), "the store refuses writes from now on");
        }
    }

    /// Refuses writes with a reason that is no failure.
    pub(super) fn close(&self) {
        self.0.get_or_init(|| "the store was closed".to_owned());
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        match self.0.get() {
            None => Ok(()),
            Some(why) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("the store refuses writes until it is opened again: {why}"),
            )),
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}
