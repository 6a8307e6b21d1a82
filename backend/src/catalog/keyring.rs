//! The keys that seal the catalog's secrets: AES-256-GCM under one of several named keys.
//!
//! Pure: the program reads and writes the file. To rotate, generate a key, make it active, let
//! [`super::Catalog::reseal`] seal everything anew, then remove the old key. The text form is one
//! line for each fact:
//!
//! ```text
//! portico-keyring 1
//! active k2
//! key k1 <64 hexadecimal digits>
//! key k2 <64 hexadecimal digits>
//! ```

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::codec::{DecodeError, Reader, Writer};

/// Characters of a key's id.
const ID_CHARS_MAX: usize = 32;

/// Keys of one keyring: enough for years of rotation, and a bound on a file from outside.
const KEYS_MAX: usize = 64;

const KEY_BYTES: usize = 32;

const HEADER: &str = "portico-keyring 1";

/// The layout of a sealed secret.
const SEALED_VERSION: u8 = 1;

/// Named keys, one of which seals.
#[derive(Clone)]
pub struct Keyring {
    keys: BTreeMap<String, [u8; KEY_BYTES]>,
    active: String,
}

impl Keyring {
    /// A keyring of one fresh key.
    ///
    /// # Errors
    /// `Invalid` for a bad id, `Random` if the machine gives no random numbers.
    pub fn generate(id: &str) -> Result<Self, KeyringError> {
        check_id(id)?;
        let keys = BTreeMap::from([(id.to_owned(), key_draw()?)]);
        Ok(Self {
            keys,
            active: id.to_owned(),
        })
    }

    /// Reads the text form. Blank lines and lines that begin with `#` do not count.
    ///
    /// # Errors
    /// `Invalid` names the line and what is wrong with it; no error shows a key.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let mut lines = text
            .lines()
            .zip(1_usize..)
            .map(|(line, number)| (line.trim(), number))
            .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        match lines.next() {
            Some((HEADER, _)) => {}
            Some((_, number)) => return Err(invalid(number, "expected \"portico-keyring 1\"")),
            None => return Err(invalid(1, "the keyring is empty")),
        }
        let mut keys = BTreeMap::new();
        let mut active = None;
        for (line, number) in lines {
            let mut words = line.split_ascii_whitespace();
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some("active"), Some(id), None, None) if active.is_none() => {
                    active = Some((id.to_owned(), number));
                }
                (Some("active"), Some(_), None, None) => {
                    return Err(invalid(number, "a second \"active\" line"));
                }
                (Some("key"), Some(id), Some(digits), None) => {
                    check_id(id).map_err(|_| invalid(number, "the id of the key is not valid"))?;
                    let key = key_from_hex(digits)
                        .ok_or_else(|| invalid(number, "a key has 64 hexadecimal digits"))?;
                    if keys.insert(id.to_owned(), key).is_some() {
                        return Err(invalid(number, "a second key of this id"));
                    }
                }
                _ => {
                    let problem = "expected \"active ID\" or \"key ID DIGITS\"";
                    return Err(invalid(number, problem));
                }
            }
            if keys.len() > KEYS_MAX {
                return Err(invalid(number, "more than 64 keys"));
            }
        }
        match active {
            Some((active, _)) if keys.contains_key(&active) => Ok(Self { keys, active }),
            Some((_, number)) => Err(invalid(number, "the active key is not in the keyring")),
            None => Err(invalid(1, "no \"active\" line")),
        }
    }

    /// The text form, which holds the keys themselves.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "# Opens every secret in the store: keep it private, and a copy apart from the store.\n\
             {HEADER}\nactive {}\n",
            self.active
        );
        for (id, key) in &self.keys {
            text.push_str("key ");
            text.push_str(id);
            text.push(' ');
            for byte in key {
                text.push_str(&format!("{byte:02x}"));
            }
            text.push('\n');
        }
        text
    }

    /// Adds a fresh key and makes it the active one.
    ///
    /// # Errors
    /// `Invalid` if the id is bad or taken, or the keyring is full.
    pub fn rotate(&mut self, id: &str) -> Result<(), KeyringError> {
        check_id(id)?;
        if self.keys.contains_key(id) {
            return Err(invalid(0, "the id is taken"));
        }
        if self.keys.len() >= KEYS_MAX {
            return Err(invalid(0, "the keyring is full"));
        }
        self.keys.insert(id.to_owned(), key_draw()?);
        id.clone_into(&mut self.active);
        Ok(())
    }

    /// Removes a key that seals nothing any more; see `Catalog::reseal`.
    ///
    /// # Errors
    /// `Invalid` if it is the active key, `NoSuchKey` if it is not there.
    pub fn remove(&mut self, id: &str) -> Result<(), KeyringError> {
        if id == self.active {
            return Err(invalid(0, "the active key cannot be removed"));
        }
        match self.keys.remove(id) {
            Some(_) => Ok(()),
            None => Err(self.no_such_key(id)),
        }
    }

    /// The id of the key that seals.
    #[must_use]
    pub fn active(&self) -> &str {
        &self.active
    }

    /// The ids of all keys, in ascending order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Seals `plain` with the active key. It opens only with the same `binding`, so a sealed secret
    /// that is moved to another record is useless there.
    ///
    /// # Errors
    /// `Random` if the machine gives no random numbers.
    pub(super) fn seal(&self, plain: &[u8], binding: &[u8]) -> Result<Bytes, KeyringError> {
        let key = self
            .keys
            .get(&self.active)
            .expect("the active key is there");
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| KeyringError::Random)?;
        let mut sealed = plain.to_vec();
        cipher(key)
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(binding),
                &mut sealed,
            )
            .expect("a secret is far shorter than AES-GCM's limit");
        let mut writer = Writer::new(SEALED_VERSION);
        writer.str(&self.active).raw(&nonce).bytes(&sealed);
        Ok(writer.finish())
    }

    /// Opens what `seal` made with the same binding.
    ///
    /// # Errors
    /// `NoSuchKey` names the missing key, `Mismatch` the one that does not fit, `Decode` says that
    /// it is no sealed secret.
    pub(super) fn open(&self, sealed: &[u8], binding: &[u8]) -> Result<Vec<u8>, KeyringError> {
        let parts = SealedParts::decode(sealed)?;
        let Some(key) = self.keys.get(parts.key_id) else {
            return Err(self.no_such_key(parts.key_id));
        };
        let mut buffer = parts.ciphertext.to_vec();
        let nonce = Nonce::assume_unique_for_key(parts.nonce);
        match cipher(key).open_in_place(nonce, Aad::from(binding), &mut buffer) {
            Ok(plain) => Ok(plain.to_vec()),
            Err(_) => Err(KeyringError::Mismatch {
                id: parts.key_id.to_owned(),
            }),
        }
    }

    fn no_such_key(&self, id: &str) -> KeyringError {
        KeyringError::NoSuchKey {
            id: id.to_owned(),
            held: self.keys.keys().cloned().collect(),
        }
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("active", &self.active)
            .field("ids", &self.keys.keys())
            .finish_non_exhaustive()
    }
}

/// The id of the key that sealed `sealed`.
pub(super) fn sealed_with(sealed: &[u8]) -> Result<&str, KeyringError> {
    SealedParts::decode(sealed).map(|parts| parts.key_id)
}

/// Why a keyring cannot be read or does not open a secret. Never shows a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum KeyringError {
    /// The sealed secret itself is damaged.
    Decode(DecodeError),
    /// The text form, an id or a change is not valid; line 0 if it is about no line.
    Invalid { line: usize, problem: &'static str },
    /// The key of this id is another than the one that sealed, or the record was tampered with.
    Mismatch { id: String },
    /// The keyring lacks the key of this id; it holds the others.
    NoSuchKey { id: String, held: Vec<String> },
    /// The machine gives no random numbers.
    Random,
}

impl fmt::Display for KeyringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(error) => write!(f, "the sealed secret is damaged: {error}"),
            Self::Invalid { line: 0, problem } => f.write_str(problem),
            Self::Invalid { line, problem } => write!(f, "line {line}: {problem}"),
            Self::Mismatch { id } => write!(
                f,
                "the keyring's key {id:?} is not the one that sealed the secret, or the record was \
                 altered; restore the keyring that belongs to this store"
            ),
            Self::NoSuchKey { id, held } => write!(
                f,
                "the secret is sealed with the key {id:?}, which the keyring lacks (it holds {}); \
                 restore that key from the keyring's backup",
                held.join(", ")
            ),
            Self::Random => f.write_str("the machine gives no random numbers"),
        }
    }
}

impl std::error::Error for KeyringError {}

impl From<DecodeError> for KeyringError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// A sealed secret taken apart.
struct SealedParts<'a> {
    key_id: &'a str,
    nonce: [u8; NONCE_LEN],
    /// With the tag behind it.
    ciphertext: &'a [u8],
}

impl<'a> SealedParts<'a> {
    fn decode(sealed: &'a [u8]) -> Result<Self, KeyringError> {
        let (mut reader, _) = Reader::new(sealed, SEALED_VERSION)?;
        let key_id = reader.str()?;
        let nonce = reader.raw(NONCE_LEN)?;
        let ciphertext = reader.bytes()?;
        reader.finish()?;
        Ok(Self {
            key_id,
            nonce: nonce.try_into().expect("as many bytes as asked for"),
            ciphertext,
        })
    }
}

fn cipher(key: &[u8; KEY_BYTES]) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, key).expect("a key of 32 bytes");
    LessSafeKey::new(key)
}

fn key_draw() -> Result<[u8; KEY_BYTES], KeyringError> {
    let mut key = [0; KEY_BYTES];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| KeyringError::Random)?;
    Ok(key)
}

fn key_from_hex(digits: &str) -> Option<[u8; KEY_BYTES]> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || pairs.len() != KEY_BYTES {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, [high, low]) in key.iter_mut().zip(pairs) {
        let value = char::from(*high).to_digit(16)? * 16 + char::from(*low).to_digit(16)?;
        *byte = u8::try_from(value).expect("two hexadecimal digits are a byte");
    }
    Some(key)
}

fn check_id(id: &str) -> Result<(), KeyringError> {
    let valid = |c: u8| c.is_ascii_alphanumeric() || b"_-.".contains(&c);
    if id.is_empty() || id.len() > ID_CHARS_MAX || !id.bytes().all(valid) {
        let problem = "a key's id has 1 to 32 letters, digits, '_', '-' or '.'";
        return Err(invalid(0, problem));
    }
    Ok(())
}

fn invalid(line: usize, problem: &'static str) -> KeyringError {
    KeyringError::Invalid { line, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_secret_opens_only_with_its_key_and_binding() {
        let mut keyring = Keyring::generate("k1").unwrap();
        let sealed = keyring.seal(b"the secret", b"user/key").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_eq!(keyring.open(&sealed, b"user/key").unwrap(), b"the secret");
        let mismatch = KeyringError::Mismatch { id: "k1".into() };
        assert_eq!(keyring.open(&sealed, b"user/other"), Err(mismatch.clone()));

        let other = Keyring::generate("k1").unwrap();
        assert_eq!(other.open(&sealed, b"user/key"), Err(mismatch));

        keyring.rotate("k2").unwrap();
        assert_eq!(keyring.open(&sealed, b"user/key").unwrap(), b"the secret");
        let resealed = keyring.seal(b"the secret", b"user/key").unwrap();
        assert_eq!(sealed_with(&resealed), Ok("k2"));
        keyring.remove("k1").unwrap();
        let error = keyring.open(&sealed, b"user/key").unwrap_err();
        assert!(error.to_string().contains("\"k1\""), "{error}");
        assert!(error.to_string().contains("it holds k2"), "{error}");
    }

    #[test]
    fn sealing_twice_gives_different_bytes() {
        let keyring = Keyring::generate("k1").unwrap();
        assert_ne!(
            keyring.seal(b"s", b"").unwrap(),
            keyring.seal(b"s", b"").unwrap()
        );
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let keyring = Keyring::generate("k1").unwrap();
        let sealed = keyring.seal(b"the secret", b"b").unwrap();
        for at in 0..sealed.len() {
            let mut flipped = sealed.to_vec();
            flipped[at] ^= 1;
            assert!(keyring.open(&flipped, b"b").is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_text_form_reads_back() {
        let mut keyring = Keyring::generate("k1").unwrap();
        keyring.rotate("k2").unwrap();
        let read = Keyring::parse(&keyring.to_text()).unwrap();
        assert_eq!(read.active(), "k2");
        assert_eq!(read.ids().collect::<Vec<_>>(), ["k1", "k2"]);
        let sealed = keyring.seal(b"s", b"").unwrap();
        assert_eq!(read.open(&sealed, b"").unwrap(), b"s");
        assert!(!format!("{keyring:?}").contains(&keyring.to_text()[160..180]));
    }

    #[test]
    fn a_bad_text_is_refused_by_line() {
        let key = "0".repeat(64);
        for (text, expected) in [
            ("", "line 1: the keyring is empty"),
            ("keys\n", "line 1: expected \"portico-keyring 1\""),
            ("portico-keyring 1\n", "line 1: no \"active\" line"),
            (
                "portico-keyring 1\nactive k1\n",
                "line 2: the active key is not in the keyring",
            ),
            (
                "portico-keyring 1\nkey k1 00\n",
                "line 2: a key has 64 hexadecimal digits",
            ),
            (
                &format!("portico-keyring 1\n\nkey k1 {key}\nkey k1 {key}\n"),
                "line 4: a second key of this id",
            ),
            (
                "portico-keyring 1\nactive k1\nactive k1\n",
                "line 3: a second \"active\" line",
            ),
            (
                &format!("portico-keyring 1\nkey a/b {key}\n"),
                "line 2: the id of the key is not valid",
            ),
        ] {
            assert_eq!(Keyring::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
