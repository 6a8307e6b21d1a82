//! What the catalog says of targets and initiators, as the iSCSI front door takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use portico_backend::catalog::{Chap, IscsiName, NodeId, TargetRecord};
use portico_iscsi::scsi::{LunMap, Unit};
use portico_iscsi::serve::Service;
use portico_iscsi::target::{Access, ChapUser, Portal, Target, Targets};
use portico_iscsi::units::{LiveLuns, Units};

use crate::limits::ISCSI_PORTALS_MAX;

/// With what an initiator and its targets prove themselves.
pub(super) type Secrets = BTreeMap<IscsiName, (Chap, Option<Chap>)>;

/// What each initiator sees of each target; whoever has logged in keeps its own.
#[derive(Debug, Default)]
pub(super) struct Views(BTreeMap<Key, View>);

/// A target, and an initiator or any.
type Key = (IscsiName, Option<IscsiName>);

#[derive(Debug)]
struct View {
    luns: Arc<LiveLuns>,
    units: Arc<Units>,
    /// Whether it changed in the last round.
    is_new: bool,
}

impl Views {
    /// Makes what is served what the records say, and tells sessions whose LUNs changed. Sessions
    /// that may not be there any more end.
    pub(super) fn apply(
        &mut self,
        service: &Service,
        records: &[TargetRecord],
        secrets: &Secrets,
        units: &BTreeMap<String, Arc<Unit>>,
        portals: &[Portal],
    ) {
        let mut seen = BTreeSet::new();
        let targets: Vec<Target> = records
            .iter()
            .map(|record| {
                let initiators = initiators_of(record, secrets);
                seen.extend(
                    initiators
                        .iter()
                        .map(|it| (record.name.clone(), it.clone())),
                );
                let access = initiators.into_iter().map(|initiator| {
                    let luns = luns_of(record, initiator.as_ref(), units);
                    self.access(record, initiator, luns, secrets)
                });
                Target {
                    name: record.name.to_string(),
                    alias: None,
                    portals: portals.to_vec(),
                    access: access.collect(),
                }
            })
            .collect();
        for (key, view) in &mut self.0 {
            if !seen.contains(key) {
                view.luns.replace(LunMap::new(key.0.as_str(), []));
            }
        }
        self.0.retain(|key, _| seen.contains(key));
        service.set_targets(Targets::new(targets));
        self.tell(service);
    }

    fn access(
        &mut self,
        record: &TargetRecord,
        initiator: Option<IscsiName>,
        luns: BTreeMap<u16, Arc<Unit>>,
        secrets: &Secrets,
    ) -> Access {
        let secret = initiator.as_ref().and_then(|name| secrets.get(name));
        let name = initiator.as_ref().map(ToString::to_string);
        let view = self.0.entry((record.name.clone(), initiator));
        let view = view.or_insert_with(|| {
            let luns = Arc::new(LiveLuns::new(LunMap::new(record.name.as_str(), [])));
            View {
                units: Units::of_live(&luns),
                luns,
                is_new: false,
            }
        });
        view.is_new = !holds(&view.luns.current(), &luns);
        if view.is_new {
            view.luns.replace(LunMap::new(record.name.as_str(), luns));
        }
        let proof = secret.map(|(chap, _)| chap_user(chap));
        Access {
            initiator: name,
            users: proof.into_iter().collect(),
            identity: secret
                .and_then(|(_, mutual)| mutual.as_ref())
                .map(chap_user),
            units: Arc::clone(&view.units),
        }
    }

    fn tell(&self, service: &Service) {
        let by_units: BTreeMap<_, _> = self
            .0
            .values()
            .map(|view| (Arc::as_ptr(&view.units), view))
            .collect();
        let targets = service.targets();
        for session in service.sessions().list() {
            let Some(target) = session.target().and_then(|name| targets.get(name)) else {
                continue;
            };
            let mut entries = target.entries(&session.nexus().initiator);
            let is_own = |access: &Access| Arc::ptr_eq(&access.units, session.units());
            if !entries.any(is_own) {
                service.sessions().drop_session(session.tsih());
            } else if let Some(view) = by_units.get(&Arc::as_ptr(session.units()))
                && view.is_new
            {
                view.luns.current().changed_for(session.nexus());
            }
        }
    }
}

/// The portals of a node: one group, and relative ports that no other node has.
///
/// # Errors
/// If the node's number is too great for them.
pub(super) fn portals(node: NodeId, addresses: &[SocketAddr]) -> Result<Vec<Portal>, String> {
    let numbered = |(index, address): (usize, &SocketAddr)| {
        let first = node
            .0
            .checked_sub(1)?
            .checked_mul(ISCSI_PORTALS_MAX as u64)?;
        let port = first.checked_add(index as u64)?.checked_add(1)?;
        Some(Portal {
            address: *address,
            group_tag: u16::try_from(node.0).ok()?,
            relative_port: u16::try_from(port).ok()?,
        })
    };
    let all: Option<Vec<_>> = addresses.iter().enumerate().map(numbered).collect();
    all.ok_or_else(|| {
        format!(
            "the node has the number {} in the catalog, and iSCSI has none for its portals",
            node.0
        )
    })
}

/// Everybody by name who is mapped or has a secret, and anybody where anybody is let in.
fn initiators_of(record: &TargetRecord, secrets: &Secrets) -> BTreeSet<Option<IscsiName>> {
    let mut all: BTreeSet<_> = record
        .maps
        .iter()
        .map(|map| map.initiator.clone())
        .collect();
    if all.contains(&None) {
        all.extend(secrets.keys().cloned().map(Some));
    }
    all
}

fn luns_of(
    record: &TargetRecord,
    initiator: Option<&IscsiName>,
    units: &BTreeMap<String, Arc<Unit>>,
) -> BTreeMap<u16, Arc<Unit>> {
    let seen = |map: &&portico_backend::catalog::Mapping| {
        map.initiator.is_none() || map.initiator.as_ref() == initiator
    };
    let maps = record.maps.iter().filter(seen);
    maps.filter_map(|map| Some((map.lun, Arc::clone(units.get(&map.lun_name)?))))
        .collect()
}

fn holds(map: &LunMap, luns: &BTreeMap<u16, Arc<Unit>>) -> bool {
    map.units().count() == luns.len()
        && map
            .units()
            .all(|(lun, unit)| luns.get(&lun).is_some_and(|one| Arc::ptr_eq(one, unit)))
}

fn chap_user(chap: &Chap) -> ChapUser {
    ChapUser {
        name: chap.user.clone(),
        secret: chap.secret.expose().as_bytes().to_vec(),
    }
}
