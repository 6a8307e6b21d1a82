//! `portico user`.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::client::{Client, Target, segment};
use super::table::{table, time};
use super::{block_on, bucket, output, print_json};
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
    /// Show a user, its access keys without their secrets, and the buckets it owns
    Show {
        /// Name or id
        user: String,
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
    /// Make an access key and show its secret, once; a chosen secret is not shown
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
            Command::Show { user, target } => show(user, target).await,
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
    output::line(format_args!("user {} with the id {}", user.name, user.id))?;
    output::line(format_args!(
        "make an access key with: portico user key create {}",
        user.name
    ))?;
    Ok(())
}

async fn list(target: &Target) -> Result<(), Failure> {
    let page = |page: api::Users| (page.users, page.next);
    let users = Client::new(target)?.list("/v1/users?", page).await?;
    if target.json {
        return print_json(&api::Users { users, next: None });
    }
    let rows: Vec<_> = users.into_iter().map(row).collect();
    output::text(&table(
        ["NAME", "DISPLAY NAME", "STATE", "CREATED", "ID"],
        &rows,
    ))?;
    Ok(())
}

async fn show(user: &str, target: &Target) -> Result<(), Failure> {
    let client = Client::new(target)?;
    let shown: api::User = client.get(&path(user)).await?.parse()?;
    let keys: api::AccessKeys = client.get(&keys_path(&shown.id)).await?.parse()?;
    let buckets = bucket::all(&client, Some(&shown.id)).await?;
    if target.json {
        let document = serde_json::json!({
            "user": shown,
            "access_keys": keys.access_keys,
            "buckets": buckets,
        });
        return print_json(&document);
    }
    output::line(format_args!("name          {}", shown.name))?;
    output::line(format_args!("display name  {}", shown.display_name))?;
    output::line(format_args!("id            {}", shown.id))?;
    output::line(format_args!("state         {}", state(&shown)))?;
    output::line(format_args!("created       {}\n", time(shown.created_ms)))?;
    print_keys(keys.access_keys)?;
    output::line(format_args!(""))?;
    bucket::print_table(buckets)
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
            show_key(&made, secret_file.is_none(), target)
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

/// A secret that was chosen is known already, and need not be in a log or on a screen.
fn show_key(made: &api::MadeAccessKey, is_drawn: bool, target: &Target) -> Result<(), Failure> {
    if target.json {
        return match is_drawn {
            true => print_json(made),
            false => print_json(&serde_json::json!({ "access_key": made.access_key })),
        };
    }
    output::line(format_args!("access key  {}", made.access_key))?;
    if is_drawn {
        output::line(format_args!("secret key  {}", made.secret_key))?;
    }
    Ok(())
}

async fn key_list(user: &str, target: &Target) -> Result<(), Failure> {
    let answer = Client::new(target)?.get(&keys_path(user)).await?;
    let keys: api::AccessKeys = answer.parse()?;
    if target.json {
        return print_json(&keys);
    }
    print_keys(keys.access_keys)
}

fn print_keys(keys: Vec<api::AccessKey>) -> Result<(), Failure> {
    let state = |usable| {
        if usable {
            "usable"
        } else {
            "keyring lacks its key"
        }
    };
    let rows: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let (created, state) = (time(key.created_ms), state(key.usable).to_owned());
            [key.access_key, created, key.sealed_with, state]
        })
        .collect();
    output::text(&table(
        ["ACCESS KEY", "CREATED", "SEALED WITH", "STATE"],
        &rows,
    ))
}

fn state(user: &api::User) -> &'static str {
    match (user.deleting, user.disabled) {
        (true, _) => "deletion unfinished",
        (false, true) => "disabled",
        (false, false) => "enabled",
    }
}

fn row(user: api::User) -> [String; 5] {
    let (state, created) = (state(&user).to_owned(), time(user.created_ms));
    [user.name, user.display_name, state, created, user.id]
}

fn path(user: &str) -> String {
    format!("/v1/users/{}", segment(user))
}

fn keys_path(user: &str) -> String {
    format!("{}/keys", path(user))
}

pub(super) fn read_secret(file: &Path) -> Result<String, Failure> {
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
