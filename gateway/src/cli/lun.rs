//! `portico lun`.

use clap::{Args, Subcommand};

use super::bytes::{bytes, bytes_32};
use super::client::{Client, Target, segment};
use super::listing::{Listing, delete};
use super::table::{size, time};
use super::{block_on, output, print_json};
use crate::admin::api::block as api;
use crate::error::{Exit, Failure};

/// Manage disks that initiators use over iSCSI, on a running portico
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a disk, or serve an RBD image that exists as one
    Create(Create),
    /// List all disks
    List {
        #[command(flatten)]
        portico: Target,
    },
    /// Show a disk: its image, its identifiers, who sees it
    Show {
        name: String,
        #[command(flatten)]
        portico: Target,
    },
    /// Change the size of a disk, also while it is used
    Resize {
        name: String,
        #[arg(long, value_name = "SIZE", value_parser = bytes)]
        size: u64,
        /// Make it smaller: what lies behind the new size is lost
        #[arg(long)]
        shrink: bool,
        #[command(flatten)]
        portico: Target,
    },
    /// Change how a disk is served, also while it is used
    Set(Set),
    /// Delete a disk that no target shows, with all its data
    Delete {
        name: String,
        #[command(flatten)]
        portico: Target,
    },
    /// Show a disk to initiators at a target
    Map {
        name: String,
        /// Name of the target
        #[arg(long, value_name = "IQN")]
        target: String,
        /// Number of the LUN [default: the least from 1 on that is free]
        #[arg(long, value_name = "NUMBER")]
        lun: Option<u16>,
        /// Name of the initiator that is to see it, or "any"
        #[arg(long, value_name = "IQN")]
        initiator: String,
        #[command(flatten)]
        portico: Target,
    },
    /// Take a disk away from initiators
    Unmap {
        name: String,
        /// Name of the target
        #[arg(long, value_name = "IQN")]
        target: String,
        /// Only from this initiator, or from "any" [default: from all who see it there]
        #[arg(long, value_name = "IQN")]
        initiator: Option<String>,
        #[command(flatten)]
        portico: Target,
    },
}

#[derive(Args, Debug)]
struct Create {
    /// Name of the disk and of its image
    name: String,
    /// As initiators see it; space is taken when it is written [for example: 256MiB, 2TiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes, required_unless_present = "existing")]
    size: Option<u64>,
    /// Serve the image of this name that is there
    #[arg(long, conflicts_with_all = ["size", "block_size", "object_size", "stripe_unit", "stripe_count"])]
    existing: bool,
    /// Bytes of a logical block: 512, or 4096 for initiators that know such disks [default: 512]
    #[arg(long, value_name = "SIZE", value_parser = bytes_32)]
    block_size: Option<u32>,
    /// Bytes of an object of the image: a power of two, 4KiB to 32MiB [default: 4MiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes_32)]
    object_size: Option<u32>,
    /// Bytes that go to one object before the next one's turn [default: the object size]
    #[arg(long, value_name = "SIZE", value_parser = bytes_32)]
    stripe_unit: Option<u32>,
    /// Objects that take turns [default: 1]
    #[arg(long, value_name = "COUNT")]
    stripe_count: Option<u32>,
    /// Let nobody write it
    #[arg(long)]
    read_only: bool,
    /// Answer writes before they are on stable storage: faster, and what was not flushed may be
    /// lost in a crash
    #[arg(long)]
    write_cache: bool,
    #[command(flatten)]
    portico: Target,
}

#[derive(Args, Debug)]
struct Set {
    name: String,
    /// Let nobody write it
    #[arg(long, value_name = "BOOL", required_unless_present = "write_cache")]
    read_only: Option<bool>,
    /// Answer writes before they are on stable storage; when it is switched off, all that was
    /// answered is made stable
    #[arg(long, value_name = "BOOL")]
    write_cache: Option<bool>,
    #[command(flatten)]
    portico: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(async {
        match &arguments.command {
            Command::Create(arguments) => create(arguments).await,
            Command::List { portico } => ALL.print(portico).await,
            Command::Show { name, portico } => show(name, portico).await,
            Command::Resize {
                name,
                size,
                shrink,
                portico,
            } => resize(name, *size, *shrink, portico).await,
            Command::Set(arguments) => set(arguments).await,
            Command::Delete { name, portico } => delete(&path(name), portico).await,
            Command::Map {
                name,
                target,
                lun,
                initiator,
                portico,
            } => map(name, target, *lun, initiator, portico).await,
            Command::Unmap {
                name,
                target,
                initiator,
                portico,
            } => unmap(name, target, initiator.as_deref(), portico).await,
        }
    })
}

async fn create(arguments: &Create) -> Result<(), Failure> {
    let new = api::NewLun {
        name: arguments.name.clone(),
        size_bytes: arguments.size,
        block_bytes: arguments.block_size,
        object_size: arguments.object_size,
        stripe_unit: arguments.stripe_unit,
        stripe_count: arguments.stripe_count,
        read_only: arguments.read_only,
        write_cache: arguments.write_cache,
        existing: arguments.existing,
    };
    let answer = Client::new(&arguments.portico)?
        .post("/v1/luns", &new)
        .await?;
    print_lun(&answer.parse()?, &arguments.portico)
}

const ALL: Listing<api::Luns, api::Lun, 6> = Listing {
    path: "/v1/luns?",
    open: |page| (page.luns, page.next),
    whole: |luns| api::Luns { luns, next: None },
    headings: ["NAME", "SIZE", "STATE", "NODE", "OPTIONS", "MAPPED"],
    row,
};

fn row(lun: api::Lun) -> [String; 6] {
    let bytes = lun
        .image
        .map_or_else(|| "?".to_owned(), |image| size(image.size_bytes));
    let mut maps: Vec<_> = lun.maps.iter().map(place).collect();
    maps.dedup();
    let mut kinds = Vec::new();
    kinds.extend(lun.read_only.then_some("read-only"));
    kinds.extend(lun.write_cache.then_some("write-cache"));
    [
        lun.name,
        bytes,
        lun.state,
        lun.node,
        kinds.join(","),
        maps.join(" "),
    ]
}

async fn show(name: &str, portico: &Target) -> Result<(), Failure> {
    let answer = Client::new(portico)?.get(&path(name)).await?;
    print_lun(&answer.parse()?, portico)
}

async fn resize(
    name: &str,
    size_bytes: u64,
    shrink: bool,
    portico: &Target,
) -> Result<(), Failure> {
    let change = api::LunChange {
        size_bytes: Some(size_bytes),
        shrink,
        ..api::LunChange::default()
    };
    patch(name, &change, portico).await
}

async fn set(arguments: &Set) -> Result<(), Failure> {
    let change = api::LunChange {
        read_only: arguments.read_only,
        write_cache: arguments.write_cache,
        ..api::LunChange::default()
    };
    patch(&arguments.name, &change, &arguments.portico).await
}

async fn patch(name: &str, change: &api::LunChange, portico: &Target) -> Result<(), Failure> {
    let answer = Client::new(portico)?.patch(&path(name), change).await?;
    print_lun(&answer.parse()?, portico)
}

async fn map(
    name: &str,
    target: &str,
    lun: Option<u16>,
    initiator: &str,
    portico: &Target,
) -> Result<(), Failure> {
    let new = api::NewLunMap {
        name: name.to_owned(),
        lun,
        initiator: (initiator != "any").then(|| initiator.to_owned()),
    };
    let path = format!("/v1/targets/{}/maps", segment(target));
    let answer = Client::new(portico)?.post(&path, &new).await?;
    let made: api::LunMap = answer.parse()?;
    if portico.json {
        return print_json(&made);
    }
    let whom = made.initiator.as_deref().unwrap_or("any initiator");
    output::line(format_args!(
        "{} is LUN {} of {} for {whom}",
        made.name, made.lun, made.target
    ))
}

async fn unmap(
    name: &str,
    target: &str,
    initiator: Option<&str>,
    portico: &Target,
) -> Result<(), Failure> {
    let client = Client::new(portico)?;
    let found: api::Target = client
        .get(&format!("/v1/targets/{}", segment(target)))
        .await?
        .parse()?;
    let is_meant = |map: &&api::LunMap| {
        let whom = map.initiator.as_deref().unwrap_or("any");
        map.name == name && initiator.is_none_or(|wanted| wanted.eq_ignore_ascii_case(whom))
    };
    let maps: Vec<_> = found.maps.iter().filter(is_meant).collect();
    if maps.is_empty() {
        let whom = initiator.map_or_else(String::new, |one| format!(" to {one}"));
        let what = format!("{} does not show {name:?}{whom}", found.name);
        return Err(Failure::new(Exit::Failed, what));
    }
    for map in maps {
        let whom = map
            .initiator
            .as_deref()
            .map_or_else(String::new, |one| format!("?initiator={}", segment(one)));
        let path = format!("/v1/targets/{}/maps/{}{whom}", segment(target), map.lun);
        client.delete(&path).await?;
    }
    Ok(())
}

fn print_lun(lun: &api::Lun, portico: &Target) -> Result<(), Failure> {
    if portico.json {
        return print_json(lun);
    }
    let state = match &lun.reason {
        Some(reason) => format!("{}: {reason}", lun.state),
        None => lun.state.clone(),
    };
    let cache = if lun.write_cache {
        "on: what is not flushed may be lost"
    } else {
        "off"
    };
    output::line(format_args!("name         {}", lun.name))?;
    output::line(format_args!("state        {state}"))?;
    output::line(format_args!("node         {}", lun.node))?;
    if let Some(image) = &lun.image {
        print_image(image)?;
    }
    output::line(format_args!(
        "read only    {}",
        if lun.read_only { "yes" } else { "no" }
    ))?;
    output::line(format_args!("write cache  {cache}"))?;
    output::line(format_args!("created      {}", time(lun.created_ms)))?;
    for map in &lun.maps {
        let whom = map.initiator.as_deref().unwrap_or("any initiator");
        output::line(format_args!("mapped       {} for {whom}", place(map)))?;
    }
    Ok(())
}

fn print_image(image: &api::LunImage) -> Result<(), Failure> {
    output::line(format_args!(
        "size         {} ({} bytes)",
        size(image.size_bytes),
        image.size_bytes
    ))?;
    if let Some(block_bytes) = image.block_bytes {
        output::line(format_args!("block size   {block_bytes}"))?;
    }
    output::line(format_args!(
        "layout       objects of {}, {} at a time over {}",
        size(image.object_size.into()),
        size(image.stripe_unit.into()),
        image.stripe_count
    ))?;
    if let (Some(naa), Some(serial)) = (&image.naa, &image.serial) {
        output::line(format_args!("identifier   naa.{naa}"))?;
        output::line(format_args!("serial       {serial}"))?;
    }
    Ok(())
}

fn place(map: &api::LunMap) -> String {
    format!("{}:{}", map.target, map.lun)
}

fn path(name: &str) -> String {
    format!("/v1/luns/{}", segment(name))
}
