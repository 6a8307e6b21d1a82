//! Steps of writes: what each does, alone and together, and to an object that is not there.

use std::collections::BTreeMap;

use bytes::Bytes;
use portico_backend::error::ErrorKind;
use portico_backend::limits::{OMAP_KEY_BYTES_MAX, OP_STEPS_MAX, XATTR_VALUE_BYTES_MAX};
use portico_backend::object::{CloneRange, Payload, WriteOp, WriteStep};

use super::bench::{
    Bench, Session, State, XATTRS, append, bytes, omap, omap_remove, replace, write_at, xattr,
};
use super::group;

group!("steps":
    each_step_on_a_missing_object,
    removing_what_is_not_there_is_fine,
    write_fills_gaps_with_zeros,
    append_goes_to_the_end,
    replace_keeps_attributes_and_omap,
    truncate_cuts_and_extends_with_zeros,
    what_was_cut_never_comes_back,
    zero_never_extends,
    payloads_come_in_pieces,
    omap_keys_are_removed_one_by_one_and_by_range,
    steps_see_earlier_steps,
    remove_takes_everything,
    a_late_failure_takes_back_all_steps,
    large_payloads_keep_their_bytes,
    pools_and_namespaces_are_apart,
    what_is_too_large_is_refused,
    what_is_just_not_too_large_works,
    names_made_either_way_are_one_object,
);

fn range(start: &str, end: &str) -> WriteStep {
    WriteStep::OmapRemoveRange {
        start: bytes(start),
        end: bytes(end),
    }
}

fn zero(offset: u64, length: u64) -> WriteStep {
    WriteStep::Zero { offset, length }
}

fn truncate(size: u64) -> WriteStep {
    WriteStep::Truncate { size }
}

fn keys(state: &State) -> Vec<&[u8]> {
    state.omap.keys().map(|key| &key[..]).collect()
}

async fn each_step_on_a_missing_object(bench: Bench) {
    let opened = bench.open();
    let session = opened.session();
    let makes = [
        WriteStep::Create,
        write_at(3, "x"),
        write_at(0, ""),
        append("x"),
        append(""),
        replace("x"),
        xattr(0, "v"),
        omap([("k", "v")]),
    ];
    for (number, step) in makes.into_iter().enumerate() {
        let name = format!("made-{number}");
        session.put(&name, [step.clone()]).await;
        assert!(
            session.state(&name).await.is_some(),
            "{step:?} makes an object"
        );
    }
    for step in [zero(0, 10), truncate(10), truncate(0)] {
        session.put("nothing", [step]).await;
        assert_eq!(session.state("nothing").await, None);
    }
    for step in [
        WriteStep::Remove,
        WriteStep::XattrRemove { name: XATTRS[0] },
        omap_remove(["k"]),
        range("a", "z"),
    ] {
        let op = WriteOp::new([step]);
        session.refuses("nothing", op, ErrorKind::NotFound).await;
    }
}

async fn removing_what_is_not_there_is_fine(bench: Bench) {
    let session = bench.open().session();
    session.put("a", [omap([("k", "v")]), xattr(0, "v")]).await;
    session
        .put(
            "a",
            [
                omap_remove(["l"]),
                range("x", "z"),
                range("z", "a"),
                WriteStep::XattrRemove { name: XATTRS[1] },
            ],
        )
        .await;
    let state = session.existing("a").await;
    assert_eq!((keys(&state), state.xattrs.len()), (vec![&b"k"[..]], 1));
}

async fn write_fills_gaps_with_zeros(bench: Bench) {
    let session = bench.open().session();
    session.put("a", [write_at(3, "abc")]).await;
    assert_eq!(session.data("a").await, b"\0\0\0abc");
    session.put("a", [write_at(4, "XY")]).await;
    session.put("a", [write_at(9_000, "end")]).await;
    let data = session.data("a").await;
    assert_eq!(data.len(), 9_003);
    assert_eq!(&data[..6], b"\0\0\0aXY");
    assert!(data[6..9_000].iter().all(|byte| *byte == 0));
    assert_eq!(&data[9_000..], b"end");
}

async fn append_goes_to_the_end(bench: Bench) {
    let session = bench.open().session();
    for part in ["abc", "", "de", "f"] {
        session.put("a", [append(part)]).await;
    }
    assert_eq!(session.data("a").await, b"abcdef");
    session.put("a", [truncate(2), append("X")]).await;
    assert_eq!(session.data("a").await, b"abX");
}

async fn replace_keeps_attributes_and_omap(bench: Bench) {
    let session = bench.open().session();
    session
        .put(
            "a",
            [write_at(0, [1; 9_000]), xattr(0, "v"), omap([("k", "v")])],
        )
        .await;
    session.put("a", [replace("short")]).await;
    let state = session.existing("a").await;
    assert_eq!(state.data, b"short");
    assert_eq!(state.xattrs[XATTRS[0].as_str()], "v");
    assert_eq!(keys(&state), [b"k"]);
    session.put("a", [replace("")]).await;
    assert_eq!(session.data("a").await, b"");
}

async fn truncate_cuts_and_extends_with_zeros(bench: Bench) {
    let session = bench.open().session();
    session.put("a", [write_at(0, [5; 10_000])]).await;
    for size in [9_999, 8_192, 8_191, 5_000, 4_096, 1] {
        session.put("a", [truncate(size)]).await;
        assert_eq!(session.data("a").await.len() as u64, size);
    }
    session.put("a", [truncate(20_000)]).await;
    let data = session.data("a").await;
    assert_eq!((data.len(), data[0]), (20_000, 5));
    assert!(data[1..].iter().all(|byte| *byte == 0));
    session.put("a", [truncate(0)]).await;
    assert_eq!(session.data("a").await, b"");
}

async fn what_was_cut_never_comes_back(bench: Bench) {
    let session = bench.open().session();
    for again in [
        truncate(12_000),
        write_at(11_999, "\0"),
        append([0; 11_900]),
    ] {
        session.put("a", [replace([9; 12_000])]).await;
        session.put("a", [truncate(100)]).await;
        session.put("a", [again.clone()]).await;
        let data = session.data("a").await;
        assert_eq!(data.len(), 12_000);
        assert!(data[100..].iter().all(|byte| *byte == 0), "after {again:?}");
        // The same in one operation.
        session
            .put("a", [replace([9; 12_000]), truncate(100), again])
            .await;
        assert_eq!(session.data("a").await, data);
    }
}

async fn zero_never_extends(bench: Bench) {
    let session = bench.open().session();
    for (offset, length) in [
        (0, 1),
        (1, 4_096),
        (4_000, 200),
        (4_096, 4_096),
        (0, 10_000),
        (9_999, 500),
        (10_000, 1),
        (50_000, 7),
        (5, 0),
        (100, u64::MAX - 100),
    ] {
        session.put("a", [replace([3; 10_000])]).await;
        session.put("a", [zero(offset, length)]).await;
        let mut expected = vec![3; 10_000];
        let end = offset.saturating_add(length).min(10_000);
        for at in offset..end {
            expected[usize::try_from(at).expect("below 10,000")] = 0;
        }
        assert_eq!(
            session.data("a").await,
            expected,
            "zero {offset} + {length}"
        );
    }
}

async fn payloads_come_in_pieces(bench: Bench) {
    let session = bench.open().session();
    let pieces = || {
        Payload::from(vec![
            bytes("ab"),
            Bytes::new(),
            bytes([7; 5_000]),
            bytes("c"),
        ])
    };
    let expected = [&b"ab"[..], &[7; 5_000], b"c"].concat();
    session
        .put(
            "a",
            [WriteStep::Write {
                offset: 0,
                data: pieces(),
            }],
        )
        .await;
    session
        .put("b", [WriteStep::Append { data: pieces() }])
        .await;
    session
        .put("c", [WriteStep::Replace { data: pieces() }])
        .await;
    for name in ["a", "b", "c"] {
        assert_eq!(session.data(name).await, expected);
    }
}

async fn omap_keys_are_removed_one_by_one_and_by_range(bench: Bench) {
    let session = bench.open().session();
    let all = ["a", "b", "b\0", "ba", "c", "d", "\u{ff}"];
    session.put("a", [omap(all.map(|key| (key, key)))]).await;
    session.put("a", [omap_remove(["a", "d"])]).await;
    session.put("a", [range("b", "ba")]).await;
    let state = session.existing("a").await;
    assert_eq!(keys(&state), [&b"ba"[..], b"c", "\u{ff}".as_bytes()]);
    session.put("a", [range("c", "c")]).await;
    assert_eq!(session.existing("a").await.omap.len(), 3, "an empty range");
    session.put("a", [range("", "\u{7f}")]).await;
    assert_eq!(session.existing("a").await.omap.len(), 1);
}

async fn steps_see_earlier_steps(bench: Bench) {
    let session = bench.open().session();
    // Each would fail or do nothing if it saw the object as it was before the operation.
    let steps = [
        WriteStep::Create,
        WriteStep::XattrRemove { name: XATTRS[0] },
        append("abc"),
        append("def"),
        zero(1, 1),
        write_at(2, "Z"),
        truncate(5),
        truncate(7),
        xattr(0, "one"),
        xattr(0, "two"),
        xattr(1, "gone"),
        WriteStep::XattrRemove { name: XATTRS[1] },
        omap([("a", "1"), ("b", "1"), ("c", "1")]),
        omap([("b", "2")]),
        omap_remove(["c"]),
        range("a", "b"),
        omap([("d", "3"), ("d", "4")]),
    ];
    session.put("a", steps).await;
    let state = session.existing("a").await;
    assert_eq!(state.data, b"a\0Zde\0\0");
    assert_eq!(
        state.xattrs,
        BTreeMap::from([(XATTRS[0].as_str(), bytes("two"))])
    );
    assert_eq!(
        state.omap,
        BTreeMap::from([("b", "2"), ("d", "4")].map(|(k, v)| (bytes(k), bytes(v))))
    );
}

async fn remove_takes_everything(bench: Bench) {
    let session = bench.open().session();
    session
        .put("a", [append([1; 9_000]), xattr(0, "v"), omap([("k", "v")])])
        .await;
    session.put("a", [append("more"), WriteStep::Remove]).await;
    assert_eq!(session.state("a").await, None);
    session.put("a", [WriteStep::Create]).await;
    assert_eq!(session.existing("a").await, State::default());
    // An object may be made and removed in one operation.
    session.put("b", [append("x"), WriteStep::Remove]).await;
    assert_eq!(session.state("b").await, None);
}

async fn a_late_failure_takes_back_all_steps(bench: Bench) {
    let session = bench.open().session();
    let limit = session.limits().object_bytes_max;
    let mut failing: Vec<(Vec<WriteStep>, ErrorKind)> =
        vec![(vec![truncate(limit), append("x")], ErrorKind::TooLarge)];
    if session.limits().clone_range != CloneRange::Unsupported {
        let step = WriteStep::CloneRange {
            source: session.id("missing"),
            source_offset: 0,
            offset: 0,
            length: 10,
        };
        failing.push((vec![step], ErrorKind::NotFound));
    }
    let changes = [
        write_at(1, [9; 9_000]),
        xattr(0, "w"),
        xattr(1, "new"),
        omap([("k", "w"), ("l", "new")]),
        omap_remove(["m"]),
        range("n", "o"),
    ];
    for (last, kind) in failing {
        let op = WriteOp::new(changes.iter().chain(&last).cloned());
        session
            .put(
                "a",
                [
                    append("abc"),
                    xattr(0, "v"),
                    omap([("k", "v"), ("m", "v"), ("n", "v")]),
                ],
            )
            .await;
        session.refuses("a", op.clone(), kind).await;
        session.put("a", [WriteStep::Remove]).await;
        // On a missing object the removing steps work, since the earlier steps made it.
        session.refuses("a", op, kind).await;
        assert_eq!(session.state("a").await, None);
    }
}

async fn large_payloads_keep_their_bytes(bench: Bench) {
    let session = bench.open().session();
    let length = session.limits().op_bytes_max.min(9 * 1024 * 1024 + 13);
    let pattern: Vec<u8> = (0..length).map(|at| (at % 251).to_le_bytes()[0]).collect();
    session.put("a", [write_at(777, &pattern)]).await;
    session
        .put("a", [write_at(777 + 5_000_000, &pattern[..100_000])])
        .await;
    let data = session.data("a").await;
    let mut expected = [&[0; 777], &pattern[..]].concat();
    expected[777 + 5_000_000..][..100_000].copy_from_slice(&pattern[..100_000]);
    assert!(data == expected, "9 MiB come back as they were written");
}

async fn pools_and_namespaces_are_apart(bench: Bench) {
    let opened = bench.open();
    let pools = [("p", ""), ("p", "n"), ("q", ""), ("q", "n")];
    let sessions: Vec<Session> = pools
        .map(|(name, namespace)| {
            let mut session = opened.session();
            session.pool = portico_backend::object::Pool::new(name, namespace);
            session
        })
        .to_vec();
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(session.state("a").await, None);
        session.put("a", [append(number.to_string())]).await;
    }
    sessions[1].put("a", [WriteStep::Remove]).await;
    for number in [0, 2, 3] {
        assert_eq!(
            sessions[number].data("a").await,
            number.to_string().as_bytes()
        );
    }
}

async fn what_is_too_large_is_refused(bench: Bench) {
    let session = bench.open().session();
    let limits = session.limits();
    session.put("a", [append("abc")]).await;
    let keys = 0..=limits.omap_keys_max;
    let many: Vec<String> = keys.map(|key| format!("{key:08}")).collect();
    let value = vec![1; limits.omap_value_bytes_max as usize + 1];
    let half = many.len() / 2;
    let pages = limits.op_bytes_max / 65_536 + 1;
    let payload = Payload::from(vec![
        bytes([1; 65_536]);
        usize::try_from(pages).expect("a few pages")
    ]);
    for steps in [
        vec![omap(many.iter().map(|key| (key, "v")))],
        vec![
            omap(many[..half].iter().map(|key| (key, "v"))),
            omap_remove(&many[half..]),
        ],
        vec![omap_remove(&many)],
        vec![omap([("k", value)])],
        vec![omap([(vec![1; OMAP_KEY_BYTES_MAX + 1], "v")])],
        vec![xattr(0, vec![1; XATTR_VALUE_BYTES_MAX + 1])],
        vec![write_at(limits.object_bytes_max, "x")],
        vec![write_at(u64::MAX, "x")],
        vec![truncate(limits.object_bytes_max + 1)],
        vec![truncate(u64::MAX)],
        vec![WriteStep::Append {
            data: payload.clone(),
        }],
        vec![WriteStep::Write {
            offset: 0,
            data: payload,
        }],
        vec![WriteStep::Create; OP_STEPS_MAX + 1],
    ] {
        let op = WriteOp::new(steps);
        session.refuses("a", op, ErrorKind::TooLarge).await;
    }
}

async fn what_is_just_not_too_large_works(bench: Bench) {
    let session = bench.open().session();
    let limits = session.limits();
    let keys = 0..limits.omap_keys_max;
    let many: Vec<String> = keys.map(|key| format!("{key:08}")).collect();
    session
        .put("a", [omap(many.iter().map(|key| (key, "v")))])
        .await;
    assert_eq!(session.existing("a").await.omap.len(), many.len());
    session.put("a", [omap_remove(&many)]).await;
    let value = vec![1; limits.omap_value_bytes_max as usize];
    session
        .put("a", [omap([(vec![1; OMAP_KEY_BYTES_MAX], &value)])])
        .await;
    session
        .put("a", [xattr(0, vec![1; XATTR_VALUE_BYTES_MAX])])
        .await;
    let state = session.existing("a").await;
    assert_eq!(
        state.omap.values().next().map(Bytes::len),
        Some(value.len())
    );
    assert_eq!(
        state.xattrs[XATTRS[0].as_str()].len(),
        XATTR_VALUE_BYTES_MAX
    );
    session
        .put("a", [write_at(limits.object_bytes_max - 1, "x")])
        .await;
    assert_eq!(
        session.data("a").await.len() as u64,
        limits.object_bytes_max
    );
}

async fn names_made_either_way_are_one_object(bench: Bench) {
    let session = bench.open().session();
    let prefix = std::sync::Arc::from("rbd_data.1");
    let name = portico_backend::object::ObjectName::numbered(&prefix, 255);
    let id = portico_backend::object::ObjectId::new(&session.pool, name);
    let op = WriteOp::new([append("x")]);
    session.store.write(&id, op).await.expect("a write works");
    assert_eq!(session.data("rbd_data.1.00000000000000ff").await, b"x");
}
