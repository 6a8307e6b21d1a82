//! Guards: what each asks, what it answers, and that a write behind a failed one does nothing.

use portico_backend::error::ErrorKind;
use portico_backend::object::{Guard, ReadOp, ReadResult, ReadStep, Version, WriteOp, WriteStep};

use super::bench::{Bench, XATTRS, append, bytes, omap, omap_remove, scan, write_at, xattr};
use super::group;

group!("guards":
    absent_makes_creation_exclusive,
    absent_lets_a_read_of_nothing_through,
    exists_asks_for_an_object,
    version_is_compares_the_last_version,
    bytes_are_compares_and_says_where_they_differ,
    bytes_beyond_the_end_count_as_zeros,
    omap_is_compares_one_key,
    xattr_is_compares_one_attribute,
    xattr_at_most_compares_big_endian_numbers,
    xattr_at_most_holds_where_nothing_is_set,
    most_guards_of_a_missing_object_are_not_found,
    a_failed_guard_stops_all_steps,
    guards_see_the_state_before_the_steps,
    all_guards_must_hold_and_the_first_that_fails_is_named,
    reads_are_guarded_too,
);

fn create() -> WriteOp {
    WriteOp::new([WriteStep::Create])
}

fn bytes_are(offset: u64, data: impl AsRef<[u8]>) -> Guard {
    Guard::BytesAre {
        offset,
        data: bytes(data),
    }
}

fn omap_is(key: &str, value: Option<&str>) -> Guard {
    Guard::OmapIs {
        key: bytes(key),
        value: value.map(bytes),
    }
}

fn xattr_is(index: usize, value: &str) -> Guard {
    Guard::XattrIs {
        name: XATTRS[index],
        value: bytes(value),
    }
}

fn at_most(value: u64) -> Guard {
    Guard::XattrAtMost {
        name: XATTRS[2],
        value,
    }
}

async fn absent_makes_creation_exclusive(bench: Bench) {
    let opened = bench.open();
    let (first, second) = (opened.session(), opened.session());
    first.writes("a", create().guarded(Guard::Absent)).await;
    for session in [&first, &second] {
        let op = create().guarded(Guard::Absent);
        session.refuses("a", op, ErrorKind::AlreadyExists).await;
    }
    first.put("a", [WriteStep::Remove]).await;
    second.writes("a", create().guarded(Guard::Absent)).await;
}

async fn absent_lets_a_read_of_nothing_through(bench: Bench) {
    let session = bench.open().session();
    let op = ReadOp::new([
        ReadStep::Stat,
        ReadStep::Xattr { name: XATTRS[0] },
        scan(b"", None, 10),
    ]);
    let output = session.read("a", op.clone().guarded(Guard::Absent)).await;
    let output = output.expect("nothing is there, as asked");
    assert_eq!(output.results.len(), 3, "one result for each step");
    assert_eq!(output.results[0], ReadResult::Stat { size: 0 });
    assert_eq!(output.results[1], ReadResult::Xattr(None));
    session.put("a", [WriteStep::Create]).await;
    let op = op.guarded(Guard::Absent);
    session.read_fails("a", op, ErrorKind::AlreadyExists).await;
}

async fn exists_asks_for_an_object(bench: Bench) {
    let session = bench.open().session();
    let op = WriteOp::new([write_at(0, "x")]).guarded(Guard::Exists);
    session.refuses("a", op.clone(), ErrorKind::NotFound).await;
    session.put("a", [WriteStep::Create]).await;
    session.writes("a", op).await;
}

async fn version_is_compares_the_last_version(bench: Bench) {
    let session = bench.open().session();
    let old = session.put("a", [append("x")]).await;
    let new = session.put("a", [append("y")]).await;
    for wrong in [old, Version(new.0 + 1), Version(0)] {
        let op = create().guarded(Guard::VersionIs(wrong));
        session.refuses("a", op, ErrorKind::GuardFailed).await;
    }
    let op = WriteOp::new([append("z")]).guarded(Guard::VersionIs(new));
    session.writes("a", op.clone()).await;
    session.refuses("a", op, ErrorKind::GuardFailed).await;
    assert_eq!(session.data("a").await, b"xyz");
}

async fn bytes_are_compares_and_says_where_they_differ(bench: Bench) {
    let session = bench.open().session();
    let mut content = vec![7; 10_000];
    session.put("a", [write_at(0, &content)]).await;
    let op = WriteOp::new([xattr(0, "seen")]);
    session
        .writes(
            "a",
            op.clone().guarded(bytes_are(100, &content[100..9_000])),
        )
        .await;
    for differs in [100, 4_095, 4_096, 8_999] {
        content[differs] = 8;
        let op = op.clone().guarded(bytes_are(100, &content[100..9_000]));
        let error = session.refuses("a", op, ErrorKind::GuardFailed).await;
        assert_eq!(error.mismatch_offset(), Some(differs as u64));
        content[differs] = 7;
    }
    (content[200], content[5_000]) = (1, 1);
    let op = op.guarded(bytes_are(0, &content));
    let error = session.refuses("a", op, ErrorKind::GuardFailed).await;
    assert_eq!(error.mismatch_offset(), Some(200), "the first difference");
}

async fn bytes_beyond_the_end_count_as_zeros(bench: Bench) {
    let session = bench.open().session();
    session.put("a", [write_at(0, "abc")]).await;
    for holds in [
        bytes_are(1, b"bc\0\0\0"),
        bytes_are(3, [0; 5_000]),
        bytes_are(99_999, b"\0"),
    ] {
        session.writes("a", create().guarded(holds)).await;
    }
    for (guard, at) in [
        (bytes_are(2, b"c\0\0z"), 5),
        (bytes_are(70_000, b"\0y"), 70_001),
    ] {
        let error = session
            .refuses("a", create().guarded(guard), ErrorKind::GuardFailed)
            .await;
        assert_eq!(error.mismatch_offset(), Some(at));
    }
    assert_eq!(session.data("a").await, b"abc", "a guard never extends");
}

async fn omap_is_compares_one_key(bench: Bench) {
    let session = bench.open().session();
    session.put("a", [omap([("k", "v")])]).await;
    for holds in [omap_is("k", Some("v")), omap_is("l", None)] {
        session.writes("a", create().guarded(holds)).await;
    }
    for fails in [
        omap_is("k", Some("w")),
        omap_is("k", Some("vv")),
        omap_is("k", None),
        omap_is("l", Some("v")),
    ] {
        let op = create().guarded(fails);
        session.refuses("a", op, ErrorKind::GuardFailed).await;
    }
}

async fn xattr_is_compares_one_attribute(bench: Bench) {
    let session = bench.open().session();
    session.put("a", [xattr(0, "v")]).await;
    session
        .writes("a", create().guarded(xattr_is(0, "v")))
        .await;
    for fails in [xattr_is(0, "w"), xattr_is(0, "vv"), xattr_is(1, "v")] {
        let op = create().guarded(fails);
        session.refuses("a", op, ErrorKind::GuardFailed).await;
    }
}

async fn xattr_at_most_compares_big_endian_numbers(bench: Bench) {
    let session = bench.open().session();
    for stored in [0, 1, 255, 256, 1 << 40, u64::MAX] {
        session
            .put("a", [WriteStep::epoch_set(XATTRS[2], stored)])
            .await;
        for asked in [0, 1, 255, 256, 257, 1 << 40, u64::MAX] {
            let op = create().guarded(at_most(asked));
            if stored <= asked {
                session.writes("a", op).await;
            } else {
                session.refuses("a", op, ErrorKind::GuardFailed).await;
            }
        }
    }
}

async fn xattr_at_most_holds_where_nothing_is_set(bench: Bench) {
    let session = bench.open().session();
    let claim =
        |epoch| WriteOp::new([WriteStep::epoch_set(XATTRS[2], epoch)]).guarded(at_most(epoch));
    session.writes("missing", claim(5)).await;
    session
        .refuses("missing", claim(4), ErrorKind::GuardFailed)
        .await;
    session.writes("missing", claim(5)).await;
    session.writes("missing", claim(6)).await;
    session.put("without", [WriteStep::Create]).await;
    session
        .writes("without", create().guarded(at_most(0)))
        .await;
    // The guard holds, but there is still nothing to read.
    let op = ReadOp::new([ReadStep::Stat]).guarded(at_most(0));
    session.read_fails("nothing", op, ErrorKind::NotFound).await;
}

async fn most_guards_of_a_missing_object_are_not_found(bench: Bench) {
    let session = bench.open().session();
    for guard in [
        bytes_are(0, b"\0"),
        omap_is("k", None),
        omap_is("k", Some("v")),
        xattr_is(0, "v"),
        Guard::VersionIs(Version(1)),
        Guard::Exists,
    ] {
        let op = create().guarded(guard.clone());
        session.refuses("a", op, ErrorKind::NotFound).await;
        let op = ReadOp::new([ReadStep::Stat]).guarded(guard);
        session.read_fails("a", op, ErrorKind::NotFound).await;
    }
}

async fn a_failed_guard_stops_all_steps(bench: Bench) {
    let session = bench.open().session();
    session
        .put("a", [append("abc"), xattr(0, "v"), omap([("k", "v")])])
        .await;
    let steps = [
        write_at(0, "zzzzzz"),
        xattr(0, "w"),
        xattr(1, "new"),
        omap([("k", "w"), ("l", "new")]),
        WriteStep::Truncate { size: 1 },
    ];
    for guard in [
        Guard::Absent,
        bytes_are(0, "b"),
        omap_is("k", None),
        xattr_is(0, "w"),
        Guard::VersionIs(Version(0)),
    ] {
        let kind = if guard == Guard::Absent {
            ErrorKind::AlreadyExists
        } else {
            ErrorKind::GuardFailed
        };
        let op = WriteOp::new(steps.clone()).guarded(guard.clone());
        session.refuses("a", op, kind).await;
        let op = WriteOp::new([WriteStep::Remove]).guarded(guard);
        session.refuses("a", op, kind).await;
    }
}

async fn guards_see_the_state_before_the_steps(bench: Bench) {
    let session = bench.open().session();
    let op = WriteOp::new([xattr(0, "v"), omap([("k", "v")]), append("abc")]);
    session.writes("a", op.guarded(Guard::Absent)).await;
    let op = WriteOp::new([
        xattr(0, "w"),
        omap_remove(["k"]),
        WriteStep::Truncate { size: 0 },
    ]);
    let op = op
        .guarded(xattr_is(0, "v"))
        .guarded(omap_is("k", Some("v")))
        .guarded(bytes_are(0, "abc"));
    session.writes("a", op.clone()).await;
    session.refuses("a", op, ErrorKind::GuardFailed).await;
}

async fn all_guards_must_hold_and_the_first_that_fails_is_named(bench: Bench) {
    let session = bench.open().session();
    session.put("a", [append("abc"), xattr(0, "v")]).await;
    let op = create()
        .guarded(xattr_is(0, "v"))
        .guarded(bytes_are(0, "abd"));
    let error = session.refuses("a", op, ErrorKind::GuardFailed).await;
    assert_eq!(error.mismatch_offset(), Some(2));
    let op = create().guarded(Guard::Absent).guarded(xattr_is(0, "w"));
    session.refuses("a", op, ErrorKind::AlreadyExists).await;
    let op = create().guarded(xattr_is(0, "w")).guarded(Guard::Absent);
    session.refuses("a", op, ErrorKind::GuardFailed).await;
}

async fn reads_are_guarded_too(bench: Bench) {
    let session = bench.open().session();
    let version = session.put("a", [append("abc"), omap([("k", "v")])]).await;
    let op = ReadOp::new([ReadStep::Stat]);
    let holds = op
        .clone()
        .guarded(omap_is("k", Some("v")))
        .guarded(Guard::VersionIs(version));
    assert_eq!(
        session.read("a", holds).await.expect("both hold").version,
        version
    );
    let fails = op.clone().guarded(omap_is("k", Some("w")));
    session.read_fails("a", fails, ErrorKind::GuardFailed).await;
    let fails = op.guarded(bytes_are(0, "abx"));
    let error = session.read_fails("a", fails, ErrorKind::GuardFailed).await;
    assert_eq!(error.mismatch_offset(), Some(2));
}
