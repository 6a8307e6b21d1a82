//! Cloning a range of one object into another, where the engine can.

use portico_backend::error::ErrorKind;
use portico_backend::object::{CloneRange, WriteOp, WriteStep};

use super::bench::{Bench, Session, append, omap, replace, write_at, xattr};
use super::group;

group!("clone_range":
    an_engine_that_cannot_clone_says_so,
    bytes_are_copied_at_any_alignment,
    bytes_beyond_the_source_are_zeros,
    only_data_is_cloned,
    clones_do_not_share_later_changes,
    an_object_clones_into_itself,
    clones_are_steps_among_others,
    a_missing_source_is_not_found,
);

/// `None` if the engine cannot clone.
fn open(bench: &Bench) -> Option<Session> {
    let session = bench.open().session();
    (session.limits().clone_range != CloneRange::Unsupported).then_some(session)
}

fn clone(session: &Session, source: &str, ranges: (u64, u64, u64)) -> WriteStep {
    let (source_offset, offset, length) = ranges;
    WriteStep::CloneRange {
        source: session.id(source),
        source_offset,
        offset,
        length,
    }
}

fn pattern(length: u32) -> Vec<u8> {
    (0..length)
        .map(|at| (at % 253).to_le_bytes()[0] | 2)
        .collect()
}

async fn an_engine_that_cannot_clone_says_so(bench: Bench) {
    if open(&bench).is_some() {
        return;
    }
    let session = bench.open().session();
    session.put("source", [append("x")]).await;
    let op = WriteOp::new([clone(&session, "source", (0, 0, 1))]);
    session.refuses("a", op, ErrorKind::Unsupported).await;
}

async fn bytes_are_copied_at_any_alignment(bench: Bench) {
    let Some(session) = open(&bench) else {
        return;
    };
    let source = pattern(100_000);
    session.put("source", [append(&source)]).await;
    for (number, (from, to, length)) in [
        (0, 0, 100_000),
        (4_096, 8_192, 65_536),
        (4_096, 0, 4_096),
        (1, 0, 5_000),
        (0, 1, 5_000),
        (4_095, 12_287, 8_194),
        (99_999, 5_000, 1),
        (70_000, 3, 12),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("a{number}");
        session.put(&name, [replace([1; 20_000])]).await;
        session
            .put(&name, [clone(&session, "source", (from, to, length))])
            .await;
        let index = |at: u64| usize::try_from(at).expect("small");
        let mut expected = vec![1; 20_000.max(index(to + length))];
        let copied = &source[index(from)..index(from + length)];
        expected[index(to)..index(to + length)].copy_from_slice(copied);
        let data = session.data(&name).await;
        assert!(data == expected, "{from} to {to}, {length} bytes");
    }
    assert!(session.data("source").await == source);
}

async fn bytes_beyond_the_source_are_zeros(bench: Bench) {
    let Some(session) = open(&bench) else {
        return;
    };
    session.put("source", [append([5; 5_000])]).await;
    session.put("a", [replace([1; 10_000])]).await;
    session
        .put("a", [clone(&session, "source", (4_000, 1_000, 8_000))])
        .await;
    let expected = [&[1; 1_000][..], &[5; 1_000], &[0; 7_000], &[1; 1_000]].concat();
    assert!(session.data("a").await == expected);
    session
        .put("b", [clone(&session, "source", (50_000, 10, 90))])
        .await;
    assert_eq!(session.data("b").await, [0; 100]);
}

async fn only_data_is_cloned(bench: Bench) {
    let Some(session) = open(&bench) else {
        return;
    };
    session
        .put("source", [append("x"), xattr(0, "v"), omap([("k", "v")])])
        .await;
    session
        .put("a", [clone(&session, "source", (0, 0, 1))])
        .await;
    let state = session.existing("a").await;
    assert_eq!(state.data, b"x");
    assert!(state.xattrs.is_empty() && state.omap.is_empty());
}

async fn clones_do_not_share_later_changes(bench: Bench) {
    let Some(session) = open(&bench) else {
        return;
    };
    let source = pattern(300_000);
    session.put("source", [append(&source)]).await;
    for name in ["a", "b"] {
        session
            .put(name, [clone(&session, "source", (0, 0, 300_000))])
            .await;
    }
    session
        .put("source", [write_at(100_000, [0xff; 70_000])])
        .await;
    session.put("a", [write_at(5, "changed")]).await;
    let mut expected = source.clone();
    expected[5..12].copy_from_slice(b"changed");
    assert!(session.data("a").await == expected);
    assert!(session.data("b").await == source);
    session.put("source", [WriteStep::Remove]).await;
    session.put("a", [WriteStep::Truncate { size: 10 }]).await;
    session.put("other", [append(vec![0xee; 300_000])]).await;
    assert!(
        session.data("b").await == source,
        "the clone outlives its source"
    );
}

async fn an_object_clones_into_itself(bench: Bench) {
    let Some(session) = open(&bench) else {
        return;
    };
    for (from, to) in [
        (0, 8_192),
        (8_192, 0),
        (0, 4_096),
        (4_096, 0),
        (1, 3),
        (0, 0),
    ] {
        let old = pattern(20_000);
        session.put("a", [replace(&old)]).await;
        session
            .put("a", [clone(&session, "a", (from, to, 10_000))])
            .await;
        let index = |at: u64| usize::try_from(at).expect("small");
        let mut expected = old.clone();
        expected[index(to)..index(to) + 10_000]
            .copy_from_slice(&old[index(from)..index(from) + 10_000]);
        assert!(session.data("a").await == expected, "{from} to {to}");
    }
}

async fn clones_are_steps_among_others(bench: Bench) {
    let Some(session) = open(&bench) else {
        return;
    };
    session.put("b", [append("bbbb")]).await;
    session.put("c", [append("cccc")]).await;
    let steps = [
        append("aaaaaa"),
        clone(&session, "b", (0, 1, 2)),
        clone(&session, "c", (0, 2, 2)),
        write_at(3, "Z"),
        xattr(0, "v"),
    ];
    session.put("a", steps).await;
    assert_eq!(session.data("a").await, b"abcZaa");
    session
        .put(
            "a",
            [
                clone(&session, "b", (0, 0, 6)),
                WriteStep::Truncate { size: 5 },
            ],
        )
        .await;
    assert_eq!(session.data("a").await, b"bbbb\0");
}

async fn a_missing_source_is_not_found(bench: Bench) {
    let Some(session) = open(&bench) else {
        return;
    };
    let op = WriteOp::new([append("x"), clone(&session, "missing", (0, 0, 1))]);
    session.refuses("a", op.clone(), ErrorKind::NotFound).await;
    session.put("a", [append("x")]).await;
    session.refuses("a", op, ErrorKind::NotFound).await;
}
