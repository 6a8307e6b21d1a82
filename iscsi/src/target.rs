//! Targets, their portals, and who may log in to them: plain data that the program hands in.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::units::Units;

/// The address that an initiator reached.
pub type LocalAddress = SocketAddr;

/// Everything that is served, at one moment. A change makes a new one; sessions keep what they have.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    targets: BTreeMap<String, Arc<Target>>,
    /// Who alone may ask for the list of targets; empty if everybody may. Who proves itself all the
    /// same, as initiators with a secret do, does so as at a target.
    pub discovery_users: Vec<ChapUser>,
    /// What this side proves to one of `discovery_users`, if asked.
    pub discovery_identity: Option<ChapUser>,
}

/// A target.
#[derive(Debug)]
pub struct Target {
    /// An iSCSI name in lower case.
    pub name: String,
    pub alias: Option<String>,
    pub portals: Vec<Portal>,
    /// The first entry that fits an initiator and its user says what it sees. Who has entries by
    /// its name has no others.
    pub access: Vec<Access>,
}

/// Where a target is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Portal {
    pub address: SocketAddr,
    pub group_tag: u16,
    /// The relative port id that its nexuses have.
    pub relative_port: u16,
}

/// Who may log in to a target, and what that initiator sees.
#[derive(Clone, Debug)]
pub struct Access {
    /// The name of an initiator in lower case; any if there is none.
    pub initiator: Option<String>,
    /// One of these has to be proved; none has to if there are none.
    pub users: Vec<ChapUser>,
    /// What this side proves to such an initiator that asks (mutual CHAP).
    pub identity: Option<ChapUser>,
    pub units: Arc<Units>,
}

/// A name and a secret for CHAP.
#[derive(Clone, Eq, PartialEq)]
pub struct ChapUser {
    pub name: String,
    /// 12 to 16 bytes for most initiators (RFC 7143 section 9.2.1).
    pub secret: Vec<u8>,
}

impl fmt::Debug for ChapUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChapUser({})", self.name)
    }
}

impl Targets {
    #[must_use]
    pub fn new(targets: impl IntoIterator<Item = Target>) -> Self {
        let entry = |target: Target| (target.name.clone(), Arc::new(target));
        Self {
            targets: targets.into_iter().map(entry).collect(),
            ..Self::default()
        }
    }

    /// Whether there is a target of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.targets.contains_key(name)
    }

    /// The target of a name in lower case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Target>> {
        self.targets.get(name)
    }

    /// The target of a name in lower case, with the portal that `local` is.
    #[must_use]
    pub fn find(&self, name: &str, local: LocalAddress) -> Option<(&Arc<Target>, Portal)> {
        let target = self.targets.get(name)?;
        let portal = target.portal(local)?;
        Some((target, portal))
    }

    /// Entries of an initiator at all targets.
    pub fn entries<'a>(&'a self, initiator: &'a str) -> impl Iterator<Item = &'a Access> {
        let targets = self.targets.values();
        targets.flat_map(move |target| target.entries(initiator))
    }

    /// Targets that an initiator may know of through the portal `local`, by name.
    pub fn visible<'a>(
        &'a self,
        initiator: &'a str,
        local: LocalAddress,
    ) -> impl Iterator<Item = &'a Arc<Target>> {
        let is_visible =
            move |target: &&Arc<Target>| target.portal(local).is_some() && target.admits(initiator);
        self.targets.values().filter(is_visible)
    }
}

impl Target {
    /// The portal of a local address. One with an unspecified address is reached by any.
    #[must_use]
    pub fn portal(&self, local: LocalAddress) -> Option<Portal> {
        let ip = local.ip().to_canonical();
        let exact = self.portals.iter().find(|portal| {
            portal.address.port() == local.port() && portal.address.ip().to_canonical() == ip
        });
        let any = |portal: &&Portal| {
            portal.address.ip().is_unspecified() && portal.address.port() == local.port()
        };
        exact.or_else(|| self.portals.iter().find(any)).copied()
    }

    /// Whether an initiator of this name may log in, given that it proves what is asked.
    #[must_use]
    pub fn admits(&self, initiator: &str) -> bool {
        self.entries(initiator).next().is_some()
    }

    /// Entries of an initiator in their order: those by its name, or those for any.
    pub fn entries<'a>(&'a self, initiator: &'a str) -> impl Iterator<Item = &'a Access> {
        let is_named = |access: &Access| access.initiator.as_deref() == Some(initiator);
        let wanted = self.access.iter().any(is_named).then_some(initiator);
        let fits = move |access: &&Access| access.initiator.as_deref() == wanted;
        self.access.iter().filter(fits)
    }

    /// Addresses of its portals as SendTargets says them: those of the address family and port
    /// group that `local` belongs to come as they are, unspecified ones as `local`.
    #[must_use]
    pub fn addresses(&self, local: LocalAddress) -> Vec<String> {
        let mut addresses = Vec::new();
        for portal in &self.portals {
            let mut address = portal.address;
            if address.ip().is_unspecified() {
                address.set_ip(local.ip().to_canonical());
            }
            let text = portal_text(address, portal.group_tag);
            if !addresses.contains(&text) {
                addresses.push(text);
            }
        }
        addresses
    }
}

/// RFC 7143 section 13.8: `address:port,tag`, IPv6 addresses in brackets.
fn portal_text(address: SocketAddr, group_tag: u16) -> String {
    match address.ip() {
        IpAddr::V4(ip) => format!("{ip}:{},{group_tag}", address.port()),
        IpAddr::V6(ip) => format!("[{ip}]:{},{group_tag}", address.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portal(address: &str, tag: u16) -> Portal {
        Portal {
            address: address.parse().unwrap(),
            group_tag: tag,
            relative_port: tag,
        }
    }

    fn target() -> Target {
        Target {
            name: "iqn.2026-01.org.example:a".to_owned(),
            alias: None,
            portals: vec![portal("10.0.0.1:3260", 1), portal("[fd00::1]:3260", 2)],
            access: vec![Access {
                initiator: Some("iqn.2026-01.org.example:host".to_owned()),
                users: Vec::new(),
                identity: None,
                units: Units::none(),
            }],
        }
    }

    #[test]
    fn addresses_have_the_forms_of_the_standard() {
        let target = target();
        let local = "10.0.0.1:3260".parse().unwrap();
        assert_eq!(
            target.addresses(local),
            ["10.0.0.1:3260,1", "[fd00::1]:3260,2"]
        );
    }

    #[test]
    fn a_portal_is_found_by_its_address_or_stands_for_all() {
        let mut target = target();
        let mapped = "[::ffff:10.0.0.1]:3260".parse().unwrap();
        assert_eq!(target.portal(mapped).unwrap().group_tag, 1);
        let other = "10.0.0.2:3260".parse().unwrap();
        assert!(target.portal(other).is_none());
        target.portals.push(portal("0.0.0.0:3260", 7));
        assert_eq!(target.portal(other).unwrap().group_tag, 7);
        assert!(
            target
                .addresses(other)
                .contains(&"10.0.0.2:3260,7".to_owned())
        );
    }

    #[test]
    fn only_named_initiators_know_of_a_target() {
        let targets = Targets::new([target()]);
        let local = "10.0.0.1:3260".parse().unwrap();
        let seen = |name| targets.visible(name, local).count();
        assert_eq!(seen("iqn.2026-01.org.example:host"), 1);
        assert_eq!(seen("iqn.2026-01.org.example:hos"), 0);
        let elsewhere = "10.9.9.9:3260".parse().unwrap();
        assert_eq!(
            targets
                .visible("iqn.2026-01.org.example:host", elsewhere)
                .count(),
            0
        );
    }
}
