//! How a client of the cluster is made.

use std::ffi::CString;
use std::path::Path;

use super::RadosOptions;
use super::librados::{Cluster, Code};
use crate::error::{Error, ErrorKind};

/// Seconds that a question to the monitors may take, so that none holds a thread for ever.
const MON_TIMEOUT_S: &str = "60";

/// The engine bounds what is in flight itself, and librados would block the calling thread.
const UNBOUNDED_OPS: &str = "1048576";
const UNBOUNDED_BYTES: &str = "1099511627776";

/// Blocks until the client is connected.
pub(super) fn connect(options: &RadosOptions) -> Result<Cluster, Error> {
    let cluster = Cluster::create(&text(&options.client)?)?;
    let conf = path(&options.conf)?;
    cluster.read_conf(&conf).map_err(|Code(code)| {
        let shown = options.conf.display();
        let text = format!("read the Ceph configuration {shown} (librados error {code})");
        Error::new(ErrorKind::NotFound, text)
    })?;
    let timeout = options.connect_timeout.as_secs().max(1).to_string();
    let mut settings = vec![
        ("client_mount_timeout", timeout),
        ("rados_mon_op_timeout", MON_TIMEOUT_S.to_owned()),
        ("objecter_inflight_ops", UNBOUNDED_OPS.to_owned()),
        ("objecter_inflight_op_bytes", UNBOUNDED_BYTES.to_owned()),
    ];
    if let Some(keyring) = &options.keyring {
        settings.push(("keyring", keyring.display().to_string()));
    }
    for (name, value) in settings {
        cluster
            .set(&text(name)?, &text(&value)?)
            .map_err(|code| code.error(format!("set {name} to {value}")))?;
    }
    cluster
        .connect()
        .map_err(|code| refused(options, code, &cluster))?;
    Ok(cluster)
}

fn refused(options: &RadosOptions, code: Code, cluster: &Cluster) -> Error {
    let client = &options.client;
    let why = match code.0 {
        -1 | -13 => format!("the cluster refuses {client}; check its name and its keyring"),
        -2 => format!("no monitor or no key of {client} is found; check mon_host and the keyring"),
        -22 => format!("{client} or the configuration is not valid"),
        -110 => "no monitor answered in time; check mon_host and the network".to_owned(),
        _ => "the connection failed".to_owned(),
    };
    let (major, minor, extra) = cluster.interface_version();
    let conf = options.conf.display();
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "connect to the cluster of {conf}: {why} (librados {major}.{minor}.{extra} error {})",
            code.0
        ),
    )
}

/// A text for librados.
pub(super) fn text(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| {
        let shown = format!("{text:?} holds a NUL, which Ceph cannot name");
        Error::new(ErrorKind::Unsupported, shown)
    })
}

fn path(path: &Path) -> Result<CString, Error> {
    match path.to_str() {
        Some(shown) => text(shown),
        None => Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} is not valid UTF-8", path.display()),
        )),
    }
}
