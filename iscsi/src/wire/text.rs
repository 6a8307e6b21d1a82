//! `key=value` pairs of login and text negotiation (RFC 7143 sections 6.1 and 6.2).

use std::fmt;

/// Bytes of a key's name.
pub const KEY_BYTES_MAX: usize = 63;

/// Bytes of a value: 255, but 8 KiB for lists and large binaries.
pub const VALUE_BYTES_MAX: usize = 8_192;

/// Bytes of one negotiation sequence, over all its PDUs.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Pairs of one negotiation sequence.
pub const PAIRS_MAX: usize = 256;

/// Pairs in the order in which they came, each key once.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pairs(Vec<(String, String)>);

/// Why a text is no negotiation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TextError {
    /// No `=`, or nothing before it.
    NoPair,
    /// A key or a value with bytes that no key has.
    Character,
    /// The same key twice (section 6.2: a protocol error).
    Repeated,
    TooLong,
    /// The last pair has no NUL behind it.
    Unterminated,
}

impl Pairs {
    /// # Errors
    /// Any [`TextError`].
    pub fn decode(text: &[u8]) -> Result<Self, TextError> {
        let mut pairs = Self::default();
        if text.len() > TEXT_BYTES_MAX {
            return Err(TextError::TooLong);
        }
        let Some(text) = text.strip_suffix(&[0]) else {
            return match text.is_empty() {
                true => Ok(pairs),
                false => Err(TextError::Unterminated),
            };
        };
        for pair in text.split(|byte| *byte == 0) {
            // Some initiators pad with NULs.
            if pair.is_empty() {
                continue;
            }
            let at = pair.iter().position(|byte| *byte == b'=');
            let at = at.filter(|at| *at > 0).ok_or(TextError::NoPair)?;
            let (key, value) = (&pair[..at], &pair[at + 1..]);
            if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
                return Err(TextError::TooLong);
            }
            if !key.iter().all(|byte| is_of_key(*byte))
                || value.iter().any(|b| b.is_ascii_control())
            {
                return Err(TextError::Character);
            }
            let value = std::str::from_utf8(value).map_err(|_| TextError::Character)?;
            let key = std::str::from_utf8(key).map_err(|_| TextError::Character)?;
            if pairs.value(key).is_some() {
                return Err(TextError::Repeated);
            }
            if pairs.0.len() == PAIRS_MAX {
                return Err(TextError::TooLong);
            }
            pairs.push(key, value);
        }
        Ok(pairs)
    }

    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        let pair = self.0.iter().find(|(name, _)| name == key);
        pair.map(|(_, value)| value.as_str())
    }

    pub fn push(&mut self, key: &str, value: &str) {
        self.0.push((key.to_owned(), value.to_owned()));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (key, value) in &self.0 {
            text.extend_from_slice(key.as_bytes());
            text.push(b'=');
            text.extend_from_slice(value.as_bytes());
            text.push(0);
        }
        text
    }
}

/// Section 6.1: a key label.
fn is_of_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-+@_/".contains(&byte)
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPair => "a text that is no key=value",
            Self::Character => "a key or a value with a byte that it cannot have",
            Self::Repeated => "a key that comes twice",
            Self::TooLong => "more text, keys or bytes of a value than are taken",
            Self::Unterminated => "a last pair without its NUL",
        })
    }
}

impl std::error::Error for TextError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_their_order() {
        let text =
            b"InitiatorName=iqn.1993-08.org.debian:01:a=b\0AuthMethod=CHAP,None\0X-com.a.b=\0";
        let pairs = Pairs::decode(text).unwrap();
        assert_eq!(
            pairs.value("InitiatorName"),
            Some("iqn.1993-08.org.debian:01:a=b")
        );
        assert_eq!(pairs.value("X-com.a.b"), Some(""));
        assert_eq!(pairs.value("authmethod"), None);
        assert_eq!(pairs.encode(), text);
        assert_eq!(
            Pairs::decode(b"A=1\0\0\0")
                .unwrap()
                .iter()
                .collect::<Vec<_>>(),
            [("A", "1")]
        );
        assert!(Pairs::decode(b"").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_negotiation_is_refused() {
        let long_key = format!("{}=1\0", "k".repeat(64));
        let long_value = format!("k={}\0", "v".repeat(8_193));
        let many: String = (0..257).map(|i| format!("k{i}=1\0")).collect();
        for (text, error) in [
            (&b"A=1"[..], TextError::Unterminated),
            (b"A\0", TextError::NoPair),
            (b"=1\0", TextError::NoPair),
            (b"A B=1\0", TextError::Character),
            (b"A=\x01\0", TextError::Character),
            (b"A=\xff\0", TextError::Character),
            (b"A=1\0A=2\0", TextError::Repeated),
            (long_key.as_bytes(), TextError::TooLong),
            (long_value.as_bytes(), TextError::TooLong),
            (many.as_bytes(), TextError::TooLong),
            (&[b'a'; TEXT_BYTES_MAX + 1], TextError::TooLong),
        ] {
            assert_eq!(Pairs::decode(text), Err(error));
        }
    }
}
