//! Names and numbers of the object model. Each value is valid by construction.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::limits::{OBJECT_NAME_BYTES_MAX, POOL_NAME_BYTES_MAX, XATTR_NAME_BYTES_MAX};

/// A pool and a namespace in it. Cheap to clone.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Pool(Arc<(String, String)>);

impl Pool {
    /// # Panics
    /// If the name is empty, or name or namespace are longer than `POOL_NAME_BYTES_MAX`: both come
    /// from a checked configuration.
    #[must_use]
    pub fn new(name: &str, namespace: &str) -> Self {
        assert!(!name.is_empty(), "a pool has a name");
        assert!(name.len() <= POOL_NAME_BYTES_MAX, "pool name too long");
        assert!(namespace.len() <= POOL_NAME_BYTES_MAX, "namespace too long");
        Self(Arc::new((name.to_owned(), namespace.to_owned())))
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.0
    }

    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.1
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        if !self.namespace().is_empty() {
            write!(f, ":{}", self.namespace())?;
        }
        Ok(())
    }
}

/// The name of an object: text, or text and a number as in `rbd_data.ID.%016x`, which costs no
/// allocation to make. Both ways of making the same name give equal values.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectName {
    prefix: Arc<str>,
    /// Shown as `.` and 16 lower-case hexadecimal digits.
    number: Option<u64>,
}

impl ObjectName {
    /// A name from its text.
    ///
    /// # Panics
    /// If the name is empty or longer than `OBJECT_NAME_BYTES_MAX`; text from outside is checked
    /// before.
    #[must_use]
    pub fn new(text: &str) -> Self {
        assert!(!text.is_empty(), "an object has a name");
        assert!(text.len() <= OBJECT_NAME_BYTES_MAX, "object name too long");
        match split_number(text) {
            Some((prefix, number)) => Self {
                prefix: Arc::from(prefix),
                number: Some(number),
            },
            None => Self {
                prefix: Arc::from(text),
                number: None,
            },
        }
    }

    /// `prefix` and `.%016x` of `number`.
    ///
    /// # Panics
    /// If the name would be longer than `OBJECT_NAME_BYTES_MAX`.
    #[must_use]
    pub fn numbered(prefix: &Arc<str>, number: u64) -> Self {
        assert!(!prefix.is_empty(), "an object has a name");
        assert!(
            prefix.len() + NUMBER_CHARS <= OBJECT_NAME_BYTES_MAX,
            "object name too long"
        );
        Self {
            prefix: Arc::clone(prefix),
            number: Some(number),
        }
    }

    /// Everything before the number.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.number
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "{}.{number:016x}", self.prefix),
            None => write!(f, "{}", self.prefix),
        }
    }
}

/// `.` and 16 digits.
const NUMBER_CHARS: usize = 17;

fn split_number(text: &str) -> Option<(&str, u64)> {
    let at = text.len().checked_sub(NUMBER_CHARS).filter(|at| *at > 0)?;
    let (prefix, tail) = (text.get(..at)?, text.get(at..)?);
    let digits = tail.strip_prefix('.')?;
    let lower_hex = digits
        .bytes()
        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !lower_hex {
        return None;
    }
    u64::from_str_radix(digits, 16)
        .ok()
        .map(|number| (prefix, number))
}

/// An object's address.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectId {
    pub pool: Pool,
    pub name: ObjectName,
}

impl ObjectId {
    #[must_use]
    pub fn new(pool: &Pool, name: ObjectName) -> Self {
        Self {
            pool: pool.clone(),
            name,
        }
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.name)
    }
}

/// The name of an extended attribute.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct XattrName(&'static str);

impl XattrName {
    /// # Panics
    /// If the name is empty or too long: names are constants of the program.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        assert!(!name.is_empty(), "an xattr has a name");
        assert!(name.len() <= XATTR_NAME_BYTES_MAX, "xattr name too long");
        Self(name)
    }

    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The version of an object: greater after each write, and perhaps after its locks changed. An object that is removed and made again
/// goes on above its former versions. 0 is that of an object that does not exist.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version(pub u64);

/// The number of a snapshot of a pool.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SnapId(pub u64);

/// The name under which the store knows one session. Opaque; never used again for another.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(pub Arc<str>);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a listing goes on. Opaque; only the session that gave it understands it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ListCursor(pub Bytes);

impl ListCursor {
    /// The beginning of a listing.
    #[must_use]
    pub fn start() -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_made_either_way_are_equal() {
        let prefix: Arc<str> = Arc::from("rbd_data.10ab");
        let numbered = ObjectName::numbered(&prefix, 0x2f);
        assert_eq!(numbered.to_string(), "rbd_data.10ab.000000000000002f");
        assert_eq!(ObjectName::new(&numbered.to_string()), numbered);
    }

    #[test]
    fn text_that_only_looks_numbered_keeps_its_spelling() {
        for text in [
            "a",
            ".000000000000002f",
            "x.00000000000000AF",
            "x.1",
            "\u{e4}x.0000000000000\u{e9}",
        ] {
            assert_eq!(ObjectName::new(text).to_string(), text);
        }
    }
}
