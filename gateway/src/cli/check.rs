//! `portico check`.

use clap::Args;
use portico_backend::error::ErrorKind;
use portico_backend::local::{self, Report};

use super::{Location, output};
use crate::config::Backend;
use crate::data_dir::{DataDir, store_path};
use crate::error::{Exit, Failure};

/// Verify a store that is not in use, without changing it
///
/// Reads everything and compares it with its checksums. Prints what is wrong and where; the exit
/// code is 1 if anything is.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    location: Location,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = arguments.location.load()?;
    let elsewhere = match config.backend {
        Backend::Local { .. } => None,
        Backend::Memory { .. } => Some("keeps nothing, so there is nothing to check"),
        Backend::Rados(_) => Some("is a cluster, which checks what it holds by its scrubs"),
    };
    if let Some(why) = elsewhere {
        let what = format!("the configured backend {why}");
        return Err(Failure::new(Exit::Usage, what));
    }
    let data_dir = DataDir::take_existing(&config.data_dir)?;
    let path = store_path(data_dir.path());
    let report = local::check(&path).map_err(|error| {
        let failure =
            Failure::from_source(format!("cannot check the store {}", path.display()), &error);
        if error.kind() == ErrorKind::Busy {
            failure.with_exit(Exit::InUse)
        } else {
            failure
        }
    })?;
    print(&report)?;
    if report.is_clean() {
        output::line(format_args!(
            "The store {} is whole: nothing is damaged.",
            path.display()
        ))?;
        return Ok(());
    }
    let count = u64::try_from(report.problems.len()).unwrap_or(u64::MAX);
    let count = count.saturating_add(report.problems_left_out);
    Err(Failure::new(
        Exit::Failed,
        format!("the store {} is damaged: {count} problems", path.display()),
    )
    .with_help("see docs/operations/recover.md for what to do"))
}

fn print(report: &Report) -> Result<(), Failure> {
    for problem in &report.problems {
        output::line(format_args!("{problem}"))?;
    }
    if report.problems_left_out > 0 {
        output::line(format_args!("... and {} more", report.problems_left_out))?;
    }
    output::line(format_args!(
        "{} objects, {} records, {} blocks, {} log records read",
        report.objects, report.records, report.blocks, report.log_records
    ))
}
