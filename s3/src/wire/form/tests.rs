//! Forms as browsers send them, cut at every byte, and forms that want to do harm.

use super::*;

const TYPE: &str = "multipart/form-data; boundary=----WebKitFormBoundaryX";

fn part(disposition: &str, value: &str) -> String {
    format!(
        "------WebKitFormBoundaryX\r\nContent-Disposition: form-data; {disposition}\r\n\r\n\
         {value}\r\n"
    )
}

const END: &str = "------WebKitFormBoundaryX--\r\n";

/// Decodes a body that comes in pieces of `step` bytes. Gives the fields and the file.
fn decode(body: &[u8], step: usize) -> Result<(FormFields, Vec<u8>), Code> {
    let mut decoder = FormDecoder::new(TYPE).map_err(|error| error.code())?;
    let mut file = Vec::new();
    for piece in body.chunks(step) {
        decoder
            .push(&Bytes::copy_from_slice(piece), &mut file)
            .map_err(|error| error.code())?;
    }
    let fields = decoder.finish().map_err(|error| error.code())?;
    Ok((fields, file.concat()))
}

#[test]
fn fields_and_file_come_apart_however_they_are_cut() {
    let data = "a\r\n--b\r\n------WebKitFormBoundaryY\r\r\n\r\n";
    let body = part("name=\"key\"; filename=\"key\"", "up/${filename}")
        + &part("name=\"x-amz-meta-A\"", "\u{e9}\r\n")
        + &part("NAME=policy", "")
        + &part("name=\"file\"; filename=\"C:\\dir\\a \\\"b\\\".txt\"", data)
        + &part("name=\"later\"", "ignored")
        + END;
    for step in (1..60).chain([body.len()]) {
        let (fields, file) = decode(body.as_bytes(), step).unwrap();
        assert_eq!(file, data.as_bytes(), "pieces of {step}");
        assert_eq!(fields.key().as_deref(), Some("up/a \"b\".txt"));
        assert_eq!(fields.first("X-AMZ-META-a"), Some("\u{e9}\r\n"));
        assert_eq!(fields.first("policy"), Some(""));
        assert_eq!(fields.first("later"), None);
    }
    let mut decoder = FormDecoder::new(TYPE).unwrap();
    let begin = body.find("a\r\n--b").unwrap();
    let mut file = Vec::new();
    let head = Bytes::copy_from_slice(&body.as_bytes()[..begin - 1]);
    decoder.push(&head, &mut file).unwrap();
    assert_eq!(decoder.fields(), None, "not before the file begins");
    let next = Bytes::copy_from_slice(&body.as_bytes()[begin - 1..begin]);
    decoder.push(&next, &mut file).unwrap();
    assert!(decoder.fields().is_some());
}

#[test]
fn a_preamble_and_blanks_behind_boundaries_are_fine() {
    let body = "preamble\r\n".to_owned()
        + &part("name=\"key\"", "k").replacen("X\r\n", "X \t\r\n", 1)
        + &part("name=\"file\"", "")
        + END;
    let (fields, file) = decode(body.as_bytes(), 5).unwrap();
    assert_eq!((fields.first("key"), file.len()), (Some("k"), 0));
}

#[test]
fn fields_that_are_headers_become_headers() {
    let fields = FormFields::of(&[
        ("Content-Type", "text/plain"),
        ("x-amz-meta-a", "\u{e9}"),
        ("Expires", "never"),
        ("key", "k"),
        ("x-amz-meta-b", "line\nfeed"),
        ("x-amz-bad name", "v"),
    ]);
    let headers = fields.headers();
    assert_eq!(headers.len(), 3);
    assert_eq!(headers["x-amz-meta-a"].as_bytes(), "\u{e9}".as_bytes());
}

#[test]
fn malformed_forms_are_refused() {
    let malformed = Code::MalformedPostRequest;
    let file = part("name=\"file\"", "data");
    let no_name = part("filename=\"x\"", "v");
    let cases: [(String, Code); 8] = [
        (String::new(), malformed),
        ("x".repeat(100), malformed),
        ("x".repeat(FORM_HEADER_BYTES_MAX * 2), malformed),
        (part("name=\"key\"", "k"), malformed),
        (part("name=\"key\"", "k") + END, Code::InvalidArgument),
        (no_name + &file + END, malformed),
        (file.clone(), malformed),
        (
            "------WebKitFormBoundaryX\r\nnocolon\r\n\r\nv\r\n".to_owned() + END,
            malformed,
        ),
    ];
    for (body, code) in cases {
        let shown = body[..body.len().min(60)].to_owned();
        assert_eq!(decode(body.as_bytes(), 7), Err(code), "{shown}");
    }
    for content_type in [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=x",
        "text/plain; boundary=x",
        &format!("multipart/form-data; boundary={}", "x".repeat(71)),
    ] {
        let error = FormDecoder::new(content_type).unwrap_err();
        assert_eq!(error.code(), malformed, "{content_type}");
    }
}

#[test]
fn fields_are_bounded() {
    let too_long = Code::MaxPostPreDataLengthExceeded;
    let long = part("name=\"a\"", &"x".repeat(FORM_FIELDS_BYTES_MAX + 1));
    assert_eq!(decode(long.as_bytes(), 1_000), Err(too_long));
    let endless = part("name=\"a\"", &"x".repeat(2 * FORM_FIELDS_BYTES_MAX));
    let endless = &endless.as_bytes()[..FORM_FIELDS_BYTES_MAX + 400];
    assert_eq!(
        decode(endless, 1_000),
        Err(too_long),
        "before its end comes"
    );
    let many = part("name=\"a\"", "").repeat(FORM_FIELDS_MAX + 2);
    assert_eq!(decode(many.as_bytes(), 1_000), Err(too_long));
    let header = format!("name=\"{}\"", "x".repeat(FORM_HEADER_BYTES_MAX * 2));
    let refused = decode(part(&header, "").as_bytes(), 1_000);
    assert_eq!(refused, Err(Code::MalformedPostRequest));
}

/// What follows the last boundary has no bound, and nobody waits for it.
#[test]
fn a_form_that_ends_without_a_file_is_refused_at_once() {
    let body = part("name=\"key\"", "k") + END;
    let mut decoder = FormDecoder::new(TYPE).unwrap();
    let refused = decoder.push(&Bytes::from(body), &mut Vec::new());
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
}
