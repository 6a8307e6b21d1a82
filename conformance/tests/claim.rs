//! Claims over two sessions of one store: a later claimant's epoch stops the earlier one.

#![expect(
    clippy::unwrap_used,
    reason = "what helps a test fails as the test does"
)]
use bytes::Bytes;
use portico_backend::claim::Claim;
use portico_backend::error::ErrorKind;
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{
    Guard, ObjectId, ObjectName, Pool, ReadOp, ReadStep, WriteOp, WriteStep,
};

fn object(name: &str) -> ObjectId {
    ObjectId::new(&Pool::new("meta", ""), ObjectName::new(name))
}

fn set(key: &'static str) -> WriteOp {
    WriteOp::new([WriteStep::OmapSet {
        entries: vec![(Bytes::from(key), Bytes::from_static(b"v"))],
    }])
}

async fn with_header(cluster: &MemoryCluster) -> ObjectId {
    let header = object("volume");
    let make = WriteOp::new([WriteStep::Create]);
    cluster.session("maker").write(&header, make).await.unwrap();
    header
}

#[tokio::test]
async fn a_later_claim_stops_the_earlier_one_on_what_it_wrote() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let header = with_header(&cluster).await;
    let (first, second) = (cluster.session("first"), cluster.session("second"));
    let shard = object("volume.shard");

    let old = Claim::take(&*first, &header).await.unwrap();
    assert_eq!(old.former(), []);
    first.write(&shard, old.apply(set("a"))).await.unwrap();

    let new = Claim::take(&*second, &header).await.unwrap();
    assert!(new.epoch() > old.epoch());
    assert_eq!(new.former(), [first.session()]);
    let stopped = first.write(&header, old.apply(set("b"))).await.unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::GuardFailed);

    // The shard is not yet written under the new epoch; the fence is what protects it until then.
    first.write(&shard, old.apply(set("c"))).await.unwrap();
    second.write(&shard, new.apply(set("d"))).await.unwrap();
    for late in [set("e"), WriteOp::new([WriteStep::Remove])] {
        let stopped = first.write(&shard, old.apply(late)).await.unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::GuardFailed);
    }
    second.write(&shard, new.apply(set("f"))).await.unwrap();
}

#[tokio::test]
async fn a_claimant_that_never_fenced_does_not_hide_the_one_before() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let header = with_header(&cluster).await;
    let sessions = ["first", "died", "third"].map(|name| cluster.session(name));
    let [first, died, third] = &sessions;
    for store in [first, died] {
        Claim::take(&**store, &header).await.unwrap();
    }
    let claim = Claim::take(&**third, &header).await.unwrap();
    assert_eq!(claim.former(), [first.session(), died.session()]);
    claim.fence_former(&**third, &header).await.unwrap();
    for store in [first, died] {
        assert!(!third.may_write(&store.session()).await.unwrap());
    }
    // Given back, there is nobody to fence.
    claim.release(&**third, &header).await.unwrap();
    let fourth = cluster.session("fourth");
    let claim = Claim::take(&*fourth, &header).await.unwrap();
    assert_eq!(claim.former(), []);
    assert!(fourth.may_write(&third.session()).await.unwrap());
}

#[tokio::test]
async fn many_who_claim_at_once_get_different_epochs() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let header = with_header(&cluster).await;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (store, header) = (cluster.session("claimant"), header.clone());
            tokio::spawn(async move { Claim::take(&*store, &header).await.unwrap().epoch() })
        })
        .collect();
    let mut epochs = Vec::new();
    for task in tasks {
        epochs.push(task.await.unwrap());
    }
    epochs.sort_unstable();
    assert_eq!(epochs, (1..=16).collect::<Vec<_>>());
}

#[tokio::test]
async fn only_a_volume_that_exists_is_claimed() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let store = cluster.session("claimant");
    let missing = object("nowhere");
    let error = Claim::take(&*store, &missing).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let stat = ReadOp::new([ReadStep::Stat]).guarded(Guard::Exists);
    let error = store.read(&missing, stat).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_claim_makes_and_removes_objects() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let header = with_header(&cluster).await;
    let store = cluster.session("claimant");
    let claim = Claim::take(&*store, &header).await.unwrap();
    let piece = object("volume.piece");
    let make = WriteOp::new([WriteStep::Create]).guarded(Guard::Absent);
    store.write(&piece, claim.apply(make)).await.unwrap();
    let remove = WriteOp::new([WriteStep::Remove]);
    store
        .write(&piece, claim.apply(remove.clone()))
        .await
        .unwrap();
    let gone = store.write(&piece, claim.apply(remove)).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}
