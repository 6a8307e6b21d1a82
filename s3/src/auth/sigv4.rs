//! Signature Version 4 (S3 API, "Authenticating requests (AWS Signature Version 4)").
//!
//! The signature is checked over the very bytes of path and query. A client that sends another
//! spelling than it signs (`!` for the `%21` that it signed) is met half-way: if the bytes as sent
//! do not match, the same path and query in the API's own encoding are tried. Both spellings mean
//! the same request here, as escapes are decoded exactly once and nothing else is normalised.

use std::fmt::Write as _;

use ring::{digest, hmac};

use super::signing_key::SigningKeys;
use super::{
    Identity, Lookup, Verified, Verifier, access_denied, check_skew, credential, header_time,
    raw_parameters,
};
use crate::error::{Code, S3Error};
use crate::limits::{
    CLOCK_SKEW_MS_MAX, PRESIGN_SECONDS_MAX, QUERY_PARAMETERS_MAX, SIGNED_HEADERS_MAX,
};
use crate::wire::encoding::{
    Keep, hex, percent_decode, percent_encode, percent_encode_into, query_decode, unhex,
};
use crate::wire::header::text_of;
use crate::wire::payload::ChunkSigner;
use crate::wire::time::{amz_date, iso8601, parse_amz_date};
use crate::wire::{Payload, RequestHead};

pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";

const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";
const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
const SIGNED_CHUNKS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_CHUNKS_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";

/// A signature with everything it claims.
struct Claim {
    access_key: String,
    scope: Scope,
    /// Lower-case, ascending.
    signed_headers: Vec<String>,
    /// Hexadecimal.
    signature: String,
    time_ms: u64,
    payload_hash: String,
}

/// `20130524/us-east-1/s3/aws4_request`.
struct Scope {
    date: String,
    region: String,
    service: String,
}

/// Where a signature stands decides how its errors are called.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Place {
    Header,
    Query,
}

impl Place {
    fn malformed(self, message: impl Into<String>) -> S3Error {
        let code = match self {
            Self::Header => Code::AuthorizationHeaderMalformed,
            Self::Query => Code::AuthorizationQueryParametersError,
        };
        S3Error::new(code).with_message(message.into())
    }
}

/// Checks `Authorization: AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=...`.
pub(super) fn verify_header(
    verifier: &Verifier,
    head: &RequestHead<'_>,
    authorization: &str,
    now_ms: u64,
    lookup: Lookup<'_>,
) -> Result<Verified, S3Error> {
    let claim = header_claim(head, authorization)?;
    check_scope(&claim, &verifier.options.region, Place::Header)?;
    check_skew(claim.time_ms, now_ms)?;
    finish(verifier, head, &claim, Place::Header, lookup)
}

/// Checks `X-Amz-Algorithm`, `X-Amz-Credential`, ... of a presigned URL.
pub(super) fn verify_query(
    verifier: &Verifier,
    head: &RequestHead<'_>,
    now_ms: u64,
    lookup: Lookup<'_>,
) -> Result<Verified, S3Error> {
    let (claim, expires_s) = query_claim(head)?;
    check_scope(&claim, &verifier.options.region, Place::Query)?;
    check_expiry(claim.time_ms, expires_s, now_ms)?;
    finish(verifier, head, &claim, Place::Query, lookup)
}

/// How the body is coded where no signature of the head covers it.
pub(super) fn payload_without_chain(head: &RequestHead<'_>) -> Result<Payload, S3Error> {
    match head.header("x-amz-content-sha256") {
        // Over TLS, botocore sends trailers also with old signatures and with none at all, and
        // then without this header.
        None if is_aws_chunked(head) => Ok(Payload::Chunked {
            signer: None,
            trailer: head.headers.contains_key("x-amz-trailer"),
        }),
        None => Ok(Payload::Unsigned),
        Some(value) => payload(value, || None),
    }
}

fn is_aws_chunked(head: &RequestHead<'_>) -> bool {
    let coded = head.header("content-encoding").is_some_and(|codings| {
        codings
            .split(',')
            .any(|coding| coding.trim().eq_ignore_ascii_case("aws-chunked"))
    });
    coded
        && (head.headers.contains_key("x-amz-decoded-content-length")
            || head.headers.contains_key("x-amz-trailer"))
}

fn header_claim(head: &RequestHead<'_>, authorization: &str) -> Result<Claim, S3Error> {
    let place = Place::Header;
    let fields = authorization
        .strip_prefix(ALGORITHM)
        .unwrap_or_default()
        .trim_start();
    let field = |name: &str| {
        fields
            .split(',')
            .find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='))
            .filter(|value| !value.is_empty())
            .ok_or_else(|| {
                place.malformed(format!(
                    "The authorization header is malformed; the authorization header requires \
                     three components: Credential, SignedHeaders, and Signature. {name} is missing."
                ))
            })
    };
    let (access_key, scope) = parse_credential(field("Credential")?, place)?;
    let signed_headers = parse_signed_headers(field("SignedHeaders")?, place)?;
    let signature = field("Signature")?.to_owned();
    let payload_hash = head.header("x-amz-content-sha256").ok_or_else(|| {
        S3Error::new(Code::InvalidRequest)
            .with_message("Missing required header for this request: x-amz-content-sha256")
    })?;
    Ok(Claim {
        access_key,
        scope,
        signed_headers,
        signature,
        time_ms: header_time(head)?,
        payload_hash: payload_hash.to_owned(),
    })
}

fn query_claim(head: &RequestHead<'_>) -> Result<(Claim, u64), S3Error> {
    let place = Place::Query;
    let parameter = |name: &'static str| -> Result<String, S3Error> {
        let raw = raw_parameters(head.query)
            .find(|(given, _)| *given == name)
            .map(|(_, value)| value)
            .ok_or_else(|| {
                place.malformed(format!(
                    "Query-string authentication version 4 requires the X-Amz-Algorithm, \
                     X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and \
                     X-Amz-Expires parameters. {name} is missing."
                ))
            })?;
        query_decode(raw)
    };
    if parameter("X-Amz-Algorithm")? != ALGORITHM {
        return Err(place.malformed("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
    }
    let (access_key, scope) = parse_credential(&parameter("X-Amz-Credential")?, place)?;
    let signed_headers = parse_signed_headers(&parameter("X-Amz-SignedHeaders")?, place)?;
    let time_ms = parse_amz_date(&parameter("X-Amz-Date")?).ok_or_else(|| {
        place.malformed("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
    })?;
    let expires_s = parse_expires(&parameter("X-Amz-Expires")?)?;
    let payload_hash = match parameter("X-Amz-Content-Sha256") {
        Ok(hash) => hash,
        Err(_) if signed_headers.iter().any(|h| h == "x-amz-content-sha256") => head
            .header("x-amz-content-sha256")
            .unwrap_or(UNSIGNED_PAYLOAD)
            .to_owned(),
        Err(_) => UNSIGNED_PAYLOAD.to_owned(),
    };
    let claim = Claim {
        access_key,
        scope,
        signed_headers,
        signature: parameter("X-Amz-Signature")?,
        time_ms,
        payload_hash,
    };
    Ok((claim, expires_s))
}

/// Seconds of validity. Out of bounds is refused like an expired URL: with 403.
fn parse_expires(text: &str) -> Result<u64, S3Error> {
    match text.parse::<i64>() {
        Ok(seconds) => match u64::try_from(seconds) {
            Ok(seconds) if seconds <= PRESIGN_SECONDS_MAX => Ok(seconds),
            Ok(_) => Err(access_denied(
                "X-Amz-Expires must be less than a week (in seconds); that is, the given \
                 X-Amz-Expires must be less than 604800 seconds",
            )),
            Err(_) => Err(access_denied("X-Amz-Expires must be non-negative")),
        },
        Err(_) => Err(Place::Query.malformed("X-Amz-Expires should be a number")),
    }
}

fn check_expiry(time_ms: u64, expires_s: u64, now_ms: u64) -> Result<(), S3Error> {
    if time_ms > now_ms.saturating_add(CLOCK_SKEW_MS_MAX) {
        return Err(access_denied("Request is not yet valid"));
    }
    let end_ms = time_ms.saturating_add(expires_s * 1_000);
    if now_ms >= end_ms {
        return Err(access_denied("Request has expired")
            .with_field("X-Amz-Expires", expires_s.to_string())
            .with_field("Expires", iso8601(end_ms))
            .with_field("ServerTime", iso8601(now_ms)));
    }
    Ok(())
}

fn parse_credential(text: &str, place: Place) -> Result<(String, Scope), S3Error> {
    // Access keys may hold a slash, so the scope is taken from the end.
    let mut parts = text.rsplitn(5, '/');
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let parsed = (next(), next(), next(), next(), next());
    let (Some("aws4_request"), Some(service), Some(region), Some(date), Some(access_key)) = parsed
    else {
        return Err(place.malformed(
            "The Credential is mal-formed; expecting \
             \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".",
        ));
    };
    let scope = Scope {
        date: date.to_owned(),
        region: region.to_owned(),
        service: service.to_owned(),
    };
    Ok((access_key.to_owned(), scope))
}

fn parse_signed_headers(text: &str, place: Place) -> Result<Vec<String>, S3Error> {
    let names: Vec<String> = text.split(';').map(str::to_ascii_lowercase).collect();
    if names.len() > SIGNED_HEADERS_MAX || names.iter().any(String::is_empty) {
        return Err(place.malformed("The list of signed headers is malformed."));
    }
    if !names.iter().any(|name| name == "host") {
        return Err(place.malformed("The signed headers must include host."));
    }
    Ok(names)
}

fn check_scope(claim: &Claim, region: &str, place: Place) -> Result<(), S3Error> {
    let Scope {
        date,
        region: given,
        service,
    } = &claim.scope;
    if given != region {
        return Err(place
            .malformed(format!(
                "The authorization header is malformed; the region '{given}' is wrong; expecting \
                 '{region}'"
            ))
            .with_field("Region", region));
    }
    if service != "s3" {
        return Err(place.malformed(format!(
            "The authorization header is malformed; incorrect service \"{service}\". This \
             endpoint belongs to \"s3\"."
        )));
    }
    if amz_date(claim.time_ms).get(..8) != Some(date.as_str()) {
        return Err(place.malformed(format!(
            "The authorization header is malformed; Invalid credential date \"{date}\". This date \
             is not the same as X-Amz-Date."
        )));
    }
    Ok(())
}

/// What remains once the claim is known to be one for here and now.
fn finish(
    verifier: &Verifier,
    head: &RequestHead<'_>,
    claim: &Claim,
    place: Place,
    lookup: Lookup<'_>,
) -> Result<Verified, S3Error> {
    check_all_signed(head, claim, place)?;
    let credential = credential(&claim.access_key, lookup)?;
    let scope = claim.scope.text();
    let key = verifier.keys.key(&credential, &scope);
    check_signature(head, claim, place, &key)?;
    let time = amz_date(claim.time_ms);
    let signer = || Some(ChunkSigner::new(key, &time, &scope, &claim.signature));
    let payload = if place == Place::Query && claim.payload_hash == UNSIGNED_PAYLOAD {
        payload_without_chain(head)?
    } else {
        payload(&claim.payload_hash, signer)?
    };
    Ok(Verified {
        identity: Identity::User(credential),
        payload,
    })
}

/// Headers that say what to do must be covered, or somebody on the way could add one.
fn check_all_signed(head: &RequestHead<'_>, claim: &Claim, place: Place) -> Result<(), S3Error> {
    let unsigned: Vec<&str> = head
        .headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.starts_with("x-amz-") && *name != "x-amz-cf-id")
        // Says nothing that a presigned URL would not allow anyway.
        .filter(|name| place == Place::Header || *name != "x-amz-content-sha256")
        .filter(|name| !claim.signed_headers.iter().any(|signed| signed == name))
        .collect();
    if unsigned.is_empty() {
        return Ok(());
    }
    Err(
        access_denied("There were headers present in the request which were not signed")
            .with_field("HeadersNotSigned", unsigned.join(", ")),
    )
}

fn check_signature(
    head: &RequestHead<'_>,
    claim: &Claim,
    place: Place,
    key: &hmac::Key,
) -> Result<(), S3Error> {
    let given = unhex(&claim.signature).unwrap_or_default();
    let matches = |request: &str| {
        hmac::verify(key, string_to_sign(claim, request).as_bytes(), &given).is_ok()
    };
    let as_sent = canonical_request(head, claim, place, Spelling::AsSent)?;
    if matches(&as_sent) {
        return Ok(());
    }
    match canonical_request(head, claim, place, Spelling::Canonical) {
        Ok(request) if request != as_sent && matches(&request) => Ok(()),
        Ok(_) | Err(_) => Err(S3Error::new(Code::SignatureDoesNotMatch)
            .with_field("AWSAccessKeyId", &claim.access_key)
            .with_field("StringToSign", string_to_sign(claim, &as_sent))
            .with_field("SignatureProvided", &claim.signature)
            .with_field("CanonicalRequest", as_sent)),
    }
}

fn string_to_sign(claim: &Claim, canonical_request: &str) -> String {
    let hash = digest::digest(&digest::SHA256, canonical_request.as_bytes());
    format!(
        "{ALGORITHM}\n{}\n{}\n{}",
        amz_date(claim.time_ms),
        claim.scope.text(),
        hex(hash.as_ref())
    )
}

impl Scope {
    fn text(&self) -> String {
        format!(
            "{}/{}/{}/aws4_request",
            self.date, self.region, self.service
        )
    }
}

/// How path and query are written in the canonical request.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Spelling {
    AsSent,
    /// As the API encodes; header values that are no UTF-8 as UTF-8 of their ISO-8859-1 meaning.
    Canonical,
}

fn canonical_request(
    head: &RequestHead<'_>,
    claim: &Claim,
    place: Place,
    spelling: Spelling,
) -> Result<String, S3Error> {
    let path = match spelling {
        Spelling::AsSent => head.path.to_owned(),
        Spelling::Canonical => {
            percent_encode(&percent_decode(head.path)?, Keep::UnreservedAndSlash)
        }
    };
    let mut request = format!("{}\n{path}\n", head.method);
    write_query(&mut request, head.query, place, spelling)?;
    request.push('\n');
    for name in &claim.signed_headers {
        request.push_str(name);
        request.push(':');
        write_header(&mut request, head, name, spelling)?;
        request.push('\n');
    }
    let _infallible = write!(
        request,
        "\n{}\n{}",
        claim.signed_headers.join(";"),
        claim.payload_hash
    );
    Ok(request)
}

fn write_query(
    request: &mut String,
    query: &str,
    place: Place,
    spelling: Spelling,
) -> Result<(), S3Error> {
    let mut parameters = Vec::new();
    for (name, value) in raw_parameters(query) {
        if place == Place::Query && name == "X-Amz-Signature" {
            continue;
        }
        if parameters.len() == QUERY_PARAMETERS_MAX {
            return Err(Code::InvalidUri.into());
        }
        parameters.push(match spelling {
            Spelling::AsSent => (name.to_owned(), value.to_owned()),
            Spelling::Canonical => (respell(name)?, respell(value)?),
        });
    }
    parameters.sort_unstable();
    for (index, (name, value)) in parameters.iter().enumerate() {
        if index > 0 {
            request.push('&');
        }
        request.push_str(name);
        request.push('=');
        request.push_str(value);
    }
    Ok(())
}

fn respell(raw: &str) -> Result<String, S3Error> {
    let mut out = String::new();
    percent_encode_into(&mut out, &query_decode(raw)?, Keep::Unreserved);
    Ok(out)
}

/// All values of a header as one list, blanks trimmed and runs of them folded.
fn write_header(
    request: &mut String,
    head: &RequestHead<'_>,
    name: &str,
    spelling: Spelling,
) -> Result<(), S3Error> {
    let values = head.headers.get_all(name);
    let mut first = true;
    for value in values {
        if !first {
            request.push(',');
        }
        first = false;
        let text = match (std::str::from_utf8(value.as_bytes()), spelling) {
            (Ok(text), _) => text.to_owned(),
            // Python's HTTP client sends ISO-8859-1 but botocore signs the text as UTF-8.
            (Err(_), Spelling::Canonical) => text_of(value.as_bytes()),
            (Err(_), Spelling::AsSent) => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        fold_blanks(request, &text);
    }
    if first {
        match head.authority.filter(|_| name == "host") {
            Some(authority) => request.push_str(authority),
            None => {
                return Err(S3Error::new(Code::SignatureDoesNotMatch)
                    .with_message(format!("The signed header {name} was not sent.")));
            }
        }
    }
    Ok(())
}

fn fold_blanks(out: &mut String, text: &str) {
    let mut blank = false;
    for character in text.trim().chars() {
        if character != ' ' || !blank {
            out.push(character);
        }
        blank = character == ' ';
    }
}

/// What a value of `x-amz-content-sha256` says.
fn payload(value: &str, signer: impl FnOnce() -> Option<ChunkSigner>) -> Result<Payload, S3Error> {
    let signed = |trailer: bool, signer: Option<ChunkSigner>| match signer {
        Some(signer) => Ok(Payload::Chunked {
            signer: Some(signer),
            trailer,
        }),
        None => Err(S3Error::new(Code::InvalidRequest)
            .with_message("Signed chunks need a signature of Version 4 in the headers.")),
    };
    match value {
        UNSIGNED_PAYLOAD => Ok(Payload::Unsigned),
        UNSIGNED_TRAILER => Ok(Payload::Chunked {
            signer: None,
            trailer: true,
        }),
        SIGNED_CHUNKS => signed(false, signer()),
        SIGNED_CHUNKS_TRAILER => signed(true, signer()),
        _ => unhex(value)
            .and_then(|bytes| bytes.try_into().ok())
            .map(Payload::Sha256)
            .ok_or_else(|| {
                S3Error::invalid_argument(
                    "x-amz-content-sha256",
                    value,
                    "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, \
                     STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, \
                     STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.",
                )
            }),
    }
}

/// Access key and scope of the field `x-amz-credential` of a form.
pub(super) fn form_scope(credential: &str, region: &str) -> Result<(String, String), S3Error> {
    let (access_key, scope) = parse_credential(credential, Place::Query)?;
    if scope.region != region || scope.service != "s3" {
        return Err(Place::Query
            .malformed(format!(
                "Error parsing the X-Amz-Credential parameter; the region '{}' is wrong; \
                 expecting '{region}'",
                scope.region
            ))
            .with_field("Region", region));
    }
    Ok((access_key, scope.text()))
}

/// Checks the signature of a text other than a request: the policy of a form.
pub(super) fn check_text(
    keys: &SigningKeys,
    credential: &portico_backend::catalog::Credential,
    scope: &str,
    text: &str,
    signature: &str,
) -> bool {
    let given = unhex(signature).unwrap_or_default();
    hmac::verify(&keys.key(credential, scope), text.as_bytes(), &given).is_ok()
}
