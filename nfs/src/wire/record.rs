//! Records of a stream (RFC 5531 section 11): fragments, each behind a mark with its length.
//!
//! The deframer holds one record's bytes at most, and says how many more it wants; a length that the peer
//! may not send is an error before anything is kept for it. Records are written by
//! [`Writer::record`](super::xdr::Writer::record), as one fragment each.

use bytes::{Buf, Bytes, BytesMut};

use super::WireError;
use crate::limits::RECORD_FRAGMENTS_MAX;

/// Cuts records from bytes. What comes after an error is no record any more: close the connection.
#[derive(Debug)]
pub struct Deframer {
    record_bytes_max: u32,
    buffer: BytesMut,
    /// The fragments of a record that came before its last one, without their marks.
    gathered: BytesMut,
    /// How many they are.
    fragments: u32,
}

/// What a stream holds so far.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Poll {
    Record(Bytes),
    /// So many bytes at least are missing; it is not more than a record may have.
    Wanted(usize),
}

impl Deframer {
    /// `record_bytes_max`: bytes of a record without its marks.
    #[must_use]
    pub fn new(record_bytes_max: u32) -> Self {
        Self {
            record_bytes_max,
            buffer: BytesMut::new(),
            gathered: BytesMut::new(),
            fragments: 0,
        }
    }

    /// Where bytes of the stream are put.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next record, or how many bytes are missing for it at least. A record that came as one fragment
    /// is not copied.
    ///
    /// # Errors
    /// `RecordLength`, `Fragments`; the stream is lost then.
    pub fn poll(&mut self) -> Result<Poll, WireError> {
        loop {
            let Some(mark) = self.buffer.first_chunk() else {
                return Ok(Poll::Wanted(MARK_BYTES - self.buffer.len()));
            };
            let mark = u32::from_be_bytes(*mark);
            let (is_last, length) = (mark >> 31 == 1, mark & 0x7fff_ffff);
            let length = self.check(is_last, length)?;
            let end = MARK_BYTES + length;
            if self.buffer.len() < end {
                return Ok(Poll::Wanted(end - self.buffer.len()));
            }
            self.buffer.advance(MARK_BYTES);
            let fragment = self.buffer.split_to(length);
            if !is_last {
                self.gathered.extend_from_slice(&fragment);
                self.fragments += 1;
                continue;
            }
            if self.fragments == 0 {
                return Ok(Poll::Record(fragment.freeze()));
            }
            self.fragments = 0;
            self.gathered.extend_from_slice(&fragment);
            return Ok(Poll::Record(std::mem::take(&mut self.gathered).freeze()));
        }
    }

    /// Bytes that the record which is being read may have in the end: more than it has if it comes in
    /// fragments. `None` before its first mark.
    #[must_use]
    pub fn record_bytes_max(&self) -> Option<usize> {
        let max = || usize::try_from(self.record_bytes_max).expect("32 bits fit");
        match self
            .buffer
            .first_chunk()
            .map(|mark| u32::from_be_bytes(*mark))
        {
            Some(mark) if mark >> 31 == 1 => {
                let length = usize::try_from(mark & 0x7fff_ffff).expect("31 bits fit");
                Some((self.gathered.len() + length).min(max()))
            }
            Some(_) => Some(max()),
            None => (self.fragments > 0).then(max),
        }
    }

    fn check(&self, is_last: bool, length: u32) -> Result<usize, WireError> {
        let length = usize::try_from(length).expect("31 bits fit");
        let max = self.record_bytes_max;
        let bytes = u64::try_from(self.gathered.len() + length).expect("64 bits fit");
        if bytes > u64::from(max) {
            return Err(WireError::RecordLength { bytes, max });
        }
        // The last one may still come.
        if !is_last && self.fragments + 1 == RECORD_FRAGMENTS_MAX {
            let max = RECORD_FRAGMENTS_MAX;
            return Err(WireError::Fragments { max });
        }
        Ok(length)
    }
}

const MARK_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(is_last: bool, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).unwrap();
        let mark = u32::from(is_last) << 31 | length;
        [&mark.to_be_bytes()[..], data].concat()
    }

    fn deframer(stream: &[u8]) -> Deframer {
        let mut deframer = Deframer::new(16);
        deframer.buffer().extend_from_slice(stream);
        deframer
    }

    fn record(data: &'static [u8]) -> Poll {
        Poll::Record(Bytes::from_static(data))
    }

    #[test]
    fn records_survive_any_cut() {
        let stream = [
            fragment(true, b"whole"),
            fragment(false, b"in "),
            fragment(false, b""),
            fragment(false, b"piec"),
            fragment(true, b"es"),
            fragment(true, b""),
            fragment(false, b"ended"),
            fragment(true, b""),
        ]
        .concat();
        let expected = [
            record(b"whole"),
            record(b"in pieces"),
            record(b""),
            record(b"ended"),
        ];
        for step in 1..=stream.len() {
            let mut deframer = Deframer::new(16);
            let mut found = Vec::new();
            for piece in stream.chunks(step) {
                deframer.buffer().extend_from_slice(piece);
                while let record @ Poll::Record(_) = deframer.poll().unwrap() {
                    found.push(record);
                }
            }
            assert_eq!(found, expected, "cut at {step}");
            assert_eq!(deframer.poll(), Ok(Poll::Wanted(4)));
        }
    }

    #[test]
    fn what_is_wanted_is_never_too_much() {
        let stream = [fragment(false, b"one"), fragment(true, b"two")].concat();
        let mut deframer = Deframer::new(16);
        let mut at = 0;
        let found = loop {
            match deframer.poll().unwrap() {
                Poll::Record(found) => break found,
                Poll::Wanted(bytes) => {
                    deframer.buffer().extend_from_slice(&stream[at..at + bytes]);
                    at += bytes;
                }
            }
        };
        assert_eq!((&found[..], at), (&b"onetwo"[..], stream.len()));
    }

    #[test]
    fn a_record_that_is_too_long_is_refused_by_its_mark() {
        let too_long = |bytes| Err(WireError::RecordLength { bytes, max: 16 });
        assert_eq!(deframer(&[0x80, 0, 0, 17]).poll(), too_long(17));
        assert_eq!(deframer(&[0xff; 4]).poll(), too_long(0x7fff_ffff));
        let second = [fragment(false, &[0; 16]), vec![0x80, 0, 0, 1]].concat();
        assert_eq!(deframer(&second).poll(), too_long(17));
    }

    #[test]
    fn fragments_are_bounded_even_if_they_are_empty() {
        let max = RECORD_FRAGMENTS_MAX;
        let before_last = usize::try_from(max - 1).unwrap();
        let mut stream = fragment(false, b"").repeat(before_last);
        let mut most = deframer(&[&stream[..], &fragment(true, b"end")].concat());
        assert_eq!(most.poll(), Ok(record(b"end")));
        assert_eq!(most.poll(), Ok(Poll::Wanted(4)));
        stream.extend(fragment(false, b""));
        assert_eq!(deframer(&stream).poll(), Err(WireError::Fragments { max }));
    }

    #[test]
    fn a_record_of_one_fragment_is_not_copied() {
        let mut deframer = deframer(&fragment(true, b"whole"));
        let at = deframer.buffer().as_ptr().wrapping_add(4);
        let Ok(Poll::Record(record)) = deframer.poll() else {
            panic!("a record");
        };
        assert_eq!(record.as_ptr(), at);
    }
}
