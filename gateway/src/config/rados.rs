//! `[backend]` with `kind = "rados"`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;

use super::{Mistake, file, number, refuse};
use crate::limits;

/// A Ceph cluster and what of it is used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Rados {
    pub(crate) conf: PathBuf,
    /// Such as `client.portico`.
    pub(crate) client: String,
    /// `None` for what the configuration of Ceph says.
    pub(crate) keyring: Option<PathBuf>,
    /// The name of this program in the catalog; `None` for the machine's.
    pub(crate) node: Option<String>,
    pub(crate) meta: PoolPlace,
    pub(crate) data: PoolPlace,
    pub(crate) op_timeout: Duration,
    pub(crate) slow_op: Duration,
    pub(crate) in_flight_bytes: u64,
    pub(crate) in_flight_ops: u32,
}

/// A pool and a namespace in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PoolPlace {
    pub(crate) pool: String,
    pub(crate) namespace: String,
}

pub(super) fn resolve(table: &file::Backend, directory: &Path) -> Result<Rados, Mistake> {
    let milliseconds = number(
        &table.slow_op_milliseconds,
        limits::SLOW_OP_MS_DEFAULT,
        limits::SLOW_OP_MS,
    )?;
    let in_flight_ops = number(
        &table.in_flight_ops,
        limits::IN_FLIGHT_OPS_DEFAULT,
        limits::IN_FLIGHT_OPS,
    )?;
    let path = |path: &Option<Spanned<PathBuf>>| {
        let path = path.as_ref().map(|path| path.get_ref().as_path());
        path.map(|path| directory.join(path))
    };
    let meta = place(&table.meta, "portico-meta")?;
    let data = place(&table.data, "portico-data")?;
    if let (Some(table), true) = (&table.data, meta == data) {
        return Err(Mistake::at(
            table,
            "data and metadata would lie in the same place",
            "give them different pools, or different namespaces",
        ));
    }
    Ok(Rados {
        conf: path(&table.conf).unwrap_or_else(|| PathBuf::from("/etc/ceph/ceph.conf")),
        client: client(&table.client)?,
        keyring: path(&table.keyring),
        node: table
            .node
            .as_ref()
            .map(|node| named(node, "a node"))
            .transpose()?,
        meta,
        data,
        op_timeout: super::seconds(&table.op_timeout_seconds, 60, 1..=3_600)?,
        slow_op: Duration::from_millis(milliseconds),
        in_flight_bytes: number(
            &table.in_flight_bytes,
            limits::IN_FLIGHT_BYTES_DEFAULT,
            limits::MEMORY_BYTES,
        )?,
        in_flight_ops: u32::try_from(in_flight_ops).expect("within limits::IN_FLIGHT_OPS"),
    })
}

/// Refuses the keys that only a cluster has.
pub(super) fn refuse_keys(table: &file::Backend, kind: &str) -> Result<(), Mistake> {
    refuse(&table.conf, kind, "rados")?;
    refuse(&table.client, kind, "rados")?;
    refuse(&table.keyring, kind, "rados")?;
    refuse(&table.node, kind, "rados")?;
    refuse(&table.meta, kind, "rados")?;
    refuse(&table.data, kind, "rados")?;
    refuse(&table.op_timeout_seconds, kind, "rados")?;
    refuse(&table.slow_op_milliseconds, kind, "rados")?;
    refuse(&table.in_flight_bytes, kind, "rados")?;
    refuse(&table.in_flight_ops, kind, "rados")
}

fn client(text: &Option<Spanned<String>>) -> Result<String, Mistake> {
    let Some(text) = text else {
        return Ok("client.portico".to_owned());
    };
    let name = named(text, "a client of the cluster")?;
    match name.strip_prefix("client.") {
        Some(id) if !id.is_empty() => Ok(name),
        _ => Err(Mistake::at(
            text,
            format!("{name:?} is no client of the cluster"),
            "write the name as \"ceph auth ls\" shows it, such as \"client.portico\"",
        )),
    }
}

fn place(table: &Option<Spanned<file::Pool>>, default: &str) -> Result<PoolPlace, Mistake> {
    let Some(table) = table else {
        return Ok(PoolPlace {
            pool: default.to_owned(),
            namespace: String::new(),
        });
    };
    let table = table.get_ref();
    Ok(PoolPlace {
        pool: named(&table.pool, "a pool")?,
        namespace: match &table.namespace {
            Some(namespace) if !namespace.get_ref().is_empty() => named(namespace, "a namespace")?,
            Some(_) | None => String::new(),
        },
    })
}

fn named(text: &Spanned<String>, what: &str) -> Result<String, Mistake> {
    let name = text.get_ref();
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = !name.is_empty() && name.len() <= limits::CEPH_NAME_BYTES_MAX;
    match fits && name.bytes().all(valid) {
        true => Ok(name.clone()),
        false => Err(Mistake::at(
            text,
            format!("{name:?} is no name of {what}"),
            "use up to 64 letters, digits, hyphens, underscores and dots",
        )),
    }
}
