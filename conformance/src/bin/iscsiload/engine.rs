//! The same load without a target: an image over the local engine in this process. What a target
//! reaches of it is the share of the protocol.

use std::io::Result;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portico_backend::error::Error;
use portico_backend::image::{Image, ImagePools, NewImage};
use portico_backend::local::{LocalOptions, LocalStore};
use portico_backend::object::{Durability, Payload, Pool};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::initiator::noise;
use crate::load::{Direction, Figures, Load, Places, WARM_UP, cpu_seconds_of};

const IMAGE: &str = "load";

/// Runs the load on the image of the store in `directory`, both made if they are not there.
pub(crate) fn run(load: &Load, directory: &str) -> Result<Figures> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let path = Path::new(directory);
    let store = LocalStore::open(path, LocalOptions::default()).map_err(shown)?;
    let figures = runtime.block_on(async {
        let image = Arc::new(open(&store, load.span_bytes).await.map_err(shown)?);
        if load.operations_min == 0 {
            keep_busy(load, &image, WARM_UP).await?;
        }
        let cpu = cpu_seconds_of(std::process::id())?;
        let started = Instant::now();
        let span = Duration::from_secs(load.seconds);
        let latencies_us = keep_busy(load, &image, span).await?;
        let seconds = started.elapsed().as_secs_f64();
        let cpu = cpu_seconds_of(std::process::id())? - cpu;
        image.close().await.map_err(shown)?;
        Ok(Figures {
            latencies_us,
            seconds,
            server_cpu_seconds: cpu,
            own_cpu_seconds: cpu,
        })
    });
    store.close().map_err(shown)?;
    figures
}

async fn open(store: &Arc<LocalStore>, size_bytes: u64) -> std::result::Result<Image, Error> {
    let pool = Pool::new("meta", "");
    let pools = ImagePools {
        data: pool.clone(),
        meta: pool,
    };
    let session = store.session("load");
    if Image::list(&*session, &pools).await?.is_empty() {
        Image::create(&*session, &pools, &NewImage::new(IMAGE, size_bytes, 0)).await?;
    }
    Image::open(session, &pools, IMAGE).await
}

/// As many tasks as there are commands in flight; gives the time of each operation.
async fn keep_busy(load: &Load, image: &Arc<Image>, span: Duration) -> Result<Vec<u64>> {
    let deadline = Instant::now() + span;
    let data = noise(usize::try_from(load.bytes).expect("32 bits fit"));
    let mut tasks = JoinSet::new();
    for number in 0..load.depth {
        let (image, data) = (Arc::clone(image), data.clone());
        let (direction, bytes) = (load.direction, u64::from(load.bytes));
        let durability = match load.is_durable {
            true => Durability::Durable,
            false => Durability::Buffered,
        };
        let operations_min = load.operations_min / u64::from(load.depth);
        let mut places = Places::of_task(load, number);
        tasks.spawn(async move {
            let mut latencies_us = Vec::new();
            while Instant::now() < deadline || (latencies_us.len() as u64) < operations_min {
                let (begun, offset) = (Instant::now(), places.next_offset());
                match direction {
                    Direction::Read => drop(read(&image, offset, bytes).await?),
                    Direction::Write => {
                        let payload = Payload::from(data.clone());
                        image.write(offset, payload, durability).await?;
                    }
                }
                latencies_us.push(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
                // What answers at once would keep the others waiting.
                tokio::task::consume_budget().await;
            }
            Ok::<_, Error>(latencies_us)
        });
    }
    let mut latencies_us = Vec::new();
    for done in tasks.join_all().await {
        latencies_us.extend(done.map_err(shown)?);
    }
    Ok(latencies_us)
}

async fn read(image: &Image, offset: u64, bytes: u64) -> std::result::Result<Payload, Error> {
    match image.try_read_cached(offset, bytes) {
        Some(answer) => answer,
        None => image.read(offset, bytes).await,
    }
}

fn shown(error: Error) -> std::io::Error {
    std::io::Error::other(error)
}
