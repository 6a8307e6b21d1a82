//! `portico target`.

use clap::{Args, Subcommand};

use super::client::{Client, Target, segment};
use super::listing::{Listing, delete};
use super::table::{table, time};
use super::{block_on, output, print_json};
use crate::admin::api::block as api;
use crate::error::Failure;

/// Manage iSCSI targets, under whose names initiators find disks, on a running portico
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a target; show disks with "portico lun map"
    Create {
        /// Such as iqn.2024-01.com.example:disks
        name: String,
        #[command(flatten)]
        portico: Target,
    },
    /// List targets
    List {
        #[command(flatten)]
        portico: Target,
    },
    /// Show a target and what it shows to whom
    Show {
        name: String,
        #[command(flatten)]
        portico: Target,
    },
    /// Delete a target that shows nothing
    Delete {
        name: String,
        #[command(flatten)]
        portico: Target,
    },
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(async {
        match &arguments.command {
            Command::Create { name, portico } => create(name, portico).await,
            Command::List { portico } => ALL.print(portico).await,
            Command::Show { name, portico } => show(name, portico).await,
            Command::Delete { name, portico } => delete(&path(name), portico).await,
        }
    })
}

async fn create(name: &str, portico: &Target) -> Result<(), Failure> {
    let new = api::NewTarget {
        name: name.to_owned(),
    };
    let answer = Client::new(portico)?.post("/v1/targets", &new).await?;
    let made: api::Target = answer.parse()?;
    if portico.json {
        return print_json(&made);
    }
    output::line(format_args!("target {}", made.name))
}

const ALL: Listing<api::Targets, api::Target, 4> = Listing {
    path: "/v1/targets?",
    open: |page| (page.targets, page.next),
    whole: |targets| api::Targets {
        targets,
        next: None,
    },
    headings: ["NAME", "LUNS", "SESSIONS", "CREATED"],
    row: |target| {
        let mut luns: Vec<u16> = target.maps.iter().map(|map| map.lun).collect();
        luns.dedup();
        let counts = [luns.len(), target.session_count].map(|count| count.to_string());
        let [luns, sessions] = counts;
        [target.name, luns, sessions, time(target.created_ms)]
    },
};

async fn show(name: &str, portico: &Target) -> Result<(), Failure> {
    let answer = Client::new(portico)?.get(&path(name)).await?;
    let found: api::Target = answer.parse()?;
    if portico.json {
        return print_json(&found);
    }
    output::line(format_args!("name      {}", found.name))?;
    output::line(format_args!("created   {}", time(found.created_ms)))?;
    output::line(format_args!("sessions  {}", found.session_count))?;
    output::line(format_args!(""))?;
    let rows: Vec<_> = found
        .maps
        .into_iter()
        .map(|map| {
            let whom = map.initiator.unwrap_or_else(|| "any".to_owned());
            [map.lun.to_string(), map.name, whom]
        })
        .collect();
    output::text(&table(["LUN", "NAME", "INITIATOR"], &rows))
}

fn path(name: &str) -> String {
    format!("/v1/targets/{}", segment(name))
}
