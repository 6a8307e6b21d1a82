//! Files that only their owner may read: the credentials of the root user, tokens, the keyring.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use portico_backend::local::media::give_to_owner_of;

use crate::error::{Exit, Failure};
use crate::limits::SMALL_FILE_BYTES_MAX;

/// Reads a file, or `None` if there is none.
///
/// # Errors
/// `Exit::Usage` if others may read or write it, or it is too large or not text.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Failure> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot_read(path, &error)),
    };
    let data = file.metadata().map_err(|error| cannot_read(path, &error))?;
    let mode = data.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Failure::new(
            Exit::Usage,
            format!("{} is open to others (mode {mode:04o})", path.display()),
        )
        .with_help(format!(
            "change it with: chmod 600 {}; if others could read it, replace the secret in it",
            path.display()
        )));
    }
    if data.len() > SMALL_FILE_BYTES_MAX {
        return Err(Failure::new(
            Exit::Usage,
            format!("{} is too large for what it should be", path.display()),
        ));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(|error| cannot_read(path, &error))?;
    Ok(Some(text))
}

/// Writes a file of mode 0600 in place of what is there; after a crash either is there as a whole.
///
/// # Errors
/// If the directory cannot be written.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = Path::new(&name);
    let write = || -> io::Result<()> {
        match std::fs::remove_file(temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(temporary)?;
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        let directory = parent.unwrap_or(Path::new("."));
        give_to_owner_of(directory, &file)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(temporary, path)?;
        File::open(directory)?.sync_all()
    };
    write()
        .map_err(|error| Failure::from_source(format!("cannot write {}", path.display()), &error))
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure::from_source(format!("cannot read {}", path.display()), error).with_exit(Exit::Usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_private_and_what_is_open_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        assert_eq!(read(&path).unwrap(), None);
        // A crash may have left a temporary file with any content and mode.
        std::fs::write(directory.path().join("secret.new"), "junk").unwrap();
        for text in ["one", "two"] {
            replace(&path, text).unwrap();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600);
            assert_eq!(read(&path).unwrap().as_deref(), Some(text));
        }
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let failure = read(&path).unwrap_err().to_string();
            assert!(failure.contains("chmod 600"), "{failure}");
            assert!(!failure.contains("two"));
        }
    }
}
