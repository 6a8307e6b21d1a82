//! The command line: what there is to say to the program, and which part does it.

mod bucket;
mod bytes;
mod check;
mod client;
mod initiator;
mod keyring;
mod listing;
mod lun;
mod output;
mod serve;
mod session;
mod status;
mod table;
mod target;
mod trust;
mod user;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Config;
use crate::error::Failure;
pub(crate) use table::size;

/// Portico, the front door of a storage cluster: serves S3 and iSCSI.
#[derive(Debug, Parser)]
#[command(
    name = "portico",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done; 1 failed, or \"check\" found damage; 2 wrong arguments or \
                  configuration; 3 another portico uses the data directory.\n\
                  \"portico serve\" without anything else is a good start."
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Check(check::Arguments),
    Keyring(keyring::Arguments),
    User(user::Arguments),
    Bucket(bucket::Arguments),
    Lun(lun::Arguments),
    Target(target::Arguments),
    Initiator(initiator::Arguments),
    Session(session::Arguments),
    Status(status::Arguments),
}

/// Where the configuration and the data are.
#[derive(Args, Clone, Debug)]
pub(crate) struct Location {
    /// Configuration file (TOML); without it everything has its default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the store, instead of the one configured [default: ./portico-data]
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
}

impl Location {
    /// The configuration with the options applied.
    ///
    /// # Errors
    /// If the configuration cannot be read or is wrong.
    pub(crate) fn load(&self) -> Result<Config, Failure> {
        let config = Config::load(self.config.as_deref())?;
        Ok(match &self.data_dir {
            Some(data_dir) => config.with_data_dir(data_dir),
            None => config,
        })
    }
}

impl CommandLine {
    /// Does what the command line says.
    ///
    /// # Errors
    /// Tells the user what went wrong, with an exit code.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Serve(arguments) => serve::run(&arguments),
            Command::Check(arguments) => check::run(&arguments),
            Command::Keyring(arguments) => keyring::run(&arguments),
            Command::User(arguments) => user::run(&arguments),
            Command::Bucket(arguments) => bucket::run(&arguments),
            Command::Lun(arguments) => lun::run(&arguments),
            Command::Target(arguments) => target::run(&arguments),
            Command::Initiator(arguments) => initiator::run(&arguments),
            Command::Session(arguments) => session::run(&arguments),
            Command::Status(arguments) => status::run(&arguments),
        }
    }
}

/// Runs a command that waits for things.
fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::from_source("cannot start threads", &error))?;
    runtime.block_on(work)
}

/// Prints a document of the admin API for programs.
fn print_json(document: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::from_source("cannot print the answer", &error))?;
    output::line(format_args!("{text}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }
}
