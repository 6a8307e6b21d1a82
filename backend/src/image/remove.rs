//! Removing an image with all its data.

use super::create::remove_object;
use super::handle::take;
use super::header::Header;
use super::resize::tell;
use super::trim::Extent;
use super::{Image, ImagePools, Place, check_name, directory, facts, prefix_of};
use crate::error::{Error, ErrorKind};
use crate::object::{ObjectStore, WriteOp};

impl Image {
    /// Removes the image of this name. One that was left half removed is removed by asking again.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Busy` if somebody has it open; those of [`Image::open`] for an
    /// image that Portico can't serve, which RBD's tools remove.
    pub async fn remove(
        store: &dyn ObjectStore,
        pools: &ImagePools,
        name: &str,
    ) -> Result<(), Error> {
        check_name(name)?;
        let id = match directory::id_of(store, pools, name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let listed = directory::listed_id(store, pools, name).await?;
                listed.ok_or(error)?
            }
            answer => answer?,
        };
        Self::remove_id(store, pools, name, &id).await
    }

    /// Removes this image only, also if another one has its name by now. One that is gone, or half
    /// removed, is removed too.
    ///
    /// # Errors
    /// `Busy` and others as [`Image::remove`].
    pub async fn remove_id(
        store: &dyn ObjectStore,
        pools: &ImagePools,
        name: &str,
        id: &str,
    ) -> Result<(), Error> {
        check_name(name)?;
        let place = Place {
            pools: pools.clone(),
            name: name.to_owned(),
            id: id.to_owned(),
        };
        match Header::read(store, &place.header(), name).await {
            Ok(header) => {
                refuse_if_open(store, &place).await?;
                remove_data(store, &place, &header).await?;
                remove_object(store, &place.header()).await?;
            }
            // Removed before.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        directory::release_name(store, &place).await?;
        directory::remove(store, &place).await?;
        match facts::read(store, &place.facts()).await {
            Ok(known) => {
                facts::release_naa(store, &place, &known.identity.naa).await?;
                remove_object(store, &place.facts()).await
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn refuse_if_open(store: &dyn ObjectStore, place: &Place) -> Result<(), Error> {
    let outcome = tell(store, place).await?;
    if outcome.acks.is_empty() && outcome.missed.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Busy,
        format!("image {:?} is open; close it first", place.name),
    ))
}

/// Marks the image first: whoever opens it meanwhile is told, and does not find half its data.
async fn remove_data(store: &dyn ObjectStore, place: &Place, header: &Header) -> Result<(), Error> {
    let known = facts::ensure(store, place).await?;
    let claim = take(store, place).await?;
    let mark = facts::set(facts::REMOVING, bytes::Bytes::from_static(b"1"));
    let op = claim.apply(WriteOp::new([mark]));
    store.write(&place.facts(), op).await?;
    let extent = Extent {
        store,
        pool: &place.pools.data,
        prefix: prefix_of(&header.object_prefix),
        layout: header.layout,
    };
    let end = header.size.max(known.trim_from.unwrap_or(0));
    extent.trim(0, end).await
}
