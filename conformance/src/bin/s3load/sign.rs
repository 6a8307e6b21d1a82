//! Signature Version 4 in the Authorization header, over an unsigned payload.

use std::net::SocketAddr;

use portico_backend::clock::{Clock, SystemClock};
use portico_s3::wire::encoding::hex;
use portico_s3::wire::time::amz_date;
use ring::{digest, hmac};

const SIGNED_HEADERS: &str = "host;x-amz-content-sha256;x-amz-date";
const PAYLOAD: &str = "UNSIGNED-PAYLOAD";
const REGION: &str = "us-east-1";

/// Makes signed request heads for one server and user.
#[derive(Clone, Debug)]
pub(crate) struct Signer {
    pub(crate) address: SocketAddr,
    access_key: String,
    secret_key: String,
}

impl Signer {
    pub(crate) fn new(address: SocketAddr, access_key: &str, secret_key: &str) -> Self {
        Self {
            address,
            access_key: access_key.to_owned(),
            secret_key: secret_key.to_owned(),
        }
    }

    /// A request head up to and with the empty line. `path` and `query` are already encoded, and the
    /// query is in the order of its names.
    pub(crate) fn head(&self, method: &str, path: &str, query: &str, length: usize) -> String {
        let date = amz_date(SystemClock.now_ms());
        let day = &date[..8];
        let host = self.address;
        let canonical = format!(
            "{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{PAYLOAD}\n\
             x-amz-date:{date}\n\n{SIGNED_HEADERS}\n{PAYLOAD}"
        );
        let scope = format!("{day}/{REGION}/s3/aws4_request");
        let digest = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}");
        let mut key = format!("AWS4{}", self.secret_key).into_bytes();
        for part in [day, REGION, "s3", "aws4_request"] {
            key = keyed(&key, part);
        }
        let signature = hex(&keyed(&key, &text));
        let mark = if query.is_empty() { "" } else { "?" };
        format!(
            "{method} {path}{mark}{query} HTTP/1.1\r\nHost: {host}\r\nx-amz-date: {date}\r\n\
             x-amz-content-sha256: {PAYLOAD}\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential={}/{scope}, SignedHeaders={SIGNED_HEADERS}, Signature={signature}\r\n\
             Content-Length: {length}\r\n\r\n",
            self.access_key
        )
    }
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
        .as_ref()
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_carries_what_it_signs() {
        let signer = Signer::new("127.0.0.1:9000".parse().unwrap(), "AK", "SK");
        let head = signer.head("GET", "/b/k", "list-type=2", 7);
        assert!(head.starts_with("GET /b/k?list-type=2 HTTP/1.1\r\nHost: 127.0.0.1:9000\r\n"));
        assert!(head.ends_with("Content-Length: 7\r\n\r\n"));
        let signature = head
            .split("Signature=")
            .nth(1)
            .unwrap()
            .split("\r\n")
            .next()
            .unwrap();
        assert_eq!(signature.len(), 64);
    }
}
