//! Byte ranges of GET, HEAD and UploadPartCopy (RFC 9110, section 14; S3 serves single ranges
//! only).

use crate::error::{Code, S3Error};

/// A range that lies in the object; both ends belong to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ByteRange {
    pub first: u64,
    pub last: u64,
}

impl ByteRange {
    /// What a `Range` header asks of an object of `size` bytes. `None` means the whole object:
    /// a malformed header, another unit or several ranges are as if not sent.
    ///
    /// # Errors
    /// `InvalidRange` if the range lies behind the end.
    pub fn parse(header: &str, size: u64) -> Result<Option<Self>, S3Error> {
        let Some(spec) = Spec::parse(header) else {
            return Ok(None);
        };
        spec.resolve(size).map_or_else(
            || Err(not_satisfiable(header, size)),
            |range| Ok(Some(range)),
        )
    }

    /// What `x-amz-copy-source-range` asks of a source of `size` bytes: `bytes=first-last` only.
    ///
    /// # Errors
    /// `InvalidArgument` if it has another form, `InvalidRange` if it does not lie within the
    /// source as a whole.
    pub fn parse_copy_source(header: &str, size: u64) -> Result<Self, S3Error> {
        match Spec::parse(header) {
            Some(Spec::Closed { first, last }) if last < size => Ok(Self { first, last }),
            Some(Spec::Closed { .. }) => Err(S3Error::new(Code::InvalidRange)
                .with_message(format!(
                    "Range specified is not valid for source object of size: {size}"
                ))
                .with_field("RangeRequested", header)
                .with_field("ActualObjectSize", size.to_string())),
            Some(Spec::From { .. } | Spec::Suffix { .. }) | None => Err(S3Error::invalid_argument(
                "x-amz-copy-source-range",
                header,
                "The x-amz-copy-source-range value must be of the form bytes=first-last where \
                     first and last are the zero-based offsets of the first and last bytes to copy",
            )),
        }
    }

    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub fn len(self) -> u64 {
        self.last - self.first + 1
    }

    /// The value of `Content-Range` for an object of `size` bytes.
    #[must_use]
    pub fn content_range(self, size: u64) -> String {
        format!("bytes {}-{}/{size}", self.first, self.last)
    }
}

/// A range as written.
enum Spec {
    Closed { first: u64, last: u64 },
    From { first: u64 },
    Suffix { length: u64 },
}

impl Spec {
    fn parse(header: &str) -> Option<Self> {
        let (unit, range) = header.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = range.trim().split_once('-')?;
        match (first, last) {
            ("", length) => number(length).map(|length| Self::Suffix { length }),
            (first, "") => number(first).map(|first| Self::From { first }),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Closed { first, last })
            }
        }
    }

    fn resolve(&self, size: u64) -> Option<ByteRange> {
        let end = size.checked_sub(1)?;
        let (first, last) = match *self {
            Self::Closed { first, last } => (first, last.min(end)),
            Self::From { first } => (first, end),
            Self::Suffix { length: 0 } => return None,
            Self::Suffix { length } => (size.saturating_sub(length), end),
        };
        (first <= end).then_some(ByteRange { first, last })
    }
}

/// Digits only; more than 64 bits can hold is as good as the greatest number.
fn number(digits: &str) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}

fn not_satisfiable(header: &str, size: u64) -> S3Error {
    S3Error::new(Code::InvalidRange)
        .with_field("RangeRequested", header)
        .with_field("ActualObjectSize", size.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(header: &str, size: u64) -> Option<(u64, u64)> {
        ByteRange::parse(header, size)
            .unwrap()
            .map(|range| (range.first, range.last))
    }

    #[test]
    fn ranges_are_cut_to_the_object() {
        assert_eq!(range("bytes=4-7", 11), Some((4, 7)));
        assert_eq!(range("bytes=4-", 11), Some((4, 10)));
        assert_eq!(range("bytes=-7", 11), Some((4, 10)));
        assert_eq!(range("bytes=-700", 11), Some((0, 10)));
        assert_eq!(range("bytes=0-99999999999999999999999", 11), Some((0, 10)));
        assert_eq!(range("bytes=10-10", 11), Some((10, 10)));
    }

    #[test]
    fn what_is_no_single_range_means_the_whole_object() {
        for header in [
            "bytes=0-1,4-5",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=-",
            "bytes=",
            "bytes",
            "items=0-1",
            "",
            "bytes=0x1-2",
            "bytes=+1-2",
        ] {
            assert_eq!(range(header, 11), None, "{header}");
        }
    }

    #[test]
    fn behind_the_end_is_not_satisfiable() {
        for (header, size) in [
            ("bytes=11-12", 11),
            ("bytes=40-50", 11),
            ("bytes=0-0", 0),
            ("bytes=-0", 11),
            ("bytes=-5", 0),
        ] {
            let error = ByteRange::parse(header, size).unwrap_err();
            assert_eq!(error.code(), Code::InvalidRange, "{header}");
        }
    }

    #[test]
    fn a_copy_range_is_exact() {
        let range = ByteRange::parse_copy_source("bytes=0-21", 22).unwrap();
        assert_eq!((range.first, range.last, range.len()), (0, 21, 22));
        let code = |header| ByteRange::parse_copy_source(header, 5).unwrap_err().code();
        assert_eq!(code("bytes=0-21"), Code::InvalidRange);
        for header in [
            "0-2",
            "bytes=0",
            "bytes=hello-world",
            "bytes=0-bar",
            "bytes=0-2,3-5",
        ] {
            assert_eq!(code(header), Code::InvalidArgument, "{header}");
        }
    }
}
