//! The catalog over two sessions of one store: what one changes the other sees, whatever breaks.

#![expect(
    clippy::unwrap_used,
    reason = "what helps a test fails as the test does"
)]
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portico_backend::catalog::{
    AccessKeyId, BucketName, BucketRecord, BucketState, Catalog, CatalogError, Keyring, Secret,
    User,
};
use portico_backend::clock::FixedClock;
use portico_backend::faulty::{CallKind, End, Faults, Faulty, FaultyOptions};
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{
    ListCursor, ObjectId, ObjectStore, Pool, ReadOp, ReadResult, ReadStep,
};
use tokio::time::{Instant, sleep, timeout};

/// What one session changed, the others see after this time.
const VISIBLE_WITHIN: Duration = Duration::from_millis(1_000);

fn meta() -> Pool {
    Pool::new("meta", "")
}

/// A cluster and the keyring that all its gateways have.
struct World {
    cluster: MemoryCluster,
    keyring: Arc<Keyring>,
}

impl World {
    fn new() -> Self {
        Self {
            cluster: MemoryCluster::new(MemoryOptions::default()),
            keyring: Arc::new(Keyring::generate("k1").unwrap()),
        }
    }

    async fn open(&self) -> Arc<Catalog> {
        self.open_on(self.cluster.session("gateway")).await.unwrap()
    }

    async fn open_on(&self, store: Arc<dyn ObjectStore>) -> Result<Arc<Catalog>, CatalogError> {
        let clock = Arc::new(FixedClock::new(1_000));
        Catalog::open(store, meta(), clock, Arc::clone(&self.keyring)).await
    }

    fn faulty(&self, options: FaultyOptions) -> Arc<Faulty> {
        Faulty::new(self.cluster.session("faulty gateway"), options)
    }
}

fn bucket_name(text: &str) -> BucketName {
    BucketName::new(text).unwrap()
}

async fn live_bucket(catalog: &Catalog, name: &str, owner: &User) -> BucketRecord {
    let bucket = catalog
        .bucket_create(&bucket_name(name), &owner.id, "us-east-1")
        .await
        .unwrap();
    catalog.bucket_live(&bucket).await.unwrap()
}

/// Every key and value of every object in the pool.
async fn raw_bytes(store: &dyn ObjectStore) -> Vec<Bytes> {
    let mut found = Vec::new();
    let mut cursor = ListCursor::start();
    loop {
        let page = store.list(&meta(), cursor, 100).await.unwrap();
        for name in page.names {
            let object = ObjectId::new(&meta(), name);
            let scan = ReadStep::OmapScan {
                start: Bytes::new(),
                end: None,
                keys_only: false,
                count_max: 1_000,
            };
            let everything = ReadStep::Extents {
                offset: 0,
                length: 1 << 20,
            };
            let output = store
                .read(&object, ReadOp::new([scan, everything]))
                .await
                .unwrap();
            for result in output.results {
                match result {
                    ReadResult::OmapPage(page) => {
                        assert!(!page.more);
                        found.extend(
                            page.entries
                                .into_iter()
                                .flat_map(|(key, value)| [key, value]),
                        );
                    }
                    ReadResult::Extents(extents) => {
                        found.extend(extents.into_iter().map(|extent| extent.data));
                    }
                    ReadResult::OmapValues(_) | ReadResult::Stat { .. } | ReadResult::Xattr(_) => {
                        panic!("not asked for")
                    }
                }
            }
        }
        match page.next {
            Some(next) => cursor = next,
            None => return found,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_returned_is_seen_by_the_other_session() {
    let world = World::new();
    let (ours, theirs) = (world.open().await, world.open().await);
    let user = ours.user_create("alice", "Alice").await.unwrap();
    assert_eq!(theirs.user(&user.id).as_deref(), Some(&user));
    let (id, secret) = ours.access_key_create(&user.id, None).await.unwrap();
    let credential = theirs.access_key(id.as_str()).unwrap();
    assert!(credential.enabled);
    assert!(credential.secret.matches(secret.expose()));
    assert_eq!(*credential.user, user);

    theirs.user_set_disabled(&user.id, true).await.unwrap();
    assert!(!ours.access_key(id.as_str()).unwrap().enabled);
    theirs.user_set_disabled(&user.id, false).await.unwrap();
    assert!(ours.access_key(id.as_str()).unwrap().enabled);

    theirs.access_key_delete(&id).await.unwrap();
    assert!(ours.access_key(id.as_str()).is_none());
    ours.user_delete(&user.id).await.unwrap();
    assert!(theirs.user(&user.id).is_none());
    assert!(theirs.users().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn names_are_taken_once() {
    let world = World::new();
    let (ours, theirs) = (world.open().await, world.open().await);
    let (a, b) = tokio::join!(
        ours.user_create("alice", ""),
        theirs.user_create("alice", "")
    );
    let (winner, loser) = match (a, b) {
        (Ok(user), Err(error)) | (Err(error), Ok(user)) => (user, error),
        both => panic!("one of two wins: {both:?}"),
    };
    assert!(matches!(loser, CatalogError::UserExists(user) if *user == winner));

    let chosen = (
        AccessKeyId::new("KEY1").unwrap(),
        Secret::new("secret-of-alice").unwrap(),
    );
    ours.access_key_create(&winner.id, Some(chosen.clone()))
        .await
        .unwrap();
    // The same again is fine, for a set-up that is repeated.
    theirs
        .access_key_create(&winner.id, Some(chosen.clone()))
        .await
        .unwrap();
    let other = (chosen.0.clone(), Secret::new("another-secret").unwrap());
    let taken = theirs
        .access_key_create(&winner.id, Some(other))
        .await
        .unwrap_err();
    assert!(matches!(taken, CatalogError::AccessKeyExists(id) if id == chosen.0));
    let bob = theirs.user_create("bob", "").await.unwrap();
    let taken = theirs
        .access_key_create(&bob.id, Some(chosen))
        .await
        .unwrap_err();
    assert!(matches!(taken, CatalogError::AccessKeyExists(_)));
}

#[tokio::test(start_paused = true)]
async fn one_of_many_takes_a_bucket_name_and_ids_are_not_used_again() {
    let world = World::new();
    let ours = world.open_on(world.faulty(slow(1, 5))).await.unwrap();
    let theirs = world.open_on(world.faulty(slow(2, 5))).await.unwrap();
    let user = ours.user_create("alice", "").await.unwrap();
    let mut ids = Vec::new();
    for round in 0..8 {
        let name = bucket_name("photos");
        let mut tries = tokio::task::JoinSet::new();
        for n in 0..20 {
            let catalog = Arc::clone(if n % 2 == 0 { &ours } else { &theirs });
            let (name, owner) = (name.clone(), user.id.clone());
            tries.spawn(async move { catalog.bucket_create(&name, &owner, "us-east-1").await });
        }
        let outcomes = tries.join_all().await;
        let made: Vec<_> = outcomes.iter().flatten().collect();
        assert_eq!(made.len(), 1, "round {round}");
        for outcome in &outcomes {
            match outcome {
                Ok(_) => {}
                Err(CatalogError::BucketExists(existing)) => assert_eq!(**existing, *made[0]),
                Err(error) => panic!("{error}"),
            }
        }
        ids.push(made[0].id);
        theirs.bucket_live(made[0]).await.unwrap();
        let bucket = ours.bucket_delete_begin(made[0]).await.unwrap();
        ours.bucket_delete_end(&bucket).await.unwrap();
        assert_eq!(theirs.bucket(&name).await.unwrap(), None);
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_is_found_as_soon_as_it_is_live() {
    let world = World::new();
    let (ours, theirs) = (world.open().await, world.open().await);
    let user = ours.user_create("alice", "").await.unwrap();
    let name = bucket_name("photos");
    assert_eq!(theirs.bucket(&name).await.unwrap(), None);
    let made = ours
        .bucket_create(&name, &user.id, "eu-west-1")
        .await
        .unwrap();
    assert_eq!(made.state, BucketState::Creating);
    assert_eq!(theirs.bucket(&name).await.unwrap(), None);
    assert_eq!(theirs.buckets(None).await.unwrap(), []);
    assert_eq!(
        theirs.buckets_unfinished().await.unwrap(),
        std::slice::from_ref(&made)
    );

    let live = ours.bucket_live(&made).await.unwrap();
    assert_eq!(theirs.bucket(&name).await.unwrap().as_deref(), Some(&live));
    assert_eq!(
        theirs.buckets(Some(&user.id)).await.unwrap(),
        std::slice::from_ref(&live)
    );
    assert_eq!(theirs.buckets(Some("nobody")).await.unwrap(), []);
    assert_eq!(theirs.buckets_unfinished().await.unwrap(), []);

    let tags = vec![("k".to_owned(), "v".to_owned())];
    let tagged = ours.bucket_set_tags(&live, tags).await.unwrap();
    assert_eq!(
        theirs.bucket(&name).await.unwrap().as_deref(),
        Some(&tagged)
    );
    let opened = theirs.bucket_set_acl(&live, "public-read").await.unwrap();
    assert_eq!(opened.tags, tagged.tags);
    assert_eq!(ours.bucket(&name).await.unwrap().as_deref(), Some(&opened));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_cancelled_finished_by_another_and_repeated() {
    let world = World::new();
    let (ours, theirs) = (world.open().await, world.open().await);
    let user = ours.user_create("alice", "").await.unwrap();
    let name = bucket_name("photos");
    let bucket = live_bucket(&ours, "photos", &user).await;

    let begun = ours.bucket_delete_begin(&bucket).await.unwrap();
    assert_eq!(begun.state, BucketState::Deleting);
    // It answers until the bucket itself says that it is gone.
    assert_eq!(theirs.bucket(&name).await.unwrap().as_deref(), Some(&begun));
    let refused = theirs
        .bucket_set_tags(&bucket, Vec::new())
        .await
        .unwrap_err();
    assert!(matches!(refused, CatalogError::NoSuchBucket(id) if id == bucket.id));
    let exists = theirs.bucket_create(&name, &user.id, "").await.unwrap_err();
    assert!(matches!(exists, CatalogError::BucketExists(b) if b.state == BucketState::Deleting));
    let lives = theirs.bucket_delete_cancel(&bucket).await.unwrap();
    assert_eq!(lives.state, BucketState::Live);

    ours.bucket_delete_begin(&bucket).await.unwrap();
    theirs.bucket_delete_begin(&bucket).await.unwrap();
    theirs.bucket_delete_end(&bucket).await.unwrap();
    assert_eq!(ours.bucket(&name).await.unwrap(), None);
    let next = live_bucket(&theirs, "photos", &user).await;
    // Late ends of the former bucket leave the next one alone.
    ours.bucket_delete_end(&bucket).await.unwrap();
    let late = ours.bucket_delete_begin(&bucket).await.unwrap_err();
    assert!(matches!(late, CatalogError::NoSuchBucket(_)));
    assert_eq!(ours.bucket(&name).await.unwrap().as_deref(), Some(&next));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_in_memory_costs_no_call() {
    let world = World::new();
    let ours = world.open().await;
    let user = ours.user_create("alice", "").await.unwrap();
    let bucket = live_bucket(&ours, "photos", &user).await;
    let link = world.faulty(FaultyOptions::new(1));
    let theirs = world.open_on(link.clone()).await.unwrap();
    sleep(Duration::from_millis(10)).await;
    theirs.bucket(&bucket.name).await.unwrap().unwrap();
    let calls = link.call_count();
    for _ in 0..100 {
        theirs.bucket(&bucket.name).await.unwrap().unwrap();
    }
    assert_eq!(link.call_count(), calls);
}

/// Every notification is lost, so only looking helps.
#[tokio::test(start_paused = true)]
async fn without_a_watch_a_change_is_seen_within_a_second() {
    let world = World::new();
    let deaf = Faults {
        lost_reply_per_mille: 1_000,
        ..Faults::default()
    };
    let options = FaultyOptions::new(1).with(CallKind::Watch, deaf);
    let ours = world.open().await;
    let theirs = world.open_on(world.faulty(options)).await.unwrap();
    let user = ours.user_create("alice", "").await.unwrap();
    let (key, _) = ours.access_key_create(&user.id, None).await.unwrap();
    let bucket = live_bucket(&ours, "photos", &user).await;
    sleep(VISIBLE_WITHIN).await;
    assert!(theirs.access_key(key.as_str()).is_some());
    theirs.bucket(&bucket.name).await.unwrap().unwrap();

    ours.access_key_delete(&key).await.unwrap();
    ours.bucket_delete_begin(&bucket).await.unwrap();
    ours.bucket_delete_end(&bucket).await.unwrap();
    sleep(VISIBLE_WITHIN).await;
    assert!(theirs.access_key(key.as_str()).is_none());
    assert_eq!(theirs.bucket(&bucket.name).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_is_taken_up_again() {
    let world = World::new();
    let flaky = Faults {
        lost_reply_per_mille: 500,
        ..Faults::default()
    };
    for seed in 0..20 {
        let options = FaultyOptions::new(seed).with(CallKind::Watch, flaky);
        let ours = world.open().await;
        let theirs = world.open_on(world.faulty(options)).await.unwrap();
        for round in 0..10 {
            let user = ours
                .user_create(&format!("u{seed}.{round}"), "")
                .await
                .unwrap();
            sleep(VISIBLE_WITHIN).await;
            assert!(
                theirs.user(&user.id).is_some(),
                "seed {seed}, round {round}"
            );
        }
        // Half of the watches work, so some news come at once and not by a look.
        let mut at_once = 0;
        for round in 10..60 {
            let user = ours
                .user_create(&format!("u{seed}.{round}"), "")
                .await
                .unwrap();
            at_once += u32::from(theirs.user(&user.id).is_some());
            sleep(VISIBLE_WITHIN).await;
        }
        assert!(at_once > 0, "seed {seed}: never watched again");
        ours.close().await;
        theirs.close().await;
    }
}

/// Cut off from the store, nobody knows whether a bucket is still there.
#[tokio::test(start_paused = true)]
async fn memory_is_not_trusted_beyond_a_second() {
    let world = World::new();
    let ours = world.open().await;
    let user = ours.user_create("alice", "").await.unwrap();
    let bucket = live_bucket(&ours, "photos", &user).await;
    let link = world.faulty(FaultyOptions::new(1));
    let theirs = world.open_on(link.clone()).await.unwrap();
    sleep(Duration::from_millis(10)).await;
    theirs.bucket(&bucket.name).await.unwrap().unwrap();
    link.hold(CallKind::Read);
    timeout(Duration::from_millis(1), theirs.bucket(&bucket.name))
        .await
        .unwrap()
        .unwrap();
    sleep(VISIBLE_WITHIN).await;
    assert!(
        timeout(Duration::from_secs(5), theirs.bucket(&bucket.name))
            .await
            .is_err()
    );
    link.release();
    theirs.bucket(&bucket.name).await.unwrap().unwrap();
}

/// A user who is gone owns neither bucket nor access key, however their making and the user's
/// deletion race.
#[tokio::test(start_paused = true)]
async fn deleting_a_user_races_what_refers_to_it() {
    let (mut deleted, mut refused, mut too_late) = (0, 0, 0);
    for seed in 0..200 {
        let world = World::new();
        // Whoever makes something is slow enough for a whole deletion to happen between two steps.
        let ours = world.open_on(world.faulty(slow(seed, 80))).await.unwrap();
        let theirs = world.open_on(world.faulty(slow(!seed, 2))).await.unwrap();
        let user = ours.user_create("alice", "").await.unwrap();
        let name = bucket_name("photos");
        let making = async {
            if seed % 2 == 0 {
                ours.bucket_create(&name, &user.id, "").await.map(|_| ())
            } else {
                ours.access_key_create(&user.id, None).await.map(|_| ())
            }
        };
        let deletion = async {
            sleep(Duration::from_millis(seed * 2)).await;
            theirs.user_delete(&user.id).await
        };
        let (made, deletion) = tokio::join!(making, deletion);
        let fresh = world.open().await;
        let there = fresh.user_by_name("alice").await.unwrap();
        let buckets = fresh.buckets_unfinished().await.unwrap();
        let keys = fresh.access_keys(&user.id).await.unwrap();
        match deletion {
            Ok(()) => {
                deleted += 1;
                too_late += u32::from(made.is_err());
                assert_eq!(
                    (there, buckets, keys),
                    (None, vec![], vec![]),
                    "seed {seed}"
                );
            }
            Err(CatalogError::UserOwnsBuckets { .. }) => {
                refused += 1;
                assert_eq!(there, Some(user), "seed {seed}");
                assert_eq!(buckets.len(), usize::from(made.is_ok()), "seed {seed}");
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    let counts = [deleted, refused, too_late];
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
}

fn slow(seed: u64, delay_max_ms: u64) -> FaultyOptions {
    FaultyOptions::new(seed).with_all(Faults {
        delay_max: Duration::from_millis(delay_max_ms),
        ..Faults::default()
    })
}

#[tokio::test(start_paused = true)]
async fn the_store_never_sees_a_secret() {
    let world = World::new();
    let catalog = world.open().await;
    let user = catalog.user_create("alice", "").await.unwrap();
    let (id, drawn) = catalog.access_key_create(&user.id, None).await.unwrap();
    let chosen = (
        AccessKeyId::new("KEY1").unwrap(),
        Secret::new("a-chosen-secret").unwrap(),
    );
    catalog
        .access_key_create(&user.id, Some(chosen.clone()))
        .await
        .unwrap();
    catalog.user_set_disabled(&user.id, true).await.unwrap();
    let raw = raw_bytes(&*world.cluster.session("reader")).await;
    let holds = |text: &str| {
        let text = text.as_bytes();
        raw.iter()
            .any(|bytes| bytes.windows(text.len()).any(|window| window == text))
    };
    assert!(holds(id.as_str()), "the reader reads");
    assert!(!holds(drawn.expose()));
    assert!(!holds(chosen.1.expose()));
    let shown = format!("{catalog:?} {:?}", catalog.access_key(id.as_str()));
    assert!(shown.contains(id.as_str()));
    assert!(!shown.contains(drawn.expose()));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_keyring_is_named_and_the_right_one_helps() {
    let mut world = World::new();
    let right = Arc::clone(&world.keyring);
    let catalog = world.open().await;
    let user = catalog.user_create("alice", "").await.unwrap();
    let (id, secret) = catalog.access_key_create(&user.id, None).await.unwrap();

    for (wrong, expected) in [
        ("k9", "\"k1\", which the keyring lacks (it holds k9)"),
        ("k1", "is not the one"),
    ] {
        world.keyring = Arc::new(Keyring::generate(wrong).unwrap());
        let locked = world.open().await;
        assert!(locked.access_key(id.as_str()).is_none());
        let locked_out = locked.access_keys_locked_out();
        assert_eq!(locked_out.len(), 1);
        assert_eq!(locked_out[0].0, id);
        let told = locked_out[0].1.to_string();
        assert!(told.contains(expected), "{told}");
        assert!(matches!(
            locked.reseal().await,
            Ok(0) | Err(CatalogError::Keyring(_))
        ));
        locked.keyring_replace(Arc::clone(&right)).await.unwrap();
        assert!(
            locked
                .access_key(id.as_str())
                .unwrap()
                .secret
                .matches(secret.expose())
        );
        assert!(locked.access_keys_locked_out().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_keyring_is_rotated_under_two_gateways() {
    let world = World::new();
    let (ours, theirs) = (world.open().await, world.open().await);
    let user = ours.user_create("alice", "").await.unwrap();
    let mut made = Vec::new();
    for _ in 0..20 {
        made.push(ours.access_key_create(&user.id, None).await.unwrap());
    }
    assert_eq!(
        ours.keyring_use().await.unwrap(),
        [("k1".to_owned(), 20)].into()
    );

    let mut keyring = Keyring::clone(&world.keyring);
    keyring.rotate("k2").unwrap();
    ours.keyring_replace(Arc::new(keyring.clone()))
        .await
        .unwrap();
    theirs
        .keyring_replace(Arc::new(keyring.clone()))
        .await
        .unwrap();
    assert_eq!(ours.reseal().await.unwrap(), 20);
    assert_eq!(theirs.reseal().await.unwrap(), 0);
    assert_eq!(
        theirs.keyring_use().await.unwrap(),
        [("k2".to_owned(), 20)].into()
    );

    keyring.remove("k1").unwrap();
    theirs.keyring_replace(Arc::new(keyring)).await.unwrap();
    for (id, secret) in &made {
        assert!(
            theirs
                .access_key(id.as_str())
                .unwrap()
                .secret
                .matches(secret.expose())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_keeps_its_id_over_restarts_and_new_names() {
    let world = World::new();
    let (ours, theirs) = (world.open().await, world.open().await);
    let first = ours.node_register("a", None).await.unwrap();
    let second = theirs.node_register("b", None).await.unwrap();
    assert_ne!(first.id, second.id);
    let again = theirs.node_register("a", None).await.unwrap();
    assert_eq!(again.id, first.id);
    assert_ne!(again.session, first.session);
    let renamed = ours.node_register("c", Some(first.id)).await.unwrap();
    assert_eq!(renamed.id, first.id);
    let taken = ours.node_register("b", Some(first.id)).await.unwrap_err();
    assert!(matches!(taken, CatalogError::Invalid { .. }), "{taken}");
    assert_eq!(
        ours.nodes().await.unwrap(),
        [second.clone(), renamed.clone()]
    );

    // Whoever opened a session anew takes its own place and nobody else's.
    let own = [first.session.clone()];
    assert_eq!(theirs.node_succeed("b", &own).await.unwrap(), Some(second));
    assert_eq!(ours.node_succeed("b", &own).await.unwrap(), None);
    assert_eq!(ours.node_succeed("missing", &own).await.unwrap(), None);
    let succeeded = theirs.node_succeed("c", &own).await.unwrap().unwrap();
    assert_eq!(
        (succeeded.id, &succeeded.session),
        (first.id, &again.session)
    );
    assert_ne!(succeeded.session, renamed.session);
}

#[tokio::test(start_paused = true)]
async fn small_scans_list_everything() {
    let mut limits = portico_backend::memory::LIMITS;
    limits.omap_keys_max = 3;
    let world = World {
        cluster: MemoryCluster::new(MemoryOptions {
            limits,
            ..MemoryOptions::default()
        }),
        ..World::new()
    };
    let catalog = world.open().await;
    let user = catalog.user_create("alice", "").await.unwrap();
    let mut names = Vec::new();
    for number in 0..500 {
        let name = format!("bucket-{number:03}");
        live_bucket(&catalog, &name, &user).await;
        names.push(name);
    }
    let listed = catalog.buckets(None).await.unwrap();
    let listed: Vec<&str> = listed.iter().map(|bucket| bucket.name.as_str()).collect();
    assert_eq!(listed, names);
}

/// What a gateway does in its life; gives up at the first error.
async fn script(
    catalog: &Catalog,
    acknowledged: &mut Vec<&'static str>,
) -> Result<(), CatalogError> {
    let user = catalog.user_create("bob", "Bob").await?;
    acknowledged.push("user");
    let chosen = (
        AccessKeyId::new("BOBS").unwrap(),
        Secret::new("bobs-secret").unwrap(),
    );
    catalog
        .access_key_create(&user.id, Some(chosen.clone()))
        .await?;
    acknowledged.push("key");
    let bucket = catalog
        .bucket_create(&bucket_name("bobs"), &user.id, "")
        .await?;
    let bucket = catalog.bucket_live(&bucket).await?;
    acknowledged.push("bucket");
    catalog
        .bucket_set_tags(&bucket, vec![("k".into(), "v".into())])
        .await?;
    acknowledged.push("tags");
    catalog.bucket_delete_begin(&bucket).await?;
    catalog.bucket_delete_end(&bucket).await?;
    acknowledged.push("no bucket");
    catalog.access_key_delete(&chosen.0).await?;
    acknowledged.push("no key");
    catalog.user_set_disabled(&user.id, true).await?;
    acknowledged.push("disabled");
    catalog.user_delete(&user.id).await?;
    acknowledged.push("no user");
    Ok(())
}

/// A gateway dies at each of its calls in turn. The other one sees, within a second, exactly what
/// the store holds, everything acknowledged is there, and it can finish what was begun.
#[tokio::test(start_paused = true)]
async fn a_gateway_dies_at_each_call_and_the_other_carries_on() {
    let mut survived = 0;
    for at in 1.. {
        let world = World::new();
        let options = FaultyOptions::new(at).ending(at, End::Crash);
        let link = world.faulty(options);
        let theirs = world.open().await;
        let mut acknowledged = Vec::new();
        let outcome = match world.open_on(link.clone()).await {
            Ok(ours) => {
                let name = bucket_name("bobs");
                let asking = async {
                    // The other one has the bucket in memory at any time.
                    loop {
                        drop(theirs.bucket(&name).await.unwrap());
                        sleep(Duration::from_millis(1)).await;
                    }
                };
                tokio::select! {
                    outcome = script(&ours, &mut acknowledged) => outcome,
                    () = asking => unreachable!("asks for ever"),
                }
            }
            Err(error) => Err(error),
        };
        sleep(VISIBLE_WITHIN).await;
        agrees_with_store(&world, &theirs, at).await;
        holds_acknowledged(&theirs, acknowledged.last().copied(), at).await;
        carries_on(&theirs, at).await;
        if outcome.is_ok() && !link.has_ended() {
            survived = at;
            break;
        }
    }
    assert!(survived > 200, "only {survived} calls to die at");
}

async fn agrees_with_store(world: &World, theirs: &Catalog, at: u64) {
    // What is in memory, before anything asks the store.
    let key = theirs
        .access_key("BOBS")
        .map(|key| (key.enabled, key.user.clone()));
    let bucket = theirs.bucket(&bucket_name("bobs")).await.unwrap();
    let fresh = world.open().await;
    let fresh_key = fresh
        .access_key("BOBS")
        .map(|key| (key.enabled, key.user.clone()));
    assert_eq!(key, fresh_key, "call {at}");
    assert_eq!(
        bucket,
        fresh.bucket(&bucket_name("bobs")).await.unwrap(),
        "call {at}"
    );
    assert_eq!(
        theirs.users().await.unwrap(),
        fresh.users().await.unwrap(),
        "call {at}"
    );
}

/// The script's later steps undo the earlier ones, and the one that failed may have happened.
async fn holds_acknowledged(theirs: &Catalog, last: Option<&str>, at: u64) {
    let users = theirs.users().await.unwrap();
    let key = theirs.access_key("BOBS");
    let bucket = theirs.bucket(&bucket_name("bobs")).await.unwrap();
    let holds = match last {
        None => true,
        Some("user") => users.len() == 1,
        Some("key") => key.is_some(),
        Some("bucket") => bucket.is_some(),
        Some("tags") => bucket.is_none_or(|bucket| bucket.tags.len() == 1),
        Some("no bucket") => bucket.is_none() && users.len() == 1,
        Some("no key") => key.is_none() && users.len() == 1,
        Some("disabled") => users.iter().all(|user| user.disabled),
        Some("no user") => users.is_empty(),
        Some(other) => panic!("{other} is no step"),
    };
    assert!(holds, "call {at}: {last:?} was acknowledged");
}

/// Another gateway brings everything to an end by the ordinary operations.
async fn carries_on(theirs: &Catalog, at: u64) {
    for bucket in theirs.buckets_unfinished().await.unwrap() {
        if bucket.state == BucketState::Creating {
            theirs.bucket_live(&bucket).await.unwrap();
        }
    }
    for bucket in theirs.buckets(None).await.unwrap() {
        theirs.bucket_delete_begin(&bucket).await.unwrap();
        theirs.bucket_delete_end(&bucket).await.unwrap();
    }
    for user in theirs.users().await.unwrap() {
        theirs.user_delete(&user.id).await.unwrap();
    }
    let mut steps = Vec::new();
    script(theirs, &mut steps)
        .await
        .unwrap_or_else(|error| panic!("call {at}: {error}"));
    assert_eq!(steps.last(), Some(&"no user"));
}

/// A store that forgets replies and refuses calls makes changes fail, never half-seen.
#[tokio::test(start_paused = true)]
async fn memory_agrees_with_the_store_after_any_faults() {
    let bad = Faults {
        delay_max: Duration::from_millis(20),
        unavailable_per_mille: 30,
        lost_reply_per_mille: 30,
        ..Faults::default()
    };
    for seed in 0..60 {
        let world = World::new();
        let theirs = world.open().await;
        let options = FaultyOptions::new(seed).with_all(bad);
        let Ok(ours) = world.open_on(world.faulty(options)).await else {
            continue;
        };
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(20) {
            let mut steps = Vec::new();
            if script(&ours, &mut steps).await.is_err() {
                sleep(VISIBLE_WITHIN).await;
                agrees_with_store(&world, &theirs, seed).await;
                carries_on(&theirs, seed).await;
            }
        }
    }
}
