//! Signature Version 2 (S3 API, "Signing and authenticating REST requests"), which awscli v1 still
//! presigns with and many forms still carry. HMAC-SHA1 over a few headers and the resource.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portico_backend::catalog::Credential;
use ring::hmac;

use super::sigv4::payload_without_chain;
use super::{
    Identity, Lookup, Verified, Verifier, access_denied, check_skew, credential, header_time,
    raw_parameters,
};
use crate::error::{Code, S3Error};
use crate::wire::RequestHead;
use crate::wire::encoding::{percent_decode, query_decode};
use crate::wire::header::text_of;
use crate::wire::route::host_bucket;
use crate::wire::time::iso8601;

/// Parameters that belong to the resource: sub-resources and overrides of response headers.
const SIGNED_PARAMETERS: &[&str] = &[
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "delete",
    "encryption",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Checks `Authorization: AWS access-key:signature`.
pub(super) fn verify_header(
    verifier: &Verifier,
    head: &RequestHead<'_>,
    authorization: &str,
    now_ms: u64,
    lookup: Lookup<'_>,
) -> Result<Verified, S3Error> {
    let claim = authorization.strip_prefix("AWS ").unwrap_or_default();
    let (access_key, signature) = claim.trim().rsplit_once(':').ok_or_else(|| {
        S3Error::invalid_argument(
            "Authorization",
            authorization,
            "AWS authorization header is invalid. Expected AwsAccessKeyId:signature",
        )
    })?;
    let amz_date = head.header("x-amz-date");
    let date = head.header("date");
    check_skew(header_time(head)?, now_ms)?;
    let credential = credential(access_key, lookup)?;
    let date = if amz_date.is_some() {
        ""
    } else {
        date.unwrap_or_default()
    };
    check_request(verifier, head, date, &credential, signature)?;
    Ok(Verified {
        identity: Identity::User(credential),
        payload: payload_without_chain(head)?,
    })
}

/// Checks `AWSAccessKeyId`, `Expires` and `Signature` of a presigned URL.
pub(super) fn verify_query(
    verifier: &Verifier,
    head: &RequestHead<'_>,
    now_ms: u64,
    lookup: Lookup<'_>,
) -> Result<Verified, S3Error> {
    let parameter = |name: &'static str| {
        raw_parameters(head.query)
            .find(|(given, _)| *given == name)
            .map(|(_, value)| query_decode(value))
            .ok_or_else(|| {
                access_denied(
                    "Query-string authentication requires the Signature, Expires and \
                     AWSAccessKeyId parameters",
                )
            })?
    };
    let access_key = parameter("AWSAccessKeyId")?;
    let expires = parameter("Expires")?;
    let raw_signature = raw_parameters(head.query)
        .find(|(given, _)| *given == "Signature")
        .map(|(_, value)| value)
        .ok_or_else(|| access_denied("Query-string authentication requires a Signature"))?;
    // Base64 has `+`, which careless clients leave as it is.
    let signature = percent_decode(raw_signature)?;
    let end_s: i64 = expires.parse().map_err(|_| {
        access_denied("Invalid date (should be seconds since epoch)")
            .with_field("Expires", expires.clone())
    })?;
    let end_ms = u64::try_from(end_s).unwrap_or(0).saturating_mul(1_000);
    if now_ms >= end_ms {
        return Err(access_denied("Request has expired")
            .with_field("Expires", iso8601(end_ms.min(MS_MAX)))
            .with_field("ServerTime", iso8601(now_ms)));
    }
    let credential = credential(&access_key, lookup)?;
    check_request(verifier, head, &expires, &credential, &signature)?;
    Ok(Verified {
        identity: Identity::User(credential),
        payload: payload_without_chain(head)?,
    })
}

/// The end of the year 9999.
const MS_MAX: u64 = 253_402_300_799_999;

/// botocore signs `/bucket/` and sends `/bucket` where the path names the bucket alone. Both are the
/// same resource.
fn check_request(
    verifier: &Verifier,
    head: &RequestHead<'_>,
    date: &str,
    credential: &Credential,
    signature: &str,
) -> Result<(), S3Error> {
    let secret = credential.secret.expose();
    let message = string_to_sign(verifier, head, head.path, date)?;
    let as_sent = check(secret, &message, signature);
    let segment = head.path.strip_prefix('/').unwrap_or_default();
    let names_bucket = !segment.is_empty() && !segment.contains('/');
    if as_sent.is_ok() || !names_bucket || bucket_of_host(verifier, head).is_some() {
        return as_sent;
    }
    let slashed = format!("{}/", head.path);
    let message = string_to_sign(verifier, head, &slashed, date)?;
    check(secret, &message, signature).or(as_sent)
}

/// Compares a signature, in base64, in constant time.
pub(super) fn check(secret: &str, message: &str, signature: &str) -> Result<(), S3Error> {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
    let given = STANDARD.decode(signature.trim()).unwrap_or_default();
    hmac::verify(&key, message.as_bytes(), &given).map_err(|_| {
        S3Error::new(Code::SignatureDoesNotMatch)
            .with_field("StringToSign", message)
            .with_field("SignatureProvided", signature)
    })
}

fn string_to_sign(
    verifier: &Verifier,
    head: &RequestHead<'_>,
    path: &str,
    date: &str,
) -> Result<String, S3Error> {
    let standard = |name: &str| -> Result<String, S3Error> {
        if let Some(value) = head.headers.get(name) {
            return Ok(text_of(value.as_bytes()).trim().to_owned());
        }
        // botocore presigns with headers as parameters of the same name.
        raw_parameters(head.query)
            .find(|(given, _)| *given == name)
            .map_or(Ok(String::new()), |(_, value)| query_decode(value))
    };
    let mut message = format!(
        "{}\n{}\n{}\n{date}\n",
        head.method,
        standard("content-md5")?,
        standard("content-type")?
    );
    for (name, value) in amz_headers(head)? {
        message.push_str(&name);
        message.push(':');
        message.push_str(&value);
        message.push('\n');
    }
    write_resource(&mut message, verifier, head, path)?;
    Ok(message)
}

/// `x-amz-` headers in order of their names, also those that came as parameters.
fn amz_headers(head: &RequestHead<'_>) -> Result<BTreeMap<String, String>, S3Error> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in head.headers {
        if name.as_str().starts_with("x-amz-") {
            let value = text_of(value.as_bytes());
            all.entry(name.as_str().to_owned())
                .and_modify(|values| {
                    values.push(',');
                    values.push_str(value.trim());
                })
                .or_insert_with(|| value.trim().to_owned());
        }
    }
    for (name, value) in raw_parameters(head.query) {
        if name.starts_with("x-amz-") {
            all.entry(name.to_owned()).or_insert(query_decode(value)?);
        }
    }
    Ok(all)
}

/// Bucket and path as sent, and the parameters that belong to the resource, decoded.
fn write_resource(
    message: &mut String,
    verifier: &Verifier,
    head: &RequestHead<'_>,
    path: &str,
) -> Result<(), S3Error> {
    if let Some(bucket) = bucket_of_host(verifier, head) {
        message.push('/');
        message.push_str(&bucket);
    }
    message.push_str(path);
    let mut parameters = Vec::new();
    for pair in head.query.split('&') {
        let (name, value) = match pair.split_once('=') {
            Some((name, value)) => (name, Some(query_decode(value)?)),
            None => (pair, None),
        };
        if SIGNED_PARAMETERS.contains(&name) {
            parameters.push((name, value));
        }
    }
    parameters.sort_unstable();
    for (index, (name, value)) in parameters.iter().enumerate() {
        message.push(if index == 0 { '?' } else { '&' });
        message.push_str(name);
        if let Some(value) = value {
            message.push('=');
            message.push_str(value);
        }
    }
    Ok(())
}

fn bucket_of_host(verifier: &Verifier, head: &RequestHead<'_>) -> Option<String> {
    head.host()
        .and_then(|host| host_bucket(host, &verifier.options.domains))
}
