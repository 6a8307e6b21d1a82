//! The data directory: what lies where in it, and that only one program uses it at a time.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use portico_backend::local::media::give_to_owner_of;

use crate::error::{Exit, Failure};

/// A data directory held by this program until dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// Where the local engine's files are below the data directory.
pub(crate) fn store_path(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

impl DataDir {
    /// Takes the directory, making it (mode 0700) if it is not there.
    ///
    /// # Errors
    /// `Exit::InUse` if another program holds it.
    pub(crate) fn take(path: &Path) -> Result<Self, Failure> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| cannot(path, &error))?;
        Self::lock(path)
    }

    /// Takes a directory that must be there.
    ///
    /// # Errors
    /// As [`DataDir::take`].
    pub(crate) fn take_existing(path: &Path) -> Result<Self, Failure> {
        if !path.is_dir() {
            return Err(Failure::new(
                Exit::Usage,
                format!("there is no data directory {}", path.display()),
            )
            .with_help("name it with --data-dir or --config"));
        }
        Self::lock(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether no local store was made here yet.
    pub(crate) fn store_is_new(&self) -> bool {
        store_path(&self.path)
            .read_dir()
            .map_or(true, |mut entries| entries.next().is_none())
    }

    fn lock(path: &Path) -> Result<Self, Failure> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(|error| cannot(path, &error))?;
        give_to_owner_of(path, &file).map_err(|error| cannot(path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path, &mut file)),
            Err(TryLockError::Error(error)) => return Err(cannot(path, &error)),
        }
        write_holder(&mut file).map_err(|error| cannot(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            _lock: file,
        })
    }
}

/// The process id in the lock file is for the operator's eyes; the lock is what counts.
fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn in_use(path: &Path, file: &mut File) -> Failure {
    let mut holder = String::new();
    let read = file.take(32).read_to_string(&mut holder);
    let by = match read {
        Ok(count) if count > 0 => format!(" (process {})", holder.trim()),
        Ok(_) | Err(_) => String::new(),
    };
    Failure::new(
        Exit::InUse,
        format!(
            "another portico{by} uses the data directory {}",
            path.display()
        ),
    )
    .with_help("stop it first, or use another directory with --data-dir")
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::from_source(
        format!("cannot use the data directory {}", path.display()),
        error,
    );
    failure.with_help(
        "name a directory that this user may write to, or a place where one can be made, \
         with --data-dir or the key data_dir",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_directory_is_private_and_held_by_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        assert!(DataDir::take_existing(&path).is_err());
        std::fs::write(&path, "no directory").unwrap();
        let failure = DataDir::take(&path).unwrap_err().to_string();
        assert!(failure.contains("--data-dir"), "{failure}");
        std::fs::remove_file(&path).unwrap();
        let held = DataDir::take(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(held.store_is_new());
        let failure = DataDir::take(&path).unwrap_err().to_string();
        let holder = format!("process {}", std::process::id());
        assert!(failure.contains(&holder), "{failure}");
        drop(held);
        DataDir::take_existing(&path).unwrap();
    }

    /// `check` and `keyring rotate` run by root left files that the service could not open.
    #[test]
    fn what_root_makes_belongs_to_the_owner_of_the_directory() {
        const SOMEBODY: u32 = 65_534;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let runs_as = std::fs::metadata(path).unwrap().uid();
        let owner = match runs_as {
            0 => SOMEBODY,
            somebody => somebody,
        };
        std::os::unix::fs::chown(path, Some(owner), None).unwrap();
        DataDir::take_existing(path).unwrap();
        crate::private_file::replace(&path.join("keyring"), "key").unwrap();
        for name in ["lock", "keyring"] {
            let made = std::fs::metadata(path.join(name)).unwrap();
            assert_eq!(made.uid(), owner, "{name}");
            assert_eq!(made.permissions().mode() & 0o777, 0o600, "{name}");
        }
    }
}
