//! What an image is like, for whoever does not serve it.

use super::facts::{self, Identity};
use super::header::Header;
use super::{Image, ImagePools, Place, check_name, directory};
use crate::error::{Error, ErrorKind};
use crate::object::ObjectStore;
use crate::stripe::Layout;

/// An image as it lies in the store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageStat {
    /// Never used again for another image.
    pub id: String,
    pub size_bytes: u64,
    pub layout: Layout,
    /// None before Portico has opened an image that RBD's tools made.
    pub identity: Option<Identity>,
}

impl Image {
    /// What the image of this name is like. Changes nothing.
    ///
    /// # Errors
    /// `NotFound` if no image has the name; `Unsupported`, with the reason, for one that Portico
    /// can't serve.
    pub async fn stat(
        store: &dyn ObjectStore,
        pools: &ImagePools,
        name: &str,
    ) -> Result<ImageStat, Error> {
        check_name(name)?;
        let place = Place {
            pools: pools.clone(),
            name: name.to_owned(),
            id: directory::id_of(store, pools, name).await?,
        };
        let header = Header::read(store, &place.header(), name).await?;
        let identity = match facts::read(store, &place.facts()).await {
            Ok(facts) => Some(facts.identity),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(ImageStat {
            id: place.id,
            size_bytes: header.size,
            layout: header.layout,
            identity,
        })
    }
}
