//! Signatures: nobody who lacks the secret gets in.
#![no_main]

use http::{HeaderMap, HeaderValue, Method};
use libfuzzer_sys::fuzz_target;
use portico_s3::auth::{Identity, Verifier, VerifierOptions};
use portico_s3::wire::RequestHead;

fuzz_target!(|input: (&str, &str, Vec<u8>, &str)| {
    let (path, query, authorization, date) = input;
    let verifier = Verifier::new(VerifierOptions {
        region: "us-east-1".to_owned(),
        domains: vec!["s3.test".to_owned()],
        signature_v2: true,
    });
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("b.s3.test"));
    headers.insert(
        "x-amz-content-sha256",
        HeaderValue::from_static("UNSIGNED-PAYLOAD"),
    );
    if let Ok(value) = HeaderValue::from_bytes(&authorization) {
        headers.insert("authorization", value);
    }
    if let Ok(value) = HeaderValue::from_str(date) {
        headers.insert("x-amz-date", value);
    }
    let head = RequestHead {
        method: &Method::GET,
        path,
        query,
        headers: &headers,
        authority: None,
    };
    if let Ok(verified) = verifier.verify(&head, 1_369_353_600_000, &|_| None) {
        assert!(matches!(verified.identity, Identity::Anonymous));
    }
});
