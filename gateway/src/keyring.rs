//! The keyring's file: mode 0600, made with a new store, never made again for an old one.

use std::path::Path;
use std::sync::Arc;

use portico_backend::catalog::Keyring;

use crate::error::{Exit, Failure};
use crate::private_file;

/// The key of a keyring that was just made.
const FIRST_KEY: &str = "k1";

/// The key of the configuration that says where the file is.
const KEY: &str = "keyring.file";

/// Reads the keyring, or makes one if there is none and the store is new.
///
/// # Errors
/// If the file is open to others, is damaged, or is missing beside a store that needs it.
pub(crate) fn load(path: &Path, store_is_new: bool) -> Result<Arc<Keyring>, Failure> {
    if let Some(text) = private_file::read(path).map_err(|failure| failure.of_key(KEY))? {
        return parse(path, &text).map(Arc::new);
    }
    if !store_is_new {
        return Err(Failure::new(
            Exit::Usage,
            format!("the keyring {} does not exist", path.display()),
        )
        .with_help(
            "the secrets in the store are sealed with it; put it back from its backup, \
             or set the key keyring.file to its place",
        )
        .of_key(KEY));
    }
    let keyring = Keyring::generate(FIRST_KEY)
        .map_err(|error| Failure::from_source("cannot make a keyring", &error))?;
    private_file::replace(path, &keyring.to_text())?;
    Ok(Arc::new(keyring))
}

/// Writes a changed keyring in place of the former one.
///
/// # Errors
/// If the directory cannot be written.
pub(crate) fn store(path: &Path, keyring: &Keyring) -> Result<(), Failure> {
    private_file::replace(path, &keyring.to_text())
}

/// The id for the next key: `k` and a number above all others of that form.
pub(crate) fn next_id(keyring: &Keyring) -> String {
    let newest = keyring
        .ids()
        .filter_map(|id| id.strip_prefix('k')?.parse::<u32>().ok())
        .max();
    format!("k{}", newest.unwrap_or(0).saturating_add(1))
}

fn parse(path: &Path, text: &str) -> Result<Keyring, Failure> {
    Keyring::parse(text).map_err(|error| {
        Failure::from_source(format!("the keyring {}", path.display()), &error)
            .with_help("put it back from its backup")
            .of_key(KEY)
            .with_exit(Exit::Usage)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_keyring_is_made_once_and_never_for_an_old_store() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keyring");
        let failure = load(&path, false).unwrap_err().to_string();
        assert!(
            failure.contains("key keyring.file: the keyring"),
            "{failure}"
        );
        assert!(!path.exists());

        let made = load(&path, true).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for store_is_new in [true, false] {
            let read = load(&path, store_is_new).unwrap();
            assert_eq!(read.to_text(), made.to_text());
        }

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let failure = load(&path, false).unwrap_err().to_string();
        assert!(failure.contains("chmod 600"), "{failure}");
    }

    #[test]
    fn ids_go_up() {
        let mut keyring = Keyring::generate("k9").unwrap();
        keyring.rotate("mine").unwrap();
        assert_eq!(next_id(&keyring), "k10");
    }
}
