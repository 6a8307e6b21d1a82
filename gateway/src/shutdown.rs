//! Signals: SIGTERM and SIGINT stop the program, SIGHUP has certificates read again.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Failure;

/// The signals the program listens to, from the time this exists.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Asked {
    Reload,
    Stop,
}

impl Signals {
    /// # Errors
    /// If the system refuses a handler.
    pub(crate) fn install() -> Result<Self, Failure> {
        let install = |kind| {
            signal(kind).map_err(|error| Failure::from_source("cannot handle signals", &error))
        };
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
            hangup: install(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}
