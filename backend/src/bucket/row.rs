//! Keys of the rows in a shard, and the order they make.
//!
//! A row's key is one byte for its kind, the S3 key in an encoding that keeps its order, a
//! terminator lower than any byte of an encoded key, and what tells rows of one key apart. So all
//! rows of `a` come before those of `a\x01` and `a/`, and a range of S3 keys is a range of rows.

use bytes::Bytes;

use super::record::{KEY_BYTES_MAX, Key, UploadId};

/// The state of the shard.
pub(super) const STATE: &[u8] = b"s";

/// Kinds of rows that belong to an S3 key, in the order in which they are copied.
pub(super) const KEYED: [u8; 6] = [ENTRY, INLINE, UPLOAD, PART, GARBAGE, REMAINS];
pub(super) const ENTRY: u8 = b'e';
pub(super) const INLINE: u8 = b'd';
pub(super) const UPLOAD: u8 = b'm';
pub(super) const PART: u8 = b'n';
/// Data that nothing links any more.
pub(super) const GARBAGE: u8 = b'g';
/// Part rows of an upload that ended.
pub(super) const REMAINS: u8 = b'r';
/// What changed while the shard was copied.
pub(super) const LOG: u8 = b'l';
/// The last batch of a writer.
pub(super) const MARKER: u8 = b'w';

/// Lower than any byte of an encoded key.
const TERMINATOR: u8 = 0;
/// Bytes 0 and 1 of a key become this and one or two.
const ESCAPE: u8 = 1;

/// Names stored data: the writer that made it and that writer's count.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct DataId {
    pub(super) writer: u64,
    pub(super) counter: u64,
}

/// A range of rows, without its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct RowRange {
    pub(super) start: Bytes,
    pub(super) end: Bytes,
}

/// Keeps the order of texts and of their prefixes.
fn encode<'a>(text: impl Iterator<Item = &'a u8>, out: &mut Vec<u8>) {
    for byte in text {
        match *byte {
            0 | 1 => out.extend_from_slice(&[ESCAPE, byte + 1]),
            plain => out.push(plain),
        }
    }
}

/// The key of a keyed row and what follows its terminator.
pub(super) fn decode_keyed(row: &[u8]) -> Option<(Key, &[u8])> {
    let body = row.get(1..)?;
    let length = body.iter().position(|byte| *byte == TERMINATOR)?;
    let (encoded, rest) = body.split_at_checked(length)?;
    let mut text = Vec::with_capacity(length);
    let mut bytes = encoded.iter();
    while let Some(byte) = bytes.next() {
        match *byte {
            ESCAPE => match bytes.next() {
                Some(1) => text.push(0),
                Some(2) => text.push(1),
                _ => return None,
            },
            plain => text.push(plain),
        }
    }
    let key = Key::new(std::str::from_utf8(&text).ok()?)?;
    Some((key, rest.get(1..)?))
}

/// All rows of one kind of one key.
pub(super) fn key_range(kind: u8, key: &Key) -> RowRange {
    let mut start = row_start(kind, key);
    let mut end = start.clone();
    start.push(TERMINATOR);
    end.push(TERMINATOR + 1);
    RowRange {
        start: start.into(),
        end: end.into(),
    }
}

/// All rows of one kind.
pub(super) fn kind_range(kind: u8) -> RowRange {
    RowRange {
        start: Bytes::copy_from_slice(&[kind]),
        end: Bytes::copy_from_slice(&[kind + 1]),
    }
}

/// The first row that may lie behind this one.
pub(super) fn after_row(row: &[u8]) -> Bytes {
    [row, &[0]].concat().into()
}

/// The first row of a kind at or behind every key with this prefix: `after` it.
pub(super) fn after_prefix(kind: u8, prefix: &str) -> Bytes {
    let mut row = row_at(kind, prefix);
    let last = row.last_mut().expect("a row starts with its kind");
    // No byte of UTF-8 is 255, so the sum stays a byte; an escape's second byte is below 3.
    *last += 1;
    row.into()
}

/// The first row of a kind whose key is not less than `text`.
pub(super) fn row_at(kind: u8, text: &str) -> Vec<u8> {
    let mut row = vec![kind];
    // No key is longer, so what follows decides nothing.
    let bytes = text.as_bytes().iter().take(KEY_BYTES_MAX);
    encode(bytes, &mut row);
    row
}

/// The first row of a kind behind all rows of the key `text`.
pub(super) fn after_key(kind: u8, text: &str) -> Bytes {
    let mut row = row_at(kind, text);
    row.push(TERMINATOR + 1);
    row.into()
}

/// Newer versions come first.
pub(super) fn entry(key: &Key, sequence: u64) -> Bytes {
    keyed(ENTRY, key, &(!sequence).to_be_bytes())
}

pub(super) fn inline(key: &Key, sequence: u64) -> Bytes {
    keyed(INLINE, key, &(!sequence).to_be_bytes())
}

pub(super) fn sequence_of(suffix: &[u8]) -> Option<u64> {
    Some(!u64::from_be_bytes(suffix.try_into().ok()?))
}

pub(super) fn upload(key: &Key, upload: UploadId) -> Bytes {
    keyed(UPLOAD, key, &upload.0.to_be_bytes())
}

pub(super) fn upload_of(suffix: &[u8]) -> Option<UploadId> {
    Some(UploadId(u128::from_be_bytes(suffix.try_into().ok()?)))
}

pub(super) fn remains(key: &Key, upload: UploadId) -> Bytes {
    keyed(REMAINS, key, &upload.0.to_be_bytes())
}

pub(super) fn part(key: &Key, upload: UploadId, number: u16) -> Bytes {
    let mut suffix = [0; 18];
    suffix[..16].copy_from_slice(&upload.0.to_be_bytes());
    suffix[16..].copy_from_slice(&number.to_be_bytes());
    keyed(PART, key, &suffix)
}

/// Part rows of an upload with numbers greater than `after`.
pub(super) fn parts_after(key: &Key, upload: UploadId, after: u16) -> RowRange {
    let mut start = part(key, upload, after).to_vec();
    start.push(0);
    let mut end = part(key, upload, u16::MAX).to_vec();
    end.push(0);
    RowRange {
        start: start.into(),
        end: end.into(),
    }
}

pub(super) fn garbage(key: &Key, data: DataId) -> Bytes {
    let mut suffix = [0; 16];
    suffix[..8].copy_from_slice(&data.writer.to_be_bytes());
    suffix[8..].copy_from_slice(&data.counter.to_be_bytes());
    keyed(GARBAGE, key, &suffix)
}

/// Ascending in the version of the shard before the change, then `index`.
pub(super) fn log(version: u64, index: u32) -> Bytes {
    let mut row = [0; 13];
    row[0] = LOG;
    row[1..9].copy_from_slice(&version.to_be_bytes());
    row[9..].copy_from_slice(&index.to_be_bytes());
    Bytes::copy_from_slice(&row)
}

pub(super) fn marker(writer: u64) -> Bytes {
    let mut row = [0; 9];
    row[0] = MARKER;
    row[1..].copy_from_slice(&writer.to_be_bytes());
    Bytes::copy_from_slice(&row)
}

/// Where a keyed row lies among the keys, to be compared with the bounds of a shard.
pub(super) fn place(row: &[u8]) -> &[u8] {
    row.get(1..).unwrap_or_default()
}

/// The place from which on a shard holds the key of this row.
pub(super) fn place_of_key(row: &[u8]) -> Bytes {
    let body = place(row);
    let length = body.iter().position(|byte| *byte == TERMINATOR);
    Bytes::copy_from_slice(&body[..length.unwrap_or(body.len())])
}

fn keyed(kind: u8, key: &Key, suffix: &[u8]) -> Bytes {
    let mut row = row_start(kind, key);
    row.push(TERMINATOR);
    row.extend_from_slice(suffix);
    row.into()
}

fn row_start(kind: u8, key: &Key) -> Vec<u8> {
    row_at(kind, key.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::OMAP_KEY_BYTES_MAX;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn rows_order_by_key_then_newest_first() {
        let texts = [
            "a",
            "a\0",
            "a\0\0",
            "a\x01",
            "a\x02",
            "a/",
            "a/b",
            "b",
            "\u{10ffff}",
        ];
        let mut rows = Vec::new();
        for text in texts {
            rows.push(entry(&key(text), u64::MAX));
            rows.push(entry(&key(text), 7));
            rows.push(entry(&key(text), 0));
        }
        assert!(rows.is_sorted());
        for (index, row) in rows.iter().enumerate() {
            let (back, suffix) = decode_keyed(row).unwrap();
            assert_eq!(back.as_str(), texts[index / 3]);
            assert!(sequence_of(suffix).is_some());
        }
    }

    #[test]
    fn ranges_hold_what_they_say() {
        let range = key_range(ENTRY, &key("a"));
        let own = entry(&key("a"), 1);
        assert!(range.start <= own && own < range.end);
        for other in ["a\0", "a/", "A", "a\x01"] {
            let row = entry(&key(other), 1);
            assert!(row < range.start || row >= range.end, "{other:?}");
        }
        assert_eq!(after_key(ENTRY, "a"), range.end);
        for (prefix, inside, behind) in [
            ("a", "a\u{10ffff}", "b"),
            ("a\0", "a\0z", "a\x01"),
            ("\x01", "\x01\x01", "\x02"),
        ] {
            let end = after_prefix(ENTRY, prefix);
            assert!(entry(&key(inside), 1) < end, "{prefix:?}");
            assert!(entry(&key(behind), 1) >= end, "{prefix:?}");
        }
        let parts = parts_after(&key("k"), UploadId(5), 3);
        assert!(part(&key("k"), UploadId(5), 3) < parts.start);
        assert!(part(&key("k"), UploadId(5), 4) >= parts.start);
        assert!(part(&key("k"), UploadId(5), 10_000) < parts.end);
        assert!(part(&key("k"), UploadId(6), 1) >= parts.end);
    }

    #[test]
    fn the_longest_key_fits_a_row() {
        let worst = key(&"\0".repeat(1_024));
        assert!(part(&worst, UploadId(u128::MAX), 10_000).len() <= OMAP_KEY_BYTES_MAX);
    }

    #[test]
    fn broken_rows_are_refused() {
        for row in [
            &b""[..],
            b"e",
            b"eab",
            b"e\x00suffix",
            b"ea\x01\x03\x00",
            b"e\xff\x00",
        ] {
            assert!(decode_keyed(row).is_none(), "{row:?}");
        }
    }
}
