//! What requests mean, and that no request means more than it says.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::*;
use crate::wire::action::Unset;

#[derive(Clone, Debug)]
struct Sent {
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
}

fn sent(method: &str, target: &str, headers: &[(&str, &str)]) -> Sent {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = headers.iter().map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    });
    Sent {
        method: Method::from_bytes(method.as_bytes()).unwrap(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: pairs.collect(),
    }
}

impl Sent {
    fn route(&self) -> Result<Request, S3Error> {
        let head = RequestHead {
            method: &self.method,
            path: &self.path,
            query: &self.query,
            headers: &self.headers,
            authority: None,
        };
        let domains = ["s3.test".to_owned(), "eu.s3.test".to_owned()];
        route(&head, &domains)
    }

    fn name(&self) -> Result<&'static str, (Code, String)> {
        self.route()
            .map(|request| request.name)
            .map_err(|error| (error.code(), error.message().to_owned()))
    }
}

fn name(method: &str, target: &str) -> Result<&'static str, (Code, String)> {
    sent(method, target, &[]).name()
}

fn code(method: &str, target: &str) -> Option<Code> {
    name(method, target).err().map(|(code, _)| code)
}

/// A request that a row means, with values where the row asks for some.
fn example(row: &Row) -> Sent {
    let path = match row.scope {
        Scope::Service => "/",
        Scope::Bucket => "/bucket",
        Scope::Object => "/bucket/key",
    };
    let query: Vec<String> = row
        .terms
        .iter()
        .filter_map(|term| match term {
            Term::Query(name) => Some((*name).to_owned()),
            Term::QueryIs(name, value) => Some(format!("{name}={value}")),
            Term::Header(_) => None,
        })
        .collect();
    let headers: Vec<(&str, &str)> = row
        .terms
        .iter()
        .filter_map(|term| match term {
            Term::Header(name) => Some((*name, "x")),
            Term::Query(_) | Term::QueryIs(..) => None,
        })
        .collect();
    sent(
        row.verb.as_str(),
        &format!("{path}?{}", query.join("&")),
        &headers,
    )
}

#[test]
fn every_row_is_reached_by_its_marks_and_named_in_its_answer() {
    for row in ACTIONS {
        match (example(row).name(), row.answer) {
            (Ok(name), Answer::Built(_) | Answer::Unset(_)) => assert_eq!(name, row.name),
            (Err((Code::NotImplemented, message)), Answer::NotBuilt) => {
                assert_eq!(message, format!("{} is not implemented.", row.name));
            }
            (other, _) => panic!("{}: {other:?}", row.name),
        }
    }
    let mut names: Vec<&str> = ACTIONS.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ACTIONS.len(), "each name once");
    assert!(names.len() > 100);
}

#[test]
fn a_built_verb_has_one_row() {
    for row in ACTIONS {
        if let Answer::Built(action) = row.answer {
            assert_eq!(format!("{action:?}"), row.name);
        }
    }
    let unset = sent("GET", "/b?cors", &[]).route().unwrap();
    assert_eq!(unset.action, Action::Unset(Unset::Cors));
}

/// Every verb that writes, with every sub-resource that is not its own, and with unknown ones.
#[test]
fn nothing_falls_through_to_another_verb() {
    let mut queries: Vec<&str> = vec!["x", "acl2", "Policy", "cors%20", "append", "prefix=a"];
    for row in ACTIONS {
        for term in row.terms {
            if let Term::Query(name) = term {
                queries.push(name);
            }
        }
    }
    for method in ["PUT", "DELETE", "POST"] {
        for path in ["/", "/b", "/b/k", "/b/"] {
            let Ok(without) = name(method, path) else {
                continue;
            };
            for query in &queries {
                let with = name(method, &format!("{path}?{query}"));
                assert_ne!(with, Ok(without), "{method} {path}?{query}");
            }
        }
    }
    for target in ["/b?policy&acl", "/b?uploads&versions", "/b/k?acl&tagging"] {
        for method in ["GET", "PUT", "DELETE", "HEAD"] {
            assert!(name(method, target).is_err(), "{method} {target}");
        }
    }
    assert_eq!(code("GET", "/b?delete"), Some(Code::NotImplemented));
    assert_eq!(code("HEAD", "/b/k?uploadId=1"), Some(Code::NotImplemented));
    assert_eq!(code("PUT", "/b/k?partNumber=1"), Some(Code::NotImplemented));
    assert_eq!(code("DELETE", "/b?versionId=1"), Some(Code::NotImplemented));
}

#[test]
fn harmless_parameters_change_nothing() {
    let signed = "X-Amz-Algorithm=a&X-Amz-Signature=b&x-id=PutObject";
    assert_eq!(name("PUT", &format!("/b/k?{signed}")), Ok("PutObject"));
    let old = "AWSAccessKeyId=a&Expires=1&Signature=b&x-amz-acl=private&content-type=c";
    assert_eq!(name("DELETE", &format!("/b/k?{old}")), Ok("DeleteObject"));
    assert_eq!(name("DELETE", "/b/k?versionId=null"), Ok("DeleteObject"));
    assert_eq!(
        name("GET", "/b/k?response-expires=x&versionId=1&partNumber=2"),
        Ok("GetObject")
    );
    assert_eq!(name("GET", "/b?foo=bar&prefix=x"), Ok("ListObjects"));
    assert_eq!(name("GET", "/b?list-type=2&id=3"), Ok("ListObjectsV2"));
    assert_eq!(code("GET", "/b?list-type=1"), Some(Code::InvalidArgument));
}

#[test]
fn headers_tell_copies_from_uploads() {
    let copy = [("x-amz-copy-source", "b/k")];
    assert_eq!(sent("PUT", "/b/k", &copy).name(), Ok("CopyObject"));
    let part = "/b/k?partNumber=1&uploadId=u";
    assert_eq!(sent("PUT", part, &copy).name(), Ok("UploadPartCopy"));
    assert_eq!(sent("PUT", part, &[]).name(), Ok("UploadPart"));
    assert_eq!(code("PATCH", "/b/k"), Some(Code::MethodNotAllowed));
    assert_eq!(code("POST", "/b/k"), Some(Code::MethodNotAllowed));
    assert_eq!(code("PUT", "/"), Some(Code::MethodNotAllowed));
}

#[test]
fn keys_keep_every_byte() {
    for (path, key) in [
        ("/b/a//b", "a//b"),
        ("/b//a", "/a"),
        ("/b/a/", "a/"),
        ("/b/./../a", "./../a"),
        ("/b/a+b", "a+b"),
        ("/b/a%2Bb%2Fc%252F", "a+b/c%2F"),
        ("/b/%E4%B8%AD", "\u{4e2d}"),
        ("/b/\u{4e2d}", "\u{4e2d}"),
        ("/b/a%00b%0A", "a\0b\n"),
        ("/b/a%3Fb", "a?b"),
    ] {
        let request = sent("GET", path, &[]).route().unwrap();
        assert_eq!(request.bucket.as_deref(), Some("b"));
        assert_eq!(request.key.unwrap().as_str(), key, "{path}");
    }
    let long = format!("/b/{}", "%C3%A9".repeat(512));
    assert_eq!(name("GET", &long), Ok("GetObject"));
    assert_eq!(code("GET", &(long + "x")), Some(Code::KeyTooLong));
    for bad in [
        "/b/%C2%8A",
        "/b/%ff",
        "/b/%",
        "/b/%zz",
        "/%ff/k",
        "*",
        "/b?%ff=1",
    ] {
        assert_eq!(code("GET", bad), Some(Code::InvalidUri), "{bad}");
    }
    assert_eq!(name("GET", "/b/"), Ok("ListObjects"));
    assert_eq!(name("GET", "/"), Ok("ListBuckets"));
}

#[test]
fn virtual_hosts_name_the_bucket() {
    let at = |host: &str, path: &str| {
        let request = sent("GET", path, &[("host", host)]).route().unwrap();
        let key = request.key.map(|key| key.as_str().to_owned());
        (request.bucket, key)
    };
    let bucket = |name: &str| Some(name.to_owned());
    assert_eq!(at("b.s3.test", "/k"), (bucket("b"), bucket("k")));
    assert_eq!(at("B.S3.test:9000", "/k"), (bucket("b"), bucket("k")));
    assert_eq!(at("a.b.s3.test", "/"), (bucket("a.b"), None));
    assert_eq!(at("b.eu.s3.test", "//k"), (bucket("b"), bucket("/k")));
    assert_eq!(at("s3.test", "/b/k"), (bucket("b"), bucket("k")));
    assert_eq!(at("xs3.test", "/b"), (bucket("b"), None));
    assert_eq!(at("10.0.0.1:9000", "/b"), (bucket("b"), None));
    assert_eq!(at("[::1]:9000", "/b"), (bucket("b"), None));
}

#[test]
fn sources_of_copies_are_decoded_once() {
    let source = |header: &str| {
        copy_source(header)
            .map(|(bucket, key, version)| (bucket, key.as_str().to_owned(), version))
            .map_err(|error| error.code())
    };
    let expect = |bucket: &str, key: &str, version: Option<&str>| {
        Ok((
            bucket.to_owned(),
            key.to_owned(),
            version.map(str::to_owned),
        ))
    };
    assert_eq!(source("b/k"), expect("b", "k", None));
    assert_eq!(source("/b/a%2Fb+c%253F"), expect("b", "a/b+c%3F", None));
    assert_eq!(source("b//k"), expect("b", "/k", None));
    assert_eq!(source("b/k?versionId=v1"), expect("b", "k", Some("v1")));
    for bad in [
        "",
        "b",
        "b/",
        "/b",
        "//k",
        "b/k?x=1",
        "b/%zz",
        "b/k?versionId=",
    ] {
        assert_eq!(source(bad), Err(Code::InvalidArgument), "{bad}");
    }
}
