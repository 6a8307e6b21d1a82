//! Buckets and objects as clients see them: over HTTP, signed by an independent signer.

use bytes::Bytes;
use http::Method;

use crate::harness::{Front, START_MS, Signed, User, request, signed, with};

#[tokio::test(start_paused = true)]
async fn an_object_comes_back_as_it_was_written() {
    let front = Front::new().await;
    let mut client = front.client().await;
    assert_eq!(client.put(&front.main, "/photos", "").await.status, 200);
    let put = with(
        request(Method::PUT, "/photos/a%20b%2Fc+d//.", "hello"),
        &[
            ("content-type", "text/plain"),
            ("cache-control", "no-cache"),
            ("content-encoding", "aws-chunked, gzip"),
            ("x-amz-meta-colour", "red"),
            ("x-amz-tagging", "k=v&l=w"),
        ],
    );
    let answer = client.send(&front.main, put).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("etag"),
        "\"5d41402abc4b2a76b9719d911017c592\""
    );
    assert_eq!(answer.header("x-amz-checksum-type"), "FULL_OBJECT");
    let answer = client.get(&front.main, "/photos/a%20b%2Fc+d//.").await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body[..]),
        (200, &b"hello"[..])
    );
    for (name, value) in [
        ("content-type", "text/plain"),
        ("cache-control", "no-cache"),
        ("content-encoding", "gzip"),
        ("x-amz-meta-colour", "red"),
        ("x-amz-tagging-count", "2"),
        ("content-length", "5"),
        ("last-modified", "Wed, 01 May 2024 00:00:00 GMT"),
        ("accept-ranges", "bytes"),
        ("x-amz-checksum-crc64nvme", ""),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    assert_eq!(answer.header("x-amz-request-id").len(), 16);
    assert!(!answer.header("x-amz-id-2").is_empty());
    let head = with(
        request(Method::HEAD, "/photos/a%20b%2Fc+d//.", ""),
        &[("x-amz-checksum-mode", "ENABLED")],
    );
    let answer = client.send(&front.main, head).await;
    assert_eq!(answer.header("content-length"), "5");
    assert_eq!(answer.header("x-amz-checksum-crc64nvme").len(), 12);
    assert!(answer.body.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_what_was_announced_leaves_nothing() {
    let front = Front::new().await;
    let mut client = front.client().await;
    client.put(&front.main, "/photos", "").await;
    let wrong = [
        ("content-md5", "rL0Y20xC+Fzt72VPzMSk2A==", "BadDigest"),
        ("content-md5", "YWJyYWNhZGFicmE=", "InvalidDigest"),
        ("x-amz-checksum-crc32", "AAAAAA==", "BadDigest"),
        (
            "x-amz-checksum-sha256",
            "arcu6553sHVAiX4MjW0j7I7vD4w6R+Gz9Ok0Q9lTa+0=",
            "BadDigest",
        ),
    ];
    for (name, value, code) in wrong {
        let put = with(
            request(Method::PUT, "/photos/key", "hello"),
            &[(name, value)],
        );
        let answer = client.send(&front.main, put).await;
        assert_eq!(answer.error(), (400, code.to_owned()), "{name}: {value}");
    }
    let put = request(Method::PUT, "/photos/key", "hello");
    let mut put = signed(&front.main, put, Signed::Body, START_MS);
    *put.body_mut() = Bytes::from_static(b"jello");
    let answer = client.send_as_is(put).await;
    assert_eq!(
        answer.error(),
        (400, "XAmzContentSHA256Mismatch".to_owned())
    );
    let answer = client.get(&front.main, "/photos/key").await;
    assert_eq!(answer.error(), (404, "NoSuchKey".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn ranges_and_conditions_select_what_is_read() {
    let front = Front::new().await;
    let mut client = front.client().await;
    client.put(&front.main, "/photos", "").await;
    let etag = client
        .put(&front.main, "/photos/key", "0123456789")
        .await
        .header("etag")
        .to_owned();
    let cases: [(&'static str, &str, u16, &str); 9] = [
        ("range", "bytes=2-4", 206, "234"),
        ("range", "bytes=-3", 206, "789"),
        ("range", "bytes=8-100", 206, "89"),
        ("range", "bytes=1-2,4-5", 200, "0123456789"),
        ("if-match", &etag, 200, "0123456789"),
        ("if-none-match", &etag, 304, ""),
        (
            "if-modified-since",
            "Wed, 01 May 2024 00:00:01 GMT",
            304,
            "",
        ),
        (
            "if-unmodified-since",
            "Wed, 01 May 2024 00:00:00 GMT",
            200,
            "0123456789",
        ),
        ("if-none-match", "\"other\"", 200, "0123456789"),
    ];
    for (name, value, status, body) in cases {
        let get = with(request(Method::GET, "/photos/key", ""), &[(name, value)]);
        let answer = client.send(&front.main, get).await;
        assert_eq!(answer.status, status, "{name}: {value}");
        assert_eq!(answer.body, body, "{name}: {value}");
        assert_eq!(answer.header("etag"), etag);
    }
    for (name, value, status, code) in [
        ("range", "bytes=10-", 416, "InvalidRange"),
        ("if-match", "\"other\"", 412, "PreconditionFailed"),
        (
            "if-unmodified-since",
            "Tue, 30 Apr 2024 00:00:00 GMT",
            412,
            "PreconditionFailed",
        ),
    ] {
        let get = with(request(Method::GET, "/photos/key", ""), &[(name, value)]);
        let answer = client.send(&front.main, get).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{name}: {value}");
    }
    let date = "Wed, 01 May 2024 00:00:00 GMT";
    let later = "Wed, 01 May 2024 00:00:01 GMT";
    for (value, status) in [(&*etag, 206), ("\"other\"", 200), (date, 206), (later, 200)] {
        let resume = [("range", "bytes=2-4"), ("if-range", value)];
        let get = with(request(Method::GET, "/photos/key", ""), &resume);
        let answer = client.send(&front.main, get).await;
        assert_eq!(answer.status, status, "if-range: {value}");
    }
    let answer = client.get(&front.main, "/photos/key?partNumber=1").await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (206, 10));
    let answer = client.get(&front.main, "/photos/key?partNumber=2").await;
    assert_eq!(answer.error(), (400, "InvalidPart".to_owned()));
    let answer = client
        .get(&front.main, "/photos/key?response-content-type=a%2Fb")
        .await;
    assert_eq!(answer.header("content-type"), "a/b");
}

#[tokio::test(start_paused = true)]
async fn conditional_writes_have_one_winner() {
    let front = Front::new().await;
    let mut client = front.client().await;
    client.put(&front.main, "/photos", "").await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..50 {
        let mut client = front.client().await;
        let user = front.main.clone();
        tasks.spawn(async move {
            let put = request(Method::PUT, "/photos/key", format!("body {number}"));
            let answer = client
                .send(&user, with(put, &[("if-none-match", "*")]))
                .await;
            (answer.status.as_u16(), number)
        });
    }
    let mut winners = Vec::new();
    while let Some(outcome) = tasks.join_next().await {
        match outcome.unwrap() {
            (200, number) => winners.push(number),
            (status, _) => assert!([409, 412].contains(&status), "{status}"),
        }
    }
    assert_eq!(winners.len(), 1);
    let answer = client.get(&front.main, "/photos/key").await;
    assert_eq!(answer.body, format!("body {}", winners[0]));
    let put = |body: &'static str| request(Method::PUT, "/photos/key", body);
    let etag = answer.header("etag").to_owned();
    let answer = client
        .send(&front.main, with(put("next"), &[("if-match", &etag)]))
        .await;
    assert_eq!(answer.status, 200);
    let answer = client
        .send(&front.main, with(put("late"), &[("if-match", &etag)]))
        .await;
    assert_eq!(answer.error(), (412, "PreconditionFailed".to_owned()));
    let delete = with(
        request(Method::DELETE, "/photos/key", ""),
        &[("if-match", &etag)],
    );
    let answer = client.send(&front.main, delete).await;
    assert_eq!(answer.error(), (412, "PreconditionFailed".to_owned()));
    let missing = with(
        request(Method::PUT, "/photos/none", ""),
        &[("if-match", "*")],
    );
    let answer = client.send(&front.main, missing).await;
    assert_eq!(answer.error(), (404, "NoSuchKey".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn copies_take_over_or_replace() {
    let front = Front::new().await;
    let mut client = front.client().await;
    client.put(&front.main, "/photos", "").await;
    let put = with(
        request(Method::PUT, "/photos/a", "hello"),
        &[
            ("content-type", "text/plain"),
            ("x-amz-meta-m", "1"),
            ("x-amz-tagging", "k=v"),
        ],
    );
    client.send(&front.main, put).await;
    let copy = |target: &str, headers: &[(&'static str, &str)]| {
        let copy = with(
            request(Method::PUT, target, ""),
            &[("x-amz-copy-source", "photos/a")],
        );
        with(copy, headers)
    };
    let answer = client.send(&front.main, copy("/photos/b", &[])).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.element("ETag").as_deref(),
        Some("&quot;5d41402abc4b2a76b9719d911017c592&quot;")
    );
    let head = client.head(&front.main, "/photos/b").await;
    assert_eq!(head.header("content-type"), "text/plain");
    assert_eq!(head.header("x-amz-meta-m"), "1");
    assert_eq!(head.header("x-amz-tagging-count"), "1");
    let replace = [
        ("x-amz-metadata-directive", "REPLACE"),
        ("x-amz-meta-n", "2"),
    ];
    client.send(&front.main, copy("/photos/b", &replace)).await;
    let head = client.head(&front.main, "/photos/b").await;
    assert_eq!(head.header("content-type"), "binary/octet-stream");
    assert_eq!(head.header("x-amz-meta-m"), "");
    assert_eq!(head.header("x-amz-meta-n"), "2");
    let answer = client.send(&front.main, copy("/photos/a", &[])).await;
    assert_eq!(answer.error(), (400, "InvalidRequest".to_owned()));
    let answer = client.send(&front.main, copy("/photos/a", &replace)).await;
    assert_eq!(answer.status, 200);
    let range = [("x-amz-copy-source-range", "bytes=0-0")];
    let answer = client.send(&front.main, copy("/photos/c", &range)).await;
    assert_eq!(answer.error(), (400, "InvalidArgument".to_owned()));
    let unmet = [("x-amz-copy-source-if-match", "\"other\"")];
    let answer = client.send(&front.main, copy("/photos/c", &unmet)).await;
    assert_eq!(answer.error(), (412, "PreconditionFailed".to_owned()));
    let answer = client.send(&front.alt, copy("/photos/c", &[])).await;
    assert_eq!(answer.error(), (403, "AccessDenied".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn buckets_are_made_found_listed_and_deleted() {
    let front = Front::new().await;
    let mut client = front.client().await;
    for name in ["bbb", "aaa"] {
        let answer = client.put(&front.main, &format!("/{name}"), "").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("location"), format!("/{name}"));
    }
    let constraint = "<CreateBucketConfiguration><LocationConstraint>us-east-1\
                      </LocationConstraint></CreateBucketConfiguration>";
    client.put(&front.main, "/ccc", constraint).await;
    let answer = client.get(&front.main, "/ccc?location").await;
    assert!(answer.body.ends_with(b">us-east-1</LocationConstraint>"));
    client.delete(&front.main, "/ccc").await;
    assert_eq!(client.put(&front.main, "/aaa", "").await.status, 200);
    let answer = client.put(&front.alt, "/aaa", "").await;
    assert_eq!(answer.error(), (409, "BucketAlreadyExists".to_owned()));
    let answer = client.put(&front.main, "/Bad_Name", "").await;
    assert_eq!(answer.error(), (400, "InvalidBucketName".to_owned()));
    let answer = client.head(&front.main, "/aaa").await;
    assert_eq!(answer.header("x-amz-bucket-region"), "us-east-1");
    let answer = client.get(&front.main, "/aaa?location").await;
    assert!(answer.body.ends_with(b"></LocationConstraint>"));
    let answer = client.get(&front.main, "/?max-buckets=1").await;
    assert_eq!(answer.element("Name").as_deref(), Some("aaa"));
    let token = answer.element("ContinuationToken").unwrap();
    let answer = client
        .get(
            &front.main,
            &format!("/?max-buckets=1&continuation-token={token}"),
        )
        .await;
    assert_eq!(answer.element("Name").as_deref(), Some("bbb"));
    assert_eq!(answer.element("ContinuationToken"), None);
    assert_eq!(client.get(&front.alt, "/").await.element("Name"), None);
    client.put(&front.main, "/aaa/key", "x").await;
    let answer = client.delete(&front.main, "/aaa").await;
    assert_eq!(answer.error(), (409, "BucketNotEmpty".to_owned()));
    assert_eq!(client.delete(&front.main, "/aaa/key").await.status, 204);
    assert_eq!(client.delete(&front.main, "/aaa").await.status, 204);
    let answer = client.get(&front.main, "/aaa/key").await;
    assert_eq!(answer.error(), (404, "NoSuchBucket".to_owned()));
    assert_eq!(client.put(&front.alt, "/aaa", "").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn others_may_do_what_a_canned_list_grants() {
    let front = Front::new().await;
    let mut client = front.client().await;
    let nobody = User::anonymous();
    client.put(&front.main, "/photos", "").await;
    client.put(&front.main, "/photos/own", "own").await;
    let public = with(
        request(Method::PUT, "/photos/public", "public"),
        &[("x-amz-acl", "public-read")],
    );
    client.send(&front.main, public).await;
    let denied = (403, "AccessDenied".to_owned());
    for user in [&nobody, &front.alt] {
        assert_eq!(client.get(user, "/photos/own").await.error(), denied);
        assert_eq!(client.get(user, "/photos/none").await.error(), denied);
        assert_eq!(client.put(user, "/photos/new", "x").await.error(), denied);
        assert_eq!(client.delete(user, "/photos/own").await.error(), denied);
        assert_eq!(client.delete(user, "/photos").await.error(), denied);
        assert_eq!(client.get(user, "/photos?acl").await.error(), denied);
        assert_eq!(client.get(user, "/photos/public").await.body, "public");
        assert_eq!(client.head(user, "/photos").await.status, 403);
    }
    assert_eq!(client.get(&nobody, "/").await.error(), denied);
    let open = with(
        request(Method::PUT, "/photos?acl", ""),
        &[("x-amz-acl", "public-read-write")],
    );
    assert_eq!(client.send(&front.main, open).await.status, 200);
    assert_eq!(client.put(&nobody, "/photos/new", "x").await.status, 200);
    assert_eq!(client.put(&front.alt, "/photos/alt", "y").await.status, 200);
    assert_eq!(client.get(&front.alt, "/photos/alt").await.body, "y");
    assert_eq!(client.get(&front.main, "/photos/alt").await.body, "y");
    assert_eq!(client.get(&nobody, "/photos/alt").await.error(), denied);
    let missing = (404, "NoSuchKey".to_owned());
    assert_eq!(client.get(&nobody, "/photos/none").await.error(), missing);
    assert_eq!(client.delete(&front.alt, "/photos").await.error(), denied);
    let answer = client.get(&front.main, "/photos?acl").await;
    assert!(answer.body.windows(8).any(|window| window == b"AllUsers"));
    assert_eq!(answer.element("ID"), Some(front.main.id.clone()));
    let own = with(
        request(Method::PUT, "/photos/own?acl", ""),
        &[("x-amz-acl", "authenticated-read")],
    );
    assert_eq!(client.send(&front.main, own).await.status, 200);
    assert_eq!(client.get(&front.alt, "/photos/own").await.body, "own");
    assert_eq!(client.get(&nobody, "/photos/own").await.error(), denied);
    let granted = with(
        request(Method::PUT, "/photos/own?acl", ""),
        &[("x-amz-grant-read-acp", &format!("id={}", front.alt.id))],
    );
    assert_eq!(client.send(&front.main, granted).await.status, 200);
    assert_eq!(client.get(&front.alt, "/photos/own").await.error(), denied);
    assert_eq!(client.get(&front.alt, "/photos/own?acl").await.status, 200);
    assert_eq!(client.get(&nobody, "/photos/own?acl").await.error(), denied);
    let other = with(
        request(Method::GET, "/photos/own", ""),
        &[("x-amz-expected-bucket-owner", "somebody")],
    );
    assert_eq!(client.send(&front.main, other).await.error(), denied);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_built_is_refused_by_name_and_nothing_is_stored() {
    let front = Front::new().await;
    let mut client = front.client().await;
    client.put(&front.main, "/photos", "").await;
    for header in [
        ("x-amz-server-side-encryption", "AES256"),
        ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
        ("x-amz-object-lock-mode", "COMPLIANCE"),
        ("x-amz-grant-read", "emailAddress=a@example.com"),
    ] {
        let put = with(request(Method::PUT, "/photos/key", "x"), &[header]);
        let answer = client.send(&front.main, put).await;
        assert_eq!(
            answer.error(),
            (501, "NotImplemented".to_owned()),
            "{header:?}"
        );
    }
    for target in [
        "/photos?policy",
        "/photos?cors",
        "/photos?versioning",
        "/photos/key?retention",
    ] {
        let answer = client.put(&front.main, target, "<x/>").await;
        assert_eq!(
            answer.error(),
            (501, "NotImplemented".to_owned()),
            "{target}"
        );
        let answer = client.delete(&front.main, target).await;
        assert!(answer.status.as_u16() >= 400, "{target}");
    }
    assert_eq!(client.head(&front.main, "/photos").await.status, 200);
    assert_eq!(client.get(&front.main, "/photos/key").await.error().0, 404);
}

#[tokio::test(start_paused = true)]
async fn what_was_never_set_answers_as_the_api_does() {
    let front = Front::new().await;
    let mut client = front.client().await;
    client.put(&front.main, "/photos", "").await;
    for (target, code) in [
        ("/photos?policy", "NoSuchBucketPolicy"),
        ("/photos?cors", "NoSuchCORSConfiguration"),
        ("/photos?lifecycle", "NoSuchLifecycleConfiguration"),
        (
            "/photos?encryption",
            "ServerSideEncryptionConfigurationNotFoundError",
        ),
        ("/photos?website", "NoSuchWebsiteConfiguration"),
        (
            "/photos?publicAccessBlock",
            "NoSuchPublicAccessBlockConfiguration",
        ),
        (
            "/photos?object-lock",
            "ObjectLockConfigurationNotFoundError",
        ),
        (
            "/photos?ownershipControls",
            "OwnershipControlsNotFoundError",
        ),
        (
            "/photos?replication",
            "ReplicationConfigurationNotFoundError",
        ),
    ] {
        let answer = client.get(&front.main, target).await;
        assert_eq!(answer.error(), (404, code.to_owned()), "{target}");
    }
    for target in [
        "versioning",
        "logging",
        "notification",
        "accelerate",
        "requestPayment",
    ] {
        let answer = client.get(&front.main, &format!("/photos?{target}")).await;
        assert_eq!(answer.status, 200, "{target}");
    }
}
