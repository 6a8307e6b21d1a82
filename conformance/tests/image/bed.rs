//! What all suites of images stand on.

use std::sync::Arc;

use bytes::Bytes;
use portico_backend::image::{Image, ImagePools, NewImage};
use portico_backend::local::LocalStore;
use portico_backend::local::media::Medium;
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{ObjectStore, Payload, Pool};
use portico_backend::random::Generator;
use portico_conformance::crash::disk::{Image as Disk, SimDisk};
use portico_conformance::crash::tiny_options;

pub(crate) const NAME: &str = "disk";

/// A store of images.
#[derive(Clone, Debug)]
pub(crate) enum Bed {
    Memory(MemoryCluster),
    /// With so little memory that most of it lies in files.
    Local(Arc<LocalStore>),
}

impl Bed {
    pub(crate) fn memory(seed: u64) -> Self {
        Self::Memory(MemoryCluster::new(MemoryOptions {
            seed,
            ..MemoryOptions::default()
        }))
    }

    pub(crate) fn local() -> Self {
        let medium: Arc<dyn Medium> = SimDisk::new(Disk::new());
        Self::Local(LocalStore::open_on(&medium, tiny_options(None)).unwrap())
    }

    pub(crate) fn session(&self, purpose: &str) -> Arc<dyn ObjectStore> {
        match self {
            Self::Memory(cluster) => cluster.session(purpose),
            Self::Local(store) => store.session(purpose),
        }
    }
}

pub(crate) fn pools() -> ImagePools {
    ImagePools {
        data: Pool::new("data", ""),
        meta: Pool::new("meta", ""),
    }
}

/// Small objects, so that a few hundred KiB have many; which ones depends on the seed.
pub(crate) fn new_image(seed: u64, size_bytes: u64) -> NewImage {
    let (object_size, stripe_unit, stripe_count) =
        [(16_384, 16_384, 1), (32_768, 8_192, 3), (16_384, 4_096, 2)][index(seed % 3)];
    NewImage {
        object_size,
        stripe_unit,
        stripe_count,
        ..NewImage::new(NAME, size_bytes, 1_700_000_000_000)
    }
}

pub(crate) async fn content(image: &Image) -> Vec<u8> {
    let all: Payload = image.read(0, image.size_bytes()).await.unwrap();
    all.to_bytes().to_vec()
}

/// Bytes that can be told from those of other calls, in one piece or several.
pub(crate) fn payload(random: &mut Generator, length: u64) -> (Payload, Vec<u8>) {
    let mut bytes = Vec::with_capacity(index(length) + 8);
    while bytes.len() < index(length) {
        bytes.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    bytes.truncate(index(length));
    if random.chance(500) {
        return (Payload::from(Bytes::from(bytes.clone())), bytes);
    }
    let pieces = bytes.chunks(1 + index(random.below(length.max(1))));
    let pieces: Vec<Bytes> = pieces.map(Bytes::copy_from_slice).collect();
    (Payload::from(pieces), bytes)
}

pub(crate) fn index(number: u64) -> usize {
    usize::try_from(number).expect("small")
}
