//! `portico status`.

use clap::Args;

use super::client::{Client, Target};
use super::table::size;
use super::{block_on, output, print_json};
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
        print(&status)?;
    }
    match status.reason {
        Some(reason) if !status.ready => Err(Failure::new(Exit::Failed, reason)),
        _ => Ok(()),
    }
}

fn print(status: &api::Status) -> Result<(), Failure> {
    output::line(format_args!("version  {}", status.version))?;
    output::line(format_args!("node     {}", status.node))?;
    output::line(format_args!(
        "ready    {}",
        if status.ready { "yes" } else { "no" }
    ))?;
    let session = status.session.as_ref();
    if session.is_none_or(|session| session.open) {
        output::line(format_args!("users    {}", status.user_count))?;
        output::line(format_args!("buckets  {}", status.bucket_count))?;
        output::line(format_args!(
            "space    {} of {} used",
            size(status.used_bytes),
            size(status.capacity_bytes)
        ))?;
    }
    if let Some(session) = session.filter(|session| !session.open || session.reopened_count > 0) {
        output::line(format_args!(
            "session  {}, opened anew {} times",
            if session.open { "open" } else { "none" },
            session.reopened_count
        ))?;
    }
    if let Some(cluster) = &status.cluster {
        output::line(format_args!(
            "cluster  {}, {} of {} OSDs up, {} operations in flight",
            cluster.health, cluster.osd_up_count, cluster.osd_count, cluster.in_flight_count
        ))?;
    }
    for warning in &status.warnings {
        output::line(format_args!("warning  {warning}"))?;
    }
    Ok(())
}
