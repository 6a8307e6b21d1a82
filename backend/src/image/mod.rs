//! Block images: a range of bytes that reads as zeros where nothing was written.
//!
//! An image is an RBD image of format 2, name by name and byte by byte, on every engine; what
//! Portico alone knows of it lies in an object of its own. `docs/image-format.md` says what lies
//! where and what must hold. One session serves an image at a time, under a [`Claim`].
//!
//! [`Claim`]: crate::claim::Claim

mod compare;
mod create;
mod directory;
mod facts;
mod follow;
mod handle;
mod header;
mod remove;
mod resize;
mod space;
mod stat;
#[cfg(test)]
mod tests;
mod trim;

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::object::{ObjectId, ObjectName, ObjectStore, Pool};
use crate::stripe::Layout;

pub use compare::CompareMark;
pub use facts::{Identity, Naa};
pub use handle::Image;
pub use stat::ImageStat;

/// Bytes of the largest image: 64 TiB, which VMFS takes at most.
pub const IMAGE_BYTES_MAX: u64 = 1 << 46;

/// Bytes of an image's name; what librbd holds (`RBD_MAX_IMAGE_NAME_SIZE`).
pub const IMAGE_NAME_BYTES_MAX: usize = 96;

/// What is never torn: the stripe unit is a multiple of it.
pub const ATOMIC_BYTES: u32 = 4_096;

/// Where images lie.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImagePools {
    /// Images as RBD knows them, headers too. Needs an omap.
    pub data: Pool,
    /// Portico's own facts. Needs an omap.
    pub meta: Pool,
}

/// An image to be made. `new` has the defaults.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewImage {
    /// 1 to `IMAGE_NAME_BYTES_MAX` bytes without `/`, `@`, controls and blanks at its ends.
    pub name: String,
    /// A multiple of the block size, 1 block to `IMAGE_BYTES_MAX`.
    pub size_bytes: u64,
    /// A power of two, 4 KiB to 32 MiB.
    pub object_size: u32,
    /// A multiple of 4 KiB that divides `object_size`.
    pub stripe_unit: u32,
    /// 1 to 1,024.
    pub stripe_count: u32,
    /// 512 or 4,096.
    pub block_bytes: u32,
    /// Wall time, for the image's time stamps.
    pub created_ms: u64,
}

impl NewImage {
    /// Objects of 4 MiB without striping, blocks of 512 bytes.
    #[must_use]
    pub fn new(name: &str, size_bytes: u64, created_ms: u64) -> Self {
        const OBJECT_SIZE: u32 = 4 * 1024 * 1024;
        Self {
            name: name.to_owned(),
            size_bytes,
            object_size: OBJECT_SIZE,
            stripe_unit: OBJECT_SIZE,
            stripe_count: 1,
            block_bytes: 512,
            created_ms,
        }
    }
}

/// An image as the directory lists it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ImageEntry {
    pub name: String,
    /// Never used again for another image.
    pub id: String,
}

/// Where the objects of one image lie.
#[derive(Clone, Debug)]
struct Place {
    pools: ImagePools,
    name: String,
    id: String,
}

impl Place {
    fn header(&self) -> ObjectId {
        rbd_object(&self.pools, &format!("rbd_header.{}", self.id))
    }

    fn name_object(&self) -> ObjectId {
        name_object(&self.pools, &self.name)
    }

    fn facts(&self) -> ObjectId {
        let name = ObjectName::new(&format!("portico_image.{}", self.id));
        ObjectId::new(&self.pools.meta, name)
    }
}

fn rbd_object(pools: &ImagePools, name: &str) -> ObjectId {
    ObjectId::new(&pools.data, ObjectName::new(name))
}

fn name_object(pools: &ImagePools, name: &str) -> ObjectId {
    rbd_object(pools, &format!("rbd_id.{name}"))
}

/// # Errors
/// `Unsupported` with the rule that the name breaks.
fn check_name(name: &str) -> Result<(), Error> {
    let problem = if name.is_empty() {
        "an image needs a name"
    } else if name.len() > IMAGE_NAME_BYTES_MAX {
        "a name has 96 bytes at most"
    } else if name.contains(['/', '@']) || name.chars().any(char::is_control) {
        "a name has no '/', no '@' and no control characters"
    } else if name.trim() != name {
        "a name has no blanks at its ends"
    } else {
        return Ok(());
    };
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("image {name:?}: {problem}"),
    ))
}

fn check_size(name: &str, size_bytes: u64, block_bytes: u32) -> Result<(), Error> {
    let problem = if size_bytes == 0 || size_bytes > IMAGE_BYTES_MAX {
        "is not between 1 block and 64 TiB".to_owned()
    } else if !size_bytes.is_multiple_of(u64::from(block_bytes)) {
        format!("is no multiple of the block size of {block_bytes} bytes")
    } else {
        return Ok(());
    };
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("image {name:?}: the size of {size_bytes} bytes {problem}"),
    ))
}

/// # Errors
/// `Unsupported` if the pool for data has no omap, which the header of an image needs.
fn check_pools(store: &dyn ObjectStore, pools: &ImagePools) -> Result<(), Error> {
    for pool in [&pools.data, &pools.meta] {
        if !store.limits(pool).omap {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("pool {pool}: images need a pool with an omap; use a replicated one"),
            ));
        }
    }
    Ok(())
}

/// The layout, if it never tears what must not be torn.
fn check_layout(name: &str, unit: u64, count: u64, object_size: u32) -> Result<Layout, Error> {
    let refuse = |problem: &str| {
        let context = format!("image {name:?}: {problem}");
        Error::new(ErrorKind::Unsupported, context)
    };
    let unit = u32::try_from(unit).map_err(|_| refuse("the stripe unit is too large"))?;
    let count = u32::try_from(count).map_err(|_| refuse("the stripe count is too large"))?;
    if !unit.is_multiple_of(ATOMIC_BYTES) {
        return Err(refuse("the stripe unit is no multiple of 4 KiB"));
    }
    Layout::new(unit, count, object_size).map_err(|error| {
        refuse(&format!(
            "stripe unit {unit}, stripe count {count} and object size {object_size} make no layout \
             ({error:?})"
        ))
    })
}

/// An answer that does not fit its question is the engine's fault.
fn odd_answer(object: &ObjectId) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("image, object {object}: the store's answer does not fit the question"),
    )
}

fn prefix_of(text: &str) -> Arc<str> {
    Arc::from(text)
}
