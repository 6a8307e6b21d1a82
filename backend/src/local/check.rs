//! Offline verification: every invariant of `docs/format.md`, without changing a byte.

use std::path::Path;

use crate::error::Error;

/// What a check found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// One sentence for each broken invariant: file, object or key, and what is wrong.
    pub problems: Vec<String>,
    /// Problems beyond those listed.
    pub problems_left_out: u64,
    pub objects: u64,
    pub records: u64,
    pub blocks: u64,
    pub log_records: u64,
}

impl Report {
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Verifies the store in `directory`.
///
/// # Errors
/// `Busy` if it is open, `NotFound` if there is none. What is wrong with it is in the report.
pub fn check(directory: &Path) -> Result<Report, Error> {
    todo!("{directory:?}")
}
