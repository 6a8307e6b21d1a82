//! Questions: extents, attributes, keys and scans.

use std::time::Duration;

use portico_backend::error::ErrorKind;
use portico_backend::limits::OP_STEPS_MAX;
use portico_backend::object::{OmapPage, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep};
use tokio::time::Instant;

use super::bench::{
    Bench, XATTRS, append, bytes, omap, omap_remove, replace, scan, write_at, xattr,
};
use super::group;

group!("reads":
    each_step_has_its_result_in_order,
    a_missing_object_is_not_found,
    extents_are_clipped_and_cover_all_data,
    holes_are_left_out_where_the_engine_says_so,
    keys_are_answered_in_the_order_asked,
    scans_keep_to_their_bounds,
    scans_say_whether_more_remains,
    scans_of_keys_leave_out_values,
    keys_are_ordered_as_bytes,
    a_large_map_is_scanned_page_by_page,
    a_scan_sees_changes_at_once,
    reads_that_are_too_large_are_refused,
    a_cached_answer_is_the_same_answer,
    a_deadline_that_passed_is_unavailable,
);

fn extents(offset: u64, length: u64) -> ReadStep {
    ReadStep::Extents { offset, length }
}

async fn each_step_has_its_result_in_order(bench: Bench) {
    let session = bench.open().session();
    session
        .put("a", [append("abc"), xattr(0, "v"), omap([("k", "w")])])
        .await;
    let results = session
        .reads(
            "a",
            [
                ReadStep::Xattr { name: XATTRS[0] },
                ReadStep::Stat,
                ReadStep::Xattr { name: XATTRS[1] },
                scan(b"", None, 5),
                ReadStep::OmapGet {
                    keys: vec![bytes("k")],
                },
                ReadStep::Stat,
            ],
        )
        .await;
    let page = OmapPage {
        entries: vec![(bytes("k"), bytes("w"))],
        more: false,
    };
    let expected = [
        ReadResult::Xattr(Some(bytes("v"))),
        ReadResult::Stat { size: 3 },
        ReadResult::Xattr(None),
        ReadResult::OmapPage(page),
        ReadResult::OmapValues(vec![Some(bytes("w"))]),
        ReadResult::Stat { size: 3 },
    ];
    assert_eq!(results, expected);
    assert_eq!(session.reads("a", []).await, []);
}

async fn a_missing_object_is_not_found(bench: Bench) {
    let session = bench.open().session();
    for step in [
        ReadStep::Stat,
        extents(0, 10),
        ReadStep::Xattr { name: XATTRS[0] },
        ReadStep::OmapGet {
            keys: vec![bytes("k")],
        },
        scan(b"", None, 5),
    ] {
        session
            .read_fails("a", ReadOp::new([step]), ErrorKind::NotFound)
            .await;
    }
    session
        .read_fails("a", ReadOp::new([]), ErrorKind::NotFound)
        .await;
}

async fn extents_are_clipped_and_cover_all_data(bench: Bench) {
    let session = bench.open().session();
    let pattern: Vec<u8> = (0..20_000_u32)
        .map(|at| (at % 251).to_le_bytes()[0] | 1)
        .collect();
    session.put("a", [append(&pattern)]).await;
    for (offset, length) in [
        (0, 20_000),
        (0, u64::MAX),
        (1, 1),
        (4_095, 2),
        (4_096, 4_096),
        (4_097, 12_001),
        (19_999, 10),
        (20_000, 10),
        (90_000, 10),
        (u64::MAX, u64::MAX),
        (7, 0),
    ] {
        let results = session.reads("a", [extents(offset, length)]).await;
        let [ReadResult::Extents(extents)] = &results[..] else {
            panic!("extents are extents");
        };
        let end = offset.saturating_add(length).min(20_000);
        let mut at = offset;
        for extent in extents {
            assert_eq!(extent.offset, at, "no gap where all is data");
            assert!(!extent.data.is_empty());
            let start = usize::try_from(at).expect("within the object");
            assert_eq!(extent.data, pattern[start..start + extent.data.len()]);
            at += extent.data.len() as u64;
        }
        assert_eq!(at, end.max(offset), "{offset} + {length}");
    }
}

async fn holes_are_left_out_where_the_engine_says_so(bench: Bench) {
    let session = bench.open().session();
    let limits = session.limits();
    let grain = u64::from(limits.discard_bytes.max(4_096));
    session.put("a", [write_at(grain * 16, "x")]).await;
    session
        .put(
            "b",
            [append(vec![1; usize::try_from(grain * 16).expect("small")])],
        )
        .await;
    session
        .put(
            "b",
            [WriteStep::Zero {
                offset: 0,
                length: grain * 15,
            }],
        )
        .await;
    for (name, size) in [("a", grain * 16 + 1), ("b", grain * 16)] {
        let results = session
            .reads(name, [extents(0, u64::MAX), ReadStep::Stat])
            .await;
        let [
            ReadResult::Extents(extents),
            ReadResult::Stat { size: stored },
        ] = &results[..]
        else {
            panic!("each step has its result");
        };
        assert_eq!(*stored, size);
        let bytes: u64 = extents.iter().map(|extent| extent.data.len() as u64).sum();
        match limits.sparse_reads {
            true => assert!(bytes <= grain, "{bytes} bytes of {size} are data"),
            false => assert_eq!(bytes, size),
        }
    }
}

async fn keys_are_answered_in_the_order_asked(bench: Bench) {
    let session = bench.open().session();
    session
        .put("a", [omap([("a", "1"), ("b", "2"), ("c", "")])])
        .await;
    let keys = ["c", "missing", "a", "b", "a"].map(bytes).to_vec();
    let results = session.reads("a", [ReadStep::OmapGet { keys }]).await;
    let values = [Some(""), None, Some("1"), Some("2"), Some("1")];
    let values = values.map(|value| value.map(bytes)).to_vec();
    assert_eq!(results, [ReadResult::OmapValues(values)]);
}

async fn scans_keep_to_their_bounds(bench: Bench) {
    let session = bench.open().session();
    session
        .put("a", [omap(["a", "b", "c", "d"].map(|key| (key, key)))])
        .await;
    // The same keys in another object must not leak in.
    session.put("b", [omap([("bb", "x")])]).await;
    for (start, end, expected) in [
        ("", None, "abcd"),
        ("a", None, "abcd"),
        ("b", None, "bcd"),
        ("aa", None, "bcd"),
        ("d", None, "d"),
        ("e", None, ""),
        ("", Some("c"), "ab"),
        ("b", Some("d"), "bc"),
        ("b", Some("da"), "bcd"),
        ("b", Some("b"), ""),
        ("c", Some("a"), ""),
        ("", Some("z"), "abcd"),
    ] {
        let end = end.map(str::as_bytes);
        let page = session.page("a", scan(start.as_bytes(), end, 10)).await;
        let keys: Vec<u8> = page
            .entries
            .iter()
            .flat_map(|(key, _)| key.to_vec())
            .collect();
        assert_eq!(keys, expected.as_bytes(), "{start:?}..{end:?}");
        assert!(page.entries.iter().all(|(key, value)| key == value));
        assert!(!page.more);
    }
}

async fn scans_say_whether_more_remains(bench: Bench) {
    let session = bench.open().session();
    session
        .put("a", [omap(["a", "b", "c", "d"].map(|key| (key, key)))])
        .await;
    for (end, count_max) in [
        (None, 4),
        (None, 3),
        (None, 1),
        (None, 5),
        (Some("c"), 2),
        (Some("c"), 1),
    ] {
        let in_range = end.map_or(4, |_| 2);
        let end = end.map(str::as_bytes);
        let page = session.page("a", scan(b"", end, count_max)).await;
        let count = page.entries.len();
        assert!(count <= count_max as usize);
        assert_eq!(page.more, count < in_range, "{count_max} of {end:?}");
        assert!(count > 0, "a page makes progress");
    }
    session.put("empty", [WriteStep::Create]).await;
    assert_eq!(
        session.page("empty", scan(b"", None, 1)).await,
        OmapPage::default()
    );
}

async fn scans_of_keys_leave_out_values(bench: Bench) {
    let session = bench.open().session();
    session.put("a", [omap([("a", "1"), ("b", "2")])]).await;
    let step = ReadStep::OmapScan {
        start: bytes(""),
        end: None,
        keys_only: true,
        count_max: 10,
    };
    let page = session.page("a", step).await;
    assert_eq!(page.entries, ["a", "b"].map(|key| (bytes(key), bytes(""))));
    assert!(!page.more);
}

async fn keys_are_ordered_as_bytes(bench: Bench) {
    let session = bench.open().session();
    let mut keys: Vec<Vec<u8>> = vec![
        b"a".to_vec(),
        b"a\0".to_vec(),
        b"a\0\0".to_vec(),
        b"a\x01".to_vec(),
        b"a/".to_vec(),
        b"aa".to_vec(),
        b"a\xff".to_vec(),
        b"\0".to_vec(),
        b"\xff".to_vec(),
        b"\xff\xff".to_vec(),
        b"Z".to_vec(),
        vec![0xff; 300],
    ];
    session
        .put("a", [omap(keys.iter().map(|key| (key, key)))])
        .await;
    keys.sort();
    let page = session.page("a", scan(b"", None, 100)).await;
    let found: Vec<Vec<u8>> = page.entries.iter().map(|(key, _)| key.to_vec()).collect();
    assert_eq!(found, keys);
    for window in keys.windows(2) {
        let page = session
            .page("a", scan(&window[0], Some(&window[1]), 100))
            .await;
        assert_eq!(page.entries.len(), 1, "{window:?}");
    }
}

async fn a_large_map_is_scanned_page_by_page(bench: Bench) {
    let session = bench.open().session();
    let keys: Vec<String> = (0..3_000).map(|key| format!("{:08}", key * 7)).collect();
    for part in keys.chunks(1_000) {
        session
            .put("a", [omap(part.iter().map(|key| (key, key)))])
            .await;
    }
    for count_max in [7, 1_000, session.limits().omap_keys_max] {
        let mut found = Vec::new();
        let mut start = Vec::new();
        loop {
            let page = session.page("a", scan(&start, None, count_max)).await;
            assert!(page.entries.len() <= count_max as usize);
            found.extend(page.entries.iter().map(|(key, _)| key.to_vec()));
            if !page.more {
                break;
            }
            let last = page.entries.last().expect("a page makes progress");
            start = [&last.0[..], b"\0"].concat();
        }
        assert!(
            found.iter().eq(keys.iter().map(String::as_bytes)),
            "pages of {count_max}"
        );
    }
}

async fn a_scan_sees_changes_at_once(bench: Bench) {
    let opened = bench.open();
    let (first, second) = (opened.session(), opened.session());
    for round in 0..20_u32 {
        let (new, old) = (
            format!("{round:04}"),
            format!("{:04}", round.wrapping_sub(3)),
        );
        first
            .put("a", [omap([(&new, "v")]), omap_remove([&old])])
            .await;
        let page = second.page("a", scan(b"", None, 100)).await;
        let expected: Vec<_> = (round.saturating_sub(2)..=round)
            .map(|round| (bytes(format!("{round:04}")), bytes("v")))
            .collect();
        assert_eq!(page.entries, expected);
    }
}

async fn reads_that_are_too_large_are_refused(bench: Bench) {
    let session = bench.open().session();
    session.put("a", [omap([("a", "1")])]).await;
    let max = session.limits().omap_keys_max;
    for steps in [
        vec![scan(b"", None, max + 1)],
        vec![
            scan(b"", None, max),
            ReadStep::OmapGet {
                keys: vec![bytes("a")],
            },
        ],
        vec![ReadStep::OmapGet {
            keys: vec![bytes("a"); max as usize + 1],
        }],
        vec![ReadStep::Stat; OP_STEPS_MAX + 1],
    ] {
        session
            .read_fails("a", ReadOp::new(steps), ErrorKind::TooLarge)
            .await;
    }
}

async fn a_cached_answer_is_the_same_answer(bench: Bench) {
    let opened = bench.open();
    let (reader, writer) = (opened.session(), opened.session());
    let op = ReadOp::new([
        ReadStep::Stat,
        extents(0, 100),
        ReadStep::Xattr { name: XATTRS[0] },
    ]);
    let id = reader.id("a");
    for round in 0..30 {
        match round % 3 {
            0 => {
                writer
                    .put(
                        "a",
                        [replace(round.to_string()), xattr(0, round.to_string())],
                    )
                    .await
            }
            1 => {
                writer
                    .writes("a", WriteOp::new([append("x")]).buffered())
                    .await
            }
            _ => writer.put("a", [WriteStep::Remove]).await,
        };
        for _ in 0..3 {
            let cached = reader.store.try_read_cached(&id, &op);
            let read = reader.read("a", op.clone()).await;
            match (cached, read) {
                (None, _) => {}
                (Some(Ok(cached)), Ok(read)) => assert_eq!(cached, read),
                (Some(Err(cached)), Err(read)) => assert_eq!(cached.kind(), read.kind()),
                (cached, read) => panic!("{cached:?} at once, but then {read:?}"),
            }
        }
    }
}

async fn a_deadline_that_passed_is_unavailable(bench: Bench) {
    let session = bench.open().session();
    session.put("a", [append("x")]).await;
    let past = Instant::now();
    tokio::time::sleep(Duration::from_millis(2)).await;
    let op = ReadOp::new([ReadStep::Stat]).with_deadline(past);
    session.read_fails("a", op, ErrorKind::Unavailable).await;
    let op = WriteOp::new([append("y")]).with_deadline(past);
    let error = session.write("a", op).await.expect_err("it is too late");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let later = Instant::now() + Duration::from_secs(3_600);
    session
        .writes("a", WriteOp::new([replace("z")]).with_deadline(later))
        .await;
    let op = ReadOp::new([ReadStep::Stat]).with_deadline(later);
    assert!(session.read("a", op).await.is_ok());
    assert_eq!(session.data("a").await, b"z");
}
