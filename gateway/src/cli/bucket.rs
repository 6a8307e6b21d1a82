//! `portico bucket`.

use clap::{Args, Subcommand};

use super::client::{Client, Target, segment};
use super::table::{size, table, time};
use super::{block_on, output, print_json};
use crate::admin::api;
use crate::error::Failure;

/// Manage buckets on a running portico
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a bucket
    Create {
        name: String,
        /// Name or id of the user who is to own it
        #[arg(long, value_name = "USER")]
        owner: String,
        #[command(flatten)]
        target: Target,
    },
    /// List buckets
    List {
        /// Only those of this user (name or id)
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Show a bucket and how much it holds
    Show {
        name: String,
        #[command(flatten)]
        target: Target,
    },
    /// Delete an empty bucket
    Delete {
        name: String,
        #[command(flatten)]
        target: Target,
    },
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(async {
        match &arguments.command {
            Command::Create {
                name,
                owner,
                target,
            } => create(name, owner, target).await,
            Command::List { owner, target } => list(owner.as_deref(), target).await,
            Command::Show { name, target } => show(name, target).await,
            Command::Delete { name, target } => {
                Client::new(target)?.delete(&path(name)).await?;
                Ok(())
            }
        }
    })
}

async fn create(name: &str, owner: &str, target: &Target) -> Result<(), Failure> {
    let new = api::NewBucket {
        name: name.to_owned(),
        owner: owner.to_owned(),
    };
    let answer = Client::new(target)?.post("/v1/buckets", &new).await?;
    let bucket: api::Bucket = answer.parse()?;
    if target.json {
        return print_json(&bucket);
    }
    output::line(format_args!("bucket {} of {}", bucket.name, bucket.owner))?;
    Ok(())
}

async fn list(owner: Option<&str>, target: &Target) -> Result<(), Failure> {
    let buckets = all(&Client::new(target)?, owner).await?;
    if target.json {
        return print_json(&api::Buckets {
            buckets,
            next: None,
        });
    }
    print_table(buckets)
}

/// All buckets, or those of one user.
pub(super) async fn all(client: &Client, owner: Option<&str>) -> Result<Vec<api::Bucket>, Failure> {
    let owner = owner.map_or_else(String::new, |owner| format!("owner={}&", segment(owner)));
    let page = |page: api::Buckets| (page.buckets, page.next);
    client.list(&format!("/v1/buckets?{owner}"), page).await
}

pub(super) fn print_table(buckets: Vec<api::Bucket>) -> Result<(), Failure> {
    let rows: Vec<_> = buckets
        .into_iter()
        .map(|bucket| {
            let created = time(bucket.created_ms);
            [
                bucket.name,
                owner_of(bucket.owner, bucket.owner_id),
                bucket.state,
                created,
            ]
        })
        .collect();
    output::text(&table(["NAME", "OWNER", "STATE", "CREATED"], &rows))
}

async fn show(name: &str, target: &Target) -> Result<(), Failure> {
    let answer = Client::new(target)?.get(&path(name)).await?;
    let found: api::BucketWithUsage = answer.parse()?;
    if target.json {
        return print_json(&found);
    }
    let bucket = found.bucket;
    output::line(format_args!("name     {}", bucket.name))?;
    output::line(format_args!(
        "owner    {}",
        owner_of(bucket.owner, bucket.owner_id)
    ))?;
    output::line(format_args!("region   {}", bucket.region))?;
    output::line(format_args!("state    {}", bucket.state))?;
    output::line(format_args!("created  {}", time(bucket.created_ms)))?;
    output::line(format_args!("objects  {}", found.object_count))?;
    output::line(format_args!("size     {}", size(found.bytes)))?;
    Ok(())
}

fn owner_of(name: String, id: String) -> String {
    if name.is_empty() { id } else { name }
}

fn path(name: &str) -> String {
    format!("/v1/buckets/{}", segment(name))
}
