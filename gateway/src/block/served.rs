//! What this node serves, and how it becomes what the catalog says.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portico_backend::catalog::{Catalog, LunOptions, LunRecord, NodeId, TargetRecord};
use portico_backend::error::{Error as StoreError, chain};
use portico_backend::gate::Gate;
use portico_backend::image::Image;
use portico_backend::object::ObjectStore;
use portico_backend::tenure::{Lasts, watched};
use portico_iscsi::scsi::{Unit, UnitOptions, WriteCache};
use tokio::time::Instant;

use super::access::{Secrets, Views, portals};
use super::{Block, BlockError, Serving, Shared, cut, finish_delete, image_pools, own_node};
use crate::assemble::Engine;

/// Pause before what failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Pause before the catalog is read although nobody told of a change.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// How long commands of a unit that is served no more may take until it is tried later.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

const IDLE_PAUSE: Duration = Duration::from_millis(5);

/// Whoever deletes a LUN removes its image. Did that not end in this time, its node does.
const DELETED_TIMEOUT: Duration = Duration::from_secs(10);

/// What is open.
#[derive(Debug, Default)]
pub(super) struct Served {
    portals: Vec<SocketAddr>,
    session: Option<Session>,
    units: BTreeMap<String, Arc<Unit>>,
    /// Why a LUN of this node is not open.
    failures: BTreeMap<String, String>,
    /// Since when LUNs were seen to be going away.
    deleting: BTreeMap<String, Instant>,
    /// Units that are served no more and may have commands in work.
    closing: BTreeMap<String, Arc<Unit>>,
    views: Views,
    /// Whether something is to be tried again soon.
    is_behind: bool,
    has_closed: bool,
}

/// The session on the store that images are served with.
#[derive(Debug)]
struct Session {
    store: Arc<dyn ObjectStore>,
    lasts: Lasts,
    /// Closed when this node itself fenced it.
    uncut: Gate,
}

/// What the catalog says.
struct Records {
    node: NodeId,
    luns: Vec<LunRecord>,
    targets: Vec<TargetRecord>,
    secrets: Secrets,
}

/// Takes in every change of the catalog, and serves anew after a fence.
pub(super) async fn follow(block: &Block) -> Infallible {
    loop {
        let changes = block.catalog().map(|catalog| catalog.block_changes());
        block.look_again().await;
        let (lasts, is_behind) = {
            let served = block.0.served.lock().await;
            let session = served.session.as_ref();
            let lasts = session.map(|one| (one.lasts.clone(), one.uncut.clone()));
            (lasts, served.is_behind)
        };
        let pause = if is_behind || changes.is_err() {
            RETRY_PAUSE
        } else {
            LOOK_INTERVAL
        };
        let changed = async {
            if let Ok(mut changes) = changes
                && changes.changed().await.is_ok()
            {
                return;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        };
        let fenced = async {
            match lasts {
                Some((lasts, uncut)) => tokio::select! {
                    () = lasts.ended() => {}
                    () = uncut.closed() => {}
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = fenced => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

impl Served {
    pub(super) fn set_portals(&mut self, portals: Vec<SocketAddr>) {
        self.portals = portals;
    }

    pub(super) fn unit(&self, name: &str) -> Option<Arc<Unit>> {
        self.units.get(name).map(Arc::clone)
    }

    pub(super) fn serving(&self, name: &str) -> Serving {
        match self.failures.get(name) {
            _ if self.units.contains_key(name) => Serving::Here,
            Some(why) => Serving::Not(why.clone()),
            None if self.portals.is_empty() => {
                Serving::Not("this node has no iSCSI portals: set iscsi.listen".to_owned())
            }
            None => Serving::Not("it is not open yet".to_owned()),
        }
    }

    /// Makes what is served what the catalog says. What fails is tried again by [`follow`].
    pub(super) async fn take_in(&mut self, shared: &Shared) {
        if self.portals.is_empty() || self.has_closed {
            return;
        }
        self.end_if_fenced(shared);
        match self.try_take_in(shared).await {
            Ok(is_whole) => self.is_behind = !is_whole,
            Err(error) => {
                if !self.is_behind {
                    tracing::warn!("cannot serve LUNs as the catalog says; trying again: {error}");
                }
                self.is_behind = true;
            }
        }
    }

    async fn try_take_in(&mut self, shared: &Shared) -> Result<bool, BlockError> {
        let tenure = shared.parts.tenures.current().map_err(BlockError::Vacant)?;
        let catalog = &tenure.volumes.catalog;
        let records = Records::read(catalog, &shared.parts.node).await?;
        let portals = portals(records.node, &self.portals).map_err(BlockError::Refused)?;
        let store = self.session(shared).await?;
        self.open(&store, shared, &records).await;
        self.leave(&records);
        let service = &shared.parts.iscsi;
        let Records {
            targets, secrets, ..
        } = &records;
        self.views
            .apply(service, targets, secrets, &self.units, &portals);
        self.publish(shared);
        shared.gate.set_open(true);
        self.close_idle().await;
        let pools = image_pools(&shared.parts.pools);
        let mut is_whole = self.failures.is_empty() && self.closing.is_empty();
        for name in self.left_over(&records) {
            let removed = finish_delete(catalog, &*tenure.store, &pools, &name).await;
            is_whole &= removed.is_ok();
        }
        Ok(is_whole && self.deleting.is_empty())
    }

    /// LUNs whose deletion somebody began long ago.
    fn left_over(&mut self, records: &Records) -> Vec<String> {
        let now = Instant::now();
        let known = std::mem::take(&mut self.deleting);
        for lun in records.going() {
            let since = known.get(&lun.name).copied().unwrap_or(now);
            self.deleting.insert(lun.name.clone(), since);
        }
        let all = self.deleting.iter();
        all.filter(|(_, since)| since.elapsed() >= DELETED_TIMEOUT)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// After a fence nothing that was begun is answered: initiators log in anew and ask again.
    fn end_if_fenced(&mut self, shared: &Shared) {
        let is_fenced = |session: &Session| !session.holds();
        if self.session.as_ref().is_some_and(is_fenced) {
            tracing::warn!("the session of images on the store was fenced; opening them anew");
            self.session = None;
            shared.gate.set_open(false);
            for session in shared.parts.iscsi.sessions().list() {
                shared.parts.iscsi.sessions().drop_session(session.tsih());
            }
            self.units.clear();
            self.closing.clear();
            shared.reopened.add(1);
        }
    }

    async fn session(&mut self, shared: &Shared) -> Result<Arc<dyn ObjectStore>, BlockError> {
        if let Some(session) = &self.session {
            return Ok(Arc::clone(&session.store));
        }
        let engine = &shared.parts.engine;
        let opened = engine.session("block").await;
        let opened = opened.map_err(|failure| BlockError::Refused(failure.to_string()))?;
        let (store, lasts) = match engine {
            // Its only session is its own.
            Engine::Local(_) => (opened, Lasts::forever()),
            Engine::Memory(_) | Engine::Rados(_) => watched(opened),
        };
        self.use_session(shared, Arc::clone(&store), lasts);
        Ok(store)
    }

    /// Images are opened with this session from now on.
    pub(super) fn use_session(
        &mut self,
        shared: &Shared,
        store: Arc<dyn ObjectStore>,
        lasts: Lasts,
    ) {
        let uncut = cut::begin(shared, store.session());
        self.session = Some(Session {
            store,
            lasts,
            uncut,
        });
    }

    #[cfg(test)]
    pub(super) fn store(&self) -> Option<Arc<dyn ObjectStore>> {
        self.session.as_ref().map(|one| Arc::clone(&one.store))
    }

    /// Opens images that are to be served and are not; those that are get their options.
    async fn open(&mut self, store: &Arc<dyn ObjectStore>, shared: &Shared, records: &Records) {
        let pools = image_pools(&shared.parts.pools);
        let mut failures = BTreeMap::new();
        for lun in records.wanted() {
            if let Some(unit) = self.units.get(&lun.name) {
                if let Err(error) = offer_as(unit, lun.options).await {
                    failures.insert(lun.name.clone(), chain(&error));
                }
                continue;
            }
            match Image::open(Arc::clone(store), &pools, &lun.name).await {
                Ok(image) => {
                    let unit = Arc::new(Unit::new(image, unit_options(lun)));
                    self.units.insert(lun.name.clone(), unit);
                    tracing::info!(lun = lun.name, "LUN is served");
                }
                Err(error) => {
                    let why = chain(&error);
                    if self.failures.get(&lun.name) != Some(&why) {
                        tracing::error!(lun = lun.name, error = why, "cannot serve the LUN");
                    }
                    failures.insert(lun.name.clone(), why);
                }
            }
        }
        self.failures = failures;
    }

    fn publish(&self, shared: &Shared) {
        let units = self.units.iter();
        let open = units.map(|(name, unit)| (name.clone(), Arc::downgrade(unit)));
        *shared.open.lock().expect("no holder panics") = open.collect();
    }

    /// Sets units aside that are not to be served any more.
    fn leave(&mut self, records: &Records) {
        let wanted = |name: &str| records.wanted().any(|lun| lun.name == name);
        let gone: Vec<String> = self
            .units
            .keys()
            .filter(|name| !wanted(name))
            .cloned()
            .collect();
        for name in gone {
            if let Some(unit) = self.units.remove(&name) {
                self.closing.insert(name, unit);
            }
        }
    }

    /// Closes units that were set aside, as soon as their commands have ended.
    async fn close_idle(&mut self) {
        let deadline = Instant::now() + IDLE_TIMEOUT;
        for (name, unit) in std::mem::take(&mut self.closing) {
            let is_idle = |unit: &Arc<Unit>| Arc::strong_count(unit) == 1;
            while !is_idle(&unit) && Instant::now() < deadline {
                tokio::time::sleep(IDLE_PAUSE).await;
            }
            if !is_idle(&unit) {
                self.closing.insert(name, unit);
            } else if let Err(error) = unit.image().close().await {
                tracing::warn!(
                    lun = name,
                    error = chain(&error),
                    "image did not close cleanly"
                );
            } else {
                tracing::info!(lun = name, "LUN is served no more");
            }
        }
    }

    /// Gives every image back, and serves nothing from now on.
    pub(super) async fn close(&mut self, shared: &Shared) {
        shared.gate.set_open(false);
        self.has_closed = true;
        shared
            .parts
            .iscsi
            .set_targets(portico_iscsi::target::Targets::default());
        self.views = Views::default();
        self.closing.append(&mut self.units);
        if self.session.as_ref().is_some_and(Session::holds) {
            self.close_idle().await;
        }
        for name in self.closing.keys() {
            tracing::warn!(
                lun = name,
                "commands did not end; the next start takes the LUN over"
            );
        }
        self.closing.clear();
        self.session = None;
    }
}

impl Session {
    fn holds(&self) -> bool {
        self.lasts.holds() && self.uncut.is_open()
    }
}

impl Records {
    async fn read(catalog: &Catalog, node: &str) -> Result<Self, BlockError> {
        let mut secrets = Secrets::new();
        for initiator in catalog.initiators().await? {
            let opened = catalog.initiator_open(&initiator)?;
            secrets.insert(initiator.name, opened);
        }
        Ok(Self {
            node: own_node(catalog, node).await?,
            // Before the targets: one that is going away and is mapped by none was not mapped then.
            luns: catalog.luns().await?,
            targets: catalog.targets().await?,
            secrets,
        })
    }

    fn wanted(&self) -> impl Iterator<Item = &LunRecord> {
        let own = self.luns.iter().filter(|lun| lun.node == self.node);
        own.filter(|lun| !self.is_going(lun))
    }

    /// LUNs of this node that are going away.
    fn going(&self) -> impl Iterator<Item = &LunRecord> {
        let own = self.luns.iter().filter(|lun| lun.node == self.node);
        own.filter(|lun| self.is_going(lun))
    }

    /// One that is mapped is not: whoever marked it takes that back.
    fn is_going(&self, lun: &LunRecord) -> bool {
        lun.deleting && !self.targets.iter().any(|target| target.maps_lun(&lun.name))
    }
}

async fn offer_as(unit: &Unit, options: LunOptions) -> Result<(), StoreError> {
    unit.set_write_protected(options.read_only);
    unit.set_write_cache(write_cache(options)).await
}

fn unit_options(lun: &LunRecord) -> UnitOptions {
    UnitOptions {
        is_write_protected: lun.options.read_only,
        write_cache: write_cache(lun.options),
        ..UnitOptions::default()
    }
}

fn write_cache(options: LunOptions) -> WriteCache {
    match options.write_cache {
        true => WriteCache::On,
        false => WriteCache::Off,
    }
}
