//! LUNs, targets and initiators in the catalog, over two sessions of one store.

#![expect(
    clippy::unwrap_used,
    reason = "what helps a test fails as the test does"
)]
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use portico_backend::catalog::{
    Catalog, CatalogError, Chap, IscsiName, Keyring, LunOptions, Mapping, NewLun, NodeId, Secret,
};
use portico_backend::clock::FixedClock;
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::Pool;
use tokio::time::timeout;

const VISIBLE_WITHIN: Duration = Duration::from_millis(1_000);

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
        let clock = Arc::new(FixedClock::new(1_000));
        let keyring = Arc::clone(&self.keyring);
        let store = self.cluster.session("gateway");
        Catalog::open(store, Pool::new("meta", ""), clock, keyring)
            .await
            .unwrap()
    }
}

fn name(text: &str) -> IscsiName {
    IscsiName::new(&format!("iqn.2024-01.com.example:{text}")).unwrap()
}

fn mapping(lun_name: &str, initiator: Option<&str>) -> Mapping {
    Mapping {
        lun: 0,
        lun_name: lun_name.to_owned(),
        initiator: initiator.map(name),
    }
}

async fn lun(catalog: &Catalog, name: &str) {
    let new = NewLun {
        name,
        image_id: name,
        node: NodeId(1),
        options: LunOptions::default(),
    };
    catalog.lun_create(new).await.unwrap();
}

fn chap(user: &str, secret: &str) -> Chap {
    Chap {
        user: user.to_owned(),
        secret: Secret::new(secret).unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_session_makes_the_other_is_told_of() {
    let world = World::new();
    let (one, other) = (world.open().await, world.open().await);
    let mut changes = other.block_changes();
    changes.mark_unchanged();
    lun(&one, "disk").await;
    timeout(VISIBLE_WITHIN, changes.changed())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(other.luns().await.unwrap().len(), 1);
    let target = name("target");
    one.target_create(&target).await.unwrap();
    changes.mark_unchanged();
    one.lun_map(&target, Some(7), &mapping("disk", None))
        .await
        .unwrap();
    timeout(VISIBLE_WITHIN, changes.changed())
        .await
        .unwrap()
        .unwrap();
    let seen = other.target(&target).await.unwrap().unwrap();
    assert_eq!(
        seen.maps,
        [Mapping {
            lun: 7,
            ..mapping("disk", None)
        }]
    );
    let again = one.lun_create(NewLun {
        name: "disk",
        image_id: "other",
        node: NodeId(2),
        options: LunOptions::default(),
    });
    assert!(matches!(again.await, Err(CatalogError::Exists { .. })));
}

/// Every target gets an id of its own, and every mapping a number of its own, however many are made
/// at the same time by two gateways.
#[tokio::test(start_paused = true)]
async fn numbers_are_given_out_once() {
    let world = World::new();
    let sessions = [world.open().await, world.open().await];
    let made = (0..200).map(|number| {
        let catalog = &sessions[number % 2];
        async move {
            catalog
                .target_create(&name(&format!("t{number}")))
                .await
                .unwrap()
                .id
        }
    });
    let mut ids = join_all(made).await;
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 200);
    for number in 0..20 {
        lun(&sessions[0], &format!("disk{number}")).await;
    }
    let target = name("t0");
    let mapped = (0..20).map(|number| {
        let (catalog, target) = (&sessions[number % 2], &target);
        let wanted = mapping(&format!("disk{number}"), None);
        async move { catalog.lun_map(target, None, &wanted).await.unwrap().lun }
    });
    let mut luns = join_all(mapped).await;
    luns.sort_unstable();
    assert_eq!(luns, (1..=20).collect::<Vec<u16>>());
}

#[tokio::test(start_paused = true)]
async fn no_initiator_sees_two_luns_under_one_number_or_one_lun_under_two() {
    let world = World::new();
    let catalog = world.open().await;
    let target = name("target");
    catalog.target_create(&target).await.unwrap();
    for disk in ["a", "b"] {
        lun(&catalog, disk).await;
    }
    let map = |lun, lun_name, initiator| {
        let (catalog, target) = (Arc::clone(&catalog), target.clone());
        async move {
            catalog
                .lun_map(&target, Some(lun), &mapping(lun_name, initiator))
                .await
        }
    };
    map(1, "a", Some("host1")).await.unwrap();
    // Other hosts may see other disks under the same number.
    map(1, "b", Some("host2")).await.unwrap();
    map(1, "a", Some("host1")).await.unwrap();
    for (lun, disk, host) in [
        (1, "b", Some("host1")),
        (2, "a", Some("host1")),
        (1, "b", None),
        (0x4000, "b", Some("host3")),
    ] {
        let refused = map(lun, disk, host).await;
        assert!(
            matches!(refused, Err(CatalogError::Refused(_))),
            "{lun} {disk} {host:?}"
        );
    }
    let mut changes = catalog.block_changes();
    changes.borrow_and_update();
    let missing = map(3, "c", None).await;
    assert!(matches!(missing, Err(CatalogError::NoSuch { .. })));
    let changed = changes.has_changed().unwrap();
    assert!(!changed, "a mapping of a LUN that is not there was written");
    assert_eq!(
        catalog.target(&target).await.unwrap().unwrap().maps.len(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn a_mapped_lun_stays_and_one_being_deleted_is_not_mapped() {
    let world = World::new();
    let catalog = world.open().await;
    let target = name("target");
    catalog.target_create(&target).await.unwrap();
    lun(&catalog, "disk").await;
    catalog
        .lun_map(&target, Some(1), &mapping("disk", None))
        .await
        .unwrap();
    let refused = catalog.lun_delete_begin("disk").await;
    assert!(matches!(refused, Err(CatalogError::Refused(_))));
    assert!(!catalog.lun("disk").await.unwrap().unwrap().deleting);
    let refused = catalog.target_delete(&target).await;
    assert!(matches!(refused, Err(CatalogError::Refused(_))));
    catalog.lun_unmap(&target, 1, None).await.unwrap();
    let again = catalog.lun_unmap(&target, 1, None).await;
    assert!(matches!(again, Err(CatalogError::NoSuch { .. })));
    let begun = catalog.lun_delete_begin("disk").await.unwrap();
    let refused = catalog
        .lun_map(&target, Some(1), &mapping("disk", None))
        .await;
    assert!(matches!(refused, Err(CatalogError::NoSuch { .. })));
    assert_eq!(catalog.target(&target).await.unwrap().unwrap().maps, []);
    catalog.lun_delete_end(&begun).await.unwrap();
    catalog.lun_delete_end(&begun).await.unwrap();
    assert_eq!(catalog.luns().await.unwrap(), []);
    // The end of one deletion is not that of another one of the same name.
    let new = NewLun {
        name: "disk",
        image_id: "another",
        node: NodeId(1),
        options: LunOptions::default(),
    };
    let made = catalog.lun_create(new).await.unwrap();
    catalog.lun_delete_end(&begun).await.unwrap();
    catalog.lun_delete_begin("disk").await.unwrap();
    catalog.lun_delete_end(&begun).await.unwrap();
    assert_eq!(catalog.luns().await.unwrap().len(), 1);
    catalog.lun_delete_end(&made).await.unwrap();
    catalog.target_delete(&target).await.unwrap();
    assert_eq!(catalog.targets().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn secrets_of_initiators_are_sealed_and_follow_the_keyring() {
    let world = World::new();
    let catalog = world.open().await;
    let host = name("host");
    let (own, theirs) = (
        chap("host", "a-secret-of-host"),
        chap("door", "a-secret-of-door"),
    );
    for wrong in [chap("host", "short-one"), chap("", "a-secret-of-host")] {
        let refused = catalog.initiator_set(&host, &wrong, None).await;
        assert!(matches!(refused, Err(CatalogError::Invalid { .. })));
    }
    let refused = catalog.initiator_set(&host, &own, Some(&own)).await;
    assert!(matches!(refused, Err(CatalogError::Refused(_))));
    let set = catalog
        .initiator_set(&host, &own, Some(&theirs))
        .await
        .unwrap();
    assert_eq!(
        catalog.initiators().await.unwrap().as_slice(),
        std::slice::from_ref(&set)
    );
    let shown = format!("{set:?}");
    assert!(!shown.contains("a-secret"), "{shown}");
    let mut rotated = Keyring::clone(&world.keyring);
    rotated.rotate("k2").unwrap();
    catalog.keyring_replace(Arc::new(rotated)).await.unwrap();
    assert_eq!(catalog.keyring_use().await.unwrap()["k1"], 2);
    assert_eq!(catalog.reseal().await.unwrap(), 2);
    assert_eq!(catalog.keyring_use().await.unwrap()["k2"], 2);
    let record = catalog.initiators().await.unwrap().remove(0);
    let (chap, mutual) = catalog.initiator_open(&record).unwrap();
    assert!(chap.secret.matches("a-secret-of-host"));
    assert!(mutual.unwrap().secret.matches("a-secret-of-door"));
    // A record in the place of another one does not open.
    let mut moved = record;
    moved.name = name("other");
    assert!(matches!(
        catalog.initiator_open(&moved),
        Err(CatalogError::Keyring(_))
    ));
    catalog.initiator_delete(&host).await.unwrap();
    assert_eq!(catalog.initiators().await.unwrap(), []);
}
