//! `portico initiator`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::client::{Client, Target, segment};
use super::listing::{Listing, delete};
use super::table::time;
use super::user::read_secret;
use super::{block_on, output, print_json};
use crate::admin::api::block as api;
use crate::error::Failure;

/// Manage what initiators prove themselves with (CHAP) on a running portico
///
/// An initiator without a secret is known by its name alone, which anybody can take: see "portico
/// lun map".
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Let an initiator log in only with a secret, or replace that; sessions that it has go on
    Create(Create),
    /// List initiators that have a secret
    List {
        #[command(flatten)]
        portico: Target,
    },
    /// Let an initiator log in by its name alone again
    Delete {
        name: String,
        #[command(flatten)]
        portico: Target,
    },
}

#[derive(Args, Debug)]
struct Create {
    /// Name of the initiator, such as iqn.1993-08.org.debian:01:host
    name: String,
    /// CHAP name that it says [default: the name of the initiator]
    #[arg(long, value_name = "NAME")]
    chap_user: Option<String>,
    /// File (mode 0600) that holds its secret of 12 to 16 characters, or "-" for standard input
    #[arg(long, value_name = "FILE")]
    chap_secret_file: PathBuf,
    /// CHAP name that targets say to it [default: "portico"]
    #[arg(long, value_name = "NAME", requires = "mutual_secret_file")]
    mutual_user: Option<String>,
    /// File (mode 0600) that holds the secret with which targets prove themselves to it
    #[arg(long, value_name = "FILE")]
    mutual_secret_file: Option<PathBuf>,
    #[command(flatten)]
    portico: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(async {
        match &arguments.command {
            Command::Create(arguments) => create(arguments).await,
            Command::List { portico } => ALL.print(portico).await,
            Command::Delete { name, portico } => {
                let path = format!("/v1/initiators/{}", segment(name));
                delete(&path, portico).await
            }
        }
    })
}

async fn create(arguments: &Create) -> Result<(), Failure> {
    let name = arguments.name.clone();
    let mutual_secret = arguments
        .mutual_secret_file
        .as_deref()
        .map(read_secret)
        .transpose()?;
    let mutual_user = arguments
        .mutual_user
        .clone()
        .unwrap_or_else(|| "portico".to_owned());
    let new = api::NewInitiator {
        chap_user: arguments.chap_user.clone().unwrap_or_else(|| name.clone()),
        chap_secret: read_secret(&arguments.chap_secret_file)?,
        mutual_user: mutual_secret.is_some().then_some(mutual_user),
        mutual_secret,
        name,
    };
    let portico = &arguments.portico;
    let answer = Client::new(portico)?.post("/v1/initiators", &new).await?;
    let made: api::Initiator = answer.parse()?;
    if portico.json {
        return print_json(&made);
    }
    output::line(format_args!(
        "initiator {} proves itself as {}",
        made.name, made.chap_user
    ))
}

const ALL: Listing<api::Initiators, api::Initiator, 4> = Listing {
    path: "/v1/initiators?",
    open: |page| (page.initiators, page.next),
    whole: |initiators| api::Initiators {
        initiators,
        next: None,
    },
    headings: ["NAME", "CHAP NAME", "TARGETS SAY", "CREATED"],
    row: |one| {
        let mutual = one.mutual_user.unwrap_or_else(|| "-".to_owned());
        [one.name, one.chap_user, mutual, time(one.created_ms)]
    },
};
