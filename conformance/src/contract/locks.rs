//! Advisory locks: who gets one, for how long, and how it is lost.

use std::time::Duration;

use bytes::Bytes;
use portico_backend::error::{Error, ErrorKind};
use portico_backend::object::{LockHolder, LockKind, LockName, LockRequest, WriteStep};

use super::bench::{Bench, Session, bytes};
use super::group;

group!("locks":
    an_exclusive_lock_keeps_all_others_out,
    shared_locks_stand_side_by_side,
    a_lock_is_renewed_only_when_asked,
    a_lock_may_change_its_kind_while_alone,
    locks_of_other_names_and_objects_are_apart,
    only_its_holder_gives_a_lock_back,
    a_lock_is_broken_by_anybody,
    a_lock_expires,
    renewing_moves_the_expiry,
    a_lock_needs_an_object_and_goes_with_it,
    a_lock_outlives_its_session,
);

const NAME: LockName = LockName("lock");
const SHORT: Duration = Duration::from_millis(300);

fn exclusive(cookie: &str) -> LockRequest {
    LockRequest {
        name: NAME,
        kind: LockKind::Exclusive,
        cookie: bytes(cookie),
        expiry: None,
        renew: false,
    }
}

fn shared(cookie: &str) -> LockRequest {
    LockRequest {
        kind: LockKind::Shared,
        ..exclusive(cookie)
    }
}

async fn lock(session: &Session, request: LockRequest) -> Result<(), ErrorKind> {
    session.count();
    let locked = session.store.lock(&session.id("a"), request).await;
    locked.map_err(|error| error.kind())
}

async fn unlock(session: &Session, cookie: &str) -> Result<(), ErrorKind> {
    session.count();
    let unlocked = session
        .store
        .unlock(&session.id("a"), NAME, bytes(cookie))
        .await;
    unlocked.map_err(|error| error.kind())
}

/// Cookies of the holders in order.
async fn holders(session: &Session) -> Vec<Bytes> {
    let mut cookies: Vec<Bytes> = listed(session)
        .await
        .into_iter()
        .map(|h| h.cookie)
        .collect();
    cookies.sort();
    cookies
}

async fn listed(session: &Session) -> Vec<LockHolder> {
    session.count();
    let holders: Result<_, Error> = session.store.lock_holders(&session.id("a"), NAME).await;
    holders.expect("the holders are known")
}

/// Two sessions and the object `a`.
async fn two(bench: &Bench) -> (Session, Session) {
    let opened = bench.open();
    let (first, second) = (opened.session(), opened.session());
    first.put("a", [WriteStep::Create]).await;
    (first, second)
}

async fn an_exclusive_lock_keeps_all_others_out(bench: Bench) {
    let (first, second) = two(&bench).await;
    assert_eq!(holders(&first).await, [] as [Bytes; 0]);
    assert_eq!(lock(&first, exclusive("x")).await, Ok(()));
    for request in [exclusive("x"), shared("x"), exclusive("y"), shared("y")] {
        assert_eq!(lock(&second, request.clone()).await, Err(ErrorKind::Locked));
        assert_eq!(lock(&first, request).await, Err(ErrorKind::Locked));
    }
    let expected = LockHolder {
        session: first.store.session(),
        cookie: bytes("x"),
        kind: LockKind::Exclusive,
    };
    assert_eq!(listed(&second).await, [expected]);
    assert_eq!(unlock(&first, "x").await, Ok(()));
    assert_eq!(lock(&second, exclusive("x")).await, Ok(()));
}

async fn shared_locks_stand_side_by_side(bench: Bench) {
    let (first, second) = two(&bench).await;
    assert_eq!(lock(&first, shared("x")).await, Ok(()));
    assert_eq!(lock(&first, shared("y")).await, Ok(()));
    assert_eq!(lock(&second, shared("x")).await, Ok(()));
    assert_eq!(listed(&second).await.len(), 3);
    assert_eq!(lock(&second, exclusive("z")).await, Err(ErrorKind::Locked));
    for (session, cookie) in [(&first, "x"), (&first, "y")] {
        assert_eq!(unlock(session, cookie).await, Ok(()));
        assert_eq!(lock(&first, exclusive("z")).await, Err(ErrorKind::Locked));
    }
    assert_eq!(unlock(&second, "x").await, Ok(()));
    assert_eq!(lock(&first, exclusive("z")).await, Ok(()));
}

async fn a_lock_is_renewed_only_when_asked(bench: Bench) {
    let (first, second) = two(&bench).await;
    let renewing = LockRequest {
        renew: true,
        ..exclusive("x")
    };
    assert_eq!(lock(&first, renewing.clone()).await, Ok(()), "a new one");
    assert_eq!(lock(&first, exclusive("x")).await, Err(ErrorKind::Locked));
    assert_eq!(lock(&first, renewing.clone()).await, Ok(()));
    assert_eq!(
        lock(&second, renewing).await,
        Err(ErrorKind::Locked),
        "another owner"
    );
    assert_eq!(listed(&first).await.len(), 1);
}

async fn a_lock_may_change_its_kind_while_alone(bench: Bench) {
    let (first, second) = two(&bench).await;
    let renewing = |request| LockRequest {
        renew: true,
        ..request
    };
    assert_eq!(lock(&first, shared("x")).await, Ok(()));
    assert_eq!(lock(&second, shared("y")).await, Ok(()));
    assert_eq!(
        lock(&first, renewing(exclusive("x"))).await,
        Err(ErrorKind::Locked)
    );
    assert_eq!(
        holders(&first).await,
        [bytes("x"), bytes("y")],
        "it keeps what it had"
    );
    assert_eq!(unlock(&second, "y").await, Ok(()));
    assert_eq!(lock(&first, renewing(exclusive("x"))).await, Ok(()));
    assert_eq!(lock(&second, shared("y")).await, Err(ErrorKind::Locked));
}

async fn locks_of_other_names_and_objects_are_apart(bench: Bench) {
    let (first, second) = two(&bench).await;
    first.put("b", [WriteStep::Create]).await;
    assert_eq!(lock(&first, exclusive("x")).await, Ok(()));
    let other = LockRequest {
        name: LockName("other"),
        ..exclusive("x")
    };
    assert_eq!(lock(&second, other).await, Ok(()));
    let locked = second.store.lock(&second.id("b"), exclusive("x")).await;
    assert!(locked.is_ok());
    assert_eq!(listed(&first).await.len(), 1);
}

async fn only_its_holder_gives_a_lock_back(bench: Bench) {
    let (first, second) = two(&bench).await;
    assert_eq!(unlock(&first, "x").await, Err(ErrorKind::NotFound));
    assert_eq!(lock(&first, exclusive("x")).await, Ok(()));
    assert_eq!(unlock(&second, "x").await, Err(ErrorKind::NotFound));
    assert_eq!(unlock(&first, "y").await, Err(ErrorKind::NotFound));
    assert_eq!(holders(&first).await, [bytes("x")]);
    assert_eq!(unlock(&first, "x").await, Ok(()));
    assert_eq!(unlock(&first, "x").await, Err(ErrorKind::NotFound));
}

async fn a_lock_is_broken_by_anybody(bench: Bench) {
    let (first, second) = two(&bench).await;
    for cookie in ["x", "y"] {
        assert_eq!(lock(&first, shared(cookie)).await, Ok(()));
    }
    let holder = listed(&second)
        .await
        .into_iter()
        .find(|holder| holder.cookie == "x");
    let holder = holder.expect("it is listed");
    let id = second.id("a");
    let broken = second.store.lock_break(&id, NAME, holder.clone()).await;
    assert!(broken.is_ok());
    assert_eq!(holders(&first).await, [bytes("y")]);
    let again = second.store.lock_break(&id, NAME, holder).await;
    assert_eq!(again.expect_err("it is gone").kind(), ErrorKind::NotFound);
    assert_eq!(unlock(&first, "x").await, Err(ErrorKind::NotFound));
}

async fn a_lock_expires(bench: Bench) {
    let (first, second) = two(&bench).await;
    let short = LockRequest {
        expiry: Some(SHORT),
        ..exclusive("x")
    };
    assert_eq!(lock(&first, short).await, Ok(()));
    assert_eq!(lock(&second, exclusive("y")).await, Err(ErrorKind::Locked));
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(holders(&second).await, [] as [Bytes; 0]);
    assert_eq!(unlock(&first, "x").await, Err(ErrorKind::NotFound));
    assert_eq!(lock(&second, exclusive("y")).await, Ok(()));
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(
        holders(&second).await,
        [bytes("y")],
        "no expiry was asked for"
    );
}

async fn renewing_moves_the_expiry(bench: Bench) {
    let (first, second) = two(&bench).await;
    let renewing = LockRequest {
        expiry: Some(SHORT * 2),
        renew: true,
        ..exclusive("x")
    };
    for _ in 0..4 {
        assert_eq!(lock(&first, renewing.clone()).await, Ok(()));
        tokio::time::sleep(SHORT).await;
        assert_eq!(lock(&second, exclusive("y")).await, Err(ErrorKind::Locked));
    }
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(lock(&second, exclusive("y")).await, Ok(()));
}

async fn a_lock_needs_an_object_and_goes_with_it(bench: Bench) {
    let (first, second) = two(&bench).await;
    assert_eq!(lock(&first, exclusive("x")).await, Ok(()));
    first.put("a", [WriteStep::Remove]).await;
    assert_eq!(
        holders(&second).await,
        [] as [Bytes; 0],
        "a missing object has no holders"
    );
    assert_eq!(unlock(&first, "x").await, Err(ErrorKind::NotFound));
    assert_eq!(
        lock(&second, exclusive("y")).await,
        Err(ErrorKind::NotFound)
    );
    first.put("a", [WriteStep::Create]).await;
    assert_eq!(holders(&second).await, [] as [Bytes; 0]);
    assert_eq!(lock(&second, exclusive("y")).await, Ok(()));
}

async fn a_lock_outlives_its_session(bench: Bench) {
    let (first, second) = two(&bench).await;
    assert_eq!(lock(&first, exclusive("x")).await, Ok(()));
    let owner = first.store.session();
    second.store.fence(&owner).await.expect("fencing works");
    drop(first);
    let listed = listed(&second).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].session, owner);
    assert_eq!(lock(&second, exclusive("y")).await, Err(ErrorKind::Locked));
    let id = second.id("a");
    let broken = second.store.lock_break(&id, NAME, listed[0].clone()).await;
    assert!(broken.is_ok());
    assert_eq!(lock(&second, exclusive("y")).await, Ok(()));
}
