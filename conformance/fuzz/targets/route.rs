//! The router: whatever comes, a request that writes is never taken for one that says less.
#![no_main]

use http::{HeaderMap, Method};
use libfuzzer_sys::fuzz_target;
use portico_s3::wire::action::Action;
use portico_s3::wire::{RequestHead, route};

fuzz_target!(|input: (u8, &str, &str)| {
    let (method, path, query) = input;
    let methods = [
        Method::DELETE,
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
    ];
    let headers = HeaderMap::new();
    let head = RequestHead {
        method: &methods[usize::from(method) % methods.len()],
        path,
        query,
        headers: &headers,
        authority: None,
    };
    if let Ok(request) = route(&head, &["s3.test".to_owned()]) {
        if matches!(request.action, Action::DeleteBucket | Action::DeleteObject) {
            let known = |name: &str| {
                let name = name.to_ascii_lowercase();
                name.starts_with("x-amz-")
                    || name.starts_with("response-")
                    || [
                        "awsaccesskeyid",
                        "expires",
                        "signature",
                        "x-id",
                        "versionid",
                    ]
                    .contains(&name.as_str())
                    || ["content-md5", "content-type"].contains(&name.as_str())
            };
            assert!(
                request.query.iter().all(|(name, _)| known(name)),
                "{request:?}"
            );
        }
    }
});
