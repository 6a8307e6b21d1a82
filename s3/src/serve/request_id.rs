//! Request ids: what a user quotes and an operator searches the log for.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Hands out the ids of one run of the program.
#[derive(Debug)]
pub(super) struct RequestIds {
    seed: u64,
    next: AtomicU64,
}

/// The id of one request: 16 upper-case hexadecimal digits, as S3's own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RequestId {
    id: u64,
    seed: u64,
}

impl RequestIds {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            next: AtomicU64::new(0),
        }
    }

    pub(super) fn next(&self) -> RequestId {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        RequestId {
            id: scatter(self.seed.wrapping_add(count)),
            seed: self.seed,
        }
    }
}

impl RequestId {
    /// The value of `x-amz-id-2`: names the run of the program and the request.
    pub(crate) fn host_id(self) -> String {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&scatter(!self.seed).to_be_bytes());
        bytes[8..].copy_from_slice(&self.id.to_be_bytes());
        STANDARD.encode(bytes)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.id)
    }
}

/// The finaliser of splitmix64: a bijection, so ids of one run never repeat.
fn scatter(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_within_a_run_and_have_sixteen_digits() {
        let ids = RequestIds::new(7);
        let (first, second) = (ids.next(), ids.next());
        assert_ne!(first, second);
        assert_eq!(first.to_string().len(), 16);
        assert_ne!(first.host_id(), second.host_id());
    }
}
