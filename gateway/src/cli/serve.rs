//! `portico serve`.

use std::net::SocketAddr;

use clap::Args;

use super::{Location, block_on};
use crate::environment::Environment;
use crate::error::Failure;
use crate::log;

/// Serve until told to stop by SIGTERM or Ctrl-C
///
/// Without options it keeps its data in ./portico-data, which it makes at the first start together
/// with a root user, and listens on loopback: S3 on 127.0.0.1:9000, metrics on 127.0.0.1:9001. It
/// prints how to use it.
///
/// Environment: PORTICO_ROOT_ACCESS_KEY and PORTICO_ROOT_SECRET_KEY are the root user's keys if the
/// first start finds them; later starts ignore them.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    location: Location,
    /// Address of the S3 listener, instead of the one configured [default: 127.0.0.1:9000]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Portal of iSCSI, instead of those configured; may be repeated [default: none, no iSCSI]
    #[arg(long, value_name = "ADDRESS:PORT")]
    iscsi_listen: Vec<SocketAddr>,
    /// Address of /metrics and /health, instead of the one configured [default: 127.0.0.1:9001]
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut config = arguments.location.load()?;
    if let Some(address) = arguments.listen {
        config = config.with_listen(address)?;
    }
    if !arguments.iscsi_listen.is_empty() {
        config.iscsi.listen.clone_from(&arguments.iscsi_listen);
    }
    if let Some(address) = arguments.metrics_listen {
        config.metrics = Some(address);
    }
    let environment = Environment::read()?;
    log::install(config.log);
    block_on(crate::serve::serve(config, environment))
}
