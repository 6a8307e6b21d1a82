//! Forms: the same however the body is cut.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portico_s3::error::S3Error;
use portico_s3::wire::form::{FormDecoder, FormFields};

fn decode(body: &[u8], step: usize) -> Result<(FormFields, Vec<u8>), S3Error> {
    let mut decoder = FormDecoder::new("multipart/form-data; boundary=b")?;
    let mut file = Vec::new();
    for piece in body.chunks(step) {
        decoder.push(&Bytes::copy_from_slice(piece), &mut file)?;
    }
    Ok((decoder.finish()?, file.concat()))
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (step, body) = input;
    let whole = decode(&body, body.len().max(1));
    let cut = decode(&body, usize::from(step).max(1));
    assert_eq!(whole.is_ok(), cut.is_ok());
    if let (Ok(whole), Ok(cut)) = (whole, cut) {
        let _ = whole.0.headers();
        assert_eq!(whole, cut);
    }
});
