//! Listings: everything exactly once, in no promised order.

use std::collections::{BTreeMap, BTreeSet};

use portico_backend::object::{ListCursor, ObjectName, Pool, WriteStep};

use super::bench::{Bench, Session};
use super::group;

group!("list":
    an_empty_pool_lists_nothing,
    everything_is_listed_exactly_once,
    what_stays_is_listed_once_while_others_come_and_go,
    removed_objects_are_not_listed,
    a_listing_keeps_to_its_pool_and_namespace,
);

async fn list(session: &Session, count_max: u32) -> Vec<ObjectName> {
    let mut names = Vec::new();
    let mut cursor = Some(ListCursor::start());
    while let Some(at) = cursor {
        session.count();
        let page = session.store.list(&session.pool, at, count_max).await;
        let page = page.expect("a listing works");
        assert!(page.names.len() <= count_max as usize);
        names.extend(page.names);
        cursor = page.next;
    }
    names
}

fn counted(names: &[ObjectName]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name.to_string()).or_default() += 1;
    }
    counts
}

async fn an_empty_pool_lists_nothing(bench: Bench) {
    let session = bench.open().session();
    assert_eq!(list(&session, 10).await, []);
}

async fn everything_is_listed_exactly_once(bench: Bench) {
    let session = bench.open().session();
    let mut expected = BTreeMap::new();
    for number in 0..150 {
        let name = match number % 3 {
            0 => format!("rbd_data.77.{number:016x}"),
            1 => format!("name-{number}"),
            _ => format!("{} \u{e4}/..\\{number}", "long".repeat(number / 2)),
        };
        session.put(&name, [WriteStep::Create]).await;
        expected.insert(name, 1);
    }
    for count_max in [1, 7, 149, 150, 1_000] {
        let names = list(&session, count_max).await;
        assert_eq!(counted(&names), expected, "pages of {count_max}");
        // What is listed is found, whichever way the name was made.
        let of_text: Vec<ObjectName> = names
            .iter()
            .map(|name| ObjectName::new(&name.to_string()))
            .collect();
        assert_eq!(names, of_text);
    }
}

async fn what_stays_is_listed_once_while_others_come_and_go(bench: Bench) {
    let opened = bench.open();
    let (lister, changer) = (opened.session(), opened.session());
    let stable: BTreeSet<String> = (0..60).map(|number| format!("stable-{number}")).collect();
    for name in &stable {
        lister.put(name, [WriteStep::Create]).await;
    }
    let mut names = Vec::new();
    let mut cursor = Some(ListCursor::start());
    let mut round = 0;
    while let Some(at) = cursor {
        let page = lister
            .store
            .list(&lister.pool, at, 7)
            .await
            .expect("a listing works");
        names.extend(page.names);
        cursor = page.next;
        for number in 0..5 {
            changer
                .put(&format!("new-{round}-{number}"), [WriteStep::Create])
                .await;
            if round > 0 {
                let old = format!("new-{}-{number}", round - 1);
                changer.put(&old, [WriteStep::Remove]).await;
            }
        }
        round += 1;
        assert!(round < 1_000, "a listing ends");
    }
    let counts = counted(&names);
    for name in &stable {
        assert_eq!(counts.get(name), Some(&1), "{name}");
    }
}

async fn removed_objects_are_not_listed(bench: Bench) {
    let session = bench.open().session();
    for number in 0..20 {
        session.put(&format!("{number}"), [WriteStep::Create]).await;
    }
    for number in 0..19 {
        session.put(&format!("{number}"), [WriteStep::Remove]).await;
    }
    assert_eq!(list(&session, 3).await, [ObjectName::new("19")]);
    session.put("19", [WriteStep::Remove]).await;
    assert_eq!(list(&session, 3).await, []);
}

async fn a_listing_keeps_to_its_pool_and_namespace(bench: Bench) {
    let opened = bench.open();
    let pools = [("p", ""), ("p", "n"), ("pn", "")];
    let sessions = pools.map(|(name, namespace)| {
        let mut session = opened.session();
        session.pool = Pool::new(name, namespace);
        session
    });
    for (number, session) in sessions.iter().enumerate() {
        session.put(&number.to_string(), [WriteStep::Create]).await;
    }
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(
            list(session, 10).await,
            [ObjectName::new(&number.to_string())]
        );
    }
}
