//! `portico session`.

use clap::{Args, Subcommand};

use super::client::{Client, Target};
use super::listing::delete;
use super::table::{size, table};
use super::{block_on, output, print_json};
use crate::admin::api::block as api;
use crate::error::Failure;

/// Look at iSCSI sessions of a running portico, and end them
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List iSCSI sessions with this node
    List {
        #[command(flatten)]
        portico: Target,
    },
    /// End a session; the initiator logs in again unless it may not any more
    Drop {
        /// As "portico session list" shows it
        id: u16,
        #[command(flatten)]
        portico: Target,
    },
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(async {
        match &arguments.command {
            Command::List { portico } => list(portico).await,
            Command::Drop { id, portico } => delete(&format!("/v1/sessions/{id}"), portico).await,
        }
    })
}

async fn list(portico: &Target) -> Result<(), Failure> {
    let answer = Client::new(portico)?.get("/v1/sessions").await?;
    let found: api::IscsiSessions = answer.parse()?;
    if portico.json {
        return print_json(&found);
    }
    let rows: Vec<_> = found
        .sessions
        .into_iter()
        .map(|one| {
            [
                one.id.to_string(),
                one.initiator,
                one.target.unwrap_or_else(|| "(discovery)".to_owned()),
                one.portal,
                one.connection_count.to_string(),
                one.commands_in_work.to_string(),
                one.commands.to_string(),
                size(one.bytes_in),
                size(one.bytes_out),
            ]
        })
        .collect();
    let headings = [
        "ID",
        "INITIATOR",
        "TARGET",
        "PORTAL",
        "CONNECTIONS",
        "IN WORK",
        "COMMANDS",
        "WRITTEN",
        "READ",
    ];
    output::text(&table(headings, &rows))
}
