//! The program: parses arguments, runs a command, says what went wrong.
//!
//! Only this crate opens sockets, reads configuration, environment and signals, and installs a
//! logger. Read on in [`cli`] for the commands and in [`serve`] for the life of the server.

mod admin;
mod assemble;
mod banner;
mod block;
mod cli;
mod config;
mod credentials;
mod data_dir;
mod descriptors;
mod environment;
mod error;
mod health;
mod keyring;
mod limits;
mod listen;
mod log;
mod metrics;
mod node;
mod pools;
mod private_file;
mod reclaim;
mod root;
mod serve;
mod shutdown;
mod space;
mod tenure;
mod tls;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::CommandLine::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("portico: {failure}");
            failure.exit_code()
        }
    }
}
