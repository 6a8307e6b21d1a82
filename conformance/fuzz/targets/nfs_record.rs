//! The deframer of the stream: the same records however it is cut, and as long as they may be.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portico_nfs::wire::WireError;
use portico_nfs::wire::record::{Deframer, Poll};

/// Few, so that inputs come across it.
const RECORD_BYTES_MAX: u32 = 64;

fn records(stream: &[u8], step: usize) -> (Vec<Bytes>, Option<WireError>) {
    let max = usize::try_from(RECORD_BYTES_MAX).expect("fits");
    let mut deframer = Deframer::new(RECORD_BYTES_MAX);
    let mut found = Vec::new();
    for piece in stream.chunks(step) {
        deframer.buffer().extend_from_slice(piece);
        loop {
            match deframer.poll() {
                Ok(Poll::Record(record)) => {
                    assert!(record.len() <= max);
                    found.push(record);
                }
                Ok(Poll::Wanted(bytes)) => {
                    assert!(bytes > 0 && bytes <= 4 + max);
                    assert!(deframer.buffer().len() < 4 + max);
                    break;
                }
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (step, stream) = input;
    let whole = records(&stream, stream.len().max(1));
    let cut = records(&stream, usize::from(step).max(1));
    assert_eq!(whole, cut);
    let bytes: usize = whole.0.iter().map(Bytes::len).sum();
    assert!(bytes <= stream.len());
});
