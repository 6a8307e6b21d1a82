//! Workers that repeat one verb, and the figures they leave.

use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::sign::Signer;

/// Keys on one page of a listing.
const PAGE_KEYS: usize = 1000;
/// Ticks of the kernel's process accounting in a second, fixed on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verb {
    Create,
    Fill,
    Get,
    List,
    Put,
}

/// One measurement.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    verb: Verb,
    pub(crate) size_bytes: usize,
    pub(crate) connections: usize,
    pub(crate) seconds: u64,
    pub(crate) keys: u64,
    pub(crate) pid: u32,
    target: Option<(Signer, String)>,
}

/// What a worker did.
#[derive(Debug, Default)]
struct Done {
    operations: u64,
    bytes: u64,
    latencies_us: Vec<u64>,
}

impl Load {
    pub(crate) fn new(verb: Verb) -> Self {
        Self {
            verb,
            size_bytes: 4096,
            connections: 32,
            seconds: 5,
            keys: 10_000,
            pid: 0,
            target: None,
        }
    }

    pub(crate) fn against(mut self, signer: Signer, bucket: String) -> Self {
        self.target = Some((signer, bucket));
        self
    }

    /// Runs and returns the figures; the first failed request ends the run.
    pub(crate) async fn run(self) -> Result<serde_json::Value> {
        let body = Arc::new(noise(self.size_bytes));
        let next = Arc::new(AtomicU64::new(0));
        let cpu_before = self.cpu_seconds()?;
        let started = Instant::now();
        let deadline = started + Duration::from_secs(self.seconds);
        let workers = if matches!(self.verb, Verb::Fill | Verb::Get | Verb::Put) {
            self.connections
        } else {
            1
        };
        let mut running = tokio::task::JoinSet::new();
        for number in 0..workers {
            let (load, body, next) = (self.clone(), Arc::clone(&body), Arc::clone(&next));
            running
                .spawn(async move { load.work(number as u64 + 1, &body, &next, deadline).await });
        }
        let mut total = Done::default();
        while let Some(done) = running.join_next().await {
            let done = done.map_err(Error::other)??;
            total.operations += done.operations;
            total.bytes += done.bytes;
            total.latencies_us.extend(done.latencies_us);
        }
        let seconds = started.elapsed().as_secs_f64();
        total.latencies_us.sort_unstable();
        Ok(json!({
            "operations": total.operations,
            "bytes": total.bytes,
            "seconds": seconds,
            "server_cpu_seconds": self.cpu_seconds()? - cpu_before,
            "p50_us": quantile(&total.latencies_us, 50),
            "p99_us": quantile(&total.latencies_us, 99),
        }))
    }

    async fn work(
        self,
        seed: u64,
        body: &[u8],
        next: &AtomicU64,
        deadline: Instant,
    ) -> Result<Done> {
        let (signer, bucket) = self.target.as_ref().expect("parsing asks for a target");
        let mut connection = Connection::open(signer.address).await?;
        let mut random = Random(seed);
        let mut done = Done::default();
        loop {
            let started = Instant::now();
            let (operations, bytes) = match self.verb {
                Verb::Create => {
                    let head = signer.head("PUT", &format!("/{bucket}"), "", 0);
                    expect_ok(&connection.call(&head, b"", true).await?)?;
                    return Ok(Done {
                        operations: 1,
                        ..Done::default()
                    });
                }
                Verb::Fill | Verb::Put => {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if self.verb == Verb::Fill && number >= self.keys {
                        return Ok(done);
                    }
                    let key = number % self.keys;
                    let head = signer.head("PUT", &format!("/{bucket}/o{key:08}"), "", body.len());
                    expect_ok(&connection.call(&head, body, false).await?)?;
                    (1, body.len() as u64)
                }
                Verb::Get => {
                    let key = random.below(self.keys);
                    let head = signer.head("GET", &format!("/{bucket}/o{key:08}"), "", 0);
                    let answer = connection.call(&head, b"", false).await?;
                    expect_ok(&answer)?;
                    (1, answer.length)
                }
                Verb::List => list(&mut connection, signer, bucket).await?,
            };
            done.operations += operations;
            done.bytes += bytes;
            done.latencies_us
                .push(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
            if self.verb != Verb::Fill && Instant::now() >= deadline {
                return Ok(done);
            }
        }
    }

    /// User and system time of the server, all its threads.
    fn cpu_seconds(&self) -> Result<f64> {
        if self.pid == 0 {
            return Ok(0.0);
        }
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let (user, system) = ticks(11)
            .zip(ticks(12))
            .ok_or_else(|| Error::other("process accounting"))?;
        Ok((user + system) / TICKS_PER_SECOND)
    }
}

/// Lists the whole bucket once; keys and bytes seen.
async fn list(connection: &mut Connection, signer: &Signer, bucket: &str) -> Result<(u64, u64)> {
    let (mut keys, mut bytes, mut token) = (0, 0, None);
    loop {
        let from = token
            .map(|token: String| format!("continuation-token={token}&"))
            .unwrap_or_default();
        let query = format!("{from}list-type=2&max-keys={PAGE_KEYS}");
        let head = signer.head("GET", &format!("/{bucket}"), &query, 0);
        let answer = connection.call(&head, b"", true).await?;
        expect_ok(&answer)?;
        let page = String::from_utf8_lossy(&answer.body);
        keys += page.matches("<Contents>").count() as u64;
        bytes += answer.length;
        if !page.contains("<IsTruncated>true") {
            return Ok((keys, bytes));
        }
        let following = page
            .split("<NextContinuationToken>")
            .nth(1)
            .and_then(|rest| rest.split('<').next());
        token = Some(encoded(
            following.ok_or_else(|| Error::other("no token to go on with"))?,
        ));
    }
}

fn expect_ok(answer: &crate::connection::Answer) -> Result<()> {
    if (200..300).contains(&answer.status) {
        return Ok(());
    }
    Err(Error::other(format!(
        "status {}: {}",
        answer.status,
        String::from_utf8_lossy(&answer.body)
    )))
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |byte| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(one).collect()
}

fn quantile(sorted: &[u64], percent: usize) -> u64 {
    sorted
        .get(sorted.len() * percent / 100)
        .or(sorted.last())
        .copied()
        .unwrap_or(0)
}

/// Bytes that don't compress.
fn noise(length: usize) -> Vec<u8> {
    let mut random = Random(88_172_645_463_325_252);
    (0..length)
        .map(|_| random.next().to_le_bytes()[3])
        .collect()
}

/// xorshift64: even enough to choose keys and fill bodies. The seed is not zero.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        // Neighbouring seeds start alike: spread them first.
        (self.next().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_takes_the_last_at_the_end() {
        assert_eq!(quantile(&[1, 2, 3, 4], 50), 3);
        assert_eq!(quantile(&[7], 99), 7);
        assert_eq!(quantile(&[], 50), 0);
    }

    #[test]
    fn random_keys_are_spread() {
        let mut random = Random(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            seen.insert(random.below(100));
        }
        assert!(seen.len() > 90, "only {} of 100 keys", seen.len());
    }

    #[test]
    fn token_is_encoded() {
        assert_eq!(encoded("a/b+c=~"), "a%2Fb%2Bc%3D~");
    }
}
