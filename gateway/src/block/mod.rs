//! LUNs of this node: their images, the units that iSCSI serves, and who sees which.
//!
//! The catalog says what there should be. [`served`] makes it so and follows every change; what is
//! done here for an admin changes the catalog and images first and lets it follow. Images have a
//! session of their own on the store: whoever takes one over fences that, and S3 goes on.

mod access;
mod cut;
mod served;
#[cfg(test)]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and prints what came instead"
)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use portico_backend::catalog::{
    Catalog, CatalogError, LunOptions, LunRecord, NewLun, NodeId, TargetRecord,
};
use portico_backend::connection::Stop;
use portico_backend::error::{Error as StoreError, ErrorKind, chain};
use portico_backend::gate::GateControl;
use portico_backend::image::{Image, ImagePools, ImageStat, NewImage};
use portico_backend::object::ObjectStore;
use portico_backend::stats::Counter;
use portico_backend::tenure::Tenures;
use portico_iscsi::scsi::Unit;
use portico_iscsi::serve::Service;
use tokio::time::Instant;

use crate::assemble::{Engine, Pools};
use served::Served;

/// How long another node has to close an image that is being deleted.
const CLOSED_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between attempts to remove such an image.
const CLOSED_PAUSE: Duration = Duration::from_millis(100);

/// The LUNs of this node. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Block(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    parts: Parts,
    served: tokio::sync::Mutex<Served>,
    /// Units that are open, by the name of their LUN: for whoever must not wait for the store.
    open: Mutex<Vec<(String, Weak<Unit>)>>,
    /// The session that images are served with, for whoever must not wait for the store.
    current: Mutex<Option<cut::Current>>,
    /// Open while replies to initiators may leave.
    gate: GateControl,
    /// Sessions of images that were opened in the place of one that was fenced.
    reopened: Counter,
}

/// What a [`Block`] is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) pools: Pools,
    pub(crate) tenures: Tenures,
    /// The name of this node.
    pub(crate) node: Arc<str>,
    pub(crate) iscsi: Arc<Service>,
}

/// A LUN to be made.
#[derive(Clone, Debug)]
pub(crate) struct LunSpec {
    pub(crate) image: ImageSpec,
    pub(crate) options: LunOptions,
}

/// Where its image comes from.
#[derive(Clone, Debug)]
pub(crate) enum ImageSpec {
    Make(NewImage),
    /// One of this name that is there, as `rbd create` makes it.
    Adopt(String),
}

/// A LUN and how it is.
#[derive(Clone, Debug)]
pub(crate) struct LunState {
    pub(crate) record: LunRecord,
    pub(crate) node: Arc<str>,
    /// What its image is like, if that can be told.
    pub(crate) image: Option<ImageStat>,
    pub(crate) serving: Serving,
    /// Target, number and initiator of each mapping.
    pub(crate) maps: Vec<(String, u16, Option<String>)>,
}

/// Whether a LUN is served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Serving {
    Here,
    /// By the node that it belongs to, as far as this one knows.
    Elsewhere,
    /// With the reason.
    Not(String),
    Deleting,
}

/// Why something could not be done.
#[derive(Debug)]
pub(crate) enum BlockError {
    Catalog(CatalogError),
    Store(StoreError),
    /// Not as things are.
    Refused(String),
    /// This node serves from nothing at the moment.
    Vacant(Arc<str>),
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Catalog(error) => f.write_str(&chain(error)),
            Self::Store(error) => f.write_str(&chain(error)),
            Self::Refused(why) => f.write_str(why),
            Self::Vacant(why) => f.write_str(why),
        }
    }
}

impl From<CatalogError> for BlockError {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(error)
    }
}

impl From<StoreError> for BlockError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Block {
    /// Serves nothing until [`Block::begin`]. `gate` is that of the iSCSI service.
    #[must_use]
    pub(crate) fn new(parts: Parts, gate: GateControl) -> Self {
        let shared = Arc::new(Shared {
            parts,
            gate,
            served: tokio::sync::Mutex::default(),
            open: Mutex::default(),
            current: Mutex::default(),
            reopened: Counter::default(),
        });
        let weak = Arc::downgrade(&shared);
        shared.parts.iscsi.set_cut_off(Box::new(move |begun| {
            let shared = weak.upgrade();
            Box::pin(async move {
                match shared {
                    Some(shared) => cut::cut_off(&shared, begun).await,
                    None => false,
                }
            })
        }));
        Self(shared)
    }

    /// Serves what the catalog says through these portals, as far as that succeeds at once. To be
    /// followed by [`Block::follow`].
    pub(crate) async fn begin(&self, portals: Vec<SocketAddr>) {
        self.0.served.lock().await.set_portals(portals);
        self.look_again().await;
    }

    /// Follows the catalog until the stop is requested.
    pub(crate) async fn follow(self, stop: Stop) {
        tokio::select! {
            () = stop.requested() => {}
            never = served::follow(&self) => match never {},
        }
    }

    /// Gives every image back. No connection is served any more.
    pub(crate) async fn close(&self) {
        self.0.served.lock().await.close(&self.0).await;
    }

    /// Takes in what the catalog says now. Goes on although the caller goes: what is half closed
    /// would stay so.
    pub(crate) async fn look_again(&self) {
        let shared = Arc::clone(&self.0);
        let looked = tokio::spawn(async move {
            shared.served.lock().await.take_in(&shared).await;
        });
        if let Err(error) = looked.await {
            tracing::error!(%error, "taking in the catalog did not end");
        }
    }

    /// Units that are open, by the name of their LUN.
    pub(crate) fn units(&self) -> Vec<(String, Arc<Unit>)> {
        let open = self.0.open.lock().expect("no holder panics");
        let units = open.iter();
        units
            .filter_map(|(name, unit)| Some((name.clone(), unit.upgrade()?)))
            .collect()
    }

    #[must_use]
    pub(crate) fn iscsi(&self) -> &Arc<Service> {
        &self.0.parts.iscsi
    }

    #[must_use]
    pub(crate) fn reopened(&self) -> &Counter {
        &self.0.reopened
    }

    /// All LUNs by name.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn luns(&self) -> Result<Vec<LunState>, BlockError> {
        let catalog = self.catalog()?;
        let records = catalog.luns().await?;
        self.states_of(&catalog, records).await
    }

    /// The LUN of this name.
    ///
    /// # Errors
    /// `NoSuch`, and what the store says.
    pub(crate) async fn lun(&self, name: &str) -> Result<LunState, BlockError> {
        let catalog = self.catalog()?;
        let record = known(&catalog, name).await?;
        let mut states = self.states_of(&catalog, vec![record]).await?;
        Ok(states.pop().expect("one for each record"))
    }

    /// Makes a LUN that this node serves.
    ///
    /// # Errors
    /// `Exists`, and what makes no image.
    pub(crate) async fn lun_create(&self, spec: LunSpec) -> Result<LunState, BlockError> {
        let catalog = self.catalog()?;
        let (store, pools) = (self.store()?, self.pools());
        let node = own_node(&catalog, &self.0.parts.node).await?;
        let name = match &spec.image {
            ImageSpec::Make(image) => image.name.clone(),
            ImageSpec::Adopt(name) => name.clone(),
        };
        let image_id = match &spec.image {
            ImageSpec::Make(image) => {
                let made = Image::create(&*store, &pools, image).await;
                made.map_err(|error| name_is_taken(&name, error))?.id
            }
            ImageSpec::Adopt(name) => Image::stat(&*store, &pools, name).await?.id,
        };
        let new = NewLun {
            name: &name,
            image_id: &image_id,
            node,
            options: spec.options,
        };
        let made = catalog.lun_create(new).await;
        if let (Err(CatalogError::Exists { .. }), ImageSpec::Make(_)) = (&made, &spec.image) {
            Image::remove_id(&*store, &pools, &name, &image_id).await?;
        }
        made?;
        tracing::info!(lun = name, "LUN created");
        self.look_again().await;
        self.lun(&name).await
    }

    /// Changes how a LUN is served, wherever that is.
    ///
    /// # Errors
    /// `NoSuch`.
    pub(crate) async fn lun_set_options(
        &self,
        name: &str,
        set: impl Fn(&mut LunOptions),
    ) -> Result<LunState, BlockError> {
        let set = self.catalog()?.lun_set_options(name, set).await?;
        let LunOptions {
            read_only,
            write_cache,
        } = set.options;
        tracing::info!(lun = name, read_only, write_cache, "LUN is served so");
        self.look_again().await;
        self.lun(name).await
    }

    /// Changes the size of a LUN's image, wherever it is served.
    ///
    /// # Errors
    /// `NoSuch`; `Refused` for a smaller size unless `may_shrink`.
    pub(crate) async fn lun_resize(
        &self,
        name: &str,
        size_bytes: u64,
        may_shrink: bool,
    ) -> Result<LunState, BlockError> {
        let catalog = self.catalog()?;
        let (store, pools) = (self.store()?, self.pools());
        let record = known(&catalog, name).await?;
        if record.deleting {
            return Err(BlockError::Refused(format!("the LUN {name:?} is deleted")));
        }
        let size_now = Image::stat(&*store, &pools, name).await?.size_bytes;
        if size_bytes < size_now && !may_shrink {
            return Err(BlockError::Refused(format!(
                "the LUN {name:?} has {size_now} bytes, and what lies behind {size_bytes} would be \
                 gone; make the file system on it smaller first, then allow the loss"
            )));
        }
        let unit = self.0.served.lock().await.unit(name);
        match unit {
            Some(unit) => unit.image().resize(size_bytes).await?,
            None => Image::resize_named(&*store, &pools, name, size_bytes).await?,
        }
        tracing::info!(lun = name, size_bytes, "LUN resized");
        self.lun(name).await
    }

    /// Deletes a LUN that no target maps, and its image with all data.
    ///
    /// # Errors
    /// `NoSuch`; `Refused` while a target maps it, or the node that serves it does not let go.
    pub(crate) async fn lun_delete(&self, name: &str) -> Result<(), BlockError> {
        let catalog = self.catalog()?;
        let marked = catalog.lun_delete_begin(name).await;
        // Also when it was refused: who saw the mark may have closed the image.
        self.look_again().await;
        marked?;
        let begun = Instant::now();
        while let Err(error) = finish_delete(&catalog, &*self.store()?, &self.pools(), name).await {
            match error {
                BlockError::Store(error) if error.kind() == ErrorKind::Busy => {
                    if begun.elapsed() >= CLOSED_TIMEOUT {
                        return Err(BlockError::Refused(format!(
                            "the image of the LUN {name:?} is open still: {}; it will be removed \
                             once it is closed",
                            chain(&error)
                        )));
                    }
                }
                error @ (BlockError::Catalog(_)
                | BlockError::Store(_)
                | BlockError::Refused(_)
                | BlockError::Vacant(_)) => return Err(error),
            }
            tokio::time::sleep(CLOSED_PAUSE).await;
            // A mapping that came while the mark was set kept the image open, and was taken back.
            self.look_again().await;
        }
        tracing::info!(lun = name, "LUN deleted");
        Ok(())
    }

    /// How each of these is, in their order.
    async fn states_of(
        &self,
        catalog: &Catalog,
        records: Vec<LunRecord>,
    ) -> Result<Vec<LunState>, BlockError> {
        let targets = catalog.targets().await?;
        let nodes = node_names(catalog).await?;
        let (store, pools) = (self.store()?, self.pools());
        let open: BTreeMap<_, _> = self.units().into_iter().collect();
        let mut images = Vec::with_capacity(records.len());
        for record in &records {
            images.push(match open.get(&record.name) {
                // Nobody knows better.
                Some(unit) => Some(stat_of(unit.image())),
                None => image_of(&*store, &pools, &record.name).await?,
            });
        }
        let served = self.0.served.lock().await;
        let states = records.into_iter().zip(images).map(|(record, image)| {
            let node = nodes
                .get(&record.node)
                .map_or_else(|| Arc::from(format!("node {}", record.node.0)), Arc::clone);
            let serving = if record.deleting {
                Serving::Deleting
            } else if node != self.0.parts.node {
                Serving::Elsewhere
            } else {
                served.serving(&record.name)
            };
            LunState {
                maps: maps_of(&targets, &record.name),
                record,
                node,
                image,
                serving,
            }
        });
        Ok(states.collect())
    }

    fn catalog(&self) -> Result<Arc<Catalog>, BlockError> {
        let tenure = self.0.parts.tenures.current();
        let tenure = tenure.map_err(BlockError::Vacant)?;
        Ok(Arc::clone(&tenure.volumes.catalog))
    }

    fn store(&self) -> Result<Arc<dyn ObjectStore>, BlockError> {
        let tenure = self.0.parts.tenures.current();
        let tenure = tenure.map_err(BlockError::Vacant)?;
        Ok(Arc::clone(&tenure.store))
    }

    fn pools(&self) -> ImagePools {
        image_pools(&self.0.parts.pools)
    }
}

fn stat_of(image: &Image) -> ImageStat {
    ImageStat {
        id: image.id().to_owned(),
        size_bytes: image.size_bytes(),
        layout: image.layout(),
        identity: Some(image.identity().clone()),
    }
}

/// What an image is like, if that can be told.
async fn image_of(
    store: &dyn ObjectStore,
    pools: &ImagePools,
    name: &str,
) -> Result<Option<ImageStat>, StoreError> {
    match Image::stat(store, pools, name).await {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Target, number and initiator of each mapping of a LUN.
fn maps_of(targets: &[TargetRecord], lun_name: &str) -> Vec<(String, u16, Option<String>)> {
    let maps = targets.iter().flat_map(|target| {
        let own = target.maps.iter().filter(|map| map.lun_name == lun_name);
        own.map(|map| {
            let initiator = map.initiator.as_ref().map(ToString::to_string);
            (target.name.to_string(), map.lun, initiator)
        })
    });
    maps.collect()
}

fn image_pools(pools: &Pools) -> ImagePools {
    ImagePools {
        data: pools.data.clone(),
        meta: pools.meta.clone(),
    }
}

async fn known(catalog: &Catalog, name: &str) -> Result<LunRecord, CatalogError> {
    let found = catalog.lun(name).await?;
    found.ok_or_else(|| CatalogError::NoSuch {
        what: "LUN",
        name: name.to_owned(),
    })
}

async fn node_names(catalog: &Catalog) -> Result<BTreeMap<NodeId, Arc<str>>, BlockError> {
    let nodes = catalog.nodes().await?;
    let name = |node: portico_backend::catalog::NodeRecord| (node.id, Arc::from(node.name));
    Ok(nodes.into_iter().map(name).collect())
}

async fn own_node(catalog: &Catalog, name: &str) -> Result<NodeId, BlockError> {
    let nodes = catalog.nodes().await?;
    let own = nodes.into_iter().find(|node| node.name == name);
    let own = own.map(|node| node.id);
    own.ok_or_else(|| BlockError::Refused(format!("this node, {name}, is not registered")))
}

/// Takes the image of a LUN away whose deletion was begun, and then the LUN.
///
/// # Errors
/// `Busy` while it is open somewhere.
async fn finish_delete(
    catalog: &Catalog,
    store: &dyn ObjectStore,
    pools: &ImagePools,
    name: &str,
) -> Result<(), BlockError> {
    let Some(lun) = catalog.lun(name).await?.filter(|lun| lun.deleting) else {
        return Ok(());
    };
    // Somebody else may end it meanwhile, and make another one of this name.
    let removed = match &lun.image_id {
        Some(id) => Image::remove_id(store, pools, name, id).await,
        None => Image::remove(store, pools, name).await,
    };
    match removed {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    Ok(catalog.lun_delete_end(&lun).await?)
}

fn name_is_taken(name: &str, error: StoreError) -> BlockError {
    if error.kind() == ErrorKind::AlreadyExists {
        return BlockError::Refused(format!(
            "there is an image {name:?} already; choose another name, or make a LUN of that image"
        ));
    }
    error.into()
}
