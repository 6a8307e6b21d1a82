//! Documents that clients send.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portico_s3::wire::document::{completed_parts, delete_list};
use portico_s3::wire::tagging::{Tagged, document, parse_document, parse_header};

fuzz_target!(|body: &[u8]| {
    if let Ok(parts) = completed_parts(body) {
        assert!(parts.is_sorted_by(|a, b| a.number < b.number));
    }
    if let Ok(list) = delete_list(body) {
        assert!((1..=1_000).contains(&list.objects.len()));
    }
    if let Ok(tags) = parse_document(body, Tagged::Bucket) {
        let again = document(&tags);
        assert_eq!(parse_document(again.as_bytes(), Tagged::Bucket), Ok(tags));
    }
    if let Ok(text) = std::str::from_utf8(body) {
        let _ = parse_header(text);
    }
});
