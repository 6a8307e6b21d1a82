//! The deframer and the PDUs: the same frames however a stream is cut, and what is read is written
//! as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portico_iscsi::wire::deframe::{Deframer, Digests, Frame, Poll};
use portico_iscsi::wire::request::Request;

const DATA_BYTES_MAX: u32 = 4_096;

fn frames(stream: &[u8], step: usize, digests: Digests) -> (Vec<Frame>, bool) {
    let mut deframer = Deframer::new(DATA_BYTES_MAX);
    deframer.set_limits(digests, DATA_BYTES_MAX);
    let mut found = Vec::new();
    for piece in stream.chunks(step) {
        deframer.buffer().extend_from_slice(piece);
        loop {
            match deframer.poll() {
                Ok(Poll::Frame(frame)) => found.push(frame),
                Ok(Poll::Wanted(bytes)) => {
                    assert!(bytes > 0 && bytes <= 8_192);
                    break;
                }
                Err(_) => return (found, true),
            }
        }
    }
    (found, false)
}

fuzz_target!(|input: (bool, bool, u8, Vec<u8>)| {
    let (header, data, step, stream) = input;
    let digests = Digests { header, data };
    let whole = frames(&stream, stream.len().max(1), digests);
    let cut = frames(&stream, usize::from(step).max(1), digests);
    assert_eq!(whole, cut);
    for frame in whole.0 {
        let Ok(request) = Request::decode(frame) else {
            continue;
        };
        let mut again = request.encode();
        if let Request::DataOut(pdu) = &request {
            again.has_wrong_data = pdu.has_wrong_data;
        }
        assert_eq!(Request::decode(again), Ok(request));
    }
});
