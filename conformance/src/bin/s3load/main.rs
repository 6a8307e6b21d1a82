//! A load generator for S3 servers: keeps connections busy with one verb and prints one line of JSON.
//!
//! It measures any server alike: HTTP/1.1 with keep-alive, Signature Version 4 in the header, unsigned
//! payload, header and small body in one write. The server's CPU time is read from the process table,
//! since rates on a shared machine say less than rates per CPU second. `connection` speaks HTTP,
//! `sign` signs, `load` runs the workers.

mod connection;
mod load;
mod sign;

use std::net::SocketAddr;
use std::process::ExitCode;

use load::{Load, Verb};
use sign::Signer;

const USAGE: &str = "usage: s3load create|fill|put|get|list KEY=VALUE...
  address=IP:PORT access_key=KEY secret_key=KEY bucket=NAME
  size_bytes=4096       of each object put
  connections=32        each with one request in flight
  seconds=5             how long to go on; a get of big objects ends with its request, fill with its names
  keys=10000            fill writes these names once, put in turn, get reads them at random
  pid=0                 the server, whose CPU time is wanted";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let load = match parse(&arguments) {
        Ok(load) => load,
        Err(wrong) => {
            eprintln!("{wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime needs only threads and an epoll");
    match runtime.block_on(load.run()) {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("s3load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Load, String> {
    let (verb, settings) = arguments.split_first().ok_or("a verb is missing")?;
    let verb = match verb.as_str() {
        "create" => Verb::Create,
        "fill" => Verb::Fill,
        "put" => Verb::Put,
        "get" => Verb::Get,
        "list" => Verb::List,
        other => return Err(format!("{other} is no verb")),
    };
    let mut address: Option<SocketAddr> = None;
    let (mut access_key, mut secret_key, mut bucket) =
        (String::new(), String::new(), String::new());
    let mut load = Load::new(verb);
    for setting in settings {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| format!("{setting} has no value"))?;
        match name {
            "address" => address = Some(number(name, value)?),
            "access_key" => value.clone_into(&mut access_key),
            "secret_key" => value.clone_into(&mut secret_key),
            "bucket" => value.clone_into(&mut bucket),
            "size_bytes" => load.size_bytes = number(name, value)?,
            "connections" => load.connections = number(name, value)?,
            "seconds" => load.seconds = number(name, value)?,
            "keys" => load.keys = number(name, value)?,
            "pid" => load.pid = number(name, value)?,
            other => return Err(format!("{other} is no setting")),
        }
    }
    let address = address.ok_or("an address is missing")?;
    if load.keys == 0 || load.connections == 0 || bucket.is_empty() {
        return Err("keys, connections and bucket may not be empty".to_owned());
    }
    Ok(load.against(Signer::new(address, &access_key, &secret_key), bucket))
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{value} is no {name}"))
}
