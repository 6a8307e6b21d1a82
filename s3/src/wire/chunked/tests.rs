//! The coding against `aws-sigv4`, which signs chunks as the SDKs do, cut at every byte; and
//! bodies that want to do harm.

use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::sign::v4::{SigningParams, calculate_signature, generate_signing_key, sign_chunk};
use ring::hmac;

use super::*;
use crate::limits::CHUNK_BYTES_MAX;
use crate::wire::encoding::hex;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const TIME: &str = "20130524T000000Z";
const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";
/// The signature of the head in the API's example of a chunked upload.
const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";

fn signing_key() -> Vec<u8> {
    let time = UNIX_EPOCH + Duration::from_secs(1_369_353_600);
    generate_signing_key(SECRET, time, "us-east-1", "s3")
        .as_ref()
        .to_vec()
}

fn signer() -> ChunkSigner {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &signing_key());
    ChunkSigner::new(key, TIME, SCOPE, SEED)
}

/// A signed body of these chunks, the last one of no bytes, and the last signature.
fn signed_chunks(chunks: &[&[u8]]) -> (Vec<u8>, String) {
    let identity = Credentials::new("AKIAIOSFODNN7EXAMPLE", SECRET, None, None, "test").into();
    let params = SigningParams::builder()
        .identity(&identity)
        .region("us-east-1")
        .name("s3")
        .time(UNIX_EPOCH + Duration::from_secs(1_369_353_600))
        .settings(())
        .build()
        .unwrap();
    let mut body = Vec::new();
    let mut previous = SEED.to_owned();
    for chunk in chunks.iter().chain([&&b""[..]]) {
        let data = Bytes::copy_from_slice(chunk);
        let signed = sign_chunk(&data, &previous, &params).unwrap();
        previous = signed.signature().to_owned();
        let line = format!("{:x};chunk-signature={previous}\r\n", chunk.len());
        body.extend_from_slice(line.as_bytes());
        if !chunk.is_empty() {
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
    }
    (body, previous)
}

/// The line that signs these trailers.
fn trailer_signature(previous: &str, lines: &str) -> String {
    let hash = digest::digest(&digest::SHA256, lines.as_bytes());
    let message = format!(
        "AWS4-HMAC-SHA256-TRAILER\n{TIME}\n{SCOPE}\n{previous}\n{}",
        hex(hash.as_ref())
    );
    let signature = calculate_signature(signing_key(), message.as_bytes());
    format!("x-amz-trailer-signature:{signature}\r\n\r\n")
}

type Decoded = Result<(Vec<u8>, Vec<(String, String)>), Code>;

/// Decodes a body that comes in pieces of `step` bytes.
fn decode(mut decoder: Decoder, body: &[u8], step: usize) -> Decoded {
    let mut data = Vec::new();
    for piece in body.chunks(step) {
        decoder
            .push(&Bytes::copy_from_slice(piece), &mut data)
            .map_err(|error| error.code())?;
    }
    let trailers = decoder.finish().map_err(|error| error.code())?;
    Ok((data.concat(), trailers))
}

fn plain(trailers: &[&str]) -> Decoder {
    let names = trailers.iter().map(|name| (*name).to_owned()).collect();
    Decoder::new(None, Some(names))
}

#[test]
fn signed_chunks_are_decoded_however_they_are_cut() {
    let (one, two) = (vec![b'a'; 300], vec![b'b'; 77]);
    let (mut body, _) = signed_chunks(&[&one, &two]);
    body.extend_from_slice(b"\r\n");
    let whole = [one, two].concat();
    for step in (1..40).chain([body.len()]) {
        let decoded = decode(Decoder::new(Some(signer()), None), &body, step).unwrap();
        assert_eq!(decoded.0, whole, "pieces of {step}");
    }
    for at in 0..body.len() {
        let mut broken = body.clone();
        broken[at] ^= 0x20;
        let decoder = Decoder::new(Some(signer()), None);
        let decoded = decode(decoder, &broken, body.len());
        // What is left may be the case of a hexadecimal digit, which means the same.
        if let Ok((data, _)) = decoded {
            assert!(body[at].is_ascii_hexdigit(), "byte {at}");
            assert_eq!(data, whole);
        }
        assert!(decode(Decoder::new(Some(signer()), None), &body[..at], 7).is_err());
    }
}

/// "Example: PUT object with chunked upload": 65 KiB in chunks of 64 KiB.
#[test]
fn the_example_of_the_reference() {
    let signatures = [
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    ];
    let mut body = Vec::new();
    for (size, signature) in [65_536, 1_024, 0].into_iter().zip(signatures) {
        body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        body.extend_from_slice(&vec![b'a'; size]);
        body.extend_from_slice(b"\r\n");
    }
    let (data, _) = decode(Decoder::new(Some(signer()), None), &body, 8_192).unwrap();
    assert_eq!(data, vec![b'a'; 66_560]);
}

#[test]
fn trailers_are_signed_too() {
    let (chunks, last) = signed_chunks(&[b"hello"]);
    let line = "x-amz-checksum-crc32c:wdBDMA==";
    let announced = || Some(vec!["x-amz-checksum-crc32c".to_owned()]);
    let decoder = || Decoder::new(Some(signer()), announced());
    let body = |line: &str, end: &str| {
        [&chunks, format!("{line}\r\n").as_bytes(), end.as_bytes()].concat()
    };
    let signature = trailer_signature(&last, &format!("{line}\n"));
    for step in [1, 13, 10_000] {
        let (data, trailers) = decode(decoder(), &body(line, &signature), step).unwrap();
        assert_eq!(data, b"hello");
        let expected = ("x-amz-checksum-crc32c".to_owned(), "wdBDMA==".to_owned());
        assert_eq!(trailers, [expected]);
    }
    let other = body("x-amz-checksum-crc32c:AAAAAA==", &signature);
    assert_eq!(
        decode(decoder(), &other, 9),
        Err(Code::SignatureDoesNotMatch)
    );
    let unsigned = body(line, "\r\n");
    assert_eq!(decode(decoder(), &unsigned, 9), Err(Code::IncompleteBody));
    let nothing = [&chunks, &b"\r\n"[..]].concat();
    assert_eq!(decode(decoder(), &nothing, 9), Err(Code::MalformedTrailer));
}

#[test]
fn unsigned_chunks_bring_their_trailer() {
    let body = b"5\r\nhello\r\n0A\r\n, bigworld\r\n0\r\nX-Amz-Checksum-CRC32: AAAAAA==\r\n\r\n";
    for step in 1..body.len() {
        let (data, trailers) = decode(plain(&["x-amz-checksum-crc32"]), body, step).unwrap();
        assert_eq!(data, b"hello, bigworld");
        assert_eq!(trailers[0].1, "AAAAAA==");
    }
    let without = b"5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(decode(plain(&[]), without, 3).unwrap().0, b"hello");
    let decoder = Decoder::new(None, None);
    assert_eq!(decode(decoder, b"0\r\n\r\n", 3).unwrap().0, b"");
    let line_feeds = b"5\nhello\n0\nx-amz-checksum-crc32:AAAAAA==\n\n";
    let decoded = decode(plain(&["x-amz-checksum-crc32"]), line_feeds, 3);
    assert_eq!(decoded.unwrap().0, b"hello");
}

#[test]
fn malformed_bodies_are_refused() {
    let long_line = [b"5;x=".to_vec(), vec![b'y'; CHUNK_LINE_BYTES_MAX]].concat();
    let huge = format!("{:x}\r\n", CHUNK_BYTES_MAX + 1);
    let endless = "0\r\n".to_owned() + &"x-amz-checksum-crc32:A\r\n".repeat(1_000);
    let long_trailer = "0\r\nx-amz-checksum-crc32:".to_owned() + &"A".repeat(TRAILER_BYTES_MAX);
    let cases: [(&[u8], Code); 15] = [
        (b"x\r\nhello", Code::InvalidRequest),
        (b"\r\nhello", Code::InvalidRequest),
        (b"-1\r\nhello", Code::InvalidRequest),
        (b"+5\r\nhello\r\n0\r\n\r\n", Code::InvalidRequest),
        (b"fffffffffffffffff\r\n", Code::InvalidRequest),
        (b"5\r\nhelloXX0\r\n\r\n", Code::InvalidRequest),
        (b"5\r\nhello\r\n0\r\n\r\nmore", Code::MalformedTrailer),
        (b"5\r\nhello\r\n0\r\n", Code::IncompleteBody),
        (b"5\r\nhel", Code::IncompleteBody),
        (b"0\r\nno-colon\r\n\r\n", Code::MalformedTrailer),
        (b"0\r\nx-amz-meta-a:b\r\n\r\n", Code::MalformedTrailer),
        (&long_line, Code::InvalidRequest),
        (huge.as_bytes(), Code::EntityTooLarge),
        (endless.as_bytes(), Code::MalformedTrailer),
        (long_trailer.as_bytes(), Code::InvalidRequest),
    ];
    for (body, code) in cases {
        let result = decode(plain(&["x-amz-checksum-crc32"]), body, 11);
        let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        assert_eq!(result, Err(code), "{shown}");
    }
    let after = b"0\r\n\r\nmore";
    assert_eq!(decode(plain(&[]), after, 3), Err(Code::InvalidRequest));
    let unsigned = b"5\r\nhello\r\n0\r\n\r\n";
    let decoder = Decoder::new(Some(signer()), None);
    assert_eq!(
        decode(decoder, unsigned, 3),
        Err(Code::SignatureDoesNotMatch)
    );
}
