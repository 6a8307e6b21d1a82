//! Percent encoding as the S3 API uses it: decoded exactly once, never normalised.

use crate::error::{Code, S3Error};

/// Decodes `%XX`; everything else stays, also `+`. For paths and headers.
///
/// # Errors
/// `InvalidURI` if an escape is cut short or not hexadecimal, or the result is not UTF-8.
pub fn percent_decode(raw: &str) -> Result<String, S3Error> {
    decode(raw, false)
}

/// Decodes `%XX` and `+` as a space. For query strings, where browsers and S3 itself do so.
///
/// # Errors
/// As [`percent_decode`].
pub fn query_decode(raw: &str) -> Result<String, S3Error> {
    decode(raw, true)
}

fn decode(raw: &str, plus_is_space: bool) -> Result<String, S3Error> {
    let bytes = raw.as_bytes();
    if !bytes.iter().any(|b| *b == b'%' || *b == b'+') {
        return Ok(raw.to_owned());
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'%' => {
                let escape = (
                    bytes.get(at + 1).copied().and_then(hex_value),
                    bytes.get(at + 2).copied().and_then(hex_value),
                );
                let (Some(high), Some(low)) = escape else {
                    return Err(Code::InvalidUri.into());
                };
                decoded.push(high << 4 | low);
                at += 3;
            }
            b'+' if plus_is_space => {
                decoded.push(b' ');
                at += 1;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).map_err(|_| Code::InvalidUri.into())
}

/// The value of a hexadecimal digit of either case.
#[must_use]
pub fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0xf] {
            text.push(char::from(HEX_LOWER[usize::from(nibble)]));
        }
    }
    text
}

/// Bytes of hexadecimal text of either case; `None` if it is not that.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| Some(hex_value(*high)? << 4 | hex_value(*low)?))
        .collect()
}

const HEX_LOWER: &[u8; 16] = b"0123456789abcdef";
const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// Which bytes stay as they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keep {
    /// Letters, digits, `-._~`: the `UriEncode` of Signature V4.
    Unreserved,
    /// Those and `/`: paths of Signature V4.
    UnreservedAndSlash,
    /// Letters, digits and `-._*/`: what `encoding-type=url` answers. A space is `%20`, which both
    /// kinds of clients read, those that decode `+` and those that do not.
    Listing,
}

/// Appends `text` in percent encoding.
pub fn percent_encode_into(out: &mut String, text: &str, keep: Keep) {
    for byte in text.bytes() {
        let kept = byte.is_ascii_alphanumeric()
            || match keep {
                Keep::Unreserved => matches!(byte, b'-' | b'.' | b'_' | b'~'),
                Keep::UnreservedAndSlash => matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/'),
                Keep::Listing => matches!(byte, b'-' | b'.' | b'_' | b'*' | b'/'),
            };
        if kept {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for nibble in [byte >> 4, byte & 0xf] {
                out.push(char::from(HEX_UPPER[usize::from(nibble)]));
            }
        }
    }
}

/// `text` in percent encoding.
#[must_use]
pub fn percent_encode(text: &str, keep: Keep) -> String {
    let mut out = String::with_capacity(text.len());
    percent_encode_into(&mut out, text, keep);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_happens_once_and_keeps_everything_else() {
        assert_eq!(
            percent_decode("a%2Fb%252F+c//d/../.").unwrap(),
            "a/b%2F+c//d/../."
        );
        assert_eq!(query_decode("a+b%2Bc%20d").unwrap(), "a b+c d");
        for bad in ["%", "%4", "a%zz", "%ff", "%c3%28"] {
            assert!(percent_decode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn encoding_reads_back_for_every_character() {
        let text: String = (1..0x250).filter_map(char::from_u32).collect();
        for keep in [Keep::Unreserved, Keep::UnreservedAndSlash] {
            let encoded = percent_encode(&text, keep);
            assert!(encoded.is_ascii());
            assert_eq!(percent_decode(&encoded).unwrap(), text);
        }
        let listed = percent_encode(&text, Keep::Listing);
        assert_eq!(query_decode(&listed).unwrap(), text);
        assert_eq!(
            percent_encode("a b/c+d~e*", Keep::Listing),
            "a%20b/c%2Bd%7Ee*"
        );
    }

    #[test]
    fn hexadecimal_reads_back() {
        assert_eq!(unhex(&hex(&[0, 0xab, 0xff])), Some(vec![0, 0xab, 0xff]));
        assert_eq!(unhex("abc"), None);
        assert_eq!(unhex("zz"), None);
    }
}
