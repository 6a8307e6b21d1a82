//! Snapshots, where the engine has them; where it has not, it says so.

use portico_backend::error::ErrorKind;
use portico_backend::object::{ReadOp, ReadStep, SnapContext, SnapId, WriteOp, WriteStep};

use super::bench::{Bench, Session, append, omap, omap_remove, replace, xattr};
use super::group;

group!("snapshots":
    an_engine_without_snapshots_says_so,
    ids_only_grow,
    a_snapshot_keeps_data_attributes_and_omap,
    several_snapshots_each_keep_their_state,
    an_object_made_later_is_not_in_a_snapshot,
    a_removed_object_stays_in_its_snapshots,
    rollback_brings_everything_back,
    rollback_is_a_step_among_others,
    a_removed_snapshot_is_not_found,
    a_failed_write_keeps_snapshots_as_they_were,
);

/// A volume's view: all snapshots it made and still has.
#[derive(Debug)]
struct Volume {
    session: Session,
    snapshots: Vec<SnapId>,
    sequence: u64,
}

impl Volume {
    /// `None` if the engine has no snapshots.
    fn open(bench: &Bench) -> Option<Self> {
        let session = bench.open().session();
        session.limits().snapshots.then_some(Self {
            session,
            snapshots: Vec::new(),
            sequence: 0,
        })
    }

    async fn snapshot(&mut self) -> SnapId {
        self.session.count();
        let made = self.session.store.snapshot_create(&self.session.pool).await;
        let snapshot = made.expect("a snapshot is made");
        self.sequence = snapshot.0;
        self.snapshots.insert(0, snapshot);
        snapshot
    }

    async fn forget(&mut self, snapshot: SnapId) {
        let pool = &self.session.pool;
        let removed = self.session.store.snapshot_remove(pool, snapshot).await;
        removed.expect("a snapshot is removed");
        self.snapshots.retain(|kept| *kept != snapshot);
    }

    fn op(&self, steps: impl IntoIterator<Item = WriteStep>) -> WriteOp {
        let mut op = WriteOp::new(steps);
        op.snapshots = SnapContext {
            sequence: self.sequence,
            snapshots: self.snapshots.clone(),
        };
        op
    }

    async fn put(&self, steps: impl IntoIterator<Item = WriteStep>) {
        self.session.writes("a", self.op(steps)).await;
    }

    async fn data_at(&self, at: SnapId) -> Option<Vec<u8>> {
        let state = self.session.state_at("a", Some(at)).await;
        state.map(|(_, state)| state.data)
    }
}

async fn an_engine_without_snapshots_says_so(bench: Bench) {
    let session = bench.open().session();
    if session.limits().snapshots {
        return;
    }
    session.put("a", [append("x")]).await;
    let made = session.store.snapshot_create(&session.pool).await;
    assert_eq!(
        made.expect_err("no snapshots").kind(),
        ErrorKind::Unsupported
    );
    let removed = session
        .store
        .snapshot_remove(&session.pool, SnapId(1))
        .await;
    assert_eq!(
        removed.expect_err("no snapshots").kind(),
        ErrorKind::Unsupported
    );
    let mut read = ReadOp::new([ReadStep::Stat]);
    read.at = Some(SnapId(1));
    session.read_fails("a", read, ErrorKind::Unsupported).await;
    let mut write = WriteOp::new([append("x")]);
    write.snapshots = SnapContext {
        sequence: 1,
        snapshots: vec![SnapId(1)],
    };
    session.refuses("a", write, ErrorKind::Unsupported).await;
    let rollback = WriteOp::new([WriteStep::Rollback { to: SnapId(1) }]);
    session.refuses("a", rollback, ErrorKind::Unsupported).await;
}

async fn ids_only_grow(bench: Bench) {
    let Some(mut volume) = Volume::open(&bench) else {
        return;
    };
    let mut last = SnapId(0);
    for round in 0..10 {
        let snapshot = volume.snapshot().await;
        assert!(snapshot > last);
        last = snapshot;
        if round % 2 == 0 {
            volume.forget(snapshot).await;
        }
    }
}

async fn a_snapshot_keeps_data_attributes_and_omap(bench: Bench) {
    let Some(mut volume) = Volume::open(&bench) else {
        return;
    };
    volume
        .put([
            replace([1; 9_000]),
            xattr(0, "v"),
            omap([("k", "v"), ("l", "v")]),
        ])
        .await;
    let before = volume.session.state("a").await;
    let snapshot = volume.snapshot().await;
    assert_eq!(volume.session.state_at("a", Some(snapshot)).await, before);
    for _ in 0..3 {
        let changes = [
            append([2; 9_000]),
            WriteStep::Zero {
                offset: 0,
                length: 5_000,
            },
            xattr(0, "w"),
            xattr(1, "new"),
            omap([("k", "w"), ("m", "new")]),
            omap_remove(["l"]),
        ];
        volume.put(changes).await;
        assert_eq!(volume.session.state_at("a", Some(snapshot)).await, before);
    }
    assert_eq!(volume.session.data("a").await.len(), 36_000);
}

async fn several_snapshots_each_keep_their_state(bench: Bench) {
    let Some(mut volume) = Volume::open(&bench) else {
        return;
    };
    let mut expected = Vec::new();
    for round in 0..6_u8 {
        volume.put([replace([round; 100])]).await;
        // Two snapshots of one state.
        expected.push((volume.snapshot().await, vec![round; 100]));
        expected.push((volume.snapshot().await, vec![round; 100]));
    }
    volume.put([replace("now")]).await;
    // Forgetting one leaves the others.
    let (forgotten, _) = expected.remove(4);
    volume.forget(forgotten).await;
    for (snapshot, data) in expected {
        assert_eq!(volume.data_at(snapshot).await, Some(data));
    }
    assert_eq!(volume.session.data("a").await, b"now");
}

async fn an_object_made_later_is_not_in_a_snapshot(bench: Bench) {
    let Some(mut volume) = Volume::open(&bench) else {
        return;
    };
    let before = volume.snapshot().await;
    assert_eq!(volume.data_at(before).await, None);
    volume.put([append("x")]).await;
    assert_eq!(volume.data_at(before).await, None);
    let after = volume.snapshot().await;
    volume.put([append("y")]).await;
    assert_eq!(volume.data_at(before).await, None);
    assert_eq!(volume.data_at(after).await, Some(b"x".to_vec()));
}

async fn a_removed_object_stays_in_its_snapshots(bench: Bench) {
    let Some(mut volume) = Volume::open(&bench) else {
        return;
    };
    volume.put([append("x")]).await;
    let first = volume.snapshot().await;
    volume.put([WriteStep::Remove]).await;
    let gone = volume.snapshot().await;
    volume.put([append("again")]).await;
    let second = volume.snapshot().await;
    volume.put([WriteStep::Remove]).await;
    assert_eq!(volume.session.state("a").await, None);
    assert_eq!(volume.data_at(first).await, Some(b"x".to_vec()));
    assert_eq!(volume.data_at(gone).await, None);
    assert_eq!(volume.data_at(second).await, Some(b"again".to_vec()));
}

async fn rollback_brings_everything_back(bench: Bench) {
    let Some(mut volume) = Volume::open(&bench) else {
        return;
    };
    volume
        .put([replace("old"), xattr(0, "old"), omap([("old", "v")])])
        .await;
    let old = volume.session.existing("a").await;
    let snapshot = volume.snapshot().await;
    let change = [
        replace("newer"),
        xattr(1, "new"),
        omap([("new", "v")]),
        omap_remove(["old"]),
    ];
    volume.put(change).await;
    let newer = volume.session.existing("a").await;
    let between = volume.snapshot().await;
    volume.put([WriteStep::Rollback { to: snapshot }]).await;
    assert_eq!(volume.session.existing("a").await, old);
    let kept = volume.session.state_at("a", Some(between)).await;
    assert_eq!(
        kept.map(|(_, state)| state),
        Some(newer),
        "the state before is kept too"
    );
    volume.put([WriteStep::Remove]).await;
    volume.put([WriteStep::Rollback { to: snapshot }]).await;
    assert_eq!(
        volume.session.existing("a").await,
        old,
        "a removed object comes back"
    );
}

async fn rollback_is_a_step_among_others(bench: Bench) {
    let Some(mut volume) = Volume::open(&bench) else {
        return;
    };
    volume.put([replace("old"), omap([("k", "v")])]).await;
    let snapshot = volume.snapshot().await;
    let steps = [
        replace("lost"),
        omap([("l", "lost")]),
        WriteStep::Rollback { to: snapshot },
        append(" and new"),
    ];
    volume.put(steps).await;
    let state = volume.session.existing("a").await;
    assert_eq!(state.data, b"old and new");
    assert_eq!(state.omap.len(), 1);
}

async fn a_removed_snapshot_is_not_found(bench: Bench) {
    let Some(mut volume) = Volume::open(&bench) else {
        return;
    };
    volume.put([append("x")]).await;
    let snapshot = volume.snapshot().await;
    volume.put([append("y")]).await;
    volume.forget(snapshot).await;
    let session = &volume.session;
    let again = session.store.snapshot_remove(&session.pool, snapshot).await;
    assert_eq!(again.expect_err("it is gone").kind(), ErrorKind::NotFound);
    let mut read = ReadOp::new([ReadStep::Stat]);
    read.at = Some(snapshot);
    session.read_fails("a", read, ErrorKind::NotFound).await;
    let rollback = volume.op([WriteStep::Rollback { to: snapshot }]);
    session.refuses("a", rollback, ErrorKind::NotFound).await;
    assert_eq!(session.data("a").await, b"xy");
    // Also of one that no write has noticed.
    let unnoticed = volume.snapshot().await;
    assert_eq!(volume.data_at(unnoticed).await, Some(b"xy".to_vec()));
    volume.forget(unnoticed).await;
    let mut read = ReadOp::new([ReadStep::Stat]);
    read.at = Some(unnoticed);
    let session = &volume.session;
    session.read_fails("a", read, ErrorKind::NotFound).await;
}

async fn a_failed_write_keeps_snapshots_as_they_were(bench: Bench) {
    let Some(mut volume) = Volume::open(&bench) else {
        return;
    };
    volume.put([append("x"), omap([("k", "v")])]).await;
    let snapshot = volume.snapshot().await;
    let size = volume.session.limits().object_bytes_max;
    let too_large = [
        omap([("k", "w")]),
        WriteStep::Truncate { size },
        append("y"),
    ];
    let op = volume.op(too_large);
    volume.session.refuses("a", op, ErrorKind::TooLarge).await;
    volume.put([replace("z"), omap_remove(["k"])]).await;
    let state = volume.session.state_at("a", Some(snapshot)).await;
    let (_, state) = state.expect("the object is in the snapshot");
    assert_eq!((state.data, state.omap.len()), (b"x".to_vec(), 1));
}
