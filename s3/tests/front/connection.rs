//! What a connection does beside answering: time-outs, early errors, the gate, bytes in flight.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use portico_backend::budget::Budget;
use portico_s3::serve::S3Options;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::harness::{Front, START_MS, Signed, request, signed, with};

/// The head of a signed request as it goes over the wire, without a body.
fn head_text(request: &Request<Bytes>) -> String {
    let target = request.uri().path_and_query().unwrap();
    let mut text = format!("{} {target} HTTP/1.1\r\n", request.method());
    for (name, value) in request.headers() {
        text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    text + "\r\n"
}

/// A signed PUT of `length` bytes; the signature leaves the body out.
fn put_head(front: &Front, target: &str, length: u64, more: &[(&'static str, &str)]) -> String {
    let put = with(
        request(Method::PUT, target, ""),
        &[("content-length", &length.to_string())],
    );
    let put = with(put, more);
    head_text(&signed(&front.main, put, Signed::HeadOnly, START_MS))
}

async fn read_to_end(mut stream: DuplexStream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    String::from_utf8(text).unwrap()
}

async fn read_head(stream: &mut DuplexStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

async fn front_with_bucket() -> Front {
    let front = Front::new().await;
    let answer = front.client().await.put(&front.main, "/photos", "").await;
    assert_eq!(answer.status, 200);
    front
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_is_told_to_go_on_or_why_not() {
    let front = front_with_bucket().await;
    let expect = [("expect", "100-continue")];
    let mut stream = front.stream();
    let head = put_head(&front, "/photos/key", 5, &expect);
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 100 "));
    stream.write_all(b"hello").await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200 "));

    let mut stream = front.stream();
    let head = put_head(&front, "/none-such/key", 5, &expect);
    stream.write_all(head.as_bytes()).await.unwrap();
    let reply = read_head(&mut stream).await;
    assert!(reply.starts_with("HTTP/1.1 404 "), "{reply}");
}

#[tokio::test(start_paused = true)]
async fn an_error_reaches_a_client_that_is_still_sending() {
    let front = front_with_bucket().await;
    let stream = front.stream();
    let head = put_head(&front, "/none-such/key", 1 << 30, &[]);
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sending = tokio::spawn(async move {
        writer.write_all(head.as_bytes()).await?;
        let piece = vec![0; 64 << 10];
        for _ in 0..32 {
            writer.write_all(&piece).await?;
        }
        std::io::Result::Ok(writer)
    });
    let mut reply = Vec::new();
    reader.read_to_end(&mut reply).await.unwrap();
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 404 "), "{reply}");
    assert!(reply.contains("<Code>NoSuchBucket</Code>"), "{reply}");
    sending.await.unwrap().unwrap();
}

/// The connection of a client that keeps it must not end without a word: its next request would be
/// lost.
#[tokio::test(start_paused = true)]
async fn an_error_before_the_body_keeps_the_connection_or_says_that_it_ends() {
    let front = front_with_bucket().await;
    let mut stream = front.stream();
    for _ in 0..2 {
        let head = put_head(&front, "/none-such/key", 5, &[]);
        stream.write_all(head.as_bytes()).await.unwrap();
        // By now the answer is known.
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(b"hello").await.unwrap();
        let reply = read_head(&mut stream).await;
        assert!(reply.starts_with("HTTP/1.1 404 "), "{reply}");
        assert!(!reply.contains("connection: close"), "{reply}");
        let (_, length) = reply.split_once("content-length: ").unwrap();
        let length = length.lines().next().unwrap().parse().unwrap();
        stream.read_exact(&mut vec![0; length]).await.unwrap();
    }
    let expect: &[(&str, &str)] = &[("expect", "100-continue")];
    for (length, more) in [(1 << 30, &[][..]), (5, &[]), (5, expect)] {
        let mut stream = front.stream();
        let head = put_head(&front, "/none-such/key", length, more);
        stream.write_all(head.as_bytes()).await.unwrap();
        let reply = read_to_end(stream).await;
        assert!(reply.starts_with("HTTP/1.1 404 "), "{reply}");
        assert!(reply.contains("connection: close\r\n"), "{reply}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_still_sending_too_long_a_head_learns_why() {
    let front = Front::new().await;
    let (mut reader, mut writer) = tokio::io::split(front.stream());
    let sending = tokio::spawn(async move {
        writer.write_all(b"GET / HTTP/1.1\r\nx: ").await?;
        writer.write_all(&[b'x'; 256 << 10]).await
    });
    let mut reply = Vec::new();
    reader.read_to_end(&mut reply).await.unwrap();
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    assert!(
        reply.contains("<Code>RequestHeaderSectionTooLarge<"),
        "{reply}"
    );
    sending.await.unwrap().unwrap();
}

/// A client may send as much user metadata as the API allows, in as many headers as it likes; more
/// than that is told in the API's words as long as there is an end to it.
#[tokio::test(start_paused = true)]
async fn many_headers_are_taken_and_too_many_are_told_so() {
    let front = front_with_bucket().await;
    let metadata = |count: usize| -> Vec<(String, String)> {
        let lines = 0..count;
        lines
            .map(|n| (format!("x-amz-meta-{n:x}"), "v".to_owned()))
            .collect()
    };
    let ask = async |lines: &[(String, String)]| {
        let mut put = request(Method::PUT, "/photos/key", "");
        put.headers_mut().insert("content-length", 0.into());
        for (name, value) in lines {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            put.headers_mut().insert(name, value.parse().unwrap());
        }
        let put = signed(&front.main, put, Signed::HeadOnly, START_MS);
        let mut stream = front.stream();
        stream.write_all(head_text(&put).as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        read_to_end(stream).await
    };
    let reply = ask(&metadata(480)).await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    let long = [("x-amz-meta-a".to_owned(), "x".repeat(40 << 10))];
    for lines in [&metadata(600)[..], &metadata(2_000), &long] {
        let reply = ask(lines).await;
        assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
        let code = "<Code>RequestHeaderSectionTooLarge</Code>";
        assert!(reply.contains(code), "{reply}");
    }
}

/// hyper answers what it cannot take in by itself, with a bare status.
#[tokio::test(start_paused = true)]
async fn what_is_no_request_is_answered_like_one() {
    let front = front_with_bucket().await;
    let get = |key: &str| {
        let get = request(Method::GET, &format!("/photos/{key}"), "");
        head_text(&signed(&front.main, get, Signed::Body, START_MS))
    };
    let content = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let mut client = front.client().await;
    client
        .put(&front.main, "/photos/key", content.to_vec())
        .await;
    for junk in [
        "\x16\x03\x01\x02\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n".to_owned(),
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n".to_owned(),
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(),
        format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(70 << 10)),
    ] {
        let mut stream = front.stream();
        stream.write_all(junk.as_bytes()).await.unwrap();
        let reply = read_to_end(stream).await;
        assert!(reply.starts_with("HTTP/1.1 400 "), "{junk:.40}: {reply}");
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(body.contains("</Code><Message>"), "{junk:.40}: {reply}");
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{reply}"
        );
        let (_, id) = head.split_once("x-amz-request-id: ").unwrap();
        let id = id.lines().next().unwrap();
        assert!(body.contains(&format!("<RequestId>{id}<")), "{reply}");
        assert!(head.contains("connection: close"), "{reply}");

        // Behind requests that were answered, together with them or later: each keeps its reply.
        for pause_ms in [0, 10] {
            let mut stream = front.stream();
            let ahead = get("key") + &get("none") + &get("key");
            stream.write_all(ahead.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            stream.write_all(junk.as_bytes()).await.unwrap();
            let replies = read_to_end(stream).await;
            let content = std::str::from_utf8(content).unwrap();
            assert_eq!(replies.matches(content).count(), 2, "{replies}");
            assert_eq!(replies.matches("<Code>NoSuchKey<").count(), 1, "{replies}");
            assert_eq!(replies.matches("<Error>").count(), 2, "{replies}");
        }
    }
    front.gate.set_open(false);
    let mut stream = front.stream();
    stream.write_all(b"junk\r\n\r\n").await.unwrap();
    assert_eq!(read_to_end(stream).await, "");
}

/// RFC 9112 3.2.
#[tokio::test(start_paused = true)]
async fn a_request_names_one_host() {
    let front = Front::new().await;
    let ask = async |version: &str, hosts: &str| {
        let mut stream = front.stream();
        let head = format!("GET / HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        read_to_end(stream).await
    };
    for (version, hosts) in [
        ("1.1", ""),
        ("1.1", "Host: a\r\nHost: a\r\n"),
        ("1.1", "Host: a\r\nHost: b\r\n"),
        ("1.0", "Host: a\r\nHost: b\r\n"),
        ("1.1", "Host: a, b\r\n"),
        ("1.1", "Host: a/b\r\n"),
        ("1.1", "Host: u@a\r\n"),
    ] {
        let reply = ask(version, hosts).await;
        let status = format!("HTTP/{version} 400 ");
        assert!(reply.starts_with(&status), "{hosts:?}: {reply}");
        assert!(
            reply.contains("<Code>BadRequest</Code>"),
            "{hosts:?}: {reply}"
        );
    }
    for (version, hosts) in [
        ("1.1", "Host: a\r\n"),
        ("1.1", "Host: [::1]:9000\r\n"),
        ("1.1", "Host:\r\n"),
        ("1.0", ""),
    ] {
        let reply = ask(version, hosts).await;
        assert!(
            reply.contains("<Code>AccessDenied</Code>"),
            "{hosts:?}: {reply}"
        );
    }
}

/// A condition that could not be read counted as none, and the object was overwritten.
#[tokio::test(start_paused = true)]
async fn a_header_that_decides_is_text_and_there_once() {
    let front = front_with_bucket().await;
    let mut client = front.client().await;
    let user = &front.main;
    client.put(user, "/photos/key", "kept").await;
    for name in [
        "if-match",
        "if-unmodified-since",
        "x-amz-metadata-directive",
        "x-amz-copy-source-range",
    ] {
        let mut put = request(Method::PUT, "/photos/key", "lost");
        put = signed(user, put, Signed::Body, START_MS);
        let value = http::HeaderValue::from_bytes(b"\xe4").unwrap();
        put.headers_mut().insert(name, value);
        let answer = client.send_as_is(put).await;
        assert_eq!(
            answer.error(),
            (400, "InvalidArgument".to_owned()),
            "{name}"
        );
        assert_eq!(answer.element("ArgumentName").as_deref(), Some(name));
    }
    let put = request(Method::PUT, "/photos/key", "lost");
    let mut put = signed(user, put, Signed::Body, START_MS);
    let other = http::HeaderValue::from_static("Basic x");
    put.headers_mut().append("authorization", other);
    let answer = client.send_as_is(put).await;
    assert_eq!(answer.error(), (400, "BadRequest".to_owned()));
    assert_eq!(client.get(user, "/photos/key").await.body, "kept");
}

/// A byte now and then held the memory of a transfer for as long as the client liked.
#[tokio::test(start_paused = true)]
async fn who_trickles_is_hung_up_on_and_who_is_slow_is_not() {
    let budget = Budget::new(64 << 20);
    let front = Front::with_budget(S3Options::default(), budget.clone()).await;
    front.client().await.put(&front.main, "/photos", "").await;
    for (name, piece, goes_on) in [("slow", 40 << 10, true), ("trickle", 512, false)] {
        let target = format!("/photos/{name}");
        let length = 20 * piece;
        let head = put_head(&front, &target, length as u64, &[]);
        let mut stream = front.stream();
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(30)).await;
            // Once it was hung up on nobody takes it.
            drop(stream.write_all(&vec![7; piece]).await);
        }
        let reply = read_to_end(stream).await;
        assert_eq!(
            reply.starts_with("HTTP/1.1 200 "),
            goes_on,
            "{name}: {reply}"
        );
        assert_eq!(
            reply.contains("<Code>RequestTimeout"),
            !goes_on,
            "{name}: {reply}"
        );
        let answer = front.client().await.get(&front.main, &target).await;
        assert_eq!(answer.status == 200, goes_on, "{name}");
    }

    let big = vec![7; 8 << 20];
    let mut client = front.client().await;
    client.put(&front.main, "/photos/big", big).await;
    for (piece, goes_on) in [(40 << 10, true), (512, false)] {
        let mut stream = front.stream();
        let get = request(Method::GET, "/photos/big", "");
        let head = head_text(&signed(&front.main, get, Signed::Body, START_MS));
        stream.write_all(head.as_bytes()).await.unwrap();
        assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200 "));
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(30)).await;
            if stream.read_exact(&mut vec![0; piece]).await.is_err() {
                break;
            }
        }
        assert_eq!(budget.free_bytes() < 64 << 20, goes_on, "{piece}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_cut_short_or_silent_leaves_nothing() {
    let front = front_with_bucket().await;
    let mut stream = front.stream();
    let head = put_head(&front, "/photos/cut", 10, &[]);
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    let reply = read_to_end(stream).await;
    assert!(!reply.starts_with("HTTP/1.1 200"), "{reply}");

    let mut stream = front.stream();
    let head = put_head(&front, "/photos/silent", 10, &[]);
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let reply = read_to_end(stream).await;
    assert!(reply.contains("<Code>RequestTimeout</Code>"), "{reply}");

    let mut client = front.client().await;
    for key in ["cut", "silent"] {
        let answer = client.get(&front.main, &format!("/photos/{key}")).await;
        assert_eq!(answer.error(), (404, "NoSuchKey".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_sent_ahead_are_answered_in_order_also_after_a_half_close() {
    let front = front_with_bucket().await;
    let mut stream = front.stream();
    let mut both = put_head(&front, "/photos/key", 5, &[]) + "hello";
    let get = request(Method::GET, "/photos/key", "");
    both.push_str(&head_text(&signed(
        &front.main,
        get,
        Signed::Body,
        START_MS,
    )));
    stream.write_all(both.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let replies = read_to_end(stream).await;
    assert_eq!(replies.matches("HTTP/1.1 200 OK").count(), 2, "{replies}");
    assert!(replies.ends_with("\r\n\r\nhello"), "{replies}");
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_through_a_closed_gate() {
    let front = front_with_bucket().await;
    let mut client = front.client().await;
    assert_eq!(client.head(&front.main, "/photos").await.status, 200);
    front.gate.set_open(false);
    let put = signed(
        &front.main,
        request(Method::PUT, "/photos/key", "x"),
        Signed::Body,
        START_MS,
    );
    assert!(client.try_send(put).await.is_err());
    let mut stream = front.stream();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(read_to_end(stream).await, "");
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_for_bytes_in_flight_is_told_to_slow_down() {
    let budget = Budget::new(1 << 20);
    let front = Front::with_budget(S3Options::default(), budget.clone()).await;
    let mut client = front.client().await;
    client.put(&front.main, "/photos", "").await;
    let taken = budget.take(1 << 20).await;
    let mut stream = front.stream();
    let head = put_head(&front, "/photos/key", 128 << 10, &[]);
    stream.write_all(head.as_bytes()).await.unwrap();
    let reply = read_head(&mut stream).await;
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    let answer = client.put(&front.main, "/photos/key", "hello").await;
    assert_eq!(
        answer.status, 200,
        "small requests have a share of their own"
    );
    drop(taken);
    let big = vec![7; 128 << 10];
    let answer = client.put(&front.main, "/photos/key", big).await;
    assert_eq!(answer.status, 200);
    assert_eq!(budget.free_bytes(), 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn a_form_of_nobody_known_holds_next_to_nothing() {
    let budget = Budget::new(64 << 20);
    let front = Front::with_budget(S3Options::default(), budget.clone()).await;
    let mut client = front.client().await;
    client.put(&front.main, "/photos", "").await;
    let mut stream = front.stream();
    let head = "POST /photos HTTP/1.1\r\nhost: s3.test\r\ncontent-length: 1000000000\r\n\
                content-type: multipart/form-data; boundary=b\r\n\r\n--b\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let taken = (64 << 20) - budget.free_bytes();
    assert!((1..=64 << 10).contains(&taken), "{taken} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_idle_connections_and_lets_the_busy_ones_finish() {
    let front = front_with_bucket().await;
    let mut idle = front.stream();
    let mut busy = front.stream();
    let head = put_head(&front, "/photos/key", 5, &[]);
    busy.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    front.stop.request();
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0);
    busy.write_all(b"hello").await.unwrap();
    let reply = read_to_end(busy).await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_hung_up_on() {
    let front = Front::new().await;
    let mut stream = front.stream();
    stream.write_all(b"GET / HT").await.unwrap();
    let started = tokio::time::Instant::now();
    read_to_end(stream).await;
    assert!(started.elapsed() <= Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_gives_its_bytes_back() {
    let budget = Budget::new(64 << 20);
    let front = Front::with_budget(S3Options::default(), budget.clone()).await;
    let mut client = front.client().await;
    client.put(&front.main, "/photos", "").await;
    let big = vec![7; 8 << 20];
    let answer = client.put(&front.main, "/photos/big", big.clone()).await;
    assert_eq!(answer.status, 200);
    let answer = client.get(&front.main, "/photos/big").await;
    assert!(answer.body == big);
    drop(answer);

    let mut stream = front.stream();
    let get = request(Method::GET, "/photos/big", "");
    let head = head_text(&signed(&front.main, get, Signed::Body, START_MS));
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200 "));
    assert!(budget.free_bytes() < 64 << 20);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(budget.free_bytes(), 64 << 20);
}

#[tokio::test(start_paused = true)]
async fn errors_carry_ids_and_answers_to_head_carry_no_body() {
    let front = front_with_bucket().await;
    let mut client = front.client().await;
    let answer = client.get(&front.main, "/photos/none").await;
    assert_eq!(
        answer.element("RequestId").as_deref(),
        Some(answer.header("x-amz-request-id"))
    );
    assert_eq!(
        answer.element("HostId").as_deref(),
        Some(answer.header("x-amz-id-2"))
    );
    assert_eq!(answer.header("content-type"), "application/xml");
    assert_eq!(answer.header("date"), "Wed, 01 May 2024 00:00:00 GMT");
    let answer = client.head(&front.main, "/photos/none").await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (404, 0));
    let verb = front.service.stats().verb(Some("GetObject"));
    assert_eq!((verb.count.value(), verb.client_errors.value()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_presigned_url_works_until_it_ends() {
    let front = front_with_bucket().await;
    let mut client = front.client().await;
    client.put(&front.main, "/photos/key", "hello").await;
    let get = request(Method::GET, "/photos/key", "");
    let get = signed(&front.main, get, Signed::Presigned(60), START_MS);
    assert_eq!(client.send_as_is(get.clone()).await.body, "hello");
    front.clock.advance(61_000);
    let answer = client.send_as_is(get).await;
    assert_eq!(answer.error(), (403, "AccessDenied".to_owned()));
}
