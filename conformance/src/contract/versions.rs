//! Versions, and that operations on one object are atomic whoever else is at work.

use portico_backend::error::ErrorKind;
use portico_backend::object::{Guard, ReadOp, ReadResult, ReadStep, Version, WriteOp, WriteStep};

use super::bench::{Bench, Session, XATTRS, append, bytes, omap, replace, scan, write_at, xattr};
use super::group;

group!("versions":
    each_write_is_above_the_one_before,
    a_removed_object_goes_on_above_its_versions,
    a_failed_write_leaves_the_version,
    a_write_that_returned_is_seen_by_all,
    compound_writes_are_seen_whole,
    no_update_is_lost_between_guarded_writers,
    no_append_is_lost,
    zeroing_through_the_end_loses_no_append,
);

async fn version(session: &Session, name: &str) -> Version {
    let op = ReadOp::new([ReadStep::Stat]);
    session
        .read(name, op)
        .await
        .expect("the object exists")
        .version
}

async fn each_write_is_above_the_one_before(bench: Bench) {
    let session = bench.open().session();
    let mut last = Version(0);
    for step in [
        WriteStep::Create,
        append("abc"),
        write_at(1, "x"),
        replace("def"),
        WriteStep::Zero {
            offset: 0,
            length: 2,
        },
        WriteStep::Truncate { size: 100 },
        xattr(0, "v"),
        WriteStep::XattrRemove { name: XATTRS[0] },
        omap([("k", "v")]),
        WriteStep::OmapRemove {
            keys: vec![bytes("k")],
        },
    ] {
        let new = session.put("a", [step.clone()]).await;
        assert!(new > last, "{step:?}: {new:?} after {last:?}");
        assert_eq!(version(&session, "a").await, new, "{step:?}");
        last = new;
    }
    let buffered = session
        .writes("a", WriteOp::new([append("x")]).buffered())
        .await;
    assert!(buffered > last);
    assert_eq!(version(&session, "a").await, buffered);
}

async fn a_removed_object_goes_on_above_its_versions(bench: Bench) {
    let opened = bench.open();
    let (first, second) = (opened.session(), opened.session());
    let mut last = Version(0);
    for _ in 0..5 {
        for session in [&first, &second] {
            let made = session.put("a", [append("x")]).await;
            assert!(made > last, "{made:?} after {last:?}");
            let again = session.put("a", [append("x")]).await;
            assert!(again > made);
            session.put("a", [WriteStep::Remove]).await;
            last = again;
        }
        second.put("other", [append("x")]).await;
    }
    // So a guard on an old version never takes the new object for the old one.
    first.put("a", [WriteStep::Create]).await;
    let op = WriteOp::new([append("y")]).guarded(Guard::VersionIs(last));
    first.refuses("a", op, ErrorKind::GuardFailed).await;
}

async fn a_failed_write_leaves_the_version(bench: Bench) {
    let session = bench.open().session();
    let made = session.put("a", [append("x")]).await;
    let op = WriteOp::new([append("y")]).guarded(Guard::Absent);
    session.refuses("a", op, ErrorKind::AlreadyExists).await;
    assert_eq!(version(&session, "a").await, made);
    let op = WriteOp::new([append("y")]).guarded(Guard::VersionIs(made));
    session.writes("a", op).await;
}

async fn a_write_that_returned_is_seen_by_all(bench: Bench) {
    let opened = bench.open();
    let sessions = [opened.session(), opened.session(), opened.session()];
    for round in 0..60_usize {
        let op = WriteOp::new([replace(round.to_string())]);
        let op = if round % 3 == 0 { op.buffered() } else { op };
        sessions[round % 3].writes("a", op).await;
        for session in &sessions {
            assert_eq!(session.data("a").await, round.to_string().as_bytes());
        }
    }
}

async fn compound_writes_are_seen_whole(bench: Bench) {
    let opened = bench.open();
    let sessions = [opened.session(), opened.session()];
    let compound = |number: u64| {
        let text = format!("{number:08}");
        WriteOp::new([
            write_at(0, text.repeat(700)),
            xattr(0, &text),
            omap([("k", &text)]),
        ])
    };
    sessions[0].writes("a", compound(0)).await;
    let mut tasks = tokio::task::JoinSet::new();
    for (index, session) in sessions.iter().cloned().enumerate() {
        tasks.spawn(async move {
            for round in 0..40 {
                session
                    .writes("a", compound(round * 2 + index as u64))
                    .await;
            }
        });
    }
    for session in sessions {
        tasks.spawn(async move {
            for _ in 0..80 {
                let steps = [
                    ReadStep::Extents {
                        offset: 0,
                        length: u64::MAX,
                    },
                    ReadStep::Xattr { name: XATTRS[0] },
                    scan(b"", None, 10),
                ];
                let results = session.reads("a", steps).await;
                let [
                    ReadResult::Extents(extents),
                    ReadResult::Xattr(Some(text)),
                    ReadResult::OmapPage(page),
                ] = &results[..]
                else {
                    panic!("each step has its result: {results:?}");
                };
                assert_eq!(page.entries, [(bytes("k"), text.clone())]);
                let data: Vec<u8> = extents.iter().flat_map(|e| e.data.to_vec()).collect();
                assert_eq!(
                    data,
                    text.repeat(700),
                    "data and attribute are of one write"
                );
            }
        });
    }
    tasks.join_all().await;
}

async fn no_update_is_lost_between_guarded_writers(bench: Bench) {
    let opened = bench.open();
    opened.session().put("a", [xattr(0, "0")]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let session = opened.session();
        tasks.spawn(async move {
            for _ in 0..25 {
                while !increment(&session).await {}
            }
        });
    }
    tasks.join_all().await;
    let state = opened.session().existing("a").await;
    assert_eq!(state.xattrs[XATTRS[0].as_str()], "100");
}

async fn increment(session: &Session) -> bool {
    let op = ReadOp::new([ReadStep::Xattr { name: XATTRS[0] }]);
    let output = session.read("a", op).await.expect("the object exists");
    let [ReadResult::Xattr(Some(value))] = &output.results[..] else {
        panic!("the attribute is there");
    };
    let value: u64 = String::from_utf8_lossy(value).parse().expect("a number");
    let op = WriteOp::new([xattr(0, (value + 1).to_string())]);
    match session
        .write("a", op.guarded(Guard::VersionIs(output.version)))
        .await
    {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::GuardFailed);
            false
        }
    }
}

async fn no_append_is_lost(bench: Bench) {
    let opened = bench.open();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..64_u8 {
        let session = opened.session();
        tasks.spawn(async move { session.put("a", [append([number; 100])]).await });
    }
    let mut versions = tasks.join_all().await;
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 64, "each write has a version of its own");
    let data = opened.session().data("a").await;
    let mut seen: Vec<u8> = data.chunks(100).map(|chunk| chunk[0]).collect();
    assert!(
        data.chunks(100)
            .all(|chunk| chunk.iter().all(|byte| *byte == chunk[0]))
    );
    seen.sort_unstable();
    assert_eq!(seen, (0..64).collect::<Vec<u8>>());
}

/// An engine may have to know the size to zero without cutting.
async fn zeroing_through_the_end_loses_no_append(bench: Bench) {
    const APPENDS: usize = 60;
    let opened = bench.open();
    let (appending, zeroing) = (opened.session(), opened.session());
    appending.put("a", [WriteStep::Create]).await;
    let appends = tokio::spawn(async move {
        for _ in 0..APPENDS {
            appending.put("a", [append([7; 10])]).await;
        }
    });
    let mut zeroed = 0;
    while !appends.is_finished() || zeroed == 0 {
        let step = WriteStep::Zero {
            offset: 5,
            length: u64::MAX - 5,
        };
        match zeroing.write("a", WriteOp::new([step])).await {
            Ok(_) => zeroed += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
    }
    appends.await.expect("all appends work");
    let data = zeroing.data("a").await;
    assert_eq!(data.len(), APPENDS * 10, "after {zeroed} times");
}
