//! The rate at which one object of a cluster takes guarded writes to its omap, each with one key.
//!
//! What a bucket's index would be without groups of changes. Prints one line of JSON, as `s3load`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portico_backend::error::{Error, ErrorKind};
use portico_backend::object::{
    Guard, ObjectId, ObjectName, ObjectStore, Pool, WriteOp, WriteStep, XattrName,
};
use portico_backend::rados::{self, RadosOptions, RadosPool, RadosStore};
use serde_json::json;
use tokio::time::Instant;

const USAGE: &str = "usage: omapload CONF CLIENT KEYRING POOL OBJECT SECONDS";

/// Writes in flight.
const DEPTH: usize = 32;

fn main() -> ExitCode {
    match run() {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            eprintln!("omapload: {wrong}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<serde_json::Value, String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [conf, client, keyring, pool, object, seconds] = arguments.as_slice() else {
        return Err("an argument is missing".to_owned());
    };
    let seconds = seconds.parse().map_err(|_| "seconds are a number")?;
    let pool = RadosPool {
        name: "meta".to_owned(),
        ceph_pool: pool.clone(),
        namespace: "omapload".to_owned(),
    };
    let options = RadosOptions {
        keyring: Some(PathBuf::from(keyring)),
        ..RadosOptions::new(PathBuf::from(conf), client, vec![pool])
    };
    let shown = |error: Error| error.to_string();
    let store = RadosStore::open(options).map_err(shown)?;
    let session = store.session("omapload").map_err(shown)?;
    let id = ObjectId::new(&Pool::new("meta", ""), ObjectName::new(object));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let loading = load(session, id, Duration::from_secs(seconds));
    let figures = runtime.block_on(loading).map_err(shown);
    drop((runtime, store));
    // librados must have ended before the process does.
    if !rados::wait_until_closed(Duration::from_secs(30)) {
        return Err("the connection to the cluster did not close in time".to_owned());
    }
    figures
}

async fn load(
    store: Arc<dyn ObjectStore>,
    id: ObjectId,
    duration: Duration,
) -> Result<serde_json::Value, Error> {
    let name = XattrName::new("phase");
    let phase = WriteStep::XattrSet {
        name,
        value: Bytes::from_static(b"open"),
    };
    store.write(&id, WriteOp::new([phase])).await?;
    let started = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for worker in 0..DEPTH {
        let (store, id) = (Arc::clone(&store), id.clone());
        running.spawn(async move {
            let mut count: u64 = 0;
            while started.elapsed() < duration {
                let key = Bytes::from(format!("{worker:02}-{count:08}"));
                let entries = vec![(key, Bytes::from_static(b"value of one key"))];
                let guard = Guard::XattrIs {
                    name,
                    value: Bytes::from_static(b"open"),
                };
                let op = WriteOp::new([WriteStep::OmapSet { entries }]).guarded(guard);
                store.write(&id, op).await?;
                count += 1;
            }
            Ok::<u64, Error>(count)
        });
    }
    let mut operations = 0;
    while let Some(done) = running.join_next().await {
        operations += done
            .map_err(|panic| Error::new(ErrorKind::Unavailable, "a worker").with_source(panic))??;
    }
    Ok(json!({
        "operations": operations,
        "seconds": started.elapsed().as_secs_f64(),
    }))
}
