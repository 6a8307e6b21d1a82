//! What the monitors know: pools, health, space, and who is fenced.

use serde_json::Value;

use super::RadosPool;
use super::connect::text;
use super::librados::Cluster;
use crate::error::{Error, ErrorKind};
use crate::limits::{OBJECT_BYTES_MAX, OMAP_KEYS_PER_OP_MAX, OP_BYTES_MAX};
use crate::object::{CloneRange, Limits, Usage};

/// Asks for all pools with their flags.
const POOLS: &str = r#"{"prefix":"osd pool ls","detail":"detail","format":"json"}"#;

/// A pool that was found.
#[derive(Clone, Debug)]
pub(super) struct PoolFacts {
    pub(super) pool: RadosPool,
    pub(super) id: i64,
    pub(super) limits: Limits,
}

/// The state of a cluster as its monitors see it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClusterHealth {
    /// `HEALTH_OK`, `HEALTH_WARN` or `HEALTH_ERR`.
    pub status: String,
    pub checks: Vec<HealthCheck>,
    pub osds: u64,
    pub osds_up: u64,
    pub osds_in: u64,
}

/// One thing that Ceph finds wrong, such as `OSD_NEARFULL`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HealthCheck {
    pub code: String,
    pub summary: String,
}

/// How full a pool is by the flags that the monitors give it: that of the fullest OSD that holds some
/// of it, or of its quota.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Fullness {
    Room,
    /// Above the ratio "nearfull" or "backfillfull". Writes go on.
    NearlyFull,
    /// Writes that need room are refused.
    Full,
}

/// A pool of the cluster and how full it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PoolFullness {
    pub ceph_pool: String,
    pub fullness: Fullness,
}

/// What a pool without any facts allows: nothing.
pub(super) const NO_LIMITS: Limits = Limits {
    omap: false,
    snapshots: false,
    ..REPLICATED
};

const REPLICATED: Limits = Limits {
    object_bytes_max: OBJECT_BYTES_MAX,
    op_bytes_max: OP_BYTES_MAX,
    omap_keys_max: OMAP_KEYS_PER_OP_MAX,
    omap_value_bytes_max: 64 * 1024,
    omap: true,
    snapshots: true,
    clone_range: CloneRange::Copy,
    // The C interface has no sparse read.
    sparse_reads: false,
    // A write is on stable storage of all copies when it is answered.
    buffered: false,
    // Each operation costs an OSD and its copies as much whatever its size.
    stream_read_bytes: 4 * 1024 * 1024,
    stream_write_bytes: 4 * 1024 * 1024,
    discard_bytes: 4_096,
};

/// Blocks.
///
/// # Errors
/// `NotFound` for a pool that does not exist, `Unsupported` for one that cannot be used.
pub(super) fn probe_pools(cluster: &Cluster, pools: &[RadosPool]) -> Result<Vec<PoolFacts>, Error> {
    let known = ask(cluster, POOLS)?;
    let known = known.as_array().map(Vec::as_slice).unwrap_or_default();
    let probe = |pool: &RadosPool| {
        let name = &pool.ceph_pool;
        let id = cluster.pool_id(&text(name)?).map_err(|code| {
            let text = format!("look for pool {name}; \"ceph osd pool create {name}\" makes it");
            code.error(text)
        })?;
        let facts = known
            .iter()
            .find(|facts| facts["pool_name"] == name.as_str());
        let facts = facts.ok_or_else(|| {
            let text = format!("pool {name} is not in the monitors' list");
            Error::new(ErrorKind::NotFound, text)
        })?;
        Ok(PoolFacts {
            pool: pool.clone(),
            id,
            limits: limits(name, facts)?,
        })
    };
    pools.iter().map(probe).collect()
}

/// How full the pools are, each of which is named once. Blocks.
pub(super) fn fullness(cluster: &Cluster, pools: &[RadosPool]) -> Result<Vec<PoolFullness>, Error> {
    let known = ask(cluster, POOLS)?;
    let known = known.as_array().map(Vec::as_slice).unwrap_or_default();
    let used = known.iter().filter(|facts| {
        let mut names = pools.iter().map(|pool| &pool.ceph_pool);
        names.any(|name| facts["pool_name"] == name.as_str())
    });
    let told = used.map(|facts| PoolFullness {
        ceph_pool: shown(&facts["pool_name"]),
        fullness: fullness_of(facts["flags_names"].as_str().unwrap_or_default()),
    });
    Ok(told.collect())
}

fn fullness_of(flags: &str) -> Fullness {
    let of_flag = |flag: &str| match flag {
        "full" | "full_quota" => Fullness::Full,
        "backfillfull" | "nearfull" => Fullness::NearlyFull,
        _ => Fullness::Room,
    };
    flags
        .split(',')
        .map(of_flag)
        .max()
        .unwrap_or(Fullness::Room)
}

/// # Errors
/// `Unsupported` for an erasure-coded pool that only takes whole objects.
fn limits(name: &str, facts: &Value) -> Result<Limits, Error> {
    let flags = facts["flags_names"].as_str().unwrap_or_default();
    let has = |flag: &str| flags.split(',').any(|one| one == flag);
    let erasure_coded = facts["type"].as_u64() == Some(3);
    if erasure_coded && !has("ec_overwrites") {
        let text = format!(
            "pool {name} is erasure-coded and takes no partial writes; \
             \"ceph osd pool set {name} allow_ec_overwrites true\" allows them"
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(Limits {
        omap: !erasure_coded,
        // Snapshots that an administrator makes of the whole pool exclude those of volumes.
        snapshots: !has("pool_snaps"),
        ..REPLICATED
    })
}

/// Blocks.
pub(super) fn health(cluster: &Cluster) -> Result<ClusterHealth, Error> {
    let status = ask(cluster, r#"{"prefix":"status","format":"json"}"#)?;
    let checks = status["health"]["checks"].as_object().into_iter().flatten();
    let checks = checks.map(|(code, check)| HealthCheck {
        code: code.clone(),
        summary: shown(&check["summary"]["message"]),
    });
    let number = |name: &str| status["osdmap"][name].as_u64().unwrap_or_default();
    Ok(ClusterHealth {
        status: shown(&status["health"]["status"]),
        checks: checks.collect(),
        osds: number("num_osds"),
        osds_up: number("num_up_osds"),
        osds_in: number("num_in_osds"),
    })
}

/// The space of a pool, as far as the last reports of the OSDs go. Blocks.
pub(super) fn usage(cluster: &Cluster, pool: &str) -> Result<Usage, Error> {
    let report = ask(
        cluster,
        r#"{"prefix":"df","detail":"detail","format":"json"}"#,
    )?;
    let pools = report["pools"].as_array().into_iter().flatten();
    let found = pools.into_iter().find(|one| one["name"] == pool);
    let stats = found.map(|one| &one["stats"]).ok_or_else(|| {
        let text = format!("pool {pool} is not in the report on space");
        Error::new(ErrorKind::Unavailable, text)
    })?;
    let number = |name: &str| stats[name].as_u64().unwrap_or_default();
    let used_bytes = number("stored");
    let device_bytes = used_bytes.saturating_add(number("max_avail"));
    let capacity_bytes = match number("quota_bytes") {
        0 => device_bytes,
        quota => quota.min(device_bytes),
    };
    Ok(Usage {
        // A quota is noticed late.
        capacity_bytes: capacity_bytes.max(used_bytes),
        used_bytes,
        object_count: number("objects"),
    })
}

/// Adds an address to the blocklist. Blocks.
pub(super) fn blocklist(cluster: &Cluster, address: &str, expiry_s: u32) -> Result<(), Error> {
    let command = serde_json::json!({
        "prefix": "osd blocklist",
        "blocklistop": "add",
        "addr": address,
        // A number of seconds with a fraction, for the monitors.
        "expire": f64::from(expiry_s),
    });
    run(cluster, &command.to_string()).map(|_| ())
}

/// Whether each of the addresses is on the blocklist. Blocks.
pub(super) fn is_blocklisted<const N: usize>(
    cluster: &Cluster,
    addresses: [&str; N],
) -> Result<[bool; N], Error> {
    let list = ask(cluster, r#"{"prefix":"osd blocklist ls","format":"json"}"#)?;
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let listed = |address: &str| list.iter().any(|entry| entry["addr"] == address);
    Ok(addresses.map(listed))
}

fn ask(cluster: &Cluster, command: &str) -> Result<Value, Error> {
    let answer = run(cluster, command)?;
    // Some monitors say a sentence behind the document.
    let mut documents = serde_json::Deserializer::from_slice(&answer).into_iter();
    let document = documents.next().unwrap_or(Ok(Value::Null));
    document.map_err(|error| {
        let text = format!("understand the monitor's answer to {command}");
        Error::new(ErrorKind::Unavailable, text).with_source(error)
    })
}

fn run(cluster: &Cluster, command: &str) -> Result<Vec<u8>, Error> {
    let command_text = text(command)?;
    cluster.mon_command(&command_text).map_err(|(code, said)| {
        let kind = code.kind();
        Error::new(
            kind,
            format!("ask the monitors {command}: {said} (error {})", code.0),
        )
    })
}

fn shown(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_flag_says_how_full_a_pool_is() {
        for (flags, fullness) in [
            ("", Fullness::Room),
            ("hashpspool", Fullness::Room),
            ("hashpspool,nearfull", Fullness::NearlyFull),
            ("hashpspool,backfillfull", Fullness::NearlyFull),
            ("full_quota,hashpspool,nearfull", Fullness::Full),
            ("hashpspool,full", Fullness::Full),
        ] {
            assert_eq!(fullness_of(flags), fullness, "{flags}");
        }
    }
}
