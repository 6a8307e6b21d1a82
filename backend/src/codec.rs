//! Records on disk: little-endian numbers, bounded byte strings, a version tag first.
//!
//! A value of the omap always starts with its version tag, so no stored value is empty (see
//! `Guard::OmapIs`). Reading never trusts a length: it fails before it allocates.

use bytes::Bytes;

/// Why bytes are not the record they should be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DecodeError {
    /// Bytes are left behind the record's end.
    TrailingBytes,
    /// The record ends before its last field.
    Truncated,
    /// A field holds a value outside its range; the text names the field.
    Field(&'static str),
    /// The version tag is unknown: a newer program wrote the record.
    Version(u8),
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TrailingBytes => f.write_str("bytes are left behind the record"),
            Self::Truncated => f.write_str("the record is cut short"),
            Self::Field(name) => write!(f, "the field {name} is out of range"),
            Self::Version(tag) => write!(f, "the record has the unknown version {tag}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Builds a record.
#[derive(Clone, Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A record that starts with this version tag.
    #[must_use]
    pub fn new(version: u8) -> Self {
        Self(vec![version])
    }

    /// A fragment without a version tag, to be put into a record.
    #[must_use]
    pub fn fragment() -> Self {
        Self::default()
    }

    /// The same for one of about so many bytes, which then costs one allocation.
    #[must_use]
    pub fn sized(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Goes on behind what `bytes` holds.
    #[must_use]
    pub fn after(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub fn u128(&mut self, value: u128) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    /// Length in 4 bytes, then the bytes.
    ///
    /// # Panics
    /// If there are 4 GiB or more: no field comes near.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.u32(u32::try_from(value.len()).expect("a field is smaller than 4 GiB"));
        self.raw(value)
    }

    pub fn str(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    /// Number of items in 4 bytes; the items follow.
    ///
    /// # Panics
    /// If there are 2^32 or more.
    pub fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).expect("a list has fewer than 2^32 items"))
    }

    /// Bytes without a length.
    pub fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend_from_slice(value);
        self
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }

    #[must_use]
    pub fn finish(self) -> Bytes {
        Bytes::from(self.0)
    }
}

/// Takes a record apart.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// # Errors
    /// `Version` unless the record starts with a tag of `1..=newest`; the tag is returned with the
    /// reader so that older layouts stay readable.
    pub fn new(record: &'a [u8], newest: u8) -> Result<(Self, u8), DecodeError> {
        let mut reader = Self(record);
        let version = reader.u8()?;
        if version == 0 || version > newest {
            return Err(DecodeError::Version(version));
        }
        Ok((reader, version))
    }

    /// A reader of bytes without a version tag.
    #[must_use]
    pub fn fragment(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn u128(&mut self) -> Result<u128, DecodeError> {
        self.array().map(u128::from_le_bytes)
    }

    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Field("a flag")),
        }
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.u32()?).map_err(|_| DecodeError::Truncated)?;
        self.raw(length)
    }

    pub fn str(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Field("a text"))
    }

    /// A number of items of at least `item_bytes_min` bytes each, so never more than the record can
    /// hold.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.u32()?).map_err(|_| DecodeError::Truncated)?;
        match count.checked_mul(item_bytes_min.max(1)) {
            Some(bytes) if bytes <= self.0.len() => Ok(count),
            _ => Err(DecodeError::Truncated),
        }
    }

    pub fn raw(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self
            .0
            .split_at_checked(length)
            .ok_or(DecodeError::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    #[must_use]
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// # Errors
    /// `TrailingBytes` if the record goes on.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::TrailingBytes)
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self.0.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.0 = tail;
        Ok(*head)
    }
}

/// CRC-32C (Castagnoli), the checksum of every stored thing.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(sum).expect("a CRC of 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_ends_where_it_should() {
        let mut writer = Writer::new(1);
        writer
            .u16(7)
            .bool(true)
            .str("key")
            .u128(u128::MAX)
            .count(2)
            .u8(1)
            .u8(2);
        let record = writer.finish();
        let (mut reader, version) = Reader::new(&record, 1).unwrap();
        assert_eq!(version, 1);
        assert_eq!(reader.u16(), Ok(7));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.str(), Ok("key"));
        assert_eq!(reader.u128(), Ok(u128::MAX));
        assert_eq!(reader.count(1), Ok(2));
        assert_eq!(reader.clone().finish(), Err(DecodeError::TrailingBytes));
        assert_eq!(reader.raw(2), Ok(&[1, 2][..]));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn lengths_beyond_the_record_fail_before_allocating() {
        let huge = [1, 0xff, 0xff, 0xff, 0xff];
        let (mut reader, _) = Reader::new(&huge, 1).unwrap();
        assert_eq!(reader.clone().bytes(), Err(DecodeError::Truncated));
        assert_eq!(reader.count(1), Err(DecodeError::Truncated));
    }

    #[test]
    fn unknown_versions_are_named() {
        assert_eq!(Reader::new(&[9], 1).unwrap_err(), DecodeError::Version(9));
        assert_eq!(Reader::new(&[0], 1).unwrap_err(), DecodeError::Version(0));
        assert_eq!(Reader::new(&[], 1).unwrap_err(), DecodeError::Truncated);
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
