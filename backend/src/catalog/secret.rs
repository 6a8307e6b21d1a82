//! The secret half of an access key, and how fresh ones are drawn.

use std::fmt;
use std::sync::Arc;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::error::CatalogError;
use super::name::{AccessKeyId, NameError};

/// Characters of a secret that somebody chose.
const CHARS_MIN: usize = 8;
const CHARS_MAX: usize = 128;

/// A secret access key: 8 to 128 printable characters of ASCII. Neither `Debug` nor any error shows
/// it, and there is no `Display`.
#[derive(Clone)]
pub struct Secret(Arc<str>);

impl Secret {
    /// # Errors
    /// The rule that `text` breaks.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.len() < CHARS_MIN || text.len() > CHARS_MAX {
            Err(NameError("must have 8 to 128 characters"))
        } else if !text.bytes().all(|c| c.is_ascii_graphic()) {
            Err(NameError("may hold printable ASCII without blanks only"))
        } else {
            Ok(Self(Arc::from(text)))
        }
    }

    /// The secret itself, to derive a signing key from or to hand to its owner once.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares in a time that does not depend on where the two differ.
    #[must_use]
    pub fn matches(&self, other: &str) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"portico compares secrets");
        let tag = hmac::sign(&key, self.0.as_bytes());
        hmac::verify(&key, other.as_bytes(), tag.as_ref()).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

const UPPER_AND_DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const LETTERS_AND_DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const HEX_DIGITS: &[u8] = b"0123456789abcdef";

/// A fresh access key: 20 characters and 40, as clients expect of AWS; 103 and 238 bits.
///
/// # Errors
/// `Random` if the machine gives no random numbers.
pub fn access_key_draw() -> Result<(AccessKeyId, Secret), CatalogError> {
    let id = text_draw(UPPER_AND_DIGITS, 20)?;
    let secret = text_draw(LETTERS_AND_DIGITS, 40)?;
    Ok((
        AccessKeyId::new(&id).expect("letters and digits are a valid id"),
        Secret::new(&secret).expect("letters and digits are a valid secret"),
    ))
}

/// A fresh user id: 64 hexadecimal digits, the form of AWS's canonical ids.
pub(super) fn user_id_draw() -> Result<String, CatalogError> {
    text_draw(HEX_DIGITS, 64)
}

/// `count` characters of `alphabet`, each equally likely: bytes above the greatest multiple of the
/// alphabet's size are thrown away.
fn text_draw(alphabet: &[u8], count: usize) -> Result<String, CatalogError> {
    let random = SystemRandom::new();
    let fair = 256 - 256 % alphabet.len();
    let mut text = String::with_capacity(count);
    let mut pool = [0_u8; 64];
    while text.len() < count {
        random.fill(&mut pool).map_err(|_| CatalogError::Random)?;
        let drawn = pool
            .iter()
            .copied()
            .map(usize::from)
            .filter(|byte| *byte < fair);
        for byte in drawn.take(count - text.len()) {
            text.push(char::from(alphabet[byte % alphabet.len()]));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nowhere() {
        let secret = Secret::new("hunter2hunter2").unwrap();
        assert_eq!(
            format!("{secret:?} {:#?}", Some(&secret)).find("hunter"),
            None
        );
        assert!(secret.matches("hunter2hunter2"));
        assert!(!secret.matches("hunter2hunter3"));
        assert!(!secret.matches("hunter2"));
    }

    #[test]
    fn drawn_keys_have_the_length_of_aws_and_differ() {
        let (id, secret) = access_key_draw().unwrap();
        let (other_id, other_secret) = access_key_draw().unwrap();
        assert_eq!((id.as_str().len(), secret.expose().len()), (20, 40));
        assert_ne!(id, other_id);
        assert!(!secret.matches(other_secret.expose()));
        let user = user_id_draw().unwrap();
        assert_eq!(user.len(), 64);
        assert!(user.bytes().all(|c| HEX_DIGITS.contains(&c)));
    }
}
