//! Fencing: the blocklist, and why it alone is not enough.
//!
//! OSDs refuse a blocklisted client from the map on that says so, and each OSD gets its maps when it
//! gets them: writes of the victim were seen to land for 27 ms after the monitors had agreed. But
//! an operation carries the epoch of its client's map, and its PG waits for that map. So after the
//! fence this session waits for the newest map, and whatever it asks about an object afterwards is
//! answered by a PG that refuses the victim.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::librados::Code;
use super::monitor;
use super::session::{LOOK_INTERVAL, Session, locked};
use crate::error::{Error, ErrorKind};
use crate::object::SessionId;

/// An entry that expires lets the victim write again: ten years.
const EXPIRY_S: u32 = 10 * 365 * 24 * 3_600;

/// The name of a session: its address, which the blocklist takes, and its number, which watchers
/// and lockers have. The address has a random part, the number is never given out twice.
pub(super) fn session_name(address: &str, instance: u64) -> SessionId {
    SessionId(Arc::from(format!("{}#{instance}", plain(address))))
}

/// Address and number of a session; `None` for a name that no session of a cluster has.
pub(super) fn parse(session: &SessionId) -> Option<(&str, u64)> {
    let (address, instance) = session.0.rsplit_once('#')?;
    let (host, nonce) = address.rsplit_once('/')?;
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| number(port));
    let valid = has_port && number(nonce);
    Some((address, instance.parse().ok()?)).filter(|_| valid)
}

/// Without the kind of the messenger, which Ceph shows here and there. An IPv6 address keeps its
/// brackets; a list of addresses has some of its own.
fn plain(address: &str) -> &str {
    const KINDS: [&str; 3] = ["v1:", "v2:", "any:"];
    let list = address
        .strip_prefix('[')
        .filter(|rest| KINDS.iter().any(|kind| rest.starts_with(kind)));
    let list = list.map_or(address, |rest| rest.strip_suffix(']').unwrap_or(rest));
    let first = list.split(",v").next().unwrap_or_default();
    let bare = KINDS.iter().find_map(|kind| first.strip_prefix(kind));
    bare.unwrap_or(first)
}

fn number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Session {
    pub(super) async fn fence_now(&self, victim: &SessionId) -> Result<(), Error> {
        self.check_open()?;
        let Some((address, instance)) = parse(victim) else {
            // Nobody was ever called this, so nothing of it can take effect.
            return Ok(());
        };
        let (address, own) = (address.to_owned(), self.address().to_owned());
        let cluster = Arc::clone(&self.cluster);
        let asked = self.shared.mon_calls.run(move || {
            monitor::blocklist(&cluster, &address, EXPIRY_S)?;
            wait_for_map(&cluster)?;
            monitor::is_blocklisted(&cluster, [&own, &address])
        });
        let [own_fenced, victim_fenced] = asked.await??;
        if own_fenced {
            self.fenced_by_another();
        }
        self.check_open()?;
        match victim_fenced {
            true => {
                // Its watches are gone from the map on that each of our operations carries.
                self.forget(instance, self.pools());
                Ok(())
            }
            false => Err(Error::new(
                ErrorKind::Unavailable,
                format!("fencing {victim}: somebody took it off the blocklist"),
            )),
        }
    }

    /// Nobody else's answer can say that a session ended for good: a client that is gone and one
    /// that is slow look alike.
    pub(super) async fn may_write_now(&self, session: &SessionId) -> Result<bool, Error> {
        self.check_open()?;
        let Some((address, _)) = parse(session) else {
            return Ok(true);
        };
        let address = address.to_owned();
        let cluster = Arc::clone(&self.cluster);
        let asked = self.shared.mon_calls.run(move || {
            let [fenced] = monitor::is_blocklisted(&cluster, [&address])?;
            if fenced {
                wait_for_map(&cluster)?;
            }
            Ok::<bool, Error>(!fenced)
        });
        asked.await?
    }

    /// Asks the monitors whether this session is on the blocklist, unless it did so lately.
    pub(super) async fn look_for_fence(&self) {
        {
            let mut looked = locked(&self.looked);
            if looked.is_some_and(|looked| looked.elapsed() < LOOK_INTERVAL) {
                return;
            }
            *looked = Some(Instant::now());
        }
        let cluster = Arc::clone(&self.cluster);
        let own = self.address().to_owned();
        let asked = self
            .shared
            .mon_calls
            .run(move || monitor::is_blocklisted(&cluster, [&own]));
        if matches!(asked.await, Ok(Ok([true]))) {
            self.fenced_by_another();
        }
    }

    /// The session was told that it is on the blocklist.
    pub(super) fn fenced_by_another(&self) {
        if !self.fenced.swap(true, Ordering::SeqCst) {
            self.shared.stats.fenced_sessions.add(1);
            tracing::warn!(session = %self.id, purpose = %self.purpose, "fenced by another session");
        }
    }

    /// # Errors
    /// `Fenced` for good once the cluster said so.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        match self.fenced.load(Ordering::SeqCst) {
            true => Err(Error::new(
                ErrorKind::Fenced,
                format!("session {}", self.id),
            )),
            false => Ok(()),
        }
    }
}

fn wait_for_map(cluster: &super::librados::Cluster) -> Result<(), Error> {
    let waited = cluster.wait_for_latest_map();
    waited.map_err(|code: Code| code.error("waiting for the newest map"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_what_the_blocklist_takes() {
        for (address, shown) in [
            ("127.0.0.1:0/268", "127.0.0.1:0/268"),
            ("v1:10.0.0.7:0/1", "10.0.0.7:0/1"),
            ("[v2:10.0.0.7:0/1,v1:10.0.0.7:0/1]", "10.0.0.7:0/1"),
            ("[2001:db8::1]:0/9", "[2001:db8::1]:0/9"),
            ("v2:[2001:db8::1]:0/9", "[2001:db8::1]:0/9"),
            (
                "[v2:[2001:db8::1]:0/9,v1:[2001:db8::1]:0/9]",
                "[2001:db8::1]:0/9",
            ),
        ] {
            let name = session_name(address, 41);
            assert_eq!(parse(&name), Some((shown, 41)), "{address}");
        }
        for text in [
            "nobody-was-ever-called-this",
            "a#1",
            "1.2.3.4:0#1",
            "1.2.3.4:0/x#1",
        ] {
            assert_eq!(parse(&SessionId(Arc::from(text))), None);
        }
    }
}
