//! The `aws-chunked` decoder: never more data than bytes, and the same however the body is cut.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portico_s3::error::S3Error;
use portico_s3::wire::chunked::Decoder;

type Decoded = (Vec<u8>, Vec<(String, String)>);

fn decode(body: &[u8], step: usize) -> Result<Decoded, S3Error> {
    let announced = vec!["x-amz-checksum-crc32".to_owned()];
    let mut decoder = Decoder::new(None, Some(announced));
    let mut data = Vec::new();
    for piece in body.chunks(step) {
        decoder.push(&Bytes::copy_from_slice(piece), &mut data)?;
    }
    Ok((data.concat(), decoder.finish()?))
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (step, body) = input;
    let whole = decode(&body, body.len().max(1));
    let cut = decode(&body, usize::from(step).max(1));
    assert_eq!(whole.is_ok(), cut.is_ok());
    if let (Ok(whole), Ok(cut)) = (whole, cut) {
        assert!(whole.0.len() < body.len());
        assert_eq!(whole, cut);
    }
});
