//! Structured logs on standard error, as text or as JSON lines.
//!
//! Secrets never reach a log: types that hold one hide it in `Debug`.

use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::config::{Log, LogFormat};

/// Installs the logger of the process and logs panics like everything else.
///
/// # Panics
/// If a logger is installed already: the program does it once.
pub(crate) fn install(log: Log) {
    let builder = fmt()
        .with_writer(std::io::stderr)
        .with_max_level(log.level)
        .with_span_events(FmtSpan::NONE);
    match log.format {
        LogFormat::Text => builder.with_ansi(stderr_is_terminal()).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let what = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, what, "a task panicked");
    }));
}

fn stderr_is_terminal() -> bool {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal()
}
