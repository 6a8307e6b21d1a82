//! Reads what is in a record, in order and within its bounds.

use bytes::{Buf, Bytes};

use crate::wire::WireError;

/// The rest of a record. Opaque fields are slices of it: they keep the whole record as long as they live.
///
/// Padding must be there, and may be anything: the standard makes it zero for whoever writes (RFC 4506
/// section 4.9) and gives it no meaning, servers that clients are tested with do not look at it, and nothing
/// here depends on it. [`Writer`](super::Writer) writes zeros. What follows the last field is not looked at
/// either, for the same reasons.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that were not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// What was not read yet.
    #[must_use]
    pub fn into_rest(self) -> Bytes {
        self.rest
    }

    /// An unsigned integer. `field` names it in errors, here and below.
    ///
    /// # Errors
    /// `Short`.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// An unsigned hyper integer.
    ///
    /// # Errors
    /// `Short`.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        self.array(field).map(u64::from_be_bytes)
    }

    /// # Errors
    /// `Short`; `Field` if it is neither 0 nor 1.
    pub fn bool(&mut self, field: &'static str) -> Result<bool, WireError> {
        match self.u32(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Field(field)),
        }
    }

    /// Opaque data of a fixed length that is a multiple of four.
    ///
    /// # Errors
    /// `Short`.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        const { assert!(N.is_multiple_of(4), "no padding") };
        let array = *self.rest.first_chunk().ok_or(WireError::Short(field))?;
        self.rest.advance(N);
        Ok(array)
    }

    /// Opaque data or a string of variable length, without its padding.
    ///
    /// # Errors
    /// `Length` if it is longer than `max`, `Short`.
    pub fn opaque(&mut self, field: &'static str, max: u32) -> Result<Bytes, WireError> {
        let length = self.count(field, max)?;
        let padded = length.next_multiple_of(4);
        if self.rest.len() < padded {
            return Err(WireError::Short(field));
        }
        let data = self.rest.split_to(length);
        self.rest.advance(padded - length);
        Ok(data)
    }

    /// How many bytes or items follow. What they take is not looked at.
    ///
    /// # Errors
    /// `Length` if there are more than `max`, `Short`.
    pub fn count(&mut self, field: &'static str, max: u32) -> Result<usize, WireError> {
        let length = self.u32(field)?;
        match length <= max {
            true => Ok(usize::try_from(length).expect("32 bits fit")),
            false => Err(WireError::Length { field, length, max }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &'static [u8]) -> Reader {
        Reader::new(Bytes::from_static(bytes))
    }

    #[test]
    fn fields_lie_where_the_standard_says() {
        let mut reader =
            reader(b"\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\x05hello...\0\0\0\x09");
        assert_eq!(reader.u32("a"), Ok(1));
        assert_eq!(reader.u64("b"), Ok(2));
        assert_eq!(reader.bool("c"), Ok(true));
        // The padding is three dots.
        assert_eq!(reader.opaque("d", 5), Ok(Bytes::from_static(b"hello")));
        assert_eq!(reader.u32("e"), Ok(9));
        assert_eq!(reader.remaining(), 0);
        assert_eq!(reader.u32("f"), Err(WireError::Short("f")));
    }

    #[test]
    fn lengths_are_checked_before_anything_else() {
        let too_long = WireError::Length {
            field: "d",
            length: 6,
            max: 5,
        };
        assert_eq!(reader(b"\0\0\0\x06").opaque("d", 5), Err(too_long));
        let short = Err(WireError::Short("d"));
        assert_eq!(reader(b"\0\0\0\x05hello..").opaque("d", 5), short);
        assert_eq!(reader(b"\xff\xff\xff\xff").opaque("d", u32::MAX), short);
        assert_eq!(reader(b"\0\0\0\x02").bool("b"), Err(WireError::Field("b")));
    }

    #[test]
    fn opaque_data_is_not_copied() {
        let record = Bytes::from(vec![0, 0, 0, 4, 1, 2, 3, 4]);
        let data = Reader::new(record.clone()).opaque("d", 4).unwrap();
        assert_eq!(data.as_ptr(), record[4..].as_ptr());
    }
}
