//! Multipart uploads, multi-delete, tags, attributes and forms as clients see them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request};
use portico_s3::serve::S3Options;

use crate::harness::{Answer, Client, Front, User, request, with};

const MIB: usize = 1 << 20;

async fn begin(client: &mut Client, user: &User, target: &str) -> String {
    let post = request(Method::POST, &format!("{target}?uploads"), "");
    let answer = client.send(user, post).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.element("UploadId").unwrap()
}

async fn part(
    client: &mut Client,
    user: &User,
    target: &str,
    upload: &str,
    number: u16,
    data: &[u8],
) -> String {
    let target = format!("{target}?partNumber={number}&uploadId={upload}");
    let data = Bytes::copy_from_slice(data);
    let answer = client.put(user, &target, data).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("etag").to_owned()
}

fn complete(target: &str, upload: &str, parts: &[(u16, &str)]) -> Request<Bytes> {
    let mut body = "<CompleteMultipartUpload>".to_owned();
    for (number, etag) in parts {
        let etag = etag.replace('"', "&quot;");
        body.push_str(&format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        ));
    }
    body.push_str("</CompleteMultipartUpload>");
    request(Method::POST, &format!("{target}?uploadId={upload}"), body)
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from((at * 7 + at / 251 + seed) % 251).unwrap())
        .collect()
}

/// The CRC64NVME of the whole, as a client would state it.
fn crc64(data: &[u8]) -> String {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, data);
    STANDARD.encode(crc.to_be_bytes())
}

#[tokio::test(start_paused = true)]
async fn parts_become_one_object() {
    let front = Front::new().await;
    let mut client = front.client().await;
    let user = &front.main;
    client.put(user, "/photos", "").await;
    let post = with(
        request(Method::POST, "/photos/big?uploads", ""),
        &[
            ("x-amz-meta-a", "b"),
            ("x-amz-tagging", "k=v"),
            ("content-type", "text/x"),
        ],
    );
    let upload = client.send(user, post).await.element("UploadId").unwrap();
    let (one, two, three) = (pattern(5 * MIB, 1), pattern(5 * MIB + 3, 2), pattern(7, 3));
    let first = part(&mut client, user, "/photos/big", &upload, 1, &one).await;
    part(&mut client, user, "/photos/big", &upload, 5, &one).await;
    let third = part(&mut client, user, "/photos/big", &upload, 9, &three).await;
    let second = part(&mut client, user, "/photos/big", &upload, 5, &two).await;

    let listed = client
        .get(user, &format!("/photos/big?uploadId={upload}&max-parts=2"))
        .await;
    assert_eq!(listed.element("IsTruncated").as_deref(), Some("true"));
    assert_eq!(listed.element("NextPartNumberMarker").as_deref(), Some("5"));
    assert_eq!(listed.element("ID").as_deref(), Some(user.id.as_str()));
    let uploads = client.get(user, "/photos?uploads&prefix=b").await;
    assert_eq!(
        uploads.element("UploadId").as_deref(),
        Some(upload.as_str())
    );
    assert_eq!(client.get(user, "/photos/big").await.status, 404);

    let whole = [one.as_slice(), &two, &three].concat();
    let names = [(1, first.as_str()), (5, &second), (9, &third)];
    let wrong = with(
        complete("/photos/big", &upload, &names),
        &[("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")],
    );
    let answer = client.send(user, wrong).await;
    assert_eq!(answer.error(), (400, "BadDigest".to_owned()));
    let crc = crc64(&whole);
    let right = with(
        complete("/photos/big", &upload, &names),
        &[
            ("x-amz-checksum-crc64nvme", &crc),
            ("x-amz-mp-object-size", "10485770"),
        ],
    );
    let answer = client.send(user, right).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let etag = answer.element("ETag").unwrap();
    assert!(etag.ends_with("-3&quot;"), "{etag}");
    assert_eq!(answer.element("ChecksumCRC64NVME"), Some(crc));
    let again = client
        .send(user, complete("/photos/big", &upload, &names))
        .await;
    assert_eq!(again.element("ETag"), Some(etag), "asked again");

    read_back(&mut client, user, &whole, two).await;
    let ended = client
        .get(user, &format!("/photos/big?uploadId={upload}"))
        .await;
    assert_eq!(ended.error(), (404, "NoSuchUpload".to_owned()));
    attributes(&mut client, user).await;
}

async fn read_back(client: &mut Client, user: &User, whole: &[u8], second: Vec<u8>) {
    let answer = client.get(user, "/photos/big").await;
    assert_eq!(answer.body, whole);
    assert_eq!(answer.header("x-amz-meta-a"), "b");
    assert_eq!(answer.header("x-amz-tagging-count"), "1");
    assert_eq!(answer.header("content-type"), "text/x");
    let answer = client.get(user, "/photos/big?partNumber=5").await;
    assert_eq!(
        (answer.status.as_u16(), answer.body),
        (206, Bytes::from(second))
    );
    assert_eq!(answer.headers["x-amz-mp-parts-count"], "3");
}

async fn attributes(client: &mut Client, user: &User) {
    let ask = with(
        request(Method::GET, "/photos/big?attributes", ""),
        &[
            ("x-amz-object-attributes", "ETag,ObjectParts, ObjectSize"),
            ("x-amz-max-parts", "1"),
            ("x-amz-part-number-marker", "1"),
        ],
    );
    let answer = client.send(user, ask).await;
    assert_eq!(answer.element("PartsCount").as_deref(), Some("3"));
    assert_eq!(answer.element("PartNumber").as_deref(), Some("5"));
    assert_eq!(answer.element("IsTruncated").as_deref(), Some("true"));
    assert_eq!(answer.element("ObjectSize").as_deref(), Some("10485770"));
    assert_eq!(answer.element("StorageClass"), None, "not asked for");
    for (value, code) in [("", "InvalidRequest"), ("Colour", "InvalidArgument")] {
        let ask = with(
            request(Method::GET, "/photos/big?attributes", ""),
            &[("x-amz-object-attributes", value)],
        );
        assert_eq!(client.send(user, ask).await.error(), (400, code.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn faults_of_a_completion_leave_the_upload_as_it_was() {
    let front = Front::new().await;
    let mut client = front.client().await;
    let user = &front.main;
    client.put(user, "/photos", "").await;
    let upload = begin(&mut client, user, "/photos/k").await;
    let one = part(&mut client, user, "/photos/k", &upload, 1, b"small").await;
    let two = part(&mut client, user, "/photos/k", &upload, 2, b"last").await;
    let faults: [(&[(u16, &str)], &str); 6] = [
        (&[], "MalformedXML"),
        (&[(2, &two), (1, &one)], "InvalidPartOrder"),
        (&[(1, "ffffffffffffffffffffffffffffffff")], "InvalidPart"),
        (&[(1, &one), (9, &two)], "InvalidPart"),
        (&[(1, &two)], "InvalidPart"),
        (&[(1, &one), (2, &two)], "EntityTooSmall"),
    ];
    for (parts, code) in faults {
        let answer = client
            .send(user, complete("/photos/k", &upload, parts))
            .await;
        assert_eq!(answer.error(), (400, code.to_owned()), "{parts:?}");
    }
    let stranger = complete("/photos/k", &upload, &[(1, &one)]);
    assert_eq!(client.send(&front.alt, stranger).await.error().0, 403);
    let conditional = |condition: (&'static str, &str)| {
        with(complete("/photos/k", &upload, &[(1, &one)]), &[condition])
    };
    let answer = client.send(user, conditional(("if-match", "x"))).await;
    assert_eq!(answer.error(), (404, "NoSuchKey".to_owned()));
    client.put(user, "/photos/k", "there").await;
    let answer = client.send(user, conditional(("if-none-match", "*"))).await;
    assert_eq!(answer.error(), (412, "PreconditionFailed".to_owned()));
    assert_eq!(client.get(user, "/photos/k").await.body, "there");
    let answer = client
        .send(user, complete("/photos/k", &upload, &[(1, &one)]))
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(client.get(user, "/photos/k").await.body, "small");
    for id in ["56788", "00000000000000000000000000000007"] {
        let target = format!("/photos/k?uploadId={id}");
        let answer = client.delete(user, &target).await;
        assert_eq!(answer.error(), (404, "NoSuchUpload".to_owned()));
        let answer = client
            .send(user, complete("/photos/k", id, &[(1, &one)]))
            .await;
        assert_eq!(answer.error(), (404, "NoSuchUpload".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_aborted_upload_takes_no_more_parts() {
    let front = Front::new().await;
    let mut client = front.client().await;
    let user = &front.main;
    client.put(user, "/photos", "").await;
    let upload = begin(&mut client, user, "/photos/k").await;
    part(&mut client, user, "/photos/k", &upload, 1, b"data").await;
    let target = format!("/photos/k?uploadId={upload}");
    assert_eq!(client.delete(user, &target).await.status, 204);
    let put = format!("/photos/k?partNumber=1&uploadId={upload}");
    let answer = client.put(user, &put, "data").await;
    assert_eq!(answer.error(), (404, "NoSuchUpload".to_owned()));
    let uploads = client.get(user, "/photos?uploads").await;
    assert_eq!(uploads.element("UploadId"), None);
    for number in ["0", "10001", "x", ""] {
        let put = format!("/photos/k?partNumber={number}&uploadId={upload}");
        let answer = client.put(user, &put, "data").await;
        assert_eq!(
            answer.error(),
            (400, "InvalidArgument".to_owned()),
            "{number}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_composite_checksum_is_over_those_of_the_parts() {
    let front = Front::with_options(S3Options {
        part_bytes_min: 1,
        ..S3Options::default()
    })
    .await;
    let mut client = front.client().await;
    let user = &front.main;
    client.put(user, "/photos", "").await;
    let post = with(
        request(Method::POST, "/photos/k?uploads", ""),
        &[("x-amz-checksum-algorithm", "SHA256")],
    );
    let answer = client.send(user, post).await;
    assert_eq!(answer.header("x-amz-checksum-type"), "COMPOSITE");
    let upload = answer.element("UploadId").unwrap();
    let mut parts = Vec::new();
    for (number, data) in [(1, "one"), (2, "two")] {
        let target = format!("/photos/k?partNumber={number}&uploadId={upload}");
        let mismatch = with(
            request(Method::PUT, &target, data),
            &[("x-amz-checksum-crc32", "AAAAAA==")],
        );
        let answer = client.send(user, mismatch).await;
        assert_eq!(answer.error(), (400, "InvalidRequest".to_owned()));
        let answer = client.put(user, &target, data).await;
        let sum = answer.header("x-amz-checksum-sha256").to_owned();
        assert_eq!(STANDARD.encode(sha256(data.as_bytes())), sum);
        parts.push((answer.header("etag").to_owned(), sum));
    }
    let all: Vec<u8> = parts
        .iter()
        .flat_map(|(_, sum)| STANDARD.decode(sum).unwrap())
        .collect();
    let composite = format!("{}-2", STANDARD.encode(sha256(&all)));
    let names = [(1, parts[0].0.as_str()), (2, parts[1].0.as_str())];
    // No part can have a checksum of an algorithm that the upload does not use, nor a wrong one.
    for wrong in [
        "<ChecksumCRC32>AAAAAA==</ChecksumCRC32>".to_owned(),
        format!("<ChecksumSHA256>{}</ChecksumSHA256>", parts[1].1),
        format!(
            "<ChecksumCRC32>AAAAAA==</ChecksumCRC32><ChecksumSHA256>{}</ChecksumSHA256>",
            parts[0].1
        ),
    ] {
        let mut done = complete("/photos/k", &upload, &names);
        let text = String::from_utf8(done.body().to_vec()).unwrap();
        *done.body_mut() = text.replacen("<Part>", &format!("<Part>{wrong}"), 1).into();
        let answer = client.send(user, done).await;
        assert_eq!(answer.error(), (400, "InvalidPart".to_owned()), "{wrong}");
    }
    let done = with(
        complete("/photos/k", &upload, &names),
        &[("x-amz-checksum-sha256", &composite)],
    );
    let answer = client.send(user, done).await;
    assert_eq!(answer.element("ChecksumSHA256"), Some(composite.clone()));
    let mode = ("x-amz-checksum-mode", "ENABLED");
    let head = with(request(Method::HEAD, "/photos/k", ""), &[mode]);
    let answer = client.send(user, head).await;
    assert_eq!(answer.header("x-amz-checksum-sha256"), composite);
    let one = with(request(Method::GET, "/photos/k?partNumber=2", ""), &[mode]);
    let answer = client.send(user, one).await;
    assert_eq!(answer.header("x-amz-checksum-sha256"), parts[1].1);
    assert_eq!(answer.header("x-amz-checksum-type"), "COMPOSITE");
}

fn sha256(data: &[u8]) -> Vec<u8> {
    let sum = ring::digest::digest(&ring::digest::SHA256, data);
    sum.as_ref().to_vec()
}

#[tokio::test(start_paused = true)]
async fn parts_are_copied_from_other_objects() {
    let front = Front::new().await;
    let mut client = front.client().await;
    let user = &front.main;
    client.put(user, "/photos", "").await;
    client.put(user, "/photos/a%25b", "0123456789").await;
    let upload = begin(&mut client, user, "/photos/k").await;
    let target = format!("/photos/k?partNumber=1&uploadId={upload}");
    let copy = |source: &str, range: Option<&str>| {
        let mut copy = with(
            request(Method::PUT, &target, ""),
            &[("x-amz-copy-source", source)],
        );
        if let Some(range) = range {
            copy = with(copy, &[("x-amz-copy-source-range", range)]);
        }
        copy
    };
    for (source, range, error) in [
        ("photos/a%25b", Some("0-2"), (400, "InvalidArgument")),
        (
            "photos/a%25b",
            Some("bytes=0-2,3-5"),
            (400, "InvalidArgument"),
        ),
        ("photos/a%25b", Some("bytes=0-21"), (416, "InvalidRange")),
        ("photos/none", None, (404, "NoSuchKey")),
        ("none/none", None, (404, "NoSuchBucket")),
        ("photos", None, (400, "InvalidArgument")),
    ] {
        let answer = client.send(user, copy(source, range)).await;
        assert_eq!(
            answer.error(),
            (error.0, error.1.to_owned()),
            "{source} {range:?}"
        );
    }
    let answer = client
        .send(user, copy("/photos/a%25b", Some("bytes=2-4")))
        .await;
    let etag = answer.element("ETag").unwrap().replace("&quot;", "\"");
    let done = complete("/photos/k", &upload, &[(1, &etag)]);
    assert_eq!(client.send(user, done).await.status, 200);
    assert_eq!(client.get(user, "/photos/k").await.body, "234");
}

#[tokio::test(start_paused = true)]
async fn many_keys_are_deleted_at_once() {
    let front = Front::new().await;
    let mut client = front.client().await;
    let user = &front.main;
    client.put(user, "/photos", "").await;
    for key in ["a", "b%0D", "c"] {
        client.put(user, &format!("/photos/{key}"), "x").await;
    }
    let body = "<Delete><Object><Key>a</Key></Object><Object><Key>b&#13;</Key></Object>\
                <Object><Key>none</Key></Object><Object><Key>c</Key><ETag>wrong</ETag></Object>\
                <Object><Key/></Object></Delete>";
    let answer = client
        .send(user, request(Method::POST, "/photos?delete", body))
        .await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(text.matches("<Deleted>").count(), 3, "{text}");
    assert!(
        text.contains("<Deleted><Key>b&#xd;</Key></Deleted>"),
        "{text}"
    );
    assert!(
        text.contains("<Error><Key>c</Key><Code>PreconditionFailed</Code>"),
        "{text}"
    );
    assert!(
        text.contains("<Error><Key></Key><Code>KeyTooLongError"),
        "{text}"
    );
    // Which of two keys is meant nobody knows.
    for twice in [
        "<Key>none</Key><Key>c</Key>",
        "<Key>c</Key><VersionId>null</VersionId><VersionId>null</VersionId>",
    ] {
        let body = format!("<Delete><Object>{twice}</Object></Delete>");
        let answer = client
            .send(user, request(Method::POST, "/photos?delete", body))
            .await;
        assert_eq!(answer.error(), (400, "MalformedXML".to_owned()));
    }
    let listed = client.get(user, "/photos?list-type=2").await;
    assert_eq!(listed.element("KeyCount").as_deref(), Some("1"));
    let quiet = "<Delete><Quiet>true</Quiet><Object><Key>c</Key></Object></Delete>";
    let answer = client
        .send(user, request(Method::POST, "/photos?delete", quiet))
        .await;
    assert!(
        !String::from_utf8(answer.body.to_vec())
            .unwrap()
            .contains("Deleted")
    );
    let stranger = request(Method::POST, "/photos?delete", quiet);
    assert_eq!(client.send(&front.alt, stranger).await.status, 403);
}

#[tokio::test(start_paused = true)]
async fn tags_of_objects_and_buckets() {
    let front = Front::new().await;
    let mut client = front.client().await;
    let user = &front.main;
    client.put(user, "/photos", "").await;
    client.put(user, "/photos/k", "x").await;
    let document = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    for (target, status) in [("/photos/k?tagging", 200), ("/photos?tagging", 204)] {
        let answer = client.put(user, target, document).await;
        assert_eq!(answer.status, status, "{answer:?}");
        let answer = client.get(user, target).await;
        assert_eq!(answer.element("Value").as_deref(), Some("b"));
        assert_eq!(client.delete(user, target).await.status, 204);
        let answer = client.put(user, target, "<Tagging/>").await;
        assert_eq!(answer.error(), (400, "MalformedXML".to_owned()));
    }
    let answer = client.get(user, "/photos/k?tagging").await;
    assert_eq!(answer.element("TagSet").as_deref(), Some(""));
    let answer = client.get(user, "/photos?tagging").await;
    assert_eq!(answer.error(), (404, "NoSuchTagSet".to_owned()));
    let answer = client.put(user, "/photos/none?tagging", document).await;
    assert_eq!(answer.error(), (404, "NoSuchKey".to_owned()));
    assert_eq!(client.get(user, "/photos/k").await.body, "x", "data stays");
}

/// A form with these fields and then a file.
fn form(bucket: &str, fields: &[(&str, &str)], file: &str) -> Request<Bytes> {
    let mut body = String::new();
    for (name, value) in fields {
        body.push_str(&format!(
            "--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        ));
    }
    body.push_str(&format!(
        "--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"C:\\dir\\f.txt\"\r\n\
         Content-Type: text/plain\r\n\r\n{file}\r\n--xyz--\r\n"
    ));
    with(
        request(Method::POST, bucket, body),
        &[("content-type", "multipart/form-data; boundary=xyz")],
    )
}

#[tokio::test(start_paused = true)]
async fn a_form_of_nobody_needs_a_bucket_that_all_may_write() {
    let front = Front::new().await;
    let mut client = front.client().await;
    let user = &front.main;
    client.put(user, "/private", "").await;
    let open = with(
        request(Method::PUT, "/open", ""),
        &[("x-amz-acl", "public-read-write")],
    );
    assert_eq!(client.send(user, open).await.status, 200);
    let fields = [
        ("key", "up/${filename}"),
        ("x-amz-meta-a", "b"),
        ("acl", "public-read"),
    ];
    let answer = client.send_as_is(form("/private", &fields, "hello")).await;
    assert_eq!(answer.error(), (403, "AccessDenied".to_owned()));
    let answer = client.send_as_is(form("/open", &fields, "hello")).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    let answer = client.get(user, "/open/up/f.txt").await;
    assert_eq!(
        (answer.body, &answer.headers["x-amz-meta-a"]),
        ("hello".into(), &"b".parse().unwrap())
    );

    let created = |more: &[(&str, &str)]| -> Vec<(String, String)> {
        [("key", "k")]
            .iter()
            .chain(more)
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect()
    };
    let mut send = async |more: &[(&str, &str)]| -> Answer {
        let fields = created(more);
        let fields: Vec<(&str, &str)> = fields
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        client.send_as_is(form("/open", &fields, "hello")).await
    };
    let answer = send(&[("success_action_status", "201")]).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.element("Key").as_deref(), Some("k"));
    assert_eq!(send(&[("success_action_status", "404")]).await.status, 204);
    let answer = send(&[("success_action_redirect", "http://there/x")]).await;
    assert_eq!(answer.status, 303);
    assert_eq!(
        answer.header("location"),
        "http://there/x?bucket=open&key=k&etag=%225d41402abc4b2a76b9719d911017c592%22"
    );
    let answer = send(&[("x-amz-checksum-sha256", "sailorjerry")]).await;
    assert_eq!(answer.error(), (400, "BadDigest".to_owned()));
    let answer = send(&[("tagging", "<Tagging>")]).await;
    assert_eq!(answer.error(), (400, "MalformedXML".to_owned()));
    let answer = send(&[("policy", "e30=")]).await;
    assert_eq!(answer.error().0, 400, "a policy without a signature");
    let nameless = form("/open", &[("acl", "private")], "hello");
    let answer = client.send_as_is(nameless).await;
    assert_eq!(answer.error(), (400, "InvalidArgument".to_owned()));
    let plain = request(Method::POST, "/open", "hello");
    assert_eq!(client.send_as_is(plain).await.error().0, 400);
}
