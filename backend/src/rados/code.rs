//! Error numbers of librados as kinds of errors.

use super::librados::Code;
use crate::error::{Error, ErrorKind};

/// librados' `MAX_ERRNO`: a comparison of bytes answers this and the offset of the difference,
/// negated.
const MISMATCH: i32 = 4_095;

pub(super) const NOT_FOUND: Code = Code(-2);
pub(super) const BUSY: Code = Code(-16);
pub(super) const EXISTS: Code = Code(-17);
pub(super) const TIMED_OUT: Code = Code(-110);
const FENCED: i32 = -108;

impl Code {
    /// What the number means for an operation on an object.
    pub(super) fn kind(self) -> ErrorKind {
        match self.0 {
            ..=-4_095 | -125 | -75 | -34 => ErrorKind::GuardFailed,
            -2 => ErrorKind::NotFound,
            // A checksum that does not match on every copy.
            -5 => ErrorKind::Corrupt,
            -7 | -27 | -90 => ErrorKind::TooLarge,
            -16 => ErrorKind::Busy,
            -17 => ErrorKind::AlreadyExists,
            -28 | -122 => ErrorKind::NoSpace,
            // The client may not do that, or the pool cannot.
            -1 | -13 | -22 | -95 => ErrorKind::Unsupported,
            FENCED => ErrorKind::Fenced,
            _ => ErrorKind::Unavailable,
        }
    }

    pub(super) fn is_fenced(self) -> bool {
        self.0 == FENCED
    }

    /// Whether a guard on a version did not hold.
    pub(super) fn is_other_version(self) -> bool {
        matches!(self.0, -34 | -75)
    }

    /// Where compared bytes differ, from the start of the comparison.
    pub(super) fn mismatch(self) -> Option<u64> {
        let offset = self.0.checked_neg()?.checked_sub(MISMATCH)?;
        u64::try_from(offset).ok()
    }

    /// An error of this kind; `context` says what was tried on what.
    pub(super) fn error(self, context: impl Into<String>) -> Error {
        let hint = match self.0 {
            -1 | -13 => ": the client's caps do not allow it",
            -5 => ": the cluster cannot read it",
            -22 | -95 => ": the pool does not support it",
            _ => "",
        };
        let text = format!("{} (librados error {}{hint})", context.into(), self.0);
        Error::new(self.kind(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_says_where() {
        assert_eq!(Code(-4_095).mismatch(), Some(0));
        assert_eq!(Code(-4_195).mismatch(), Some(100));
        assert_eq!(Code(-125).mismatch(), None);
        assert_eq!(Code(i32::MIN).mismatch(), None);
        assert_eq!(Code(-4_195).kind(), ErrorKind::GuardFailed);
    }

    #[test]
    fn only_lost_sessions_and_time_outs_are_perhaps_applied() {
        for code in [-110, -107, -108, -71] {
            assert!(Code(code).kind().is_perhaps_applied(), "{code}");
        }
        for code in [
            -2, -16, -17, -28, -34, -75, -122, -125, -4_096, -27, -95, -1,
        ] {
            assert!(!Code(code).kind().is_perhaps_applied(), "{code}");
        }
    }
}
