//! Whether the local store can grow as far as the configuration lets it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::size;
use crate::config::{Backend, Config};
use crate::data_dir::store_path;

/// A store with a configured capacity.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    store: PathBuf,
    capacity_bytes: u64,
}

impl Space {
    /// `None` if nothing was promised.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        match config.backend {
            Backend::Local { capacity_bytes, .. } => Some(Self {
                store: store_path(&config.data_dir),
                capacity_bytes: capacity_bytes?,
            }),
            Backend::Memory { .. } | Backend::Rados(_) => None,
        }
    }

    /// What an operator should know if the file system is full before the store is.
    pub(crate) fn warning(&self) -> Option<String> {
        let room = match room_bytes(&self.store) {
            Ok(room) => room,
            Err(error) => {
                tracing::debug!(%error, "cannot tell the room of the file system");
                return None;
            }
        };
        (self.capacity_bytes > room).then(|| {
            format!(
                "key backend.capacity_bytes lets the store grow to {}, but its file system has \
                 room for {} only",
                size(self.capacity_bytes),
                size(room)
            )
        })
    }
}

/// Bytes that the files in `store` take, and could take in addition.
fn room_bytes(store: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(store)?;
    let mut room = stat.f_bavail.saturating_mul(stat.f_frsize);
    for entry in store.read_dir()? {
        // The unit of `blocks` whatever the file system's is (stat(2)).
        let taken = entry?.metadata()?.blocks().saturating_mul(512);
        room = room.saturating_add(taken);
    }
    Ok(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_takes_counts_as_its_room() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("data"), vec![7; 1 << 20]).unwrap();
        let stat = rustix::fs::statvfs(directory.path()).unwrap();
        let total = stat.f_blocks * stat.f_frsize;
        let room = room_bytes(directory.path()).unwrap();
        assert!(room >= 1 << 20 && room <= total, "{room} of {total}");
        let space = |capacity_bytes| Space {
            store: directory.path().to_owned(),
            capacity_bytes,
        };
        assert_eq!(space(1 << 20).warning(), None);
        let told = space(1 << 60).warning().unwrap();
        assert!(told.contains("to 1.0 EiB, but"), "{told}");
    }
}
