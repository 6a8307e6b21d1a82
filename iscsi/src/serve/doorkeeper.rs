//! How many connections there may be: in all, and without a login from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// Counts connections.
#[derive(Clone, Debug)]
pub(super) struct Doorkeeper {
    counts: Arc<Mutex<Counts>>,
    connections_max: usize,
    logins_max: usize,
}

#[derive(Debug, Default)]
struct Counts {
    connections: usize,
    logins: HashMap<IpAddr, usize>,
}

/// A connection that was let in, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    doorkeeper: Doorkeeper,
    /// The address whose login is not done.
    login_of: Option<IpAddr>,
}

impl Doorkeeper {
    pub(super) fn new(connections_max: usize, logins_max: usize) -> Self {
        Self {
            counts: Arc::default(),
            connections_max,
            logins_max,
        }
    }

    /// Lets a connection in, if there is room.
    pub(super) fn admit(&self, address: Option<IpAddr>) -> Option<Place> {
        let mut counts = self.counts();
        if counts.connections >= self.connections_max {
            return None;
        }
        if let Some(address) = address {
            let logins = counts.logins.get(&address).copied().unwrap_or_default();
            if logins >= self.logins_max {
                return None;
            }
            counts.logins.insert(address, logins + 1);
        }
        counts.connections += 1;
        drop(counts);
        Some(Place {
            doorkeeper: self.clone(),
            login_of: address,
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no holder panics")
    }
}

impl Place {
    /// It counts among the connections alone from now on.
    pub(super) fn has_logged_in(&mut self) {
        let Some(address) = self.login_of.take() else {
            return;
        };
        let mut counts = self.doorkeeper.counts();
        if let Some(count) = counts.logins.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.logins.remove(&address);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.has_logged_in();
        self.doorkeeper.counts().connections -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_open_connections_of_one_address_keep_nobody_else_out() {
        let doorkeeper = Doorkeeper::new(3, 1);
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|ip| Some(ip.parse().unwrap()));
        let mut first = doorkeeper.admit(one).unwrap();
        assert!(doorkeeper.admit(one).is_none());
        let second = doorkeeper.admit(other).unwrap();
        first.has_logged_in();
        let _third = doorkeeper.admit(one).unwrap();
        assert!(doorkeeper.admit(None).is_none());
        drop(second);
        assert!(doorkeeper.admit(other).is_some());
    }
}
