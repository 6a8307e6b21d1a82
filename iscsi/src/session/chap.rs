//! CHAP (RFC 7143 section 12.1.3, RFC 1994): pure functions of message, secret and challenge.

use std::fmt::Write as _;
use std::hint::black_box;

use md5::{Digest as _, Md5};
use ring::digest;
use sha3::Sha3_256;

/// Bytes of a challenge in either direction (section 12.1.3: at most 1,024).
pub(crate) const CHALLENGE_BYTES_MAX: usize = 1_024;

/// A hash of the registry "iSCSI CHAP algorithms".
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Algorithm {
    Md5,
    Sha256,
    Sha3256,
}

/// Numbers of the registry, best first. SHA-1 has number 6 and is not offered.
const ALGORITHMS: [(Algorithm, &str); 3] = [
    (Algorithm::Sha3256, "8"),
    (Algorithm::Sha256, "7"),
    (Algorithm::Md5, "5"),
];

impl Algorithm {
    /// The initiator's first choice that is known here: its list is in its order.
    pub(crate) fn choose(offered: &str) -> Option<Self> {
        let known = |offer: &str| {
            let row = ALGORITHMS
                .iter()
                .find(|(_, number)| *number == offer.trim());
            row.map(|(algorithm, _)| *algorithm)
        };
        offered.split(',').find_map(known)
    }

    pub(crate) fn number(self) -> &'static str {
        let row = ALGORITHMS.iter().find(|(algorithm, _)| *algorithm == self);
        row.expect("the table names every algorithm").1
    }

    /// The hash of identifier, secret and challenge in this order.
    pub(crate) fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        match self {
            Self::Md5 => {
                let mut hash = Md5::new();
                hash.update([identifier]);
                hash.update(secret);
                hash.update(challenge);
                hash.finalize().to_vec()
            }
            Self::Sha256 => {
                let mut hash = digest::Context::new(&digest::SHA256);
                hash.update(&[identifier]);
                hash.update(secret);
                hash.update(challenge);
                hash.finish().as_ref().to_vec()
            }
            Self::Sha3256 => {
                let mut hash = Sha3_256::new();
                hash.update([identifier]);
                hash.update(secret);
                hash.update(challenge);
                hash.finalize().to_vec()
            }
        }
    }
}

/// Whether two values are equal, in a time that depends on their lengths alone.
pub(crate) fn is_equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let pairs = one.iter().zip(other);
    pairs.fold(0, |difference, (a, b)| black_box(difference | (a ^ b))) == 0
}

/// A large binary value (section 6.1): `0x` with hexadecimal digits or `0b` with Base64.
pub(crate) fn binary(text: &str) -> Option<Vec<u8>> {
    let (prefix, digits) = text.split_at_checked(2)?;
    let bytes = match prefix {
        "0x" | "0X" => from_hex(digits),
        "0b" | "0B" => from_base64(digits),
        _ => None,
    }?;
    (bytes.len() <= CHALLENGE_BYTES_MAX).then_some(bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes all");
    }
    text
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    let nibbles: Vec<u32> = digits.bytes().map(nibble).collect::<Option<_>>()?;
    // An odd number of digits has a leading zero left out.
    let skipped = nibbles.len() % 2;
    let padded = std::iter::repeat_n(0, skipped).chain(nibbles);
    let padded: Vec<u32> = padded.collect();
    let byte = |pair: &[u32]| u8::try_from(pair[0] << 4 | pair[1]).ok();
    padded.chunks_exact(2).map(byte).collect()
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for digit in text.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers, computed with another program.
    #[test]
    fn responses_are_those_of_the_algorithms() {
        for (algorithm, expected) in [
            (Algorithm::Md5, "0xd36743c441a60f1cb031bdc095af5677"),
            (
                Algorithm::Sha256,
                "0x3531d4643a82048385df150bf6eb437cfd6ede391a86c1c66d9cf5135eb00c2b",
            ),
            (
                Algorithm::Sha3256,
                "0xefb1d413634819da00d1c6232c2fdd5952d3b3d6dd4fcbe894debad9b173948f",
            ),
        ] {
            let response = algorithm.response(1, b"secretsecret", b"challenge");
            assert_eq!(hex(&response), expected);
        }
    }

    #[test]
    fn the_initiators_first_known_choice_is_taken() {
        assert_eq!(Algorithm::choose("5"), Some(Algorithm::Md5));
        assert_eq!(Algorithm::choose("6,7,5"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("8,5"), Some(Algorithm::Sha3256));
        assert_eq!(Algorithm::choose("6"), None);
        assert_eq!(Algorithm::choose(""), None);
        assert_eq!(Algorithm::Sha256.number(), "7");
    }

    #[test]
    fn binary_values_have_two_forms() {
        assert_eq!(binary("0x0aFf"), Some(vec![0x0a, 0xff]));
        assert_eq!(binary("0XaFf"), Some(vec![0x0a, 0xff]));
        assert_eq!(binary("0bTWFu"), Some(b"Man".to_vec()));
        assert_eq!(binary("0bTWE="), Some(b"Ma".to_vec()));
        assert_eq!(binary("0BTQ=="), Some(b"M".to_vec()));
        for wrong in ["", "0", "12", "0xg0", "0b*", "\u{e9}\u{e9}"] {
            assert_eq!(binary(wrong), None, "{wrong}");
        }
        assert_eq!(binary(&format!("0x{}", "00".repeat(1_025))), None);
    }

    #[test]
    fn comparison_sees_every_byte() {
        let value = [7_u8; 16];
        assert!(is_equal(&value, &value));
        assert!(!is_equal(&value, &value[..15]));
        for at in 0..16 {
            let mut other = value;
            other[at] ^= 1;
            assert!(!is_equal(&value, &other));
        }
    }
}
