//! Watch and notify: who hears, who must answer, and that nothing is missed in silence.

use std::time::Duration;

use bytes::Bytes;
use portico_backend::error::ErrorKind;
use portico_backend::object::{NotifyAck, NotifyOutcome, Watch, WriteStep};
use tokio::time::{Instant, timeout};

use super::bench::{Bench, Session, bytes};
use super::group;

group!("watches":
    a_watcher_hears_who_and_what,
    a_notification_without_watchers_returns_at_once,
    all_watchers_answer,
    the_notifier_hears_itself,
    who_does_not_answer_is_missed_after_the_time_out,
    a_dropped_watch_holds_nobody_up,
    a_removed_object_ends_its_watches,
    a_missing_object_is_neither_watched_nor_notified,
    a_watcher_that_lags_hears_that_it_missed_something,
    a_watch_hears_only_its_own_object,
);

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(200);

async fn watch(session: &Session, name: &str) -> Box<dyn Watch> {
    session.count();
    let watch = session.store.watch(&session.id(name)).await;
    watch.expect("an object is watched")
}

async fn notify(session: &Session, payload: &str, time: Duration) -> NotifyOutcome {
    session.count();
    let told = session
        .store
        .notify(&session.id("a"), bytes(payload), time)
        .await;
    told.expect("an object is notified")
}

/// Answers `count` notifications with `answer` and gives back their payloads.
async fn answer(mut watch: Box<dyn Watch>, count: usize, answer: &'static str) -> Vec<Bytes> {
    let mut payloads = Vec::new();
    for _ in 0..count {
        let notification = watch.next().await.expect("nothing is missed");
        watch.acknowledge(&notification, bytes(answer));
        payloads.push(notification.payload);
    }
    payloads
}

async fn two(bench: &Bench) -> (Session, Session) {
    let opened = bench.open();
    let (first, second) = (opened.session(), opened.session());
    first.put("a", [WriteStep::Create]).await;
    (first, second)
}

async fn a_watcher_hears_who_and_what(bench: Bench) {
    let (first, second) = two(&bench).await;
    let mut watch = watch(&first, "a").await;
    let notifier = second.store.session();
    let told = tokio::spawn(async move { notify(&second, "payload", LONG).await });
    let notification = watch.next().await.expect("a notification comes");
    assert_eq!(notification.payload, "payload");
    assert_eq!(notification.notifier, notifier);
    assert!(!told.is_finished(), "the notifier waits for the answer");
    watch.acknowledge(&notification, bytes("answer"));
    let outcome = told.await.expect("the notifier ends");
    let expected = NotifyAck {
        session: first.store.session(),
        payload: bytes("answer"),
    };
    assert_eq!((outcome.acks, outcome.missed), (vec![expected], vec![]));
}

async fn a_notification_without_watchers_returns_at_once(bench: Bench) {
    let (first, _) = two(&bench).await;
    let outcome = timeout(LONG / 2, notify(&first, "x", LONG)).await;
    assert_eq!(
        outcome.expect("nobody is waited for"),
        NotifyOutcome::default()
    );
}

async fn all_watchers_answer(bench: Bench) {
    let (first, second) = two(&bench).await;
    let mut tasks = tokio::task::JoinSet::new();
    for session in [&first, &first, &second] {
        tasks.spawn(answer(watch(session, "a").await, 3, "yes"));
    }
    for payload in ["1", "2", "3"] {
        let outcome = notify(&second, payload, LONG).await;
        assert_eq!((outcome.acks.len(), outcome.missed), (3, vec![]));
    }
    for heard in tasks.join_all().await {
        assert_eq!(heard, ["1", "2", "3"], "in the order of calls");
    }
}

async fn the_notifier_hears_itself(bench: Bench) {
    let (first, _) = two(&bench).await;
    let task = tokio::spawn(answer(watch(&first, "a").await, 1, "me"));
    let outcome = notify(&first, "x", LONG).await;
    assert_eq!(outcome.acks.len(), 1);
    assert_eq!(task.await.expect("the watcher ends"), ["x"]);
}

async fn who_does_not_answer_is_missed_after_the_time_out(bench: Bench) {
    let (first, second) = two(&bench).await;
    let silent = watch(&first, "a").await;
    let task = tokio::spawn(answer(watch(&second, "a").await, 1, "yes"));
    let start = Instant::now();
    let outcome = notify(&second, "x", SHORT).await;
    let waited = start.elapsed();
    assert!(waited >= SHORT, "returned after {waited:?}");
    assert!(waited < SHORT + LONG / 2, "returned after {waited:?}");
    assert_eq!(outcome.missed, [first.store.session()]);
    assert_eq!(outcome.acks.len(), 1, "who answered is not lost");
    task.await.expect("the watcher ends");
    drop(silent);
}

async fn a_dropped_watch_holds_nobody_up(bench: Bench) {
    let (first, second) = two(&bench).await;
    drop(watch(&first, "a").await);
    let outcome = timeout(LONG / 2, notify(&second, "x", LONG)).await;
    assert_eq!(
        outcome.expect("nobody is waited for"),
        NotifyOutcome::default()
    );
    let mut watch = watch(&first, "a").await;
    let told = tokio::spawn(async move { notify(&second, "y", LONG).await });
    watch.next().await.expect("a notification comes");
    drop(watch);
    let outcome = timeout(LONG / 2, told)
        .await
        .expect("nobody is left to wait for");
    assert_eq!(outcome.expect("the notifier ends").acks, []);
}

async fn a_removed_object_ends_its_watches(bench: Bench) {
    let (first, second) = two(&bench).await;
    let mut watch = watch(&first, "a").await;
    second.put("a", [WriteStep::Remove]).await;
    second.put("a", [WriteStep::Create]).await;
    let ended = timeout(LONG, watch.next()).await.expect("the watch ends");
    assert_eq!(
        ended.expect_err("the object was removed").kind(),
        ErrorKind::Unavailable
    );
    let outcome = notify(&second, "x", LONG).await;
    assert_eq!(
        outcome,
        NotifyOutcome::default(),
        "nobody watches the new object"
    );
}

async fn a_missing_object_is_neither_watched_nor_notified(bench: Bench) {
    let session = bench.open().session();
    let id = session.id("missing");
    let watched = session.store.watch(&id).await;
    assert_eq!(
        watched.expect_err("it is missing").kind(),
        ErrorKind::NotFound
    );
    let notified = session.store.notify(&id, bytes("x"), SHORT).await;
    assert_eq!(
        notified.expect_err("it is missing").kind(),
        ErrorKind::NotFound
    );
}

async fn a_watcher_that_lags_hears_that_it_missed_something(bench: Bench) {
    const COUNT: usize = 300;
    // An engine may wait a second for those who do not answer, and then some are told at once. It
    // must keep the order in which one session asks.
    let together = if bench.patience() > 1 { 25 } else { 1 };
    let (first, second) = two(&bench).await;
    let mut watch = watch(&first, "a").await;
    let mut ids = std::collections::BTreeSet::new();
    let payloads: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
    for some in payloads.chunks(together) {
        let told = some
            .iter()
            .map(|payload| notify(&second, payload, Duration::from_millis(1)));
        futures_util::future::join_all(told).await;
    }
    let mut heard = 0;
    loop {
        match timeout(SHORT, watch.next()).await {
            Ok(Ok(notification)) => {
                assert_eq!(notification.payload, heard.to_string(), "missed in silence");
                assert!(ids.insert(notification.id), "ids are unique");
                heard += 1;
            }
            Ok(Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                break;
            }
            Err(_) => {
                assert_eq!(heard, COUNT, "missed in silence");
                break;
            }
        }
    }
}

async fn a_watch_hears_only_its_own_object(bench: Bench) {
    let (first, second) = two(&bench).await;
    first.put("b", [WriteStep::Create]).await;
    let mut other = watch(&first, "b").await;
    let outcome = notify(&second, "x", LONG).await;
    assert_eq!(outcome, NotifyOutcome::default());
    assert!(timeout(SHORT, other.next()).await.is_err());
    // What changes the object does not end the watch.
    second.put("b", [super::bench::append("x")]).await;
    let told =
        tokio::spawn(async move { second.store.notify(&second.id("b"), bytes("y"), LONG).await });
    let notification = other.next().await.expect("a notification comes");
    other.acknowledge(&notification, Bytes::new());
    let outcome = told.await.expect("the notifier ends").expect("it works");
    assert_eq!(outcome.acks.len(), 1);
}
