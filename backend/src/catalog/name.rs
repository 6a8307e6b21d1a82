//! Names and numbers of the catalog. Each value is valid by construction.

use std::fmt;
use std::sync::Arc;

/// Characters of a user's name (IAM, `CreateUser`).
const USER_NAME_CHARS_MAX: usize = 64;

/// Characters of an access key id (IAM, `AccessKey`).
const ACCESS_KEY_CHARS_MAX: usize = 128;

/// The name of a bucket: S3's rules for general purpose buckets, with every label between periods
/// beginning and ending in a letter or digit, so that a name is also a host name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BucketName(Arc<str>);

/// Prefixes that S3 keeps for itself.
const RESERVED_PREFIXES: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];

/// Suffixes that S3 keeps for itself.
const RESERVED_SUFFIXES: [&str; 5] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"];

impl BucketName {
    /// # Errors
    /// The rule that `text` breaks.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check_bucket_name(text).map(|()| Self(Arc::from(text)))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The number of a node; never used again for another.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The public half of an access key: 4 to 128 letters, digits and `_`, `-`, `.`; none of the
/// characters that separate the parts of a credential scope.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AccessKeyId(Arc<str>);

impl AccessKeyId {
    /// # Errors
    /// The rule that `text` breaks.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let valid = |c: u8| c.is_ascii_alphanumeric() || b"_-.".contains(&c);
        if text.len() < 4 || text.len() > ACCESS_KEY_CHARS_MAX {
            Err(NameError("must have 4 to 128 characters"))
        } else if !text.bytes().all(valid) {
            Err(NameError("may hold letters, digits, '_', '-' and '.' only"))
        } else {
            Ok(Self(Arc::from(text)))
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccessKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule that a name breaks, as the end of a sentence about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NameError(pub &'static str);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NameError {}

/// Whether `text` may name a user or a node: 1 to 64 letters, digits and `+=,.@_-` (IAM,
/// `CreateUser`).
pub(super) fn check_user_name(text: &str) -> Result<(), NameError> {
    let valid = |c: u8| c.is_ascii_alphanumeric() || b"+=,.@_-".contains(&c);
    if text.is_empty() || text.len() > USER_NAME_CHARS_MAX {
        Err(NameError("must have 1 to 64 characters"))
    } else if !text.bytes().all(valid) {
        Err(NameError(
            "may hold letters, digits and the characters + = , . @ _ - only",
        ))
    } else {
        Ok(())
    }
}

fn check_bucket_name(text: &str) -> Result<(), NameError> {
    let is_edge = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_valid = |c: u8| is_edge(c) || c == b'-' || c == b'.';
    let label_is_sound = |label: &str| {
        let label = label.as_bytes();
        label.first().copied().is_some_and(is_edge) && label.last().copied().is_some_and(is_edge)
    };
    let has_prefix = |prefix: &&str| text.starts_with(*prefix);
    let has_suffix = |suffix: &&str| text.ends_with(*suffix);
    if text.len() < 3 || text.len() > 63 {
        Err(NameError("must have 3 to 63 characters"))
    } else if !text.bytes().all(is_valid) {
        Err(NameError(
            "may hold lower-case letters, digits, '-' and '.' only",
        ))
    } else if !text.split('.').all(label_is_sound) {
        Err(NameError(
            "must begin and end with a letter or digit, also around each '.'",
        ))
    } else if is_like_ipv4(text) {
        Err(NameError("must not look like an IP address"))
    } else if RESERVED_PREFIXES.iter().any(has_prefix) {
        Err(NameError("must not begin with a prefix that S3 reserves"))
    } else if RESERVED_SUFFIXES.iter().any(has_suffix) {
        Err(NameError("must not end with a suffix that S3 reserves"))
    } else {
        Ok(())
    }
}

/// Four groups of one to three digits, whatever their value: `999.1.1.1` counts too.
fn is_like_ipv4(text: &str) -> bool {
    let is_group =
        |group: &str| (1..=3).contains(&group.len()) && group.bytes().all(|c| c.is_ascii_digit());
    text.split('.').count() == 4 && text.split('.').all(is_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_follow_the_rules_of_s3() {
        let longest = "a".repeat(63);
        for good in [
            "abc",
            "a-b",
            "a.b",
            "0a0",
            "1.2.3",
            "1.2.3.4.5",
            "a--b",
            "xn-a",
            &longest,
            "1.2.3.4a",
        ] {
            assert!(BucketName::new(good).is_ok(), "{good}");
        }
        let too_long = "a".repeat(64);
        for bad in [
            "",
            "ab",
            &too_long,
            "Abc",
            "a_b",
            "foo-",
            "-foo",
            ".foo",
            "foo.",
            "foo..bar",
            "foo.-bar",
            "foo-.bar",
            "192.168.5.123",
            "999.1.1.1",
            "xn--abc",
            "sthree-a",
            "amzn-s3-demo-a",
            "abc-s3alias",
            "abc--ol-s3",
            "abc.mrap",
            "abc--x-s3",
            "abc--table-s3",
            "a/b",
            "a b",
            "a\u{e4}b",
            "alpha!soup",
        ] {
            assert!(BucketName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn access_keys_hold_nothing_that_separates() {
        assert!(AccessKeyId::new("0555b35654ad1656d804").is_ok());
        for bad in ["", "abc", "a/bcd", "abcd=", "ab,cd", "ab cd", "ab:cd"] {
            assert!(AccessKeyId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn user_names_are_those_of_iam() {
        assert_eq!(check_user_name("a.b+c=d,e@f_g-1"), Ok(()));
        for bad in ["", "a b", "a/b", "a\n", &"u".repeat(65)] {
            assert!(check_user_name(bad).is_err(), "{bad}");
        }
    }
}
