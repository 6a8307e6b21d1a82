//! `portico status`.

use clap::Args;

use super::client::{Client, Target};
use super::table::size;
use super::{block_on, print_json};
use crate::admin::api;
use crate::error::{Exit, Failure};

/// Show how a running portico is; the exit code is 1 if it cannot serve
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(show(&arguments.target))
}

async fn show(target: &Target) -> Result<(), Failure> {
    let status: api::Status = Client::new(target)?.get("/v1/status").await?.parse()?;
    if target.json {
        print_json(&status)?;
    } else {
        print(&status);
    }
    match status.reason {
        Some(reason) if !status.ready => Err(Failure::new(Exit::Failed, reason)),
        _ => Ok(()),
    }
}

fn print(status: &api::Status) {
    println!("version  {}", status.version);
    println!("node     {}", status.node);
    println!("ready    {}", if status.ready { "yes" } else { "no" });
    let session = status.session.as_ref();
    if session.is_none_or(|session| session.open) {
        println!("users    {}", status.user_count);
        println!("buckets  {}", status.bucket_count);
        println!(
            "space    {} of {} used",
            size(status.used_bytes),
            size(status.capacity_bytes)
        );
    }
    if let Some(session) = session.filter(|session| !session.open || session.reopened_count > 0) {
        println!(
            "session  {}, opened anew {} times",
            if session.open { "open" } else { "none" },
            session.reopened_count
        );
    }
    if let Some(cluster) = &status.cluster {
        println!(
            "cluster  {}, {} of {} OSDs up, {} operations in flight",
            cluster.health, cluster.osd_up_count, cluster.osd_count, cluster.in_flight_count
        );
    }
    for warning in &status.warnings {
        println!("warning  {warning}");
    }
}
