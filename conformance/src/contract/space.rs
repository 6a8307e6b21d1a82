//! A store with little room: full is an answer, and what frees space works.

use std::time::Duration;

use portico_backend::error::ErrorKind;
use portico_backend::object::{Usage, WriteOp, WriteStep};
use tokio::time::Instant;

use super::bench::{Bench, Opened, Session, append, omap, omap_remove, replace, write_at, xattr};
use super::group;

group!("space":
    usage_counts_objects_and_bytes,
    a_full_store_answers_no_space_and_removing_works,
    a_map_may_fill_the_store_too,
    cutting_and_zeroing_work_when_full,
    a_refused_write_leaves_nothing_behind,
    removing_works_beside_a_small_addition_when_full,
    small_forced_records_are_accepted_when_full,
);

/// Enough for an engine's own structures, little enough to fill in no time.
const CAPACITY: u64 = 32 * 1024 * 1024;
const PIECE: usize = 256 * 1024;

async fn usage(session: &Session) -> Usage {
    session.count();
    let usage = session.store.usage(&session.pool).await;
    usage.expect("usage is known")
}

/// The usage as soon as it is as expected, or as it is when the engine has had its time.
async fn usage_when(bench: &Bench, session: &Session, expected: impl Fn(&Usage) -> bool) -> Usage {
    let until = Instant::now() + bench.space_lag() * 3;
    loop {
        let seen = usage(session).await;
        if expected(&seen) || Instant::now() >= until {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Writes objects until the store is full and returns how many there are.
async fn fill(bench: &Bench, session: &Session) -> usize {
    let piece = vec![0xa5; PIECE];
    let pieces = usize::try_from(CAPACITY).expect("small") / PIECE;
    for number in 0..2 * pieces {
        if number == pieces {
            tokio::time::sleep(bench.space_lag()).await;
        }
        let op = WriteOp::new([replace(&piece), xattr(0, "v"), omap([("k", "v")])]);
        if let Err(error) = session.write(&format!("fill-{number}"), op).await {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            return number;
        }
    }
    panic!("twice the capacity was written");
}

/// Space returns in the background.
async fn until_it_works(bench: &Bench, session: &Session, name: &str, op: &WriteOp) {
    let until = Instant::now() + Duration::from_secs(10) + bench.space_lag() * 3;
    while Instant::now() < until {
        match session.write(name, op.clone()).await {
            Ok(_) => return,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("space does not return");
}

fn small(bench: &Bench) -> (Opened, Session) {
    let opened = bench.open_with(Some(CAPACITY));
    let session = opened.session();
    (opened, session)
}

async fn usage_counts_objects_and_bytes(bench: Bench) {
    let (_opened, session) = small(&bench);
    let before = usage(&session).await;
    assert_eq!(before.object_count, 0);
    assert!(before.capacity_bytes <= CAPACITY && before.capacity_bytes > CAPACITY / 2);
    for number in 0..10 {
        session
            .put(&format!("a{number}"), [append(vec![7; PIECE])])
            .await;
    }
    let after = usage_when(&bench, &session, |usage| usage.object_count == 10).await;
    assert_eq!(after.object_count, 10);
    assert!(after.used_bytes >= before.used_bytes + 10 * PIECE as u64);
    session.put("a0", [WriteStep::Remove]).await;
    let after = usage_when(&bench, &session, |usage| usage.object_count == 9).await;
    assert_eq!(after.object_count, 9);
}

async fn a_full_store_answers_no_space_and_removing_works(bench: Bench) {
    let (opened, session) = small(&bench);
    let count = fill(&bench, &session).await;
    assert!(
        count >= 40,
        "only {count} pieces of 256 KiB found room in 32 MiB"
    );
    let full = usage(&session).await;
    assert!(full.used_bytes <= full.capacity_bytes);
    // Nothing is lost, and another session is told the same.
    let other = opened.session();
    let error = other
        .write("more", WriteOp::new([append(vec![1; PIECE])]))
        .await;
    assert_eq!(error.expect_err("it is full").kind(), ErrorKind::NoSpace);
    for number in 0..count {
        assert_eq!(session.data(&format!("fill-{number}")).await.len(), PIECE);
    }
    for number in 0..count {
        session
            .put(&format!("fill-{number}"), [WriteStep::Remove])
            .await;
    }
    let empty = usage_when(&bench, &session, |usage| usage.object_count == 0).await;
    assert_eq!(empty.object_count, 0);
    let again = WriteOp::new([replace(vec![1; PIECE])]);
    for number in 0..count / 2 {
        until_it_works(&bench, &session, &format!("again-{number}"), &again).await;
    }
}

async fn a_map_may_fill_the_store_too(bench: Bench) {
    if !bench.maps_take_space() {
        return;
    }
    let (_opened, session) = small(&bench);
    let value = vec![3; 16 * 1024];
    let mut count = 0;
    loop {
        let keys: Vec<String> = (0..16).map(|key| format!("{count:08}-{key:02}")).collect();
        let op = WriteOp::new([omap(keys.iter().map(|key| (key, &value)))]);
        match session.write(&format!("map-{}", count % 4), op).await {
            Ok(_) => count += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                break;
            }
        }
        assert!(count < 256, "twice the capacity was written");
    }
    assert!(count >= 20, "only {count} of 128 parts found room");
    for number in 0..count {
        let keys: Vec<String> = (0..16).map(|key| format!("{number:08}-{key:02}")).collect();
        session
            .put(&format!("map-{}", number % 4), [omap_remove(&keys)])
            .await;
    }
    let op = WriteOp::new([omap([("k", &value)])]);
    until_it_works(&bench, &session, "map-0", &op).await;
    assert_eq!(session.existing("map-0").await.omap.len(), 1);
}

async fn cutting_and_zeroing_work_when_full(bench: Bench) {
    let (_opened, session) = small(&bench);
    fill(&bench, &session).await;
    let remove_range = WriteStep::OmapRemoveRange {
        start: super::bench::bytes("a"),
        end: super::bench::bytes("z"),
    };
    for (number, step) in [
        WriteStep::Truncate { size: 0 },
        WriteStep::Zero {
            offset: 0,
            length: u64::MAX,
        },
        replace(""),
        omap_remove(["k"]),
        remove_range,
        WriteStep::XattrRemove {
            name: super::bench::XATTRS[0],
        },
    ]
    .into_iter()
    .enumerate()
    {
        session.put(&format!("fill-{number}"), [step]).await;
    }
    assert_eq!(session.data("fill-0").await, b"");
    assert!(session.data("fill-1").await.iter().all(|byte| *byte == 0));
    assert!(session.existing("fill-3").await.omap.is_empty());
    assert!(session.existing("fill-4").await.omap.is_empty());
    assert!(session.existing("fill-5").await.xattrs.is_empty());
    until_it_works(
        &bench,
        &session,
        "more",
        &WriteOp::new([append(vec![1; PIECE])]),
    )
    .await;
}

async fn a_refused_write_leaves_nothing_behind(bench: Bench) {
    let (_opened, session) = small(&bench);
    session
        .put("a", [append("abc"), xattr(0, "v"), omap([("k", "v")])])
        .await;
    fill(&bench, &session).await;
    let steps = [
        xattr(0, "w"),
        omap([("l", "new")]),
        omap_remove(["k"]),
        write_at(1, vec![9; 8 * PIECE]),
    ];
    session
        .refuses("a", WriteOp::new(steps.clone()), ErrorKind::NoSpace)
        .await;
    let absent = WriteOp::new(steps);
    session.refuses("missing", absent, ErrorKind::NoSpace).await;
    assert_eq!(session.state("missing").await, None);
}

/// An index entry goes and a count of what is left is written in the same operation.
async fn removing_works_beside_a_small_addition_when_full(bench: Bench) {
    let (_opened, session) = small(&bench);
    let keys: Vec<String> = (0..64).map(|key| format!("entry-{key:02}")).collect();
    let value = vec![4; 1_000];
    session
        .put(
            "index",
            [
                omap(keys.iter().map(|key| (key, &value))),
                omap([("count", "64")]),
            ],
        )
        .await;
    fill(&bench, &session).await;
    // To the brim.
    let mut number = 0;
    for length in [16 * 1_024, 2_048, 100] {
        loop {
            let op = WriteOp::new([replace(vec![6; length])]);
            if session.write(&format!("brim-{number}"), op).await.is_err() {
                break;
            }
            number += 1;
            assert!(number < 100_000, "it never is full");
        }
    }
    for (left, key) in keys.iter().enumerate().rev() {
        session
            .put(
                "index",
                [omap_remove([key]), omap([("count", left.to_string())])],
            )
            .await;
    }
    let index = session.existing("index").await;
    assert_eq!(index.omap.len(), 1);
    session.put("index", [WriteStep::Remove]).await;
}

/// Who starts over a full store says so in a record before anything is removed.
async fn small_forced_records_are_accepted_when_full(bench: Bench) {
    let (_opened, session) = small(&bench);
    fill(&bench, &session).await;
    for length in [16 * 1_024, 2_048, 100] {
        for number in 0.. {
            let op = WriteOp::new([omap([("entry", vec![7; length])])]);
            let name = format!("brim-{length}-{number}");
            if session.write(&name, op).await.is_err() {
                break;
            }
            assert!(number < 100_000, "it never is full");
        }
    }
    let record = WriteOp::new([omap([("node", vec![8; 100])])]);
    session
        .refuses("nodes", record.clone(), ErrorKind::NoSpace)
        .await;
    let forced = session.write("nodes", record.forced_when_full()).await;
    forced.expect("a small record that must happen");
    let too_large = WriteOp::new([omap([("node", vec![8; 5_000])])]).forced_when_full();
    session
        .refuses("others", too_large, ErrorKind::NoSpace)
        .await;
    let data = WriteOp::new([replace(vec![8; 64])]).forced_when_full();
    session.refuses("data", data, ErrorKind::NoSpace).await;
    assert_eq!(session.existing("nodes").await.omap.len(), 1);
}
