//! Sessions: names, fencing, and that a fenced one never takes effect again.

use std::sync::Arc;
use std::time::Duration;

use portico_backend::error::ErrorKind;
use portico_backend::faulty::{CallKind, Faulty, FaultyOptions};
use portico_backend::object::{ReadOp, ReadStep, SessionId, WriteOp, WriteStep};

use super::bench::{Bench, append, bytes};
use super::group;

group!("sessions":
    names_are_never_used_twice,
    a_fenced_session_is_fenced_for_good,
    other_sessions_go_on,
    fencing_twice_or_nobody_is_fine,
    who_may_write_is_never_guessed,
    a_held_write_of_a_fenced_session_never_lands,
    a_storm_of_writes_ends_with_the_fence,
    a_fenced_watcher_is_not_waited_for,
    a_session_of_a_fenced_session_is_its_own,
);

async fn names_are_never_used_twice(bench: Bench) {
    let opened = bench.open();
    let mut names = std::collections::BTreeSet::new();
    let mut kept = Vec::new();
    for round in 0..10 {
        let session = opened.session();
        assert!(names.insert(session.store.session()));
        let another = session.store.open_session("another").await;
        let another = another.expect("a session opens");
        assert!(names.insert(another.session()));
        assert_eq!(another.session(), another.session());
        if round % 2 == 0 {
            kept.push((session, another));
        }
    }
}

async fn a_fenced_session_is_fenced_for_good(bench: Bench) {
    let opened = bench.open();
    let (victim, taker) = (opened.session(), opened.session());
    victim.put("a", [append("x")]).await;
    taker
        .store
        .fence(&victim.store.session())
        .await
        .expect("fencing works");
    // Where the fencer has not looked yet, a last write of the victim may land.
    assert_eq!(taker.data("a").await, b"x");
    for _ in 0..3 {
        for op in [
            WriteOp::new([append("y")]),
            WriteOp::new([append("y")]).buffered(),
            WriteOp::new([WriteStep::Remove]),
        ] {
            let error = victim.write("a", op).await.expect_err("it is fenced");
            assert_eq!(error.kind(), ErrorKind::Fenced);
        }
        let op = ReadOp::new([ReadStep::Stat]);
        victim.read_fails("a", op, ErrorKind::Fenced).await;
        let list = victim
            .store
            .list(&victim.pool, Default::default(), 10)
            .await;
        assert_eq!(list.expect_err("it is fenced").kind(), ErrorKind::Fenced);
        let fence = victim.store.fence(&taker.store.session()).await;
        assert_eq!(fence.expect_err("it is fenced").kind(), ErrorKind::Fenced);
        let flush = victim.store.flush().await;
        assert_eq!(flush.expect_err("it is fenced").kind(), ErrorKind::Fenced);
        let lock = victim.store.watch(&victim.id("a")).await;
        assert_eq!(lock.expect_err("it is fenced").kind(), ErrorKind::Fenced);
    }
    assert_eq!(taker.data("a").await, b"x");
}

async fn other_sessions_go_on(bench: Bench) {
    let opened = bench.open();
    let (victim, taker, other) = (opened.session(), opened.session(), opened.session());
    let sibling = victim
        .store
        .open_session("sibling")
        .await
        .expect("a session opens");
    let sibling = opened.wrap(sibling);
    victim.put("a", [append("x")]).await;
    taker
        .store
        .fence(&victim.store.session())
        .await
        .expect("fencing works");
    for session in [&taker, &other, &sibling, &opened.session()] {
        session.put("a", [append("y")]).await;
    }
    assert_eq!(taker.data("a").await, b"xyyyy");
}

async fn fencing_twice_or_nobody_is_fine(bench: Bench) {
    let opened = bench.open();
    let taker = opened.session();
    let victim = opened.session();
    let name = victim.store.session();
    for _ in 0..2 {
        taker.store.fence(&name).await.expect("fencing works");
    }
    drop(victim);
    taker
        .store
        .fence(&name)
        .await
        .expect("a session that ended is fenced");
    let unknown = SessionId(Arc::from("nobody-was-ever-called-this"));
    taker
        .store
        .fence(&unknown)
        .await
        .expect("an unknown session is fenced");
    taker.put("a", [append("x")]).await;
}

async fn who_may_write_is_never_guessed(bench: Bench) {
    let opened = bench.open();
    let (victim, asker) = (opened.session(), opened.session());
    let name = victim.store.session();
    let may_write = |name: SessionId| {
        let store = Arc::clone(&asker.store);
        async move { store.may_write(&name).await.expect("the store answers") }
    };
    assert!(may_write(name.clone()).await);
    assert!(may_write(asker.store.session()).await);
    victim.put("a", [append("x")]).await;
    asker.store.fence(&name).await.expect("fencing works");
    assert!(!may_write(name.clone()).await, "the fence is known");
    drop(victim);
    assert!(!may_write(name).await, "and final");
    let ended = opened.session();
    let ended_name = ended.store.session();
    drop(ended);
    if !may_write(ended_name.clone()).await {
        assert!(!may_write(ended_name).await, "`false` is final");
    }
}

async fn a_held_write_of_a_fenced_session_never_lands(bench: Bench) {
    let opened = bench.open();
    let taker = opened.session();
    taker.put("a", [append("x")]).await;
    let faulty = Faulty::new(opened.session().store, FaultyOptions::new(0));
    faulty.hold(CallKind::Write);
    let victim = opened.wrap(faulty.clone());
    let held: Vec<_> = (0..8)
        .map(|number| {
            let victim = victim.clone();
            let op = match number % 2 {
                0 => WriteOp::new([append("late")]),
                _ => WriteOp::new([append("late")]).buffered(),
            };
            tokio::spawn(async move { victim.write("a", op).await })
        })
        .collect();
    faulty.wait_held(8).await;
    taker
        .store
        .fence(&victim.store.session())
        .await
        .expect("fencing works");
    assert_eq!(taker.data("a").await, b"x");
    faulty.release();
    for write in held {
        let answer = write.await.expect("the write ends");
        assert_eq!(answer.expect_err("it is fenced").kind(), ErrorKind::Fenced);
    }
    assert_eq!(taker.data("a").await, b"x");
}

async fn a_storm_of_writes_ends_with_the_fence(bench: Bench) {
    for _ in 0..5 {
        let opened = bench.open();
        let taker = opened.session();
        taker.put("a", [append("x")]).await;
        let victim = opened.session();
        let mut storm = tokio::task::JoinSet::new();
        for number in 0..8 {
            let victim = victim.clone();
            storm.spawn(async move {
                let op = WriteOp::new([append("z")]);
                let op = if number % 2 == 0 { op } else { op.buffered() };
                while victim.write("a", op.clone()).await.is_ok() {}
            });
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        taker
            .store
            .fence(&victim.store.session())
            .await
            .expect("fencing works");
        let seen = taker.state("a").await;
        storm.join_all().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(
            taker.state("a").await,
            seen,
            "nothing lands after our own operation"
        );
    }
}

async fn a_fenced_watcher_is_not_waited_for(bench: Bench) {
    let opened = bench.open();
    let (victim, taker) = (opened.session(), opened.session());
    taker.put("a", [append("x")]).await;
    let watch = victim.store.watch(&victim.id("a")).await;
    let mut watch = watch.expect("an object is watched");
    taker
        .store
        .fence(&victim.store.session())
        .await
        .expect("fencing works");
    let long = Duration::from_secs(30);
    let id = taker.id("a");
    let told = taker.store.notify(&id, bytes("x"), long);
    let outcome = tokio::time::timeout(long / 2, told)
        .await
        .expect("it is not waited for");
    assert_eq!(outcome.expect("it works").acks, []);
    let ended = tokio::time::timeout(long, watch.next())
        .await
        .expect("the watch ends");
    assert!(ended.is_err());
}

async fn a_session_of_a_fenced_session_is_its_own(bench: Bench) {
    let opened = bench.open();
    let (victim, taker) = (opened.session(), opened.session());
    taker
        .store
        .fence(&victim.store.session())
        .await
        .expect("fencing works");
    drop(victim);
    let again = opened.session();
    again.put("a", [append("back")]).await;
    assert_eq!(taker.data("a").await, b"back");
}
