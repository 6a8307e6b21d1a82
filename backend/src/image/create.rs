//! Making images and listing them.

use std::fmt::Write as _;

use super::{
    Image, ImageEntry, ImagePools, NewImage, Place, check_layout, check_name, check_pools,
    check_size, directory, facts, header,
};
use crate::error::{Error, ErrorKind};
use crate::object::{Guard, ObjectStore, WriteOp, WriteStep};

impl Image {
    /// Makes an image. Facts and header come first, then the name, by which the image exists, then
    /// its place in the list; whoever opens an image that is not listed lists it.
    ///
    /// # Errors
    /// `AlreadyExists` if an image has the name, `Unsupported` for numbers that make no image. What
    /// was made of an image that could not be finished is taken back as far as the store allows.
    pub async fn create(
        store: &dyn ObjectStore,
        pools: &ImagePools,
        image: &NewImage,
    ) -> Result<ImageEntry, Error> {
        check(store, pools, image)?;
        let place = Place {
            pools: pools.clone(),
            name: image.name.clone(),
            id: draw_id()?,
        };
        let identity = facts::create(store, &place, image.block_bytes).await?;
        let made = make(store, &place, image).await;
        match &made {
            Ok(()) => {}
            // It may be there: whoever asks again meets it.
            Err(error) if error.kind().is_perhaps_applied() => {}
            Err(_) => {
                remove_object(store, &place.header()).await?;
                remove_object(store, &place.facts()).await?;
                facts::release_naa(store, &place, &identity.naa).await?;
            }
        }
        made?;
        directory::add(store, &place).await?;
        Ok(ImageEntry {
            name: place.name,
            id: place.id,
        })
    }

    /// All images of the pool by name, also those that Portico can't serve.
    ///
    /// # Errors
    /// What the store says.
    pub async fn list(
        store: &dyn ObjectStore,
        pools: &ImagePools,
    ) -> Result<Vec<ImageEntry>, Error> {
        directory::list(store, pools).await
    }
}

fn check(store: &dyn ObjectStore, pools: &ImagePools, image: &NewImage) -> Result<(), Error> {
    let refuse = |problem: String| {
        let context = format!("image {:?}: {problem}", image.name);
        Err(Error::new(ErrorKind::Unsupported, context))
    };
    check_name(&image.name)?;
    check_pools(store, pools)?;
    if !matches!(image.block_bytes, 512 | 4_096) {
        return refuse(format!(
            "a block has 512 or 4,096 bytes, not {}",
            image.block_bytes
        ));
    }
    check_size(&image.name, image.size_bytes, image.block_bytes)?;
    if !image.object_size.is_power_of_two() || !(1 << 12..=1 << 25).contains(&image.object_size) {
        return refuse(format!(
            "the object size of {} bytes is no power of two from 4 KiB to 32 MiB",
            image.object_size
        ));
    }
    let unit = u64::from(image.stripe_unit);
    let count = u64::from(image.stripe_count);
    check_layout(&image.name, unit, count, image.object_size)?;
    Ok(())
}

async fn make(store: &dyn ObjectStore, place: &Place, image: &NewImage) -> Result<(), Error> {
    let op = header::create(&place.id, image).guarded(Guard::Absent);
    store.write(&place.header(), op).await?;
    directory::take_name(store, place).await
}

/// 14 hexadecimal digits, as many as librbd's ids have at most.
fn draw_id() -> Result<String, Error> {
    let bytes: [u8; 7] = facts::draw()?;
    let mut id = String::with_capacity(14);
    for byte in bytes {
        write!(id, "{byte:02x}").expect("a string takes all");
    }
    Ok(id)
}

/// Removes an object that may not be there.
pub(super) async fn remove_object(
    store: &dyn ObjectStore,
    object: &crate::object::ObjectId,
) -> Result<(), Error> {
    match store.write(object, WriteOp::new([WriteStep::Remove])).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
