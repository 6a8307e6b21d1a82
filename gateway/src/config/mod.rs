//! What the program is told: one TOML file, checked as a whole, with a default for every key.
//!
//! Unknown keys are refused, and every mistake is reported with file, line and key. Paths in the
//! file are relative to the file's directory. The keys and their defaults are described in
//! `docs/operations/configure.md`.

mod file;
mod position;
mod rados;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;

use crate::error::{Exit, Failure};
use crate::limits;
pub(crate) use file::LogFormat;
use position::Position;
pub(crate) use rados::Rados;

/// The whole configuration, valid by construction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Config {
    /// Where the store, the keyring and the admin socket are.
    pub(crate) data_dir: PathBuf,
    pub(crate) backend: Backend,
    pub(crate) s3: S3,
    pub(crate) iscsi: Iscsi,
    pub(crate) admin: Admin,
    /// Where `/metrics` and `/health` are; `None` for nowhere.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) log: Log,
    pub(crate) keyring_file: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) reclaim: Reclaim,
    /// Keys of one index object of a bucket.
    pub(crate) shard_keys_max: u32,
    /// Where the root user's keys come from, or go to, at the first start.
    pub(crate) root_credentials_file: PathBuf,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Backend {
    Local {
        /// Bytes the store may fill; `None` for what the file system has.
        capacity_bytes: Option<u64>,
        cache_bytes: u64,
    },
    /// Everything is gone when the program stops.
    Memory { capacity_bytes: u64 },
    /// A Ceph cluster.
    Rados(Box<Rados>),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct S3 {
    /// At least one.
    pub(crate) listen: Vec<Listen>,
    pub(crate) region: String,
    /// Lower-case host names under which `BUCKET.DOMAIN` addresses a bucket.
    pub(crate) virtual_host_domains: Vec<String>,
    pub(crate) sigv2: bool,
    pub(crate) multipart_part_bytes_min: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Iscsi {
    /// The portals; without any no iSCSI is served.
    pub(crate) listen: Vec<SocketAddr>,
    /// Connections open at once, over all portals.
    pub(crate) connections: usize,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Listen {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsFiles>,
}

/// PEM files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TlsFiles {
    /// The table of the configuration that names them, such as `s3.listen.tls`.
    pub(crate) table: &'static str,
    /// The certificate and its chain.
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Admin {
    pub(crate) socket: PathBuf,
    pub(crate) tcp: Option<AdminTcp>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AdminTcp {
    pub(crate) listen: Listen,
    /// Holds the token that a client sends as `Authorization: Bearer`.
    pub(crate) token_file: PathBuf,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Log {
    pub(crate) level: tracing::level_filters::LevelFilter,
    pub(crate) format: LogFormat,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Limits {
    /// S3 connections open at once, over all listeners.
    pub(crate) connections: usize,
    /// Bytes of requests and replies in flight.
    pub(crate) memory_bytes: u64,
    /// What a client that keeps an S3 transfer waiting has to move; 0 for any byte now and then.
    pub(crate) transfer_bytes_per_second_min: u64,
    /// How long requests may go on when the program was told to stop.
    pub(crate) stop_timeout: Duration,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Reclaim {
    /// How long data that nothing points to is left alone.
    pub(crate) grace: Duration,
    pub(crate) interval: Duration,
}

/// The directory used without configuration.
pub(crate) const DATA_DIR: &str = "./portico-data";

impl Config {
    /// The configuration in `path`, or the defaults.
    ///
    /// # Errors
    /// `Exit::Usage`, naming file, line, key and what to do.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::from_source(
                format!("cannot read the configuration {}", path.display()),
                &error,
            )
            .with_exit(Exit::Usage)
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, directory).map_err(|mistake| {
            let place = mistake.place(&text);
            Failure::new(
                Exit::Usage,
                format!("{}{place}: {}", path.display(), mistake.what),
            )
            .with_help(mistake.help)
        })
    }

    /// Puts the store and what lies beside it into another directory.
    #[must_use]
    pub(crate) fn with_data_dir(mut self, data_dir: &Path) -> Self {
        let former = std::mem::replace(&mut self.data_dir, data_dir.to_owned());
        for path in [
            &mut self.keyring_file,
            &mut self.admin.socket,
            &mut self.root_credentials_file,
        ] {
            if let Ok(inside) = path.strip_prefix(&former) {
                *path = data_dir.join(inside);
            }
        }
        self
    }

    /// Changes the address of the one S3 listener; its TLS setting stays.
    ///
    /// # Errors
    /// `Exit::Usage` if several are configured.
    pub(crate) fn with_listen(mut self, address: SocketAddr) -> Result<Self, Failure> {
        let [listen] = self.s3.listen.as_mut_slice() else {
            return Err(Failure::new(
                Exit::Usage,
                "--listen replaces the address of one S3 listener, but several are configured",
            )
            .with_help("change the addresses under [[s3.listen]] in the configuration instead"));
        };
        listen.address = address;
        Ok(self)
    }

    fn parse(text: &str, directory: &Path) -> Result<Self, Mistake> {
        let file: file::File = toml::from_str(text).map_err(|error| Mistake {
            offset: error.span().map(|span| span.start),
            what: error.message().trim().replace('\n', ", "),
            help: "see docs/operations/configure.md for the keys and their values".to_owned(),
        })?;
        resolve(file, directory)
    }
}

impl Default for Config {
    fn default() -> Self {
        match resolve(file::File::default(), Path::new("")) {
            Ok(config) => config,
            Err(mistake) => unreachable!("the defaults are valid: {}", mistake.what),
        }
    }
}

/// A mistake in the file.
#[derive(Debug)]
struct Mistake {
    offset: Option<usize>,
    what: String,
    help: String,
}

impl Mistake {
    fn at<T>(value: &Spanned<T>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            offset: Some(value.span().start),
            what: what.into(),
            help: help.into(),
        }
    }

    /// `, line 3, key s3.region`.
    fn place(&self, text: &str) -> String {
        let Some(offset) = self.offset else {
            return String::new();
        };
        let Position { line, key } = Position::at(text, offset);
        if key.is_empty() {
            format!(", line {line}")
        } else {
            format!(", line {line}, key {key}")
        }
    }
}

fn resolve(file: file::File, directory: &Path) -> Result<Config, Mistake> {
    let data_dir = match file.data_dir {
        Some(path) => directory.join(path),
        None => PathBuf::from(DATA_DIR),
    };
    let beside_store = |path: Option<PathBuf>, name: &str| match path {
        Some(path) => directory.join(path),
        None => data_dir.join(name),
    };
    Ok(Config {
        backend: backend(&file.backend, directory)?,
        s3: s3(file.s3, directory)?,
        iscsi: iscsi(&file.iscsi)?,
        admin: Admin {
            socket: beside_store(file.admin.socket, "admin.sock"),
            tcp: file
                .admin
                .tcp
                .map(|tcp| admin_tcp(tcp, directory))
                .transpose()?,
        },
        metrics: metrics(&file.metrics)?,
        log: log(&file.log)?,
        keyring_file: beside_store(file.keyring.file, "keyring"),
        limits: resolve_limits(&file.limits)?,
        reclaim: Reclaim {
            grace: seconds(&file.reclaim.grace_seconds, 3_600, 0..=2_592_000)?,
            interval: seconds(&file.reclaim.interval_seconds, 60, 1..=86_400)?,
        },
        shard_keys_max: u32::try_from(number(
            &file.index.shard_keys_max,
            limits::SHARD_KEYS_MAX_DEFAULT,
            limits::SHARD_KEYS_MAX,
        )?)
        .expect("the range fits"),
        root_credentials_file: beside_store(file.root.credentials_file, "root-credentials"),
        data_dir,
    })
}

fn backend(table: &file::Backend, directory: &Path) -> Result<Backend, Mistake> {
    match table.kind {
        file::BackendKind::Local => {
            rados::refuse_keys(table, "local")?;
            Ok(Backend::Local {
                capacity_bytes: table
                    .capacity_bytes
                    .as_ref()
                    .map(|value| within(value, limits::CAPACITY_BYTES))
                    .transpose()?,
                cache_bytes: number(
                    &table.cache_bytes,
                    limits::CACHE_BYTES_DEFAULT,
                    limits::CACHE_BYTES,
                )?,
            })
        }
        file::BackendKind::Memory => {
            rados::refuse_keys(table, "memory")?;
            refuse(&table.cache_bytes, "memory", "local")?;
            Ok(Backend::Memory {
                capacity_bytes: number(
                    &table.capacity_bytes,
                    limits::MEMORY_CAPACITY_BYTES_DEFAULT,
                    limits::CAPACITY_BYTES,
                )?,
            })
        }
        file::BackendKind::Rados => {
            refuse(&table.cache_bytes, "rados", "local")?;
            refuse(&table.capacity_bytes, "rados", "local")?;
            rados::resolve(table, directory).map(|rados| Backend::Rados(Box::new(rados)))
        }
    }
}

/// Refuses a key that another kind of backend has.
fn refuse<T>(value: &Option<Spanned<T>>, kind: &str, other: &str) -> Result<(), Mistake> {
    match value {
        None => Ok(()),
        Some(value) => Err(Mistake::at(
            value,
            format!("this key has no meaning with kind = \"{kind}\""),
            format!("remove it, or set kind = \"{other}\""),
        )),
    }
}

fn s3(table: file::S3, directory: &Path) -> Result<S3, Mistake> {
    Ok(S3 {
        listen: s3_listen(table.listen, directory)?,
        region: table
            .region
            .as_ref()
            .map_or(Ok("us-east-1".to_owned()), region)?,
        virtual_host_domains: table
            .virtual_host_domains
            .iter()
            .map(domain)
            .collect::<Result<_, _>>()?,
        sigv2: table.sigv2.unwrap_or(true),
        multipart_part_bytes_min: number(
            &table.multipart_part_bytes_min,
            limits::PART_BYTES_MIN_DEFAULT,
            limits::PART_BYTES_MIN,
        )?,
    })
}

fn iscsi(table: &file::Iscsi) -> Result<Iscsi, Mistake> {
    let connections = number(
        &table.connections,
        limits::ISCSI_CONNECTIONS_DEFAULT,
        limits::CONNECTIONS,
    )?;
    if let Some(beyond) = table.listen.get(limits::ISCSI_PORTALS_MAX) {
        let what = format!("a node has {} portals at most", limits::ISCSI_PORTALS_MAX);
        let help = "an address like 0.0.0.0:3260 stands for all of this machine";
        return Err(Mistake::at(&beyond.address, what, help));
    }
    Ok(Iscsi {
        listen: table
            .listen
            .iter()
            .map(|portal| address(&portal.address))
            .collect::<Result<_, _>>()?,
        connections: usize::try_from(connections).expect("at most limits::CONNECTIONS"),
    })
}

fn s3_listen(
    entries: Option<Spanned<Vec<file::Listen>>>,
    directory: &Path,
) -> Result<Vec<Listen>, Mistake> {
    let Some(entries) = entries else {
        return Ok(vec![Listen {
            address: SocketAddr::from(([127, 0, 0, 1], 9000)),
            tls: None,
        }]);
    };
    if entries.get_ref().is_empty() {
        return Err(Mistake::at(
            &entries,
            "nothing would be served",
            "name an address, or remove the key to listen on 127.0.0.1:9000",
        ));
    }
    let listen = |entry: file::Listen| {
        Ok(Listen {
            address: address(&entry.address)?,
            tls: entry
                .tls
                .map(|tls| tls_files(&tls, "s3.listen.tls", directory)),
        })
    };
    entries.into_inner().into_iter().map(listen).collect()
}

fn admin_tcp(table: file::AdminTcp, directory: &Path) -> Result<AdminTcp, Mistake> {
    let listen = Listen {
        address: address(&table.address)?,
        tls: table
            .tls
            .map(|tls| tls_files(&tls, "admin.tcp.tls", directory)),
    };
    if listen.tls.is_none() && !listen.address.ip().is_loopback() {
        return Err(Mistake::at(
            &table.address,
            "the admin token would cross the network in the clear",
            "add tls = { certificate = \"...\", key = \"...\" }, or listen on 127.0.0.1",
        ));
    }
    Ok(AdminTcp {
        listen,
        token_file: directory.join(table.token_file),
    })
}

fn metrics(table: &file::Metrics) -> Result<Option<SocketAddr>, Mistake> {
    let address = table
        .address
        .as_ref()
        .map_or(Ok(SocketAddr::from(([127, 0, 0, 1], 9001))), address)?;
    Ok(table.enabled.unwrap_or(true).then_some(address))
}

fn log(table: &file::Log) -> Result<Log, Mistake> {
    let level = match &table.level {
        None => tracing::level_filters::LevelFilter::INFO,
        Some(text) => {
            tracing::level_filters::LevelFilter::from_str(text.get_ref()).map_err(|_| {
                Mistake::at(
                    text,
                    format!("{:?} is no log level", text.get_ref()),
                    "use \"error\", \"warn\", \"info\", \"debug\", \"trace\" or \"off\"",
                )
            })?
        }
    };
    Ok(Log {
        level,
        format: table.format,
    })
}

fn resolve_limits(table: &file::Limits) -> Result<Limits, Mistake> {
    let connections = number(
        &table.connections,
        limits::CONNECTIONS_DEFAULT,
        limits::CONNECTIONS,
    )?;
    Ok(Limits {
        connections: usize::try_from(connections).expect("at most limits::CONNECTIONS"),
        memory_bytes: number(
            &table.memory_bytes,
            limits::MEMORY_BYTES_DEFAULT,
            limits::MEMORY_BYTES,
        )?,
        transfer_bytes_per_second_min: number(
            &table.transfer_bytes_per_second_min,
            limits::TRANSFER_BYTES_PER_SECOND_MIN_DEFAULT,
            limits::TRANSFER_BYTES_PER_SECOND_MIN,
        )?,
        stop_timeout: seconds(&table.stop_seconds, 30, 0..=3_600)?,
    })
}

fn tls_files(table: &file::Tls, key_table: &'static str, directory: &Path) -> TlsFiles {
    TlsFiles {
        table: key_table,
        certificate: directory.join(&table.certificate),
        key: directory.join(&table.key),
    }
}

fn address(text: &Spanned<String>) -> Result<SocketAddr, Mistake> {
    text.get_ref().parse().map_err(|_| {
        Mistake::at(
            text,
            format!("{:?} is no IP address with a port", text.get_ref()),
            "write it as \"127.0.0.1:9000\", \"0.0.0.0:9000\" or \"[::]:9000\"",
        )
    })
}

fn region(text: &Spanned<String>) -> Result<String, Mistake> {
    let name = text.get_ref();
    let valid = !name.is_empty()
        && name.len() <= limits::REGION_BYTES_MAX
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if valid {
        Ok(name.clone())
    } else {
        Err(Mistake::at(
            text,
            format!("{name:?} is no region name"),
            "use lower-case letters, digits and hyphens, such as \"us-east-1\"",
        ))
    }
}

fn domain(text: &Spanned<String>) -> Result<String, Mistake> {
    let name = text.get_ref().to_ascii_lowercase();
    let label_is_valid = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if name.len() <= limits::DOMAIN_BYTES_MAX && name.split('.').all(label_is_valid) {
        Ok(name)
    } else {
        Err(Mistake::at(
            text,
            format!("{name:?} is no host name"),
            "write the name without port and wildcard, such as \"s3.example.com\"",
        ))
    }
}

fn seconds(
    value: &Option<Spanned<u64>>,
    default: u64,
    range: RangeInclusive<u64>,
) -> Result<Duration, Mistake> {
    number(value, default, range).map(Duration::from_secs)
}

fn number(
    value: &Option<Spanned<u64>>,
    default: u64,
    range: RangeInclusive<u64>,
) -> Result<u64, Mistake> {
    value
        .as_ref()
        .map_or(Ok(default), |value| within(value, range))
}

fn within(value: &Spanned<u64>, range: RangeInclusive<u64>) -> Result<u64, Mistake> {
    let number = *value.get_ref();
    if range.contains(&number) {
        return Ok(number);
    }
    Err(Mistake::at(
        value,
        format!("{number} is out of range"),
        format!("use a number from {} to {}", range.start(), range.end()),
    ))
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.address)
    }
}
