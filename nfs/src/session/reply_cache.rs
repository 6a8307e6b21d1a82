//! Replies that are kept for calls that come again.
//!
//! A client that got no reply sends its call again, over a new connection too. A call that changes
//! something must not be done twice then: MKDIR would find its directory there. So while a call runs, one
//! that is the same waits for it, and afterwards it is given the same reply. Which calls this is about
//! says [`Again`]. What a file system logged with its changes brings the replies back after a crash.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;

use crate::limits::{
    CLIENT_REPLY_BYTES_MAX, KEPT_REPLY_BYTES, KEPT_RESULTS_BYTES_MAX, REPLY_AGE_MS_MAX,
    REPLY_BYTES_TOTAL_MAX, WAITERS_MAX,
};
use crate::wire::program::Again;

/// What makes a call the same: ports are not looked at, since a client that connects anew may get another.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CallKey {
    client: IpAddr,
    pub xid: u32,
    /// Of the whole call: a client that starts anew may begin with any xid.
    pub checksum: u32,
}

/// What becomes of a call.
#[derive(Debug, Eq, PartialEq)]
pub enum Begin {
    /// It is to be done, and `finish` told.
    Execute,
    /// It was done: these are its results.
    Replay(Bytes),
    /// It is under way: whoever waits is told by `finish`.
    Wait,
    /// It is under way, and enough others wait for it.
    Ignore,
}

/// Replies and running calls. `W` is who waits for a call that another one does.
#[derive(Debug)]
pub struct ReplyCache<W> {
    entries: HashMap<CallKey, Entry<W>>,
    clients: HashMap<IpAddr, Kept>,
    /// Of the kept replies, the oldest first.
    order: BTreeMap<u64, CallKey>,
    order_next: u64,
    /// Of all kept replies.
    bytes: usize,
}

#[derive(Debug)]
enum Entry<W> {
    Running { again: Again, waiters: Vec<W> },
    Done { results: Bytes, done_at_ms: u64 },
}

/// What one client has.
#[derive(Debug, Default)]
struct Kept {
    order: VecDeque<u64>,
    bytes: usize,
}

impl CallKey {
    #[must_use]
    pub fn new(client: IpAddr, xid: u32, checksum: u32) -> Self {
        Self {
            client: client.to_canonical(),
            xid,
            checksum,
        }
    }

    /// The client as it is logged.
    #[must_use]
    pub fn client(&self) -> Bytes {
        match self.client {
            IpAddr::V4(address) => Bytes::copy_from_slice(&address.octets()),
            IpAddr::V6(address) => Bytes::copy_from_slice(&address.octets()),
        }
    }

    /// From what was logged; `None` if no address has so many bytes.
    #[must_use]
    pub fn from_log(client: &[u8], xid: u32, checksum: u32) -> Option<Self> {
        let four = <[u8; 4]>::try_from(client).map(|octets| Ipv4Addr::from(octets).into());
        let sixteen = || <[u8; 16]>::try_from(client).map(|octets| Ipv6Addr::from(octets).into());
        let client = four.or_else(|_| sixteen()).ok()?;
        Some(Self::new(client, xid, checksum))
    }
}

impl<W> ReplyCache<W> {
    #[must_use]
    pub fn new() -> Self {
        Self {
            entries: HashMap::new(),
            clients: HashMap::new(),
            order: BTreeMap::new(),
            order_next: 0,
            bytes: 0,
        }
    }

    /// A call comes. `waiter` is made if another one does it. `now_ms` never goes back.
    ///
    /// # Panics
    /// If a call that does no harm is asked about: nothing is kept of it.
    pub fn begin(
        &mut self,
        key: CallKey,
        again: Again,
        waiter: impl FnOnce() -> W,
        now_ms: u64,
    ) -> Begin {
        assert_ne!(again, Again::Harmless, "such calls are done anew");
        self.expire(now_ms);
        match self.entries.get_mut(&key) {
            None => {
                let waiters = Vec::new();
                self.entries.insert(key, Entry::Running { again, waiters });
                Begin::Execute
            }
            Some(Entry::Done { results, .. }) => Begin::Replay(results.clone()),
            Some(Entry::Running { waiters, .. }) if waiters.len() < WAITERS_MAX => {
                waiters.push(waiter());
                Begin::Wait
            }
            Some(Entry::Running { .. }) => Begin::Ignore,
        }
    }

    /// A call that `begin` let run has ended: with these results, or in a way that nobody may be told.
    /// Returns who waits for it.
    ///
    /// # Panics
    /// If it does not run.
    pub fn finish(&mut self, key: CallKey, results: Option<Bytes>, now_ms: u64) -> Vec<W> {
        let Some(Entry::Running { again, waiters }) = self.entries.remove(&key) else {
            panic!("{key:?} does not run");
        };
        if let Some(results) = results
            && again == Again::Changes
        {
            self.keep(key, &results, now_ms);
        }
        waiters
    }

    /// A reply that was logged with its change before a crash, in the order of the log.
    pub fn restore(&mut self, key: CallKey, results: &[u8], now_ms: u64) {
        if !self.entries.contains_key(&key) {
            self.keep(key, results, now_ms);
        }
    }

    /// Bytes of all kept replies.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn keep(&mut self, key: CallKey, results: &[u8], now_ms: u64) {
        if results.len() > KEPT_RESULTS_BYTES_MAX {
            return;
        }
        // Not a slice of something larger.
        let results = Bytes::copy_from_slice(results);
        let cost = KEPT_REPLY_BYTES + results.len();
        let used = |cache: &Self| cache.clients.get(&key.client).map_or(0, |kept| kept.bytes);
        while used(self) + cost > CLIENT_REPLY_BYTES_MAX {
            self.forget(self.clients[&key.client].order[0]);
        }
        while self.bytes + cost > REPLY_BYTES_TOTAL_MAX {
            let (oldest, _) = self.order.first_key_value().expect("something is kept");
            self.forget(*oldest);
        }
        let number = self.order_next;
        self.order_next += 1;
        self.order.insert(number, key);
        let kept = self.clients.entry(key.client).or_default();
        kept.order.push_back(number);
        kept.bytes += cost;
        self.bytes += cost;
        let done_at_ms = now_ms;
        self.entries.insert(
            key,
            Entry::Done {
                results,
                done_at_ms,
            },
        );
    }

    fn expire(&mut self, now_ms: u64) {
        while let Some((oldest, key)) = self.order.first_key_value() {
            let Some(Entry::Done { done_at_ms, .. }) = self.entries.get(key) else {
                unreachable!("{key:?} is kept");
            };
            if now_ms.saturating_sub(*done_at_ms) <= REPLY_AGE_MS_MAX {
                break;
            }
            self.forget(*oldest);
        }
    }

    /// The oldest of its client: the order of each is that of all.
    fn forget(&mut self, number: u64) {
        let key = self.order.remove(&number).expect("it is kept");
        let Some(Entry::Done { results, .. }) = self.entries.remove(&key) else {
            unreachable!("{key:?} is kept");
        };
        let cost = KEPT_REPLY_BYTES + results.len();
        let kept = self.clients.get_mut(&key.client).expect("it has this one");
        assert_eq!(kept.order.pop_front(), Some(number), "the oldest one");
        kept.bytes -= cost;
        if kept.order.is_empty() {
            self.clients.remove(&key.client);
        }
        self.bytes -= cost;
    }
}

impl<W> Default for ReplyCache<W> {
    fn default() -> Self {
        Self::new()
    }
}
