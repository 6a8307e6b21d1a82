//! `portico keyring`.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::{Args, Subcommand};
use portico_backend::catalog::{Catalog, CatalogError, Keyring};
use portico_backend::clock::SystemClock;

use super::{Location, block_on, output};
use crate::assemble::{Engine, Pools};
use crate::config::{Backend, Config};
use crate::data_dir::DataDir;
use crate::error::{Exit, Failure};
use crate::keyring;

/// Look after the keys that seal the secrets in the store
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Rotate(Rotate),
}

/// Seal all secrets with a new key and drop the old ones
///
/// The store must not be in use. If it is interrupted, run it again. Back up the keyring afterwards:
/// an older backup does not open the secrets any more.
#[derive(Args, Debug)]
struct Rotate {
    #[command(flatten)]
    location: Location,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Rotate(rotate) => {
            let config = rotate.location.load()?;
            if matches!(config.backend, Backend::Memory { .. }) {
                return Err(Failure::new(
                    Exit::Usage,
                    "the configured backend keeps nothing, so there is nothing to seal",
                ));
            }
            block_on(rotate_keys(&config))
        }
    }
}

async fn rotate_keys(config: &Config) -> Result<(), Failure> {
    let data_dir = DataDir::take_existing(&config.data_dir)?;
    let is_local = matches!(config.backend, Backend::Local { .. });
    if is_local && data_dir.store_is_new() {
        return Err(Failure::new(
            Exit::Usage,
            format!("there is no store in {} yet", config.data_dir.display()),
        ));
    }
    let old = keyring::load(&config.keyring_file, false)?;
    let mut keyring = Keyring::clone(&*old);
    let id = keyring::next_id(&keyring);
    keyring
        .rotate(&id)
        .map_err(|error| Failure::from_source("cannot add a key to the keyring", &error))?;
    let engine = Engine::open(&config.backend, data_dir.path()).await?;
    let sealed = seal(&engine, config, &old, &keyring).await;
    let closed = engine.close().await;
    let sealed = sealed?;
    closed?;
    let unused: Vec<String> = keyring
        .ids()
        .filter(|one| *one != id && !sealed.in_use.contains_key(*one))
        .map(str::to_owned)
        .collect();
    for old in unused {
        keyring
            .remove(&old)
            .map_err(|error| Failure::from_source("cannot remove an old key", &error))?;
    }
    keyring::store(&config.keyring_file, &keyring)?;
    output::line(format_args!(
        "{} secrets are sealed with the new key {id}; back up {}",
        sealed.count,
        config.keyring_file.display()
    ))?;
    Ok(())
}

/// What sealing everything anew led to.
struct Sealed {
    count: u64,
    /// The keys that seal something now, with how much.
    in_use: BTreeMap<String, u64>,
}

async fn seal(
    engine: &Engine,
    config: &Config,
    old: &Keyring,
    keyring: &Keyring,
) -> Result<Sealed, Failure> {
    let catalog = Catalog::open(
        engine.session("keyring rotate").await?,
        Pools::default().meta,
        Arc::new(SystemClock),
        Arc::new(keyring.clone()),
    )
    .await
    .map_err(|error| Failure::from_source("cannot open the catalog", &error))?;
    let failed = |error: CatalogError| {
        Failure::from_source("cannot seal the secrets", &error)
            .with_help("nothing is lost: the keyring still holds every key it had")
    };
    let seal = async {
        check_belongs(config, old, &catalog.keyring_use().await.map_err(failed)?)?;
        // Both keys are in the file until nothing is sealed with the old one.
        keyring::store(&config.keyring_file, keyring)?;
        Ok(Sealed {
            count: catalog.reseal().await.map_err(failed)?,
            in_use: catalog.keyring_use().await.map_err(failed)?,
        })
    };
    let sealed = seal.await;
    catalog.close().await;
    sealed
}

/// Refuses a keyring that lacks a key the store's secrets are sealed with. The new key may get that
/// one's id, and then looks as if it had sealed them.
fn check_belongs(
    config: &Config,
    keyring: &Keyring,
    in_use: &BTreeMap<String, u64>,
) -> Result<(), Failure> {
    let lacks = |id: &&String| keyring.ids().all(|own| own != id.as_str());
    let Some(id) = in_use.keys().find(lacks) else {
        return Ok(());
    };
    Err(Failure::new(
        Exit::Failed,
        format!(
            "the keyring {} is of another time: secrets in the store are sealed with the key \
             \"{id}\", which it lacks",
            config.keyring_file.display()
        ),
    )
    .with_help("nothing was changed; put the keyring back that has this key, from its backup"))
}
