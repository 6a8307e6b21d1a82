//! From a request's head to the action it means. A pure function: see [`route`].
//!
//! Paths are taken as they are: a key keeps `//`, `.`, `..`, `+` and a trailing slash; percent
//! escapes are decoded exactly once. What the query adds never turns a request into another verb:
//! a parameter that the verb does not know is refused wherever something could be changed.

use portico_backend::bucket::record::{KEY_BYTES_MAX, Key};

use super::action::{ACTIONS, Action, Answer, Row, Scope, Term, Verb, is_sub_resource};
use super::encoding::percent_decode;
use super::{Query, RequestHead};
use crate::error::{Code, S3Error};

/// A request whose meaning is known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    pub action: Action,
    /// The name in the API reference, for logs and counters.
    pub name: &'static str,
    /// Not yet checked against the rules for names: a bucket that breaks them does not exist.
    /// `None` for actions of the service.
    pub bucket: Option<String>,
    /// `Some` for actions on objects.
    pub key: Option<Key>,
    pub query: Query,
}

/// Finds out what a request means. `domains` are the names under which buckets are virtual hosts,
/// in lower case.
///
/// # Errors
/// `NotImplemented` by name for actions that are not built and for parameters that would change
/// what a writing request means; `MethodNotAllowed`, `InvalidURI`, `KeyTooLongError`,
/// `InvalidArgument`.
pub fn route(head: &RequestHead<'_>, domains: &[String]) -> Result<Request, S3Error> {
    let target = Target::of(head, domains)?;
    let query = Query::parse(head.query)?;
    let row = pick(head, target.scope(), &query)?;
    check_parameters(row, &query)?;
    let action = match row.answer {
        Answer::Built(action) => action,
        Answer::Unset(unset) => Action::Unset(unset),
        Answer::NotBuilt => return Err(S3Error::not_implemented(row.name)),
    };
    Ok(Request {
        action,
        name: row.name,
        bucket: target.bucket,
        key: target.key,
        query,
    })
}

/// Takes `bucket/key` of `x-amz-copy-source` apart, with or without a leading `/`, percent-encoded,
/// with an optional `?versionId=`. Gives bucket, key and version id.
///
/// # Errors
/// `InvalidArgument` if it names no bucket or no key.
pub fn copy_source(header: &str) -> Result<(String, Key, Option<String>), S3Error> {
    let refused = || {
        S3Error::invalid_argument(
            "x-amz-copy-source",
            header,
            "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
        )
    };
    // A `?` of the key is encoded, so the first one starts the parameters.
    let (path, parameters) = header.split_once('?').unwrap_or((header, ""));
    let version = parameters
        .strip_prefix("versionId=")
        .filter(|id| !id.is_empty())
        .map(str::to_owned);
    if !parameters.is_empty() && version.is_none() {
        return Err(refused());
    }
    let decoded = percent_decode(path).map_err(|_| refused())?;
    let (bucket, key) = decoded
        .strip_prefix('/')
        .unwrap_or(&decoded)
        .split_once('/')
        .ok_or_else(refused)?;
    if bucket.is_empty() {
        return Err(refused());
    }
    let key = Key::new(key).ok_or_else(refused)?;
    Ok((bucket.to_owned(), key, version))
}

/// Bucket and key as addressed.
struct Target {
    bucket: Option<String>,
    key: Option<Key>,
}

impl Target {
    fn of(head: &RequestHead<'_>, domains: &[String]) -> Result<Self, S3Error> {
        let path = head
            .path
            .strip_prefix('/')
            .ok_or_else(|| S3Error::new(Code::InvalidUri))?;
        if let Some(bucket) = head.host().and_then(|host| host_bucket(host, domains)) {
            return Ok(Self {
                bucket: Some(bucket),
                key: key(path)?,
            });
        }
        let (bucket, rest) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() && rest.is_empty() {
            return Ok(Self {
                bucket: None,
                key: None,
            });
        }
        Ok(Self {
            bucket: Some(percent_decode(bucket)?),
            key: key(rest)?,
        })
    }

    fn scope(&self) -> Scope {
        match (&self.bucket, &self.key) {
            (_, Some(_)) => Scope::Object,
            (Some(_), None) => Scope::Bucket,
            (None, None) => Scope::Service,
        }
    }
}

fn key(raw: &str) -> Result<Option<Key>, S3Error> {
    if raw.is_empty() {
        return Ok(None);
    }
    let decoded = percent_decode(raw)?;
    // S3 refuses the control characters of ISO-8859-1, but not those of ASCII.
    if decoded.contains(|c| ('\u{80}'..='\u{9f}').contains(&c)) {
        return Err(Code::InvalidUri.into());
    }
    Key::new(&decoded).map(Some).ok_or_else(|| {
        S3Error::new(Code::KeyTooLong)
            .with_field("Size", decoded.len().to_string())
            .with_field("MaxSizeAllowed", KEY_BYTES_MAX.to_string())
    })
}

/// The bucket that a virtual host names; `None` if the host is one of the domains itself, or none
/// of them.
#[must_use]
pub fn host_bucket(host: &str, domains: &[String]) -> Option<String> {
    let host = without_port(host).to_ascii_lowercase();
    domains
        .iter()
        .filter_map(|domain| host.strip_suffix(domain.as_str())?.strip_suffix('.'))
        .min_by_key(|bucket| bucket.len())
        .filter(|bucket| !bucket.is_empty())
        .map(str::to_owned)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The row with the most terms among those that fit.
fn pick(head: &RequestHead<'_>, scope: Scope, query: &Query) -> Result<&'static Row, S3Error> {
    let verb = Verb::of(head.method).ok_or_else(|| method_not_allowed(head))?;
    let fits = |row: &&Row| {
        row.verb == verb
            && row.scope == scope
            && row.terms.iter().all(|term| match *term {
                Term::Query(name) => query.has(name),
                Term::QueryIs(name, value) => query.first(name) == Some(value),
                Term::Header(name) => head.headers.contains_key(name),
            })
    };
    let row = ACTIONS
        .iter()
        .filter(fits)
        .rev()
        .max_by_key(|row| row.terms.len());
    match row {
        Some(row) => Ok(row),
        None => Err(method_not_allowed(head)),
    }
}

fn method_not_allowed(head: &RequestHead<'_>) -> S3Error {
    S3Error::new(Code::MethodNotAllowed).with_field("Method", head.method.as_str())
}

/// Refuses what the row does not know where it could change the meaning.
fn check_parameters(row: &Row, query: &Query) -> Result<(), S3Error> {
    for (name, value) in query.iter() {
        let selects = row.terms.iter().any(|term| match *term {
            Term::Query(query) => query == name,
            Term::QueryIs(query, expected) => query == name && value == expected,
            Term::Header(_) => false,
        });
        if selects || is_harmless(name) {
            continue;
        }
        if is_sub_resource(name) {
            return Err(S3Error::not_implemented(&format!(
                "{} with the sub-resource {name}",
                row.name
            )));
        }
        if name == "list-type" && row.scope == Scope::Bucket && row.verb == Verb::Get {
            return Err(S3Error::invalid_argument(
                name,
                value,
                "Invalid List Type specified in Request",
            ));
        }
        let reads = matches!(row.verb, Verb::Get | Verb::Head);
        if !reads && !takes(row, name) {
            return Err(S3Error::not_implemented(&format!(
                "{} with the parameter {name}",
                row.name
            )));
        }
    }
    Ok(())
}

/// Parameters of signatures and of SDKs' book-keeping, which no verb looks at.
fn is_harmless(name: &str) -> bool {
    // botocore puts the last two into URLs that it presigns with Signature V2.
    const NAMES: &[&str] = &[
        "AWSAccessKeyId",
        "Expires",
        "Signature",
        "x-id",
        "content-md5",
        "content-type",
    ];
    NAMES.contains(&name) || has_prefix(name, "x-amz-") || has_prefix(name, "response-")
}

fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Plain parameters of verbs that change something.
fn takes(row: &Row, name: &str) -> bool {
    match row.answer {
        Answer::Built(
            Action::DeleteObject
            | Action::DeleteObjectTagging
            | Action::PutObjectAcl
            | Action::PutObjectTagging,
        ) => name == "versionId",
        Answer::Built(_) | Answer::NotBuilt | Answer::Unset(_) => false,
    }
}

#[cfg(test)]
mod tests;
