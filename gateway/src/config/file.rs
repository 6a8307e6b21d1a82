//! The configuration file as written: every key with its place, nothing checked yet.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) data_dir: Option<PathBuf>,
    pub(super) backend: Backend,
    pub(super) s3: S3,
    pub(super) iscsi: Iscsi,
    pub(super) admin: Admin,
    pub(super) metrics: Metrics,
    pub(super) log: Log,
    pub(super) keyring: Keyring,
    pub(super) limits: Limits,
    pub(super) reclaim: Reclaim,
    pub(super) index: Index,
    pub(super) root: Root,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Backend {
    pub(super) kind: BackendKind,
    pub(super) capacity_bytes: Option<Spanned<u64>>,
    pub(super) cache_bytes: Option<Spanned<u64>>,
    pub(super) conf: Option<Spanned<PathBuf>>,
    pub(super) client: Option<Spanned<String>>,
    pub(super) keyring: Option<Spanned<PathBuf>>,
    pub(super) node: Option<Spanned<String>>,
    pub(super) meta: Option<Spanned<Pool>>,
    pub(super) data: Option<Spanned<Pool>>,
    pub(super) op_timeout_seconds: Option<Spanned<u64>>,
    pub(super) slow_op_milliseconds: Option<Spanned<u64>>,
    pub(super) in_flight_bytes: Option<Spanned<u64>>,
    pub(super) in_flight_ops: Option<Spanned<u64>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BackendKind {
    #[default]
    Local,
    Memory,
    Rados,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pool {
    pub(super) pool: Spanned<String>,
    #[serde(default)]
    pub(super) namespace: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct S3 {
    pub(super) listen: Option<Spanned<Vec<Listen>>>,
    pub(super) region: Option<Spanned<String>>,
    pub(super) virtual_host_domains: Vec<Spanned<String>>,
    pub(super) sigv2: Option<bool>,
    pub(super) multipart_part_bytes_min: Option<Spanned<u64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Iscsi {
    pub(super) listen: Vec<Portal>,
    pub(super) connections: Option<Spanned<u64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Portal {
    pub(super) address: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listen {
    pub(super) address: Spanned<String>,
    pub(super) tls: Option<Tls>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Admin {
    pub(super) socket: Option<PathBuf>,
    pub(super) tcp: Option<AdminTcp>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdminTcp {
    pub(super) address: Spanned<String>,
    pub(super) token_file: PathBuf,
    pub(super) tls: Option<Tls>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Metrics {
    pub(super) enabled: Option<bool>,
    pub(super) address: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Log {
    pub(super) level: Option<Spanned<String>>,
    pub(super) format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Keyring {
    pub(super) file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limits {
    pub(super) connections: Option<Spanned<u64>>,
    pub(super) memory_bytes: Option<Spanned<u64>>,
    pub(super) transfer_bytes_per_second_min: Option<Spanned<u64>>,
    pub(super) stop_seconds: Option<Spanned<u64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Reclaim {
    pub(super) grace_seconds: Option<Spanned<u64>>,
    pub(super) interval_seconds: Option<Spanned<u64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Index {
    pub(super) shard_keys_max: Option<Spanned<u64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Root {
    pub(super) credentials_file: Option<PathBuf>,
}
