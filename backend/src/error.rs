//! The one error of everything below the protocols, and which kinds leave the outcome unknown.

use std::fmt;

/// What went wrong, for control flow. Exhaustive on purpose: each protocol maps it with one total
/// match.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ErrorKind {
    /// A guard `Absent` met an existing object.
    AlreadyExists,
    /// The store has too much to do at the moment. Not applied; worth another try after a pause.
    Busy,
    /// Stored bytes do not match their checksum, or break an invariant of the format.
    Corrupt,
    /// The session was fenced by another one. Perhaps applied; every later operation of this
    /// session fails the same way.
    Fenced,
    /// A guard other than `Exists` and `Absent` did not hold.
    GuardFailed,
    /// The lock is held by another owner.
    Locked,
    /// The pool or the store is full. Removing still works.
    NoSpace,
    /// The object, extended attribute, snapshot or lock does not exist.
    NotFound,
    /// The operation is larger than the engine's `Limits` allow.
    TooLarge,
    /// The store did not answer in time, lost its connection, or refuses writes after an I/O
    /// error. Perhaps applied.
    Unavailable,
    /// The engine's `Limits` say that it cannot do this.
    Unsupported,
}

impl ErrorKind {
    /// Whether the operation may have taken effect, or may still do so later.
    #[must_use]
    pub fn is_perhaps_applied(self) -> bool {
        matches!(self, Self::Fenced | Self::Unavailable)
    }
}

/// An error: its kind, a short sentence on what and where, and the cause below it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    mismatch_offset: Option<u64>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// `context` says what was tried on what; it does not repeat the kind.
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            mismatch_offset: None,
            source: None,
        }
    }

    /// Adds the cause. Its text is printed behind this error's own, so the context leaves it out.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds the offset, in bytes from the start of the object, of the first byte in which a guard
    /// `BytesAre` found a difference.
    #[must_use]
    pub fn with_mismatch_offset(mut self, offset: u64) -> Self {
        self.mismatch_offset = Some(offset);
        self
    }

    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    #[must_use]
    pub fn context(&self) -> &str {
        &self.context
    }

    /// See [`Error::with_mismatch_offset`]. COMPARE AND WRITE hands it to the initiator.
    #[must_use]
    pub fn mismatch_offset(&self) -> Option<u64> {
        self.mismatch_offset
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.context)?;
        if let Some(offset) = self.mismatch_offset {
            write!(f, " (first difference at byte {offset})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// An error with its whole chain of causes on one line, for the place that logs or shows it.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
