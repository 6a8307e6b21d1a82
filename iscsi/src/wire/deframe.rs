//! A stream of bytes cut into frames: header, additional headers, data, with their digests.
//!
//! The deframer holds one frame's bytes at most, and says how many more it wants; a length that the
//! peer may not send is an error before anything is kept for it.

use std::ops::Range;

use bytes::{Buf as _, Bytes, BytesMut};
use portico_backend::codec::crc32c;

use super::WireError;
use super::header::{BHS_BYTES, Header};
use crate::limits::COPIED_BYTES_MAX;

/// Which parts of a PDU have a CRC32C behind them (RFC 7143 section 13.1).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Digests {
    pub header: bool,
    pub data: bool,
}

/// A PDU before its fields are looked at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame {
    pub header: Header,
    /// The additional header segments, padding and all.
    pub ahs: Bytes,
    /// The data segment without its padding.
    pub data: Bytes,
    /// The data does not match its digest. At error recovery level 0 the PDU is rejected, and its
    /// task ends (RFC 7143 section 7.7).
    pub has_wrong_data: bool,
}

/// Cuts frames from bytes. What comes after an error is no frame any more: close the connection.
#[derive(Debug)]
pub struct Deframer {
    digests: Digests,
    data_bytes_max: u32,
    buffer: BytesMut,
}

impl Deframer {
    /// `data_bytes_max`: `MaxRecvDataSegmentLength` as this side declared it, in bytes.
    #[must_use]
    pub fn new(data_bytes_max: u32) -> Self {
        Self {
            digests: Digests::default(),
            data_bytes_max,
            buffer: BytesMut::new(),
        }
    }

    /// What holds from the next frame on, once the login has ended.
    pub fn set_limits(&mut self, digests: Digests, data_bytes_max: u32) {
        self.digests = digests;
        self.data_bytes_max = data_bytes_max;
    }

    /// Where bytes of the stream are put.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next frame, or how many bytes are missing for it at least.
    ///
    /// # Errors
    /// `DataSegmentLength`, `HeaderDigest`; the stream is lost then.
    pub fn poll(&mut self) -> Result<Poll, WireError> {
        let Some(header) = self.buffer.first_chunk::<BHS_BYTES>() else {
            return Ok(Poll::Wanted(BHS_BYTES - self.buffer.len()));
        };
        let header = Header(*header);
        let data_bytes = header.data_segment_length();
        // Without a digest a length is all there is to be trusted; with one it is looked at first.
        if !self.digests.header {
            self.check_length(data_bytes)?;
        }
        let head = BHS_BYTES + header.ahs_bytes();
        let head_end = head + self.digest_bytes(self.digests.header);
        if self.buffer.len() < head_end {
            return Ok(Poll::Wanted(head_end - self.buffer.len()));
        }
        if self.digests.header {
            if crc32c(&self.buffer[..head]).to_le_bytes() != self.buffer[head..head_end] {
                return Err(WireError::HeaderDigest);
            }
            self.check_length(data_bytes)?;
        }
        let data_bytes = usize::try_from(data_bytes).expect("24 bits fit");
        let padded = data_bytes.next_multiple_of(4);
        let has_digest = self.digests.data && data_bytes > 0;
        let end = head_end + padded + self.digest_bytes(has_digest);
        if self.buffer.len() < end {
            return Ok(Poll::Wanted(end - self.buffer.len()));
        }
        let data_end = head_end + padded;
        // The digest covers the padding (RFC 7143 section 11.2.3).
        let has_wrong_data = has_digest
            && crc32c(&self.buffer[head_end..data_end]).to_le_bytes() != self.buffer[data_end..end];
        let ahs = Bytes::copy_from_slice(&self.buffer[BHS_BYTES..head]);
        Ok(Poll::Frame(Frame {
            header,
            ahs,
            data: self.take_data(head_end..head_end + data_bytes, end),
            has_wrong_data,
        }))
    }

    /// The data segment of a frame that ends at `end`, which goes. A short one by itself: as a part of
    /// what was read with it, it would keep all of that for as long as its command lasts.
    fn take_data(&mut self, range: Range<usize>, end: usize) -> Bytes {
        if range.len() > COPIED_BYTES_MAX {
            return self.buffer.split_to(end).freeze().slice(range);
        }
        let data = Bytes::copy_from_slice(&self.buffer[range]);
        self.buffer.advance(end);
        data
    }

    fn check_length(&self, bytes: u32) -> Result<(), WireError> {
        let max = self.data_bytes_max;
        match bytes <= max {
            true => Ok(()),
            false => Err(WireError::DataSegmentLength { bytes, max }),
        }
    }

    fn digest_bytes(&self, present: bool) -> usize {
        if present { 4 } else { 0 }
    }
}

/// What a stream holds so far.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Poll {
    Frame(Frame),
    /// So many bytes at least are missing.
    Wanted(usize),
}

impl Frame {
    /// The parts that go on the wire in this order: head with its digest, data, and what follows the
    /// data. The data is not copied.
    #[must_use]
    pub fn encode(&self, digests: Digests) -> [Bytes; 3] {
        // Exactly: bytes made of a vector with room to spare cost another allocation.
        let digest = if digests.header { 4 } else { 0 };
        let mut head = Vec::with_capacity(BHS_BYTES + self.ahs.len() + digest);
        head.extend_from_slice(&self.header.0);
        head.extend_from_slice(&self.ahs);
        if digests.header {
            let sum = crc32c(&head);
            head.extend_from_slice(&sum.to_le_bytes());
        }
        let padding = self.data.len().next_multiple_of(4) - self.data.len();
        let mut tail = vec![0; padding];
        if digests.data && !self.data.is_empty() {
            let sum = match padding {
                0 => crc32c(&self.data),
                _ => crc32c(&[&self.data[..], &tail].concat()),
            };
            tail.extend_from_slice(&sum.to_le_bytes());
        }
        [head.into(), self.data.clone(), tail.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(data: &[u8], ahs: &[u8]) -> Frame {
        let mut header = Header::new(0x01);
        header.set_data_segment_length(data.len());
        header.set_u8(4, u8::try_from(ahs.len() / 4).unwrap());
        Frame {
            header,
            ahs: Bytes::copy_from_slice(ahs),
            data: Bytes::copy_from_slice(data),
            has_wrong_data: false,
        }
    }

    fn all_digests() -> [Digests; 4] {
        [(false, false), (false, true), (true, false), (true, true)]
            .map(|(header, data)| Digests { header, data })
    }

    #[test]
    fn frames_survive_any_cut() {
        let frames = [
            frame(b"", b""),
            frame(b"hello", b"ahs."),
            frame(&[7; 64], b""),
        ];
        for digests in all_digests() {
            let stream: Vec<u8> = frames
                .iter()
                .flat_map(|f| f.encode(digests).concat())
                .collect();
            for step in 1..stream.len() {
                let mut deframer = Deframer::new(64);
                deframer.set_limits(digests, 64);
                let mut found = Vec::new();
                for piece in stream.chunks(step) {
                    deframer.buffer().extend_from_slice(piece);
                    while let Poll::Frame(one) = deframer.poll().unwrap() {
                        found.push(one);
                    }
                }
                assert_eq!(found, frames);
                assert_eq!(deframer.poll(), Ok(Poll::Wanted(BHS_BYTES)));
            }
        }
    }

    #[test]
    fn what_is_wanted_is_never_too_much() {
        let stream = frame(b"hello", b"ahs.").encode(Digests::default()).concat();
        let mut deframer = Deframer::new(64);
        let mut at = 0;
        let found = loop {
            match deframer.poll().unwrap() {
                Poll::Frame(found) => break found,
                Poll::Wanted(bytes) => {
                    deframer.buffer().extend_from_slice(&stream[at..at + bytes]);
                    at += bytes;
                }
            }
        };
        assert_eq!(
            (found.data, at),
            (Bytes::from_static(b"hello"), stream.len())
        );
    }

    #[test]
    fn a_data_segment_longer_than_declared_is_refused_by_its_header() {
        let long = frame(&[0; 65], b"");
        let mut deframer = Deframer::new(64);
        deframer.buffer().extend_from_slice(&long.header.0);
        let too_long = WireError::DataSegmentLength { bytes: 65, max: 64 };
        assert_eq!(deframer.poll(), Err(too_long));
    }

    #[test]
    fn flipped_bits_are_seen() {
        let digests = Digests {
            header: true,
            data: true,
        };
        let whole = frame(b"hello", b"ahs.").encode(digests).concat();
        for byte in 0..whole.len() {
            let mut stream = whole.clone();
            stream[byte] ^= 0x10;
            let mut deframer = Deframer::new(1 << 24);
            deframer.set_limits(digests, 1 << 24);
            // A length that was flipped up waits for bytes that have to come.
            deframer.buffer().extend_from_slice(&stream);
            deframer.buffer().extend_from_slice(&[0; 2_048]);
            match deframer.poll() {
                Ok(Poll::Frame(frame)) => assert!(frame.has_wrong_data, "byte {byte}"),
                other => assert_eq!(other, Err(WireError::HeaderDigest), "byte {byte}"),
            }
        }
    }

    #[test]
    fn a_short_data_segment_keeps_nothing_else() {
        let short = frame(&[7; 512], b"").encode(Digests::default()).concat();
        let mut deframer = Deframer::new(64 << 10);
        let buffer = deframer.buffer();
        buffer.reserve(64 << 10);
        buffer.extend_from_slice(&short);
        buffer.extend_from_slice(&short);
        let Ok(Poll::Frame(first)) = deframer.poll() else {
            panic!("no frame");
        };
        assert!(first.data.is_unique());
    }

    /// The digest of 32 zeros, as RFC 7143 Appendix A gives it.
    #[test]
    fn the_digest_is_that_of_the_standard() {
        let digests = Digests {
            header: false,
            data: true,
        };
        let parts = frame(&[0; 32], b"").encode(digests);
        assert_eq!(parts[2][..], [0xaa, 0x36, 0x91, 0x8a]);
    }
}
