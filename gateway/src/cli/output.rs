//! What commands say on standard output.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use crate::error::Failure;

/// Prints a line.
///
/// # Errors
/// If it cannot be written. A reader that has had enough, such as `head`, is no error: the command
/// goes on, and its exit code tells what became of it.
pub(super) fn line(what: fmt::Arguments<'_>) -> Result<(), Failure> {
    told(writeln!(io::stdout(), "{what}"))
}

/// Prints text that has its line breaks.
///
/// # Errors
/// As [`line`].
pub(super) fn text(what: &str) -> Result<(), Failure> {
    told(write!(io::stdout(), "{what}"))
}

fn told(written: io::Result<()>) -> Result<(), Failure> {
    match written.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::from_source(
            "cannot write to standard output",
            &error,
        )
        .with_help("the command itself was carried out")),
        Ok(()) | Err(_) => Ok(()),
    }
}
