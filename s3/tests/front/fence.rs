//! What clients are told when the session that they are served from is fenced.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::harness::{Front, START_MS, Signed, request, signed, with};

async fn front_with_bucket() -> Front {
    let front = Front::new().await;
    let answer = front.client().await.put(&front.main, "/photos", "").await;
    assert_eq!(answer.status, 200);
    front
}

/// Sends the head of a signed PUT of five bytes, and `body`.
async fn begin_put(front: &Front, stream: &mut DuplexStream, target: &str, body: &str) {
    let put = with(
        request(Method::PUT, target, Bytes::new()),
        &[("content-length", "5")],
    );
    let put = signed(&front.main, put, Signed::HeadOnly, START_MS);
    let mut text = format!("PUT {target} HTTP/1.1\r\n");
    for (name, value) in put.headers() {
        text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    stream.write_all(text.as_bytes()).await.unwrap();
}

async fn read_reply(stream: &mut DuplexStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"</Error>") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_fence_is_answered_with_503_and_the_connection_stays() {
    let front = front_with_bucket().await;
    let mut client = front.client().await;
    let answer = client.put(&front.main, "/photos/key", "hello").await;
    assert_eq!(answer.status, 200);
    front.fence().await;
    // Another session of the same cluster would still answer: what is over is over.
    for _ in 0..2 {
        let answer = client.get(&front.main, "/photos/key").await;
        assert_eq!(answer.error(), (503, "ServiceUnavailable".to_owned()));
        assert_eq!(answer.header("retry-after"), "1");
    }
    front.tenure.end("nothing is there");
    let answer = client.get(&front.main, "/photos/key").await;
    assert_eq!(answer.error(), (503, "ServiceUnavailable".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn who_is_still_sending_when_the_session_is_fenced_is_told_at_once() {
    let front = front_with_bucket().await;
    let mut stream = front.stream();
    begin_put(&front, &mut stream, "/photos/key", "hel").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    front.fence().await;
    let since = tokio::time::Instant::now();
    let reply = read_reply(&mut stream).await;
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    // As long as an error waits for the rest of a body.
    assert!(since.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_waits_to_leave_is_withdrawn_by_a_fence() {
    let front = front_with_bucket().await;
    let mut stream = front.stream();
    // Refused before its body was read, and told when the body has come.
    begin_put(&front, &mut stream, "/missing/key", "hel").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    front.fence().await;
    stream.write_all(b"lo").await.unwrap();
    let reply = read_reply(&mut stream).await;
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    assert!(reply.contains("<Code>ServiceUnavailable</Code>"), "{reply}");
}
