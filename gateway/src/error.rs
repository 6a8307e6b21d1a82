//! How the program fails: a sentence for the user, what to do about it, and an exit code.

use std::fmt;
use std::process::ExitCode;

use portico_backend::error::chain;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    what: String,
    help: Option<String>,
}

/// The exit codes; the help text of the program lists them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    /// Something failed, or `check` found damage.
    Failed,
    /// Arguments or configuration are wrong.
    Usage,
    /// Another process has the store open.
    InUse,
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::InUse => 3,
        }
    }
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self {
            exit,
            what: what.into(),
            help: None,
        }
    }

    /// Failed for the reason of `source`, which is told with all its causes.
    pub(crate) fn from_source(
        what: impl fmt::Display,
        source: &(dyn std::error::Error + 'static),
    ) -> Self {
        Self::new(Exit::Failed, format!("{what}: {}", chain(source)))
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says which key of the configuration names what is wrong.
    #[must_use]
    pub(crate) fn of_key(mut self, key: &str) -> Self {
        self.what = format!("key {key}: {}", self.what);
        self
    }

    #[must_use]
    pub(crate) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit.code())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(help) = &self.help {
            write!(f, "\n  {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
