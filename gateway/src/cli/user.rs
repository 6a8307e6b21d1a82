//! `portico user`.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::client::{Client, Target, segment};
use super::table::{table, time};
use super::{block_on, print_json};
use crate::admin::api;
use crate::error::{Exit, Failure};
use crate::private_file;

/// Manage users and their access keys on a running portico
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a user; give it an access key with "portico user key create"
    Create {
        name: String,
        /// Shown as the owner of buckets and objects [default: the name]
        #[arg(long)]
        display_name: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// List all users
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Let the user's access keys open nothing
    Disable {
        /// Name or id
        user: String,
        #[command(flatten)]
        target: Target,
    },
    /// Let the user's access keys open what is theirs again
    Enable {
        /// Name or id
        user: String,
        #[command(flatten)]
        target: Target,
    },
    /// Delete a user who owns no buckets, and all its access keys
    Delete {
        /// Name or id
        user: String,
        #[command(flatten)]
        target: Target,
    },
    /// Manage access keys
    #[command(subcommand)]
    Key(KeyCommand),
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Make an access key and show its secret, once
    Create {
        /// Name or id
        user: String,
        /// A chosen access key id instead of a drawn one
        #[arg(long, value_name = "ID", requires = "secret_file")]
        access_key: Option<String>,
        /// File (mode 0600) that holds the chosen secret, or "-" for standard input
        #[arg(long, value_name = "FILE", requires = "access_key")]
        secret_file: Option<PathBuf>,
        #[command(flatten)]
        target: Target,
    },
    /// List the access keys of a user
    List {
        /// Name or id
        user: String,
        #[command(flatten)]
        target: Target,
    },
    /// Delete an access key
    Delete {
        /// Name or id
        user: String,
        access_key: String,
        #[command(flatten)]
        target: Target,
    },
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(async {
        match &arguments.command {
            Command::Create {
                name,
                display_name,
                target,
            } => create(name, display_name.as_deref(), target).await,
            Command::List { target } => list(target).await,
            Command::Disable { user, target } => set_disabled(user, true, target).await,
            Command::Enable { user, target } => set_disabled(user, false, target).await,
            Command::Delete { user, target } => {
                Client::new(target)?.delete(&path(user)).await?;
                Ok(())
            }
            Command::Key(command) => run_key(command).await,
        }
    })
}

async fn create(name: &str, display_name: Option<&str>, target: &Target) -> Result<(), Failure> {
    let new = api::NewUser {
        name: name.to_owned(),
        display_name: display_name.map(str::to_owned),
    };
    let answer = Client::new(target)?.post("/v1/users", &new).await?;
    let user: api::User = answer.parse()?;
    if target.json {
        return print_json(&user);
    }
    println!("user {} with the id {}", user.name, user.id);
    println!(
        "make an access key with: portico user key create {}",
        user.name
    );
    Ok(())
}

async fn list(target: &Target) -> Result<(), Failure> {
    let client = Client::new(target)?;
    let mut users = Vec::new();
    let mut next = Some(String::new());
    while let Some(after) = next {
        let path = format!("/v1/users?after={}", segment(&after));
        let page: api::Users = client.get(&path).await?.parse()?;
        users.extend(page.users);
        next = page.next;
    }
    if target.json {
        return print_json(&api::Users { users, next: None });
    }
    let rows: Vec<_> = users.into_iter().map(row).collect();
    print!(
        "{}",
        table(["NAME", "DISPLAY NAME", "STATE", "CREATED", "ID"], &rows)
    );
    Ok(())
}

async fn set_disabled(user: &str, disabled: bool, target: &Target) -> Result<(), Failure> {
    let change = api::UserChange {
        disabled: Some(disabled),
        ..api::UserChange::default()
    };
    let answer = Client::new(target)?.patch(&path(user), &change).await?;
    if target.json {
        return print_json(&answer.parse::<api::User>()?);
    }
    Ok(())
}

async fn run_key(command: &KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::Create {
            user,
            access_key,
            secret_file,
            target,
        } => {
            let new = api::NewAccessKey {
                access_key: access_key.clone(),
                secret_key: secret_file.as_deref().map(read_secret).transpose()?,
            };
            let answer = Client::new(target)?.post(&keys_path(user), &new).await?;
            let made: api::MadeAccessKey = answer.parse()?;
            if target.json {
                return print_json(&made);
            }
            println!("access key  {}", made.access_key);
            println!("secret key  {}", made.secret_key);
            Ok(())
        }
        KeyCommand::List { user, target } => key_list(user, target).await,
        KeyCommand::Delete {
            user,
            access_key,
            target,
        } => {
            let path = format!("{}/{}", keys_path(user), segment(access_key));
            Client::new(target)?.delete(&path).await?;
            Ok(())
        }
    }
}

async fn key_list(user: &str, target: &Target) -> Result<(), Failure> {
    let answer = Client::new(target)?.get(&keys_path(user)).await?;
    let keys: api::AccessKeys = answer.parse()?;
    if target.json {
        return print_json(&keys);
    }
    let state = |usable| {
        if usable {
            "usable"
        } else {
            "keyring lacks its key"
        }
    };
    let rows: Vec<_> = keys
        .access_keys
        .into_iter()
        .map(|key| {
            let (created, state) = (time(key.created_ms), state(key.usable).to_owned());
            [key.access_key, created, key.sealed_with, state]
        })
        .collect();
    print!(
        "{}",
        table(["ACCESS KEY", "CREATED", "SEALED WITH", "STATE"], &rows)
    );
    Ok(())
}

fn row(user: api::User) -> [String; 5] {
    let state = match (user.deleting, user.disabled) {
        (true, _) => "deletion unfinished",
        (false, true) => "disabled",
        (false, false) => "enabled",
    };
    let created = time(user.created_ms);
    [
        user.name,
        user.display_name,
        state.to_owned(),
        created,
        user.id,
    ]
}

fn path(user: &str) -> String {
    format!("/v1/users/{}", segment(user))
}

fn keys_path(user: &str) -> String {
    format!("{}/keys", path(user))
}

fn read_secret(file: &Path) -> Result<String, Failure> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .take(4_096)
            .read_to_string(&mut text)
            .map_err(|error| Failure::from_source("cannot read standard input", &error))?;
        text
    } else {
        private_file::read(file)?.ok_or_else(|| {
            Failure::new(Exit::Usage, format!("there is no file {}", file.display()))
        })?
    };
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
