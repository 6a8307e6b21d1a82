//! Aborted commands over a store that stands still: what comes later stays.

use std::sync::Arc;
use std::time::Duration;

use portico_backend::faulty::{CallKind, Faulty, FaultyOptions};
use portico_backend::image::{Image, ImagePools, NewImage};
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{ObjectStore, Pool};

use super::Node;
use super::initiator::{Initiator, TARGET, read10, write10};
use crate::scsi::{LunMap, Unit, UnitOptions};
use crate::units::Units;
use crate::wire::request::{Request, TaskFunction};
use crate::wire::response::TaskOutcome;

/// A LUN whose store can be held.
async fn node() -> (Node, Arc<Faulty>) {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let store = Faulty::new(cluster.session("test"), FaultyOptions::default());
    let pools = ImagePools {
        data: Pool::new("data", ""),
        meta: Pool::new("meta", ""),
    };
    let new = NewImage::new("one", 1 << 20, 1_000);
    let session = Arc::clone(&store) as Arc<dyn ObjectStore>;
    Image::create(&*session, &pools, &new).await.unwrap();
    let image = Image::open(session, &pools, "one").await.unwrap();
    let unit = Arc::new(Unit::new(image, UnitOptions::default()));
    let units = Units::of_luns(LunMap::new(TARGET, [(0, unit)]));
    let node = Node::with(|target| target.access[0].units = units, 64 << 20);
    (node, store)
}

async fn session(node: &Node, number: u8) -> Initiator {
    let mut one = Initiator::connect(node);
    one.isid[5] = number;
    one.operational(&[]).await;
    // Unit attentions are told.
    while one.run(&[0; 6], 0, &[]).await.status != 0 {}
    one
}

/// A store gives two writes that overlap in time no order, so one pair would prove nothing.
#[tokio::test(start_paused = true)]
async fn what_was_aborted_does_not_undo_what_was_written_later() {
    const PAIRS: usize = 16;
    let (node, store) = node().await;
    let mut one = session(&node, 1).await;
    let mut other = session(&node, 2).await;
    store.hold(CallKind::Write);
    let mut tasks = Vec::new();
    for at in 0..PAIRS {
        let lba = u32::try_from(at).unwrap();
        let command = one.command(&write10(lba, 1), 512, &[0xaa; 512]);
        tasks.push((command.itt, command.numbers.cmd_sn));
        one.send(&Request::ScsiCommand(command)).await;
        store.wait_held(at + 1).await;
    }
    // Half of them are aborted, the others lose their session.
    for task in &tasks[..PAIRS / 2] {
        one.manage(TaskFunction::AbortTask, 0, *task).await;
        assert_eq!(one.managed().await, TaskOutcome::Complete);
    }
    drop(one);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(node.service.sessions().count(), 1);
    for at in 0..PAIRS {
        let lba = u32::try_from(at).unwrap();
        let command = other.command(&write10(lba, 1), 512, &[0xbb; 512]);
        other.send(&Request::ScsiCommand(command)).await;
        other.ping(b"").await;
        other.receive().await;
    }
    store.release();
    for _ in 0..PAIRS {
        assert_eq!(other.answer().await.status, 0);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bytes = u32::try_from(PAIRS * 512).unwrap();
    let answer = other.run(&read10(0, PAIRS), bytes, &[]).await;
    assert_eq!(answer.data, vec![0xbb; PAIRS * 512]);
}
