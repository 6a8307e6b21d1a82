//! Puts a disk of an iSCSI target under load and prints what came of it as JSON:
//! `iscsiload read|write address=127.0.0.1:3260 iqn=IQN lun=1 bytes=4096 depth=32 seconds=5
//! random=1 span_bytes=268435456 pid=PID`
//!
//! One connection, as an initiator has it per session. `pid` is the target, whose CPU time is told.
//! `operations=N` goes on until that many are done. With `directory=DIR durable=1` in the place of
//! the address the same load goes to an image over the local engine without a target.

mod engine;
mod initiator;
mod load;

use std::collections::HashMap;
use std::process::ExitCode;

use load::{Direction, Load};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let direction = match arguments.next().as_deref() {
        Some("read") => Direction::Read,
        Some("write") => Direction::Write,
        other => {
            eprintln!("{other:?} is neither read nor write");
            return ExitCode::FAILURE;
        }
    };
    let settings: HashMap<String, String> = arguments
        .filter_map(|argument| {
            let (name, value) = argument.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect();
    match Load::new(direction, &settings).and_then(Load::run) {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
