//! The root user: there from the first start on, with a key that is told once.

use std::path::Path;

use portico_backend::catalog::{AccessKey, Catalog, CatalogError, User};

use crate::credentials::{Credentials, Origin};
use crate::environment::Environment;
use crate::error::Failure;
use crate::private_file;

/// The name of the user that the first start makes.
pub(crate) const ROOT_USER: &str = "root";

/// How a user gets to the root user's keys.
#[derive(Clone, Debug)]
pub(crate) enum RootKeys {
    /// They exist since an earlier start, under this access key id; of several, the file's.
    Known { access_key: String },
    /// They were drawn now and are kept nowhere: show them.
    Show(Credentials),
    /// They are new, and whoever started the program has them: from the environment or a file, or
    /// in the file that was written now.
    Given { access_key: String },
}

/// Makes the root user with a key unless it has one. A key that was drawn is written to `file`,
/// unless `show` says that it can be shown.
///
/// # Errors
/// If given keys break the rules or belong to another user, or the store or the file fails.
pub(crate) async fn ensure(
    catalog: &Catalog,
    environment: &Environment,
    file: &Path,
    show: bool,
) -> Result<RootKeys, Failure> {
    let existing = catalog.user_by_name(ROOT_USER).await.map_err(failed)?;
    if let Some(user) = &existing {
        let keys = catalog.access_keys(&user.id).await.map_err(failed)?;
        if let Some(access_key) = usable(catalog, &keys, file)? {
            return Ok(RootKeys::Known { access_key });
        }
    }
    // The file is written before the key exists: after a crash in between, the next start finds it.
    // A root user without keys had them taken away; the old file must not bring them back.
    let (credentials, origin) = if existing.is_none() || environment.root.is_some() {
        Credentials::for_first_start(environment, file)?
    } else {
        (Credentials::draw()?, Origin::Drawn)
    };
    if origin == Origin::Drawn && !show {
        private_file::replace(file, &credentials.to_file())?;
    }
    let user = match existing {
        Some(user) => user,
        None => create(catalog).await?,
    };
    let chosen = (credentials.access_key.clone(), credentials.secret.clone());
    catalog
        .access_key_create(&user.id, Some(chosen))
        .await
        .map_err(failed)?;
    if origin == Origin::Drawn && show {
        return Ok(RootKeys::Show(credentials));
    }
    Ok(RootKeys::Given {
        access_key: credentials.access_key.to_string(),
    })
}

/// A key that the keyring opens, the one in `file` before others; `None` if there are no keys.
///
/// # Errors
/// If there are keys and the keyring opens none of them: it belongs to another store, or is older.
fn usable(catalog: &Catalog, keys: &[AccessKey], file: &Path) -> Result<Option<String>, Failure> {
    let locked = catalog.access_keys_locked_out();
    let held = Credentials::access_key_in(file);
    let mut problem = None;
    let is_held = |key: &&AccessKey| Some(&key.id) == held.as_ref();
    for key in keys.iter().filter(is_held).chain(keys) {
        match locked.iter().find(|(id, _)| *id == key.id) {
            None => return Ok(Some(key.id.to_string())),
            Some((_, error)) => problem = Some(error),
        }
    }
    let Some(error) = problem else {
        return Ok(None);
    };
    Err(
        Failure::from_source("the keyring does not open the root user's keys", error)
            .with_help("see docs/operations/recover.md for how to restore a keyring"),
    )
}

async fn create(catalog: &Catalog) -> Result<User, Failure> {
    match catalog.user_create(ROOT_USER, ROOT_USER).await {
        Ok(user) => Ok(user),
        // Another node on the same store was faster.
        Err(CatalogError::UserExists(user)) => Ok(*user),
        Err(error) => Err(failed(error)),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err asks for"
)]
fn failed(error: CatalogError) -> Failure {
    Failure::from_source("cannot set up the root user", &error)
}
