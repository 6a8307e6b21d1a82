//! Writes a message as parts: small fields together, data as it is.

use bytes::{BufMut, Bytes, BytesMut};

use crate::limits::COPIED_BYTES_MAX;

/// A message that is being written.
#[derive(Debug)]
pub struct Writer {
    /// Up to the first data that is a part of its own; in a record, its mark first.
    head: BytesMut,
    parts: Vec<Bytes>,
    /// What follows the last part.
    tail: BytesMut,
    /// Of `parts`.
    parts_bytes: usize,
    /// Bytes before the message, in `head`.
    mark_bytes: usize,
}

impl Writer {
    /// A message for a stream: a record of one fragment.
    #[must_use]
    pub fn record() -> Self {
        let mut writer = Self::datagram();
        writer.mark_bytes = 4;
        writer.head.put_u32(0);
        writer
    }

    /// A message for a datagram, which needs no mark.
    #[must_use]
    pub fn datagram() -> Self {
        Self {
            head: BytesMut::with_capacity(HEAD_BYTES),
            parts: Vec::new(),
            tail: BytesMut::new(),
            parts_bytes: 0,
            mark_bytes: 0,
        }
    }

    pub fn u32(&mut self, value: u32) {
        self.small().put_u32(value);
    }

    pub fn u64(&mut self, value: u64) {
        self.small().put_u64(value);
    }

    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Opaque data of a fixed length that is a multiple of four.
    pub fn array<const N: usize>(&mut self, value: [u8; N]) {
        const { assert!(N.is_multiple_of(4), "no padding") };
        self.small().put_slice(&value);
    }

    /// A number of bytes or items that follow.
    ///
    /// # Panics
    /// If it does not fit 32 bits: what is sent was bounded before.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("a bounded count"));
    }

    /// Short opaque data, or a string: copied.
    ///
    /// # Panics
    /// As `count`.
    pub fn opaque(&mut self, data: &[u8]) {
        self.count(data.len());
        self.small().put_slice(data);
        self.pad(data.len());
    }

    /// What was encoded before, in whole units: copied.
    pub fn encoded(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len().is_multiple_of(4), "whole units");
        self.small().put_slice(bytes);
    }

    /// Opaque data in pieces. It is not copied, except for pieces so short that they are worth no part.
    ///
    /// # Panics
    /// As `count`.
    pub fn data(&mut self, pieces: &[Bytes]) {
        let bytes = pieces.iter().map(Bytes::len).sum();
        self.count(bytes);
        for piece in pieces {
            if piece.len() <= COPIED_BYTES_MAX {
                self.small().put_slice(piece);
                continue;
            }
            self.end_tail();
            self.parts_bytes += piece.len();
            self.parts.push(piece.clone());
        }
        self.pad(bytes);
    }

    /// Bytes of the message so far, without a record mark.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.head.len() - self.mark_bytes + self.parts_bytes + self.tail.len()
    }

    /// The parts that go on the wire in this order.
    ///
    /// # Panics
    /// If a record has 2^31 bytes or more: what is sent was bounded before.
    #[must_use]
    pub fn finish(mut self) -> Vec<Bytes> {
        if self.mark_bytes > 0 {
            let bytes = u32::try_from(self.bytes()).ok();
            let bytes = bytes.filter(|bytes| *bytes < LAST_FRAGMENT);
            let mark = LAST_FRAGMENT | bytes.expect("a bounded record");
            self.head[..4].copy_from_slice(&mark.to_be_bytes());
        }
        self.end_tail();
        let mut parts = Vec::with_capacity(1 + self.parts.len());
        parts.push(self.head.freeze());
        parts.append(&mut self.parts);
        parts
    }

    fn small(&mut self) -> &mut BytesMut {
        match self.parts.is_empty() {
            true => &mut self.head,
            false => &mut self.tail,
        }
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts_bytes += self.tail.len();
            self.parts.push(self.tail.split().freeze());
        }
    }

    fn pad(&mut self, bytes: usize) {
        let padding = bytes.next_multiple_of(4) - bytes;
        self.small().put_bytes(0, padding);
    }
}

/// Marks the last fragment of a record (RFC 5531 section 11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// What most replies take.
const HEAD_BYTES: usize = 384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stays_where_it_is() {
        let long = Bytes::from(vec![7; COPIED_BYTES_MAX + 1]);
        let mut writer = Writer::record();
        writer.u32(1);
        writer.data(&[Bytes::from_static(b"ab"), long.clone(), long.clone()]);
        writer.u32(2);
        let bytes = writer.bytes();
        let parts = writer.finish();
        assert_eq!(parts.len(), 4);
        assert_eq!(parts[1].as_ptr(), long.as_ptr());
        assert_eq!(parts[2].as_ptr(), long.as_ptr());
        let data_bytes = 2 + 2 * long.len();
        assert_eq!(bytes, 4 + 4 + data_bytes.next_multiple_of(4) + 4);
        let whole = parts.concat();
        assert_eq!(whole.len(), 4 + bytes);
        assert_eq!(
            whole[..4],
            (0x8000_0000 | u32::try_from(bytes).unwrap()).to_be_bytes()
        );
        assert_eq!(whole[8..14], *b"\0\0\x04\x04ab");
        // 1,028 bytes need no padding.
        assert_eq!(whole[whole.len() - 5..], [7, 0, 0, 0, 2]);
    }

    #[test]
    fn a_datagram_has_no_mark() {
        let mut writer = Writer::datagram();
        writer.opaque(b"hello");
        writer.bool(true);
        assert_eq!(writer.finish().concat(), b"\0\0\0\x05hello\0\0\0\0\0\0\x01");
    }
}
