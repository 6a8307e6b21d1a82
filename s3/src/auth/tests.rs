//! Signatures against `aws-sigv4`, which signs as the SDKs do, and against the examples that the
//! API reference prints.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use portico_backend::catalog::{AccessKeyId, Credential, Secret, User};

use super::*;
use crate::wire::encoding::{Keep, percent_encode};
use crate::wire::time::{amz_date, imf_fixdate, parse_amz_date};

const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const REGION: &str = "us-east-1";
const HOST: &str = "examplebucket.s3.amazonaws.com";
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The time of the examples in the API reference.
fn example_ms() -> u64 {
    parse_amz_date("20130524T000000Z").unwrap()
}

pub(super) fn credential(enabled: bool) -> Arc<Credential> {
    let user = User {
        id: "id".to_owned(),
        name: "name".to_owned(),
        display_name: "display".to_owned(),
        disabled: !enabled,
        created_ms: 0,
        deleting: false,
    };
    Arc::new(Credential {
        access_key: AccessKeyId::new(ACCESS_KEY).unwrap(),
        secret: Secret::new(SECRET).unwrap(),
        user: Arc::new(user),
        enabled,
    })
}

pub(super) fn lookup(access_key: &str) -> Option<Arc<Credential>> {
    (access_key == ACCESS_KEY).then(|| credential(true))
}

pub(super) fn verifier() -> Verifier {
    Verifier::new(VerifierOptions {
        region: REGION.to_owned(),
        domains: vec!["s3.amazonaws.com".to_owned()],
        signature_v2: true,
    })
}

/// A request that owns its parts.
#[derive(Clone, Debug)]
struct Sent {
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
}

impl Sent {
    fn new(method: Method, path: &str, query: &str, headers: &[(&str, &str)]) -> Self {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        Self {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            headers: map,
        }
    }

    fn head(&self) -> RequestHead<'_> {
        RequestHead {
            method: &self.method,
            path: &self.path,
            query: &self.query,
            headers: &self.headers,
            authority: None,
        }
    }

    fn verify(&self, now_ms: u64) -> Result<Verified, S3Error> {
        verifier().verify(&self.head(), now_ms, &lookup)
    }

    fn code(&self, now_ms: u64) -> Option<Code> {
        self.verify(now_ms).err().map(|error| error.code())
    }

    fn set(&mut self, name: &'static str, value: &str) {
        let value = HeaderValue::from_str(value).unwrap();
        self.headers.insert(name, value);
    }

    /// Lets `aws-sigv4` sign it.
    fn sign(&mut self, at_ms: u64, expires: Option<Duration>) {
        let identity = Credentials::new(ACCESS_KEY, SECRET, None, None, "test").into();
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        if expires.is_some() {
            settings.signature_location = SignatureLocation::QueryParams;
            settings.payload_checksum_kind = PayloadChecksumKind::NoHeader;
            settings.expires_in = expires;
        }
        let params = SigningParams::builder()
            .identity(&identity)
            .region(REGION)
            .name("s3")
            .time(UNIX_EPOCH + Duration::from_millis(at_ms))
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let url = if self.query.is_empty() {
            format!("http://{HOST}{}", self.path)
        } else {
            format!("http://{HOST}{}?{}", self.path, self.query)
        };
        let headers: Vec<(String, String)> = self
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let pairs = headers.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        let body = match expires {
            Some(_) => SignableBody::UnsignedPayload,
            None => SignableBody::Bytes(b""),
        };
        let request = SignableRequest::new(self.method.as_str(), url, pairs, body).unwrap();
        let (instructions, _) = sign(request, &params).unwrap().into_parts();
        let (new_headers, new_params) = instructions.into_parts();
        for header in new_headers {
            self.set(header.name(), header.value());
        }
        for (name, value) in new_params {
            if !self.query.is_empty() {
                self.query.push('&');
            }
            self.query.push_str(name);
            self.query.push('=');
            self.query
                .push_str(&percent_encode(&value, Keep::Unreserved));
        }
    }
}

/// A small seeded generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// Text of characters that have made trouble.
    fn text(&mut self, length_max: usize) -> String {
        const CHARACTERS: &[char] = &[
            'a',
            'Z',
            '0',
            '-',
            '.',
            '_',
            '~',
            '/',
            '/',
            '+',
            ' ',
            '%',
            '&',
            '=',
            '?',
            '#',
            '!',
            '*',
            '\'',
            '(',
            ')',
            ':',
            ';',
            '@',
            ',',
            '$',
            '"',
            '<',
            '\\',
            '\u{e9}',
            '\u{4e2d}',
            '\u{1f600}',
            '\u{7f}',
            '\n',
        ];
        let length = self.below(length_max);
        (0..length)
            .map(|_| CHARACTERS[self.below(CHARACTERS.len())])
            .collect()
    }
}

fn random_request(random: &mut Random) -> Sent {
    let methods = [
        Method::GET,
        Method::PUT,
        Method::HEAD,
        Method::DELETE,
        Method::POST,
    ];
    let method = methods[random.below(methods.len())].clone();
    let path = format!(
        "/{}",
        percent_encode(&random.text(40), Keep::UnreservedAndSlash)
    );
    let parameters: Vec<String> = (0..random.below(5))
        .map(|index| {
            let name = format!(
                "p{}{index}",
                percent_encode(&random.text(5), Keep::Unreserved)
            );
            format!(
                "{name}={}",
                percent_encode(&random.text(20), Keep::Unreserved)
            )
        })
        .collect();
    let mut sent = Sent::new(method, &path, &parameters.join("&"), &[("host", HOST)]);
    for index in 0..random.below(4) {
        let value: String = random
            .text(20)
            .chars()
            .filter(|c| c.is_ascii_graphic() || *c == ' ')
            .collect();
        let name = HeaderName::from_bytes(format!("x-amz-meta-{index}").as_bytes()).unwrap();
        sent.headers
            .insert(name, HeaderValue::from_str(&value).unwrap());
    }
    sent
}

#[test]
fn what_the_sdk_signs_is_accepted_and_nothing_else() {
    let now = example_ms();
    let mut random = Random(0x5eed_0001);
    for round in 0..200 {
        let mut sent = random_request(&mut random);
        let expires = (round % 2 == 0).then_some(Duration::from_secs(60));
        sent.sign(now, expires);
        let verified = sent.verify(now + 1_000).unwrap_or_else(|error| {
            panic!("round {round}: {error:?} for {sent:?}");
        });
        assert!(matches!(verified.identity, Identity::User(_)));

        let mut other = sent.clone();
        other.path.push('x');
        assert_eq!(other.code(now), Some(Code::SignatureDoesNotMatch));
        let mut other = sent.clone();
        let separator = if other.query.is_empty() { "" } else { "&" };
        other.query.push_str(&format!("{separator}added=1"));
        assert_eq!(other.code(now), Some(Code::SignatureDoesNotMatch));
        let mut other = sent.clone();
        other.method = Method::PATCH;
        assert_eq!(other.code(now), Some(Code::SignatureDoesNotMatch));
        let mut other = sent.clone();
        other.set("x-amz-acl", "public-read");
        assert_eq!(other.code(now), Some(Code::AccessDenied), "an added header");
        let mut other = sent.clone();
        other.set("host", "elsewhere");
        assert_eq!(other.code(now), Some(Code::SignatureDoesNotMatch));
    }
}

#[test]
fn another_spelling_of_the_same_request_is_accepted() {
    let now = example_ms();
    let cases = [
        (
            "/a%21b%28c%29~d",
            "prefix=a%20b%2Fc",
            "/a!b(c)~d",
            "prefix=a+b/c",
        ),
        (
            "/a%2Ab",
            "list-type=2&prefix=",
            "/a*b",
            "list-type=2&prefix",
        ),
        ("/~x", "uploads=", "/%7ex", "uploads"),
    ];
    for (path, query, sent_path, sent_query) in cases {
        let mut sent = Sent::new(Method::GET, path, query, &[("host", HOST)]);
        sent.sign(now, None);
        sent.verify(now).unwrap();
        sent.path = sent_path.to_owned();
        sent.query = sent_query.to_owned();
        sent.verify(now).unwrap();
    }
    let mut sent = Sent::new(Method::GET, "/a//../b", "", &[("host", HOST)]);
    sent.sign(now, None);
    sent.path = "/b".to_owned();
    assert_eq!(
        sent.code(now),
        Some(Code::SignatureDoesNotMatch),
        "never normalised"
    );
}

/// "Signature Calculations for the Authorization Header", the four examples.
#[test]
fn the_examples_of_the_reference() {
    let get = Sent::new(
        Method::GET,
        "/test.txt",
        "",
        &[
            ("host", HOST),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", EMPTY_SHA256),
            ("x-amz-date", "20130524T000000Z"),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
        ],
    );
    get.verify(example_ms()).unwrap();
    let put = Sent::new(
        Method::PUT,
        "/test%24file.text",
        "",
        &[
            ("host", HOST),
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            (
                "x-amz-content-sha256",
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
            ),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,\
             Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
        ],
    );
    put.verify(example_ms()).unwrap();
    for (query, signature) in [
        (
            "lifecycle",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "max-keys=2&prefix=J",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ] {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature={signature}"
        );
        let sent = Sent::new(
            Method::GET,
            "/",
            query,
            &[
                ("host", HOST),
                ("x-amz-content-sha256", EMPTY_SHA256),
                ("x-amz-date", "20130524T000000Z"),
                ("authorization", &authorization),
            ],
        );
        sent.verify(example_ms()).unwrap();
    }
}

/// "Authenticating Requests: Using Query Parameters", the example.
#[test]
fn the_example_of_a_presigned_url() {
    let query = "X-Amz-Algorithm=AWS4-HMAC-SHA256\
                 &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
                 &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
                 &X-Amz-Signature=\
                 aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let sent = Sent::new(Method::GET, "/test.txt", query, &[("host", HOST)]);
    let verified = sent.verify(example_ms()).unwrap();
    assert!(matches!(verified.payload, Payload::Unsigned));
    let day_ms = 86_400_000;
    sent.verify(example_ms() + day_ms - 1).unwrap();
    assert_eq!(sent.code(example_ms() + day_ms), Some(Code::AccessDenied));
    assert_eq!(sent.code(example_ms() - day_ms), Some(Code::AccessDenied));
}

#[test]
fn the_validity_of_a_presigned_url_is_bounded() {
    let now = example_ms();
    for (expires, code) in [
        ("604800", Some(Code::SignatureDoesNotMatch)),
        ("604801", Some(Code::AccessDenied)),
        ("0", Some(Code::AccessDenied)),
        ("-7", Some(Code::AccessDenied)),
        ("soon", Some(Code::AuthorizationQueryParametersError)),
    ] {
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={ACCESS_KEY}%2F20130524%2F\
             us-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires={expires}\
             &X-Amz-SignedHeaders=host&X-Amz-Signature=00"
        );
        let sent = Sent::new(Method::GET, "/", &query, &[("host", HOST)]);
        assert_eq!(sent.code(now), code, "{expires}");
    }
}

#[test]
fn faults_of_a_claim_have_the_codes_of_the_api() {
    let now = example_ms();
    let mut good = Sent::new(Method::GET, "/k", "", &[("host", HOST)]);
    good.sign(now, None);
    assert_eq!(good.code(now), None);
    assert_eq!(good.code(now + 900_000), None);
    assert_eq!(good.code(now + 901_000), Some(Code::RequestTimeTooSkewed));
    assert_eq!(good.code(now - 901_000), Some(Code::RequestTimeTooSkewed));
    let authorization = good.header_text("authorization");
    let cases = [
        ("AWS4-HMAC-SHA256", "AWS9", Code::InvalidArgument),
        (ACCESS_KEY, "AKIAUNKNOWN", Code::InvalidAccessKeyId),
        ("us-east-1", "mars", Code::AuthorizationHeaderMalformed),
        ("/s3/", "/ec2/", Code::AuthorizationHeaderMalformed),
        ("20130524", "20130525", Code::AuthorizationHeaderMalformed),
        ("aws4_request", "aws3", Code::AuthorizationHeaderMalformed),
        ("Signature=", "Sig=", Code::AuthorizationHeaderMalformed),
        (
            "SignedHeaders=host;",
            "SignedHeaders=",
            Code::AuthorizationHeaderMalformed,
        ),
        ("Signature=", "Signature=00", Code::SignatureDoesNotMatch),
        ("Signature=", "Signature=zz", Code::SignatureDoesNotMatch),
        (";x-amz-date", "", Code::AccessDenied),
    ];
    for (from, to, code) in cases {
        let mut sent = good.clone();
        sent.set("authorization", &authorization.replace(from, to));
        assert_eq!(sent.code(now), Some(code), "{from} -> {to}");
    }
    for (name, code) in [
        ("x-amz-date", Code::AccessDenied),
        ("x-amz-content-sha256", Code::InvalidRequest),
    ] {
        let mut sent = good.clone();
        sent.headers.remove(name);
        assert_eq!(sent.code(now), Some(code), "{name}");
    }
    let disabled = |_: &str| Some(credential(false));
    let error = verifier().verify(&good.head(), now, &disabled).unwrap_err();
    assert_eq!(error.code(), Code::InvalidAccessKeyId);
}

impl Sent {
    fn header_text(&self, name: &str) -> String {
        self.headers[name].to_str().unwrap().to_owned()
    }
}

#[test]
fn a_request_without_a_signature_is_anonymous() {
    let plain = Sent::new(
        Method::GET,
        "/k",
        "",
        &[("host", HOST), ("authorization", "")],
    );
    let verified = plain.verify(0).unwrap();
    assert!(matches!(verified.identity, Identity::Anonymous));
    assert!(matches!(verified.payload, Payload::Unsigned));
    let chunked = Sent::new(
        Method::PUT,
        "/k",
        "",
        &[
            ("content-encoding", "gzip, aws-chunked"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ],
    );
    let payload = chunked.verify(0).unwrap().payload;
    assert!(matches!(
        payload,
        Payload::Chunked {
            signer: None,
            trailer: true
        }
    ));
    let signed = Sent::new(
        Method::PUT,
        "/k",
        "",
        &[("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")],
    );
    assert_eq!(signed.code(0), Some(Code::InvalidRequest));
}

#[test]
fn the_date_header_stands_in_for_the_amz_date() {
    // botocore does so if the caller sets `Date`.
    let now = example_ms();
    let date = imf_fixdate(now);
    let scope = format!("20130524/{REGION}/s3/aws4_request");
    let request = format!(
        "GET\n/k\n\ndate:{date}\nhost:{HOST}\nx-amz-content-sha256:UNSIGNED-PAYLOAD\n\n\
         date;host;x-amz-content-sha256\nUNSIGNED-PAYLOAD"
    );
    let hash = ring::digest::digest(&ring::digest::SHA256, request.as_bytes());
    let message = format!(
        "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
        amz_date(now),
        crate::wire::encoding::hex(hash.as_ref())
    );
    let key = aws_sigv4::sign::v4::generate_signing_key(
        SECRET,
        UNIX_EPOCH + Duration::from_millis(now),
        REGION,
        "s3",
    );
    let signature = aws_sigv4::sign::v4::calculate_signature(key, message.as_bytes());
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, \
         SignedHeaders=date;host;x-amz-content-sha256, Signature={signature}"
    );
    let sent = Sent::new(
        Method::GET,
        "/k",
        "",
        &[
            ("host", HOST),
            ("date", &date),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
            ("authorization", &authorization),
        ],
    );
    sent.verify(now).unwrap();
}

/// "Signing and Authenticating REST Requests", whose examples use this secret.
#[test]
fn the_examples_of_version_2() {
    let now = parse_http_date("Tue, 27 Mar 2007 19:36:42 +0000").unwrap();
    let host = "awsexamplebucket1.us-west-1.s3.amazonaws.com";
    let old = Verifier::new(VerifierOptions {
        region: REGION.to_owned(),
        domains: vec!["us-west-1.s3.amazonaws.com".to_owned()],
        signature_v2: true,
    });
    let get = Sent::new(
        Method::GET,
        "/photos/puppy.jpg",
        "",
        &[
            ("host", host),
            ("date", "Tue, 27 Mar 2007 19:36:42 +0000"),
            (
                "authorization",
                "AWS AKIAIOSFODNN7EXAMPLE:qgk2+6Sv9/oM7G3qLEjTH1a1l1g=",
            ),
        ],
    );
    old.verify(&get.head(), now, &lookup).unwrap();
    let put = Sent::new(
        Method::PUT,
        "/photos/puppy.jpg",
        "",
        &[
            ("host", host),
            ("content-type", "image/jpeg"),
            ("content-length", "94328"),
            ("date", "Tue, 27 Mar 2007 21:15:45 +0000"),
            (
                "authorization",
                "AWS AKIAIOSFODNN7EXAMPLE:iqRzw+ileNPu1fhspnRs8nOjjIA=",
            ),
        ],
    );
    old.verify(&put.head(), now + 6_000_000, &lookup).unwrap();
    let acl = Sent::new(
        Method::GET,
        "/",
        "acl",
        &[
            ("host", "johnsmith.us-west-1.s3.amazonaws.com"),
            ("date", "Tue, 27 Mar 2007 19:44:46 +0000"),
            (
                "authorization",
                "AWS AKIAIOSFODNN7EXAMPLE:c2WLPFtWHVgbEmeEG93a4cG37dM=",
            ),
        ],
    );
    old.verify(&acl.head(), now, &lookup).unwrap();
    let error = old
        .verify(&acl.head(), now + 3_600_000, &lookup)
        .unwrap_err();
    assert_eq!(error.code(), Code::RequestTimeTooSkewed);
    let mut other = get.clone();
    other.query = "acl".to_owned();
    let error = old.verify(&other.head(), now, &lookup).unwrap_err();
    assert_eq!(error.code(), Code::SignatureDoesNotMatch);

    let mut options = old.options().clone();
    options.signature_v2 = false;
    let error = Verifier::new(options)
        .verify(&get.head(), now, &lookup)
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest, "switched off");
}

/// botocore signs a slash behind the bucket of a path that it doesn't send.
#[test]
fn version_2_may_sign_a_slash_behind_a_bucket_in_the_path() {
    let date = "Tue, 27 Mar 2007 19:36:42 +0000";
    let now = parse_http_date(date).unwrap();
    let verify = |host: &str, path: &str, query: &str, signature: &str| {
        let authorization = format!("AWS AKIAIOSFODNN7EXAMPLE:{signature}");
        let headers = [
            ("host", host),
            ("date", date),
            ("authorization", authorization.as_str()),
        ];
        let old = Verifier::new(VerifierOptions {
            region: REGION.to_owned(),
            domains: vec!["s3.amazonaws.com".to_owned()],
            signature_v2: true,
        });
        let sent = Sent::new(Method::GET, path, query, &headers);
        old.verify(&sent.head(), now, &lookup)
            .map(|_| ())
            .map_err(|error| error.code())
    };
    let refused = Err(Code::SignatureDoesNotMatch);
    let (bare, slashed) = (
        "dqzim7V62C2LMBa9xvGYWSLElCc=",
        "Niqj4tYv3T2QO0zZOFt+xD6HBjI=",
    );
    assert_eq!(verify("10.0.0.1", "/photos", "location", bare), Ok(()));
    assert_eq!(verify("10.0.0.1", "/photos", "location", slashed), Ok(()));
    assert_eq!(verify("10.0.0.1", "/photos/", "location", slashed), Ok(()));
    assert_eq!(verify("10.0.0.1", "/photos/", "location", bare), refused);
    assert_eq!(verify("10.0.0.1", "/photos", "acl", slashed), refused);
    assert_eq!(verify("10.0.0.1", "/photo", "location", slashed), refused);

    // Behind a bucket in the host's name the path is a key, and a slash another key.
    let key = "hoGuK8kfgymVtKqpfC9aBhdTIBI=";
    let host = "johnsmith.s3.amazonaws.com";
    assert_eq!(verify(host, "/photos/", "", key), Ok(()));
    assert_eq!(verify(host, "/photos", "", key), refused);
}

#[test]
fn the_example_of_a_presigned_url_of_version_2() {
    let old = Verifier::new(VerifierOptions {
        region: REGION.to_owned(),
        domains: vec!["s3.amazonaws.com".to_owned()],
        signature_v2: true,
    });
    let signed = Sent::new(
        Method::GET,
        "/photos/puppy.jpg",
        "AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D\
         &Expires=1175139620",
        &[("host", "johnsmith.s3.amazonaws.com")],
    );
    let before = 1_175_139_619_000;
    old.verify(&signed.head(), before, &lookup).unwrap();
    let error = old
        .verify(&signed.head(), before + 1_000, &lookup)
        .unwrap_err();
    assert_eq!(error.code(), Code::AccessDenied);
    let mut careless = signed.clone();
    careless.query = careless.query.replace("%2B", "+");
    old.verify(&careless.head(), before, &lookup).unwrap();
    let mut other = signed.clone();
    other.query = other.query.replace("1175139620", "1975139620");
    let error = old.verify(&other.head(), before, &lookup).unwrap_err();
    assert_eq!(error.code(), Code::SignatureDoesNotMatch);
    let mut other = signed;
    other.query = other.query.replace("&Expires=1175139620", "");
    let error = old.verify(&other.head(), before, &lookup).unwrap_err();
    assert_eq!(error.code(), Code::AccessDenied);
}
