//! Policies and forms: what the API answers to each fault.

use super::*;
use crate::auth::tests::{lookup, verifier};
use crate::wire::time::{iso8601, parse_amz_date};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const NOW_MS: u64 = 1_451_347_200_000;

fn sign_v2(policy: &str) -> (String, String) {
    let encoded = STANDARD.encode(policy);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes());
    let tag = ring::hmac::sign(&key, encoded.as_bytes());
    (encoded, STANDARD.encode(tag.as_ref()))
}

/// A form with this policy, signed, and further fields.
fn check(policy: &str, more: &[(&str, &str)]) -> Result<FormGrant, S3Error> {
    let (encoded, signature) = sign_v2(policy);
    let mut fields = vec![
        ("key", "foo.txt"),
        ("AWSAccessKeyId", "AKIAIOSFODNN7EXAMPLE"),
        ("signature", signature.as_str()),
        ("pOLICy", encoded.as_str()),
    ];
    fields.extend(more);
    let fields = FormFields::of(&fields);
    verifier().verify_form(&fields, "bucket", "foo.txt", NOW_MS, &lookup)
}

fn policy(conditions: &str) -> String {
    let expiration = iso8601(NOW_MS + 60_000);
    format!("{{\"expiration\": \"{expiration}\", \"conditions\": [{conditions}]}}")
}

const BASE: &str = r#"{"bUcKeT": "bucket"}, ["StArTs-WiTh", "$KeY", "foo"]"#;

fn code(policy: &str, more: &[(&str, &str)]) -> Option<Code> {
    check(policy, more).err().map(|error| error.code())
}

#[test]
fn a_form_that_keeps_to_its_policy_is_granted() {
    let grant = check(
        &policy(&format!(
            r#"{BASE}, {{"acl": "private"}}, ["starts-with", "$Content-Type", ""],
               ["eq", "$x-amz-meta-a", "b"], ["content-length-range", 5, "10"]"#
        )),
        &[
            ("aCl", "private"),
            ("x-amz-meta-a", "b"),
            ("x-ignore-foo", "bar"),
            ("x-amz-checksum-crc32", "AAAAAA=="),
        ],
    )
    .unwrap();
    assert!(matches!(grant.identity, Identity::User(_)));
    assert_eq!(grant.length_range, Some((5, 10)));
    assert!(grant.check_size(5).is_ok() && grant.check_size(10).is_ok());
    assert_eq!(
        grant.check_size(4).unwrap_err().code(),
        Code::EntityTooSmall
    );
    assert_eq!(
        grant.check_size(11).unwrap_err().code(),
        Code::EntityTooLarge
    );
}

#[test]
fn conditions_that_do_not_hold_are_denied() {
    let denied = Some(Code::AccessDenied);
    assert_eq!(code(&policy(BASE), &[]), None);
    assert_eq!(
        code(&policy(BASE), &[("acl", "private")]),
        denied,
        "not named"
    );
    let failing = [
        r#"{"bucket": "other"}, ["starts-with", "$key", "foo"]"#,
        r#"{"bucket": "bucket"}, ["starts-with", "$key", "Foo"]"#,
        r#"{"bucket": "bucket"}, {"key": "bar"}"#,
        r#"["starts-with", "$key", "foo"]"#,
        r#"{"bucket": "bucket"}"#,
    ];
    for conditions in failing {
        assert_eq!(code(&policy(conditions), &[]), denied, "{conditions}");
    }
    let missing = format!(r#"{BASE}, ["starts-with", "$acl", "p"]"#);
    assert_eq!(code(&policy(&missing), &[]), denied);
    let empty = format!(r#"{BASE}, ["eq", "$x-amz-meta-foo", ""]"#);
    assert_eq!(code(&policy(&empty), &[("x-amz-meta-foo", "bar")]), denied);
    let expired = policy(BASE).replace(&iso8601(NOW_MS + 60_000), &iso8601(NOW_MS));
    assert_eq!(code(&expired, &[]), denied);
}

#[test]
fn policies_that_cannot_be_read_are_invalid() {
    let good = policy(BASE);
    for bad in [
        good.replace("expiration", "EXPIRATION"),
        good.replace("conditions", "CONDITIONS"),
        good.replace('T', " "),
        good.replace('}', ""),
        policy("{}"),
        policy("\"text\""),
        policy(r#"{"bucket": "bucket", "key": "k"}"#),
        policy(r#"{"bucket": ["bucket"]}"#),
        policy(&format!(r#"{BASE}, ["content-length-range", -1, 0]"#)),
        policy(&format!(r#"{BASE}, ["content-length-range", 0]"#)),
        policy(&format!(r#"{BASE}, ["matches", "$key", "x"]"#)),
        policy(&format!(r#"{BASE}, ["eq", "key", "x"]"#)),
        format!("{{\"expiration\": \"{}\"}}", iso8601(NOW_MS + 60_000)),
        "[]".to_owned(),
        "[".repeat(10_000),
    ] {
        assert_eq!(code(&bad, &[]), Some(Code::InvalidPolicyDocument), "{bad}");
    }
}

#[test]
fn the_signature_covers_the_policy() {
    let (encoded, signature) = sign_v2(&policy(BASE));
    let verify = |fields: &[(&str, &str)]| {
        verifier()
            .verify_form(
                &FormFields::of(fields),
                "bucket",
                "foo.txt",
                NOW_MS,
                &lookup,
            )
            .map(|grant| matches!(grant.identity, Identity::Anonymous))
            .map_err(|error| error.code())
    };
    let key = ("key", "foo.txt");
    let id = ("AWSAccessKeyId", "AKIAIOSFODNN7EXAMPLE");
    let policy_field = ("policy", encoded.as_str());
    let signed = ("signature", signature.as_str());
    assert_eq!(verify(&[key, id, policy_field, signed]), Ok(false));
    assert_eq!(verify(&[key]), Ok(true), "no policy: anonymous");
    assert_eq!(verify(&[key, id, policy_field]), Err(Code::InvalidArgument));
    assert_eq!(
        verify(&[key, policy_field, signed]),
        Err(Code::InvalidArgument)
    );
    assert_eq!(verify(&[key, id, signed]), Err(Code::InvalidArgument));
    let other = ("AWSAccessKeyId", "foo");
    assert_eq!(
        verify(&[key, other, policy_field, signed]),
        Err(Code::InvalidAccessKeyId)
    );
    let longer = format!("{encoded} ");
    assert_eq!(
        verify(&[key, id, ("policy", &longer), signed]),
        Err(Code::SignatureDoesNotMatch)
    );
}

/// "Browser-Based Upload using HTTP POST (Using AWS Signature Version 4)", the example.
#[test]
fn the_example_of_the_reference() {
    let encoded = "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiLA0KICAiY29uZGl0aW9ucyI6I\
                   FsNCiAgICB7ImJ1Y2tldCI6ICJzaWd2NGV4YW1wbGVidWNrZXQifSwNCiAgICBbInN0YXJ0cy13aXRoIi\
                   wgIiRrZXkiLCAidXNlci91c2VyMS8iXSwNCiAgICB7ImFjbCI6ICJwdWJsaWMtcmVhZCJ9LA0KICAgIHs\
                   ic3VjY2Vzc19hY3Rpb25fcmVkaXJlY3QiOiAiaHR0cDovL3NpZ3Y0ZXhhbXBsZWJ1Y2tldC5zMy5hbWF6\
                   b25hd3MuY29tL3N1Y2Nlc3NmdWxfdXBsb2FkLmh0bWwifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRDb\
                   250ZW50LVR5cGUiLCAiaW1hZ2UvIl0sDQogICAgeyJ4LWFtei1tZXRhLXV1aWQiOiAiMTQzNjUxMjM2NT\
                   EyNzQifSwNCiAgICB7IngtYW16LXNlcnZlci1zaWRlLWVuY3J5cHRpb24iOiAiQUVTMjU2In0sDQogICA\
                   gWyJzdGFydHMtd2l0aCIsICIkeC1hbXotbWV0YS10YWciLCAiIl0sDQoNCiAgICB7IngtYW16LWNyZWRl\
                   bnRpYWwiOiAiQUtJQUlPU0ZPRE5ON0VYQU1QTEUvMjAxNTEyMjkvdXMtZWFzdC0xL3MzL2F3czRfcmVxd\
                   WVzdCJ9LA0KICAgIHsieC1hbXotYWxnb3JpdGhtIjogIkFXUzQtSE1BQy1TSEEyNTYifSwNCiAgICB7In\
                   gtYW16LWRhdGUiOiAiMjAxNTEyMjlUMDAwMDAwWiIgfQ0KICBdDQp9";
    let fields = FormFields::of(&[
        ("key", "user/user1/${filename}"),
        ("acl", "public-read"),
        (
            "success_action_redirect",
            "http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html",
        ),
        ("Content-Type", "image/jpeg"),
        ("x-amz-meta-uuid", "14365123651274"),
        ("x-amz-server-side-encryption", "AES256"),
        (
            "X-Amz-Credential",
            "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request",
        ),
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Date", "20151229T000000Z"),
        ("x-amz-meta-tag", ""),
        ("Policy", encoded),
        (
            "X-Amz-Signature",
            "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e",
        ),
    ]);
    let verify = |bucket: &str, key: &str, now_ms: u64| {
        verifier()
            .verify_form(&fields, bucket, key, now_ms, &lookup)
            .map_err(|error| error.code())
    };
    let now = parse_amz_date("20151229T000000Z").unwrap();
    let key = "user/user1/photo.jpg";
    verify("sigv4examplebucket", key, now).unwrap();
    let denied = |result: Result<FormGrant, Code>| result.unwrap_err() == Code::AccessDenied;
    assert!(denied(verify("other", key, now)));
    assert!(denied(verify(
        "sigv4examplebucket",
        "user/user2/photo.jpg",
        now
    )));
    assert!(denied(verify(
        "sigv4examplebucket",
        key,
        now + 2 * 86_400_000
    )));
}
