//! What outlives a stop, and what it costs.

use std::time::Duration;

use portico_backend::error::ErrorKind;
use portico_backend::object::{Guard, LockKind, LockName, LockRequest, WriteOp, WriteStep};

use super::bench::{Bench, Session, append, bytes, omap, replace, write_at, xattr};
use super::group;

group!("durability":
    buffered_writes_are_visible_at_once,
    buffered_writes_are_guarded_too,
    flushes_run_side_by_side,
    everything_outlives_a_clean_stop,
    versions_go_on_after_a_stop,
    sessions_are_new_after_a_stop,
    locks_outlive_a_stop,
    small_writes_share_their_flushes,
    many_small_changes_keep_their_order,
);

async fn buffered_writes_are_visible_at_once(bench: Bench) {
    let opened = bench.open();
    let (first, second) = (opened.session(), opened.session());
    let steps = [
        WriteStep::Create,
        append("abc"),
        write_at(9_000, "x"),
        WriteStep::Zero {
            offset: 0,
            length: 1,
        },
        WriteStep::Truncate { size: 5_000 },
    ];
    for step in steps {
        first
            .writes("a", WriteOp::new([step.clone()]).buffered())
            .await;
        let seen = second.existing("a").await;
        assert_eq!(first.existing("a").await, seen, "after {step:?}");
    }
    let data = second.data("a").await;
    assert_eq!((data.len(), &data[..4]), (5_000, &b"\0bc\0"[..]));
    first.store.flush().await.expect("a flush works");
    assert_eq!(second.data("a").await, data);
    first
        .writes("a", WriteOp::new([replace("new")]).buffered())
        .await;
    second.put("a", [append(" and durable")]).await;
    assert_eq!(first.data("a").await, b"new and durable");
}

async fn buffered_writes_are_guarded_too(bench: Bench) {
    let session = bench.open().session();
    let op = WriteOp::new([append("x")])
        .guarded(Guard::Absent)
        .buffered();
    let version = session.writes("a", op.clone()).await;
    session.refuses("a", op, ErrorKind::AlreadyExists).await;
    let op = WriteOp::new([append("y")])
        .guarded(Guard::VersionIs(version))
        .buffered();
    session.writes("a", op.clone()).await;
    session.refuses("a", op, ErrorKind::GuardFailed).await;
    assert_eq!(session.data("a").await, b"xy");
}

async fn flushes_run_side_by_side(bench: Bench) {
    let opened = bench.open();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let session = opened.session();
        tasks.spawn(async move {
            session
                .store
                .flush()
                .await
                .expect("a flush of nothing works");
            for round in 0..4 {
                let op = WriteOp::new([append(format!("{number}.{round} "))]).buffered();
                session.writes("a", op).await;
                session.store.flush().await.expect("a flush works");
            }
        });
    }
    tasks.join_all().await;
    let data = opened.session().data("a").await;
    let text = String::from_utf8(data).expect("text");
    assert_eq!(text.split_whitespace().count(), 64);
}

/// Objects of every form, and how they look.
async fn fill(session: &Session) {
    session
        .put(
            "data",
            [write_at(5_000, [7; 100_000]), write_at(1_000_000, "end")],
        )
        .await;
    session
        .put(
            "both",
            [
                append("abc"),
                xattr(0, "v"),
                xattr(1, [0; 300]),
                omap([("k", "v")]),
            ],
        )
        .await;
    session
        .put("both", [append("def"), WriteStep::Truncate { size: 5 }])
        .await;
    let keys: Vec<String> = (0..2_500).map(|key| format!("{key:05}")).collect();
    for part in keys.chunks(500) {
        session
            .put("map", [omap(part.iter().map(|key| (key, key.repeat(3))))])
            .await;
    }
    let range = WriteStep::OmapRemoveRange {
        start: bytes("00100"),
        end: bytes("00200"),
    };
    session.put("map", [range]).await;
    session.put("empty", [WriteStep::Create]).await;
    session.put("removed", [append("x")]).await;
    session.put("removed", [WriteStep::Remove]).await;
    for round in 0..50_u64 {
        let op = WriteOp::new([write_at(round * 3_000, [9; 4_000])]).buffered();
        session.writes("buffered", op).await;
    }
    session
        .writes(
            "buffered",
            WriteOp::new([WriteStep::Zero {
                offset: 4_096,
                length: 9_000,
            }])
            .buffered(),
        )
        .await;
}

const NAMES: [&str; 6] = ["data", "both", "map", "empty", "removed", "buffered"];

async fn everything_outlives_a_clean_stop(bench: Bench) {
    let mut opened = bench.open();
    for round in 0..3 {
        let session = opened.session();
        if round == 0 {
            fill(&session).await;
            session.store.flush().await.expect("a flush works");
        }
        let mut before = Vec::new();
        for name in NAMES {
            before.push(session.state(name).await);
        }
        drop(session);
        opened = opened.reopen().await;
        let session = opened.session();
        for (name, before) in NAMES.iter().zip(&before) {
            let after = session.state(name).await;
            assert!(after == *before, "{name} differs after stop {round}");
        }
        session.put("both", [append(round.to_string())]).await;
        // A clean stop needs no flush.
        session
            .writes("buffered", WriteOp::new([append("more")]).buffered())
            .await;
    }
}

async fn versions_go_on_after_a_stop(bench: Bench) {
    let opened = bench.open();
    let session = opened.session();
    let mut last = Vec::new();
    for name in ["a", "b"] {
        for _ in 0..10 {
            session.put(name, [append("x")]).await;
        }
        last.push(session.put(name, [append("x")]).await);
    }
    session.put("b", [WriteStep::Remove]).await;
    drop(session);
    let opened = opened.reopen().await;
    let session = opened.session();
    let op = WriteOp::new([append("y")]).guarded(Guard::VersionIs(last[0]));
    session.writes("a", op).await;
    assert!(session.put("a", [append("y")]).await > last[0]);
    assert!(
        session.put("b", [append("y")]).await > last[1],
        "also of a removed object"
    );
}

async fn sessions_are_new_after_a_stop(bench: Bench) {
    let opened = bench.open();
    let mut names: Vec<_> = (0..3).map(|_| opened.session().store.session()).collect();
    let opened = opened.reopen().await;
    let after: Vec<_> = (0..3).map(|_| opened.session().store.session()).collect();
    let asker = opened.session();
    for name in &names {
        assert!(!after.contains(name), "{name} is used again");
        asker
            .store
            .fence(name)
            .await
            .expect("an old session is fenced");
    }
    names.clear();
    asker.put("a", [append("x")]).await;
    for name in after {
        assert_ne!(name, asker.store.session());
    }
}

async fn locks_outlive_a_stop(bench: Bench) {
    let opened = bench.open();
    let session = opened.session();
    session.put("a", [WriteStep::Create]).await;
    let request = LockRequest {
        name: LockName("lock"),
        kind: LockKind::Exclusive,
        cookie: bytes("x"),
        expiry: None,
        renew: false,
    };
    let id = session.id("a");
    session
        .store
        .lock(&id, request.clone())
        .await
        .expect("a lock is taken");
    let expiring = LockRequest {
        name: LockName("expiring"),
        expiry: Some(Duration::from_millis(1_500)),
        ..request.clone()
    };
    session
        .store
        .lock(&id, expiring.clone())
        .await
        .expect("a lock is taken");
    let owner = session.store.session();
    drop(session);
    let opened = opened.reopen().await;
    let session = opened.session();
    for name in [request.name, expiring.name] {
        let holders = session
            .store
            .lock_holders(&id, name)
            .await
            .expect("holders are known");
        assert_eq!(holders.len(), 1, "{name:?}");
        assert_eq!(
            (&holders[0].session, &holders[0].cookie),
            (&owner, &bytes("x"))
        );
    }
    let error = session
        .store
        .lock(&id, request)
        .await
        .expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Locked);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let taken = session.store.lock(&id, expiring).await;
    assert!(taken.is_ok(), "the expiry counts anew, but it counts");
}

async fn small_writes_share_their_flushes(bench: Bench) {
    let opened = bench.open();
    let session = opened.session();
    for number in 0..64 {
        session
            .put(&format!("a{number}"), [WriteStep::Create])
            .await;
    }
    // Three tries: on a busy machine the writes may arrive too slowly to meet.
    let mut costs = Vec::new();
    for _ in 0..3 {
        let Some(before) = opened.flush_count() else {
            return;
        };
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..64 {
            let session = session.clone();
            let steps = [append([1; 100]), omap([("k", "v")])];
            tasks.spawn(async move { session.put(&format!("a{number}"), steps).await });
        }
        tasks.join_all().await;
        let after = opened.flush_count().expect("it counted before");
        assert!(after > before, "durable writes wait for a flush");
        costs.push(after - before);
    }
    println!("64 concurrent small durable writes cost {costs:?} flushes");
    assert!(
        costs.iter().any(|cost| *cost <= 8),
        "{costs:?} flushes for 64 writes"
    );
}

async fn many_small_changes_keep_their_order(bench: Bench) {
    let opened = bench.open();
    let session = opened.session();
    for round in 0..300_u32 {
        let key = format!("{}", round % 7);
        let steps = [
            omap([(&key, round.to_string())]),
            xattr(0, round.to_string()),
            replace(round.to_string()),
        ];
        session.put("a", steps).await;
    }
    let before = session.existing("a").await;
    assert_eq!(before.data, b"299");
    drop(session);
    let opened = opened.reopen().await;
    assert_eq!(opened.session().existing("a").await, before);
}
