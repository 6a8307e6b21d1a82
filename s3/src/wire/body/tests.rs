//! Bodies and what their headers state about them.

use http::{HeaderName, HeaderValue};

use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = pairs.iter().map(|(name, value)| {
        let value = HeaderValue::from_str(value).unwrap();
        (HeaderName::from_static(name), value)
    });
    pairs.collect()
}

/// Decodes `body` in pieces of three bytes.
fn decode(
    pairs: &[(&'static str, &str)],
    payload: Payload,
    algorithm: Option<ChecksumAlgorithm>,
    body: &[u8],
) -> Result<BodySummary, Code> {
    let mut decoder =
        BodyDecoder::new(&headers(pairs), payload, algorithm).map_err(|error| error.code())?;
    let mut data = Vec::new();
    for piece in body.chunks(3) {
        decoder
            .push(&Bytes::copy_from_slice(piece), &mut data)
            .map_err(|error| error.code())?;
    }
    let summary = decoder.finish().map_err(|error| error.code())?;
    assert_eq!(data.concat().len() as u64, summary.size);
    Ok(summary)
}

const LENGTH: (&str, &str) = ("content-length", "9");
const BODY: &[u8] = b"123456789";

#[test]
fn checksums_that_match_are_told() {
    for (name, value) in [
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
        ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
        (
            "x-amz-checksum-sha256",
            "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
        ),
    ] {
        let summary = decode(&[LENGTH, (name, value)], Payload::Unsigned, None, BODY).unwrap();
        let checksum = summary.checksum.clone().unwrap();
        assert_eq!(checksum::header_name(checksum.algorithm), name);
        assert_eq!(checksum::value_text(&checksum, 0), value);
        assert_eq!(summary.etag(), "25f9e794323b453885f5181f1b624d0b");
        let wrong = decode(
            &[LENGTH, (name, value)],
            Payload::Unsigned,
            None,
            b"123456780",
        );
        assert_eq!(wrong, Err(Code::BadDigest));
    }
}

#[test]
fn a_wanted_checksum_is_computed_beside_the_stated_one() {
    let stated = ("x-amz-checksum-crc32", "y/Q5Jg==");
    let wanted = Some(ChecksumAlgorithm::Crc64Nvme);
    let summary = decode(&[LENGTH, stated], Payload::Unsigned, wanted, BODY).unwrap();
    assert_eq!(
        checksum::value_text(&summary.checksum.unwrap(), 0),
        "rosUhgp5mIg="
    );
    let wrong = decode(&[LENGTH, stated], Payload::Unsigned, wanted, b"123456780");
    assert_eq!(
        wrong,
        Err(Code::BadDigest),
        "the stated one is checked all the same"
    );
    let none = decode(&[LENGTH], Payload::Unsigned, None, BODY).unwrap();
    assert_eq!(none.checksum, None);
}

#[test]
fn md5_and_sha256_are_checked() {
    let md5 = |value| {
        decode(
            &[LENGTH, ("content-md5", value)],
            Payload::Unsigned,
            None,
            BODY,
        )
    };
    md5("JfnnlDI7RTiF9RgfG2JNCw==").unwrap();
    assert_eq!(md5("JfnnlDI7RTiF9RgfG2JNCA=="), Err(Code::BadDigest));
    for bad in ["", "YWJyYWNhZGFicmE=", "not base64"] {
        assert_eq!(md5(bad), Err(Code::InvalidDigest), "{bad}");
    }
    let hash: [u8; 32] = checksum::of(ChecksumAlgorithm::Sha256, BODY)
        .try_into()
        .unwrap();
    let sha = |body| decode(&[LENGTH], Payload::Sha256(hash), None, body);
    sha(BODY).unwrap();
    assert_eq!(sha(b"123456780"), Err(Code::XAmzContentSha256Mismatch));
}

#[test]
fn lengths_must_be_kept() {
    let plain = |pairs: &[(&'static str, &str)], body| {
        decode(pairs, Payload::Unsigned, None, body).map(|summary| summary.size)
    };
    assert_eq!(plain(&[LENGTH], BODY), Ok(9));
    assert_eq!(plain(&[LENGTH], b"1234"), Err(Code::IncompleteBody));
    assert_eq!(plain(&[LENGTH], b"1234567890"), Err(Code::IncompleteBody));
    assert_eq!(plain(&[], b""), Err(Code::MissingContentLength));
    assert_eq!(plain(&[("transfer-encoding", "chunked")], BODY), Ok(9));
    for bad in ["", "-1", "9 9", "99999999999999999999"] {
        let refused = plain(&[("content-length", bad)], b"");
        assert_eq!(refused, Err(Code::InvalidArgument), "{bad}");
    }
    let huge = plain(&[("content-length", "5368709121")], b"");
    assert_eq!(huge, Err(Code::EntityTooLarge));
}

fn chunked() -> Payload {
    Payload::Chunked {
        signer: None,
        trailer: true,
    }
}

#[test]
fn trailers_bring_the_checksum() {
    let te = ("transfer-encoding", "chunked");
    let decoded = ("x-amz-decoded-content-length", "9");
    let trailer = ("x-amz-trailer", "x-amz-checksum-crc32");
    let body = |sum: &str| format!("9\r\n123456789\r\n0\r\nx-amz-checksum-crc32:{sum}\r\n\r\n");
    let run = |pairs: &[(&'static str, &str)], body: &str| {
        decode(pairs, chunked(), None, body.as_bytes()).map(|summary| summary.checksum)
    };
    let good = run(&[te, decoded, trailer], &body("y/Q5Jg=="))
        .unwrap()
        .unwrap();
    assert_eq!(good.algorithm, ChecksumAlgorithm::Crc32);
    run(&[te, trailer], &body("y/Q5Jg==")).unwrap();
    assert_eq!(
        run(&[te, decoded, trailer], &body("AAAAAA==")),
        Err(Code::BadDigest)
    );
    assert_eq!(
        run(&[te, decoded, trailer], &body("AAAA")),
        Err(Code::BadDigest)
    );
    let shorter = ("x-amz-decoded-content-length", "8");
    assert_eq!(
        run(&[te, shorter, trailer], &body("y/Q5Jg==")),
        Err(Code::IncompleteBody)
    );
    let missing = "9\r\n123456789\r\n0\r\n\r\n";
    assert_eq!(
        run(&[te, decoded, trailer], missing),
        Err(Code::MalformedTrailer)
    );
    let other = ("x-amz-trailer", "x-amz-meta-a");
    assert_eq!(
        run(&[te, decoded, other], missing),
        Err(Code::InvalidRequest)
    );
    let header = ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE=");
    assert_eq!(
        run(&[te, decoded, trailer, header], &body("AAAAAA==")),
        Err(Code::InvalidRequest),
        "the trailer would not be compared beside the header"
    );
    let sdk = ("x-amz-sdk-checksum-algorithm", "CRC32");
    assert_eq!(run(&[te, decoded, sdk], missing), Err(Code::InvalidRequest));
}

#[test]
fn headers_about_an_object_do_not_judge_the_body() {
    let pairs = [
        LENGTH,
        ("x-amz-checksum-crc32", "AAAAAA==-3"),
        ("content-md5", "x"),
    ];
    let refused = BodyDecoder::without_checksums(&headers(&pairs), Payload::Unsigned);
    assert_eq!(refused.unwrap_err().code(), Code::InvalidDigest);
    let mut decoder =
        BodyDecoder::without_checksums(&headers(&pairs[..2]), Payload::Unsigned).unwrap();
    let mut data = Vec::new();
    decoder.push(&Bytes::from_static(BODY), &mut data).unwrap();
    assert_eq!(decoder.finish().unwrap().checksum, None);
}
