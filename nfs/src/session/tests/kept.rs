//! Calls that come again.

use core::net::IpAddr;

use bytes::Bytes;

use crate::limits::{
    CLIENT_REPLY_BYTES_MAX, KEPT_REPLY_BYTES, KEPT_RESULTS_BYTES_MAX, REPLY_AGE_MS_MAX,
    REPLY_BYTES_TOTAL_MAX, WAITERS_MAX,
};
use crate::session::reply_cache::{Begin, CallKey, ReplyCache};
use crate::wire::program::Again::{Changes, Reorders};

fn key(client: u32, xid: u32) -> CallKey {
    CallKey::new(IpAddr::from(client.to_be_bytes()), xid, 0)
}

fn begin(cache: &mut ReplyCache<u32>, key: CallKey, now_ms: u64) -> Begin {
    cache.begin(key, Changes, || 1, now_ms)
}

fn run(cache: &mut ReplyCache<u32>, key: CallKey, results: &[u8], now_ms: u64) {
    assert_eq!(begin(cache, key, now_ms), Begin::Execute);
    let results = Some(Bytes::copy_from_slice(results));
    assert!(cache.finish(key, results, now_ms).is_empty());
}

fn replay(results: &'static [u8]) -> Begin {
    Begin::Replay(Bytes::from_static(results))
}

#[test]
fn the_same_call_is_done_once() {
    let mut cache = ReplyCache::new();
    let call = key(1, 1);
    assert_eq!(begin(&mut cache, call, 0), Begin::Execute);
    for waiter in 0..u32::try_from(WAITERS_MAX).unwrap() {
        assert_eq!(cache.begin(call, Changes, || waiter, 0), Begin::Wait);
    }
    assert_eq!(begin(&mut cache, call, 0), Begin::Ignore);
    let waiting = cache.finish(call, Some(Bytes::from_static(b"made")), 0);
    assert_eq!(waiting, [0, 1, 2, 3]);
    for _ in 0..3 {
        assert_eq!(begin(&mut cache, call, 0), replay(b"made"));
    }
}

#[test]
fn another_client_xid_or_checksum_is_another_call() {
    let mut cache = ReplyCache::new();
    run(&mut cache, key(1, 1), b"first", 0);
    run(&mut cache, key(2, 1), b"of another", 0);
    run(&mut cache, key(1, 2), b"next", 0);
    let address = IpAddr::from(1_u32.to_be_bytes());
    run(&mut cache, CallKey::new(address, 1, 9), b"anew", 0);
    assert_eq!(begin(&mut cache, key(1, 1), 0), replay(b"first"));
    // The same client over a socket of IPv6.
    let mapped = IpAddr::from("::ffff:0.0.0.1".parse::<core::net::Ipv6Addr>().unwrap());
    let again = CallKey::new(mapped, 1, 0);
    assert_eq!(begin(&mut cache, again, 0), replay(b"first"));
}

#[test]
fn what_ends_without_an_answer_is_done_again() {
    let mut cache = ReplyCache::new();
    let call = key(1, 1);
    assert_eq!(begin(&mut cache, call, 0), Begin::Execute);
    assert_eq!(cache.begin(call, Changes, || 5, 0), Begin::Wait);
    assert_eq!(cache.finish(call, None, 0), [5]);
    assert_eq!(begin(&mut cache, call, 0), Begin::Execute);
}

#[test]
fn a_write_waits_for_itself_and_is_not_kept() {
    let mut cache = ReplyCache::new();
    let call = key(1, 1);
    assert_eq!(cache.begin(call, Reorders, || 1, 0), Begin::Execute);
    assert_eq!(cache.begin(call, Reorders, || 1, 0), Begin::Wait);
    assert_eq!(
        cache.finish(call, Some(Bytes::from_static(b"written")), 0),
        [1]
    );
    assert_eq!(cache.bytes(), 0);
    assert_eq!(cache.begin(call, Reorders, || 1, 0), Begin::Execute);
}

#[test]
fn a_client_has_its_own_bound() {
    let mut cache = ReplyCache::new();
    let results = [b'r'; 256];
    let cost = KEPT_REPLY_BYTES + results.len();
    let fits = u32::try_from(CLIENT_REPLY_BYTES_MAX / cost).unwrap();
    run(&mut cache, key(2, 0), b"of another", 0);
    let of_another = cache.bytes();
    for xid in 0..fits + 10 {
        run(&mut cache, key(1, xid), &results, 0);
        assert!(cache.bytes() - of_another <= CLIENT_REPLY_BYTES_MAX);
    }
    assert_eq!(begin(&mut cache, key(2, 0), 0), replay(b"of another"));
    // The oldest ten are gone, the others are not.
    assert_eq!(begin(&mut cache, key(1, 9), 0), Begin::Execute);
    let oldest = begin(&mut cache, key(1, 10), 0);
    assert_eq!(oldest, Begin::Replay(Bytes::copy_from_slice(&results)));
}

#[test]
fn all_clients_have_a_bound() {
    let mut cache = ReplyCache::new();
    let results = [b'r'; KEPT_RESULTS_BYTES_MAX];
    let cost = KEPT_REPLY_BYTES + results.len();
    let fits = u32::try_from(REPLY_BYTES_TOTAL_MAX / cost).unwrap();
    for client in 0..fits + 5 {
        run(&mut cache, key(client, 1), &results, 0);
        assert!(cache.bytes() <= REPLY_BYTES_TOTAL_MAX);
    }
    assert_eq!(cache.bytes(), cost * fits as usize);
    assert_eq!(begin(&mut cache, key(4, 1), 0), Begin::Execute);
    assert!(matches!(begin(&mut cache, key(5, 1), 0), Begin::Replay(_)));
}

#[test]
fn results_that_are_too_long_are_not_kept() {
    let mut cache = ReplyCache::new();
    let results = [b'r'; KEPT_RESULTS_BYTES_MAX + 1];
    run(&mut cache, key(1, 1), &results, 0);
    assert_eq!(cache.bytes(), 0);
    assert_eq!(begin(&mut cache, key(1, 1), 0), Begin::Execute);
}

#[test]
fn replies_are_forgotten_in_time() {
    let mut cache = ReplyCache::new();
    run(&mut cache, key(1, 1), b"old", 1_000);
    run(&mut cache, key(1, 2), b"new", 2_000);
    let at = 1_000 + REPLY_AGE_MS_MAX;
    assert_eq!(begin(&mut cache, key(1, 1), at), replay(b"old"));
    assert_eq!(begin(&mut cache, key(1, 1), at + 1), Begin::Execute);
    assert_eq!(begin(&mut cache, key(1, 2), at + 1), replay(b"new"));
}

#[test]
fn a_log_brings_replies_back() {
    for client in [IpAddr::from([10, 0, 0, 1]), IpAddr::from([1_u16; 8])] {
        let before = CallKey::new(client, 3, 4);
        let logged = before.client();
        let after = CallKey::from_log(&logged, 3, 4).unwrap();
        assert_eq!(after, before);
        let mut cache = ReplyCache::new();
        cache.restore(after, b"done", 0);
        assert_eq!(begin(&mut cache, before, 0), replay(b"done"));
    }
    assert_eq!(CallKey::from_log(b"short", 3, 4), None);
}

#[test]
fn a_log_does_not_disturb_what_runs() {
    let mut cache = ReplyCache::new();
    assert_eq!(begin(&mut cache, key(1, 1), 0), Begin::Execute);
    cache.restore(key(1, 1), b"logged", 0);
    let waiting = cache.finish(key(1, 1), Some(Bytes::from_static(b"run")), 0);
    assert!(waiting.is_empty());
    cache.restore(key(1, 1), b"logged", 0);
    assert_eq!(begin(&mut cache, key(1, 1), 0), replay(b"run"));
}
