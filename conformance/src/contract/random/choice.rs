//! What the dice make: operations near the edges of pages, half of them with guards that hold.

use bytes::Bytes;
use portico_backend::object::{
    CloneRange, Guard, Payload, ReadOp, ReadStep, SnapId, Version, WriteOp, WriteStep,
};
use portico_backend::random::Generator;

use crate::contract::bench::{Session, XATTRS, bytes};
use crate::model::object::{Model, Thing};

pub(super) const NAMES: [&str; 4] = ["a", "b", "data.0000000000000001", "data.0000000000000002"];

const KEYS: [&str; 8] = ["", "a", "a\0", "aa", "b", "ba", "c", "\u{ff}"];

/// Sizes at which engines change their ways.
const SIZES: [u64; 9] = [0, 1, 511, 4_096, 8_192, 12_288, 16_384, 65_536, 70_000];

pub(super) fn pick<T: Copy>(random: &mut Generator, from: &[T]) -> T {
    let at = random.below(from.len() as u64);
    from[usize::try_from(at).expect("a short list")]
}

pub(super) fn name(random: &mut Generator) -> &'static str {
    pick(random, &NAMES)
}

pub(super) fn write(
    random: &mut Generator,
    model: &Model,
    session: &Session,
    name: &str,
) -> WriteOp {
    let mut op = WriteOp::default();
    let thing = model.things.get(name);
    for _ in 0..pick(random, &[0, 0, 0, 1, 1, 2]) {
        op.guards.push(guard(random, thing));
    }
    for _ in 0..1 + random.below(4) {
        op.steps.push(step(random, model, session));
    }
    if random.chance(40) {
        op.steps.push(WriteStep::Remove);
    }
    // A clone may see its own object before or after earlier steps: alone it has no choice.
    let of_itself = op.steps.iter().position(|step| clones(step, name));
    if let Some(at) = of_itself {
        let alone = op.steps.swap_remove(at);
        op.steps = std::iter::once(alone).collect();
    }
    op
}

fn clones(step: &WriteStep, name: &str) -> bool {
    matches!(step, WriteStep::CloneRange { source, .. } if source.name.to_string() == name)
}

pub(super) fn read(random: &mut Generator, model: &Model, name: &str) -> ReadOp {
    let mut op = ReadOp::default();
    if random.chance(200) {
        op.at = snapshot(random, model);
    }
    if random.chance(300) {
        let things = op.at.and_then(|at| model.snapshots.get(&at.0));
        op.guards
            .push(guard(random, things.unwrap_or(&model.things).get(name)));
    }
    for _ in 0..random.below(4) {
        op.steps.push(question(random));
    }
    op
}

fn question(random: &mut Generator) -> ReadStep {
    match random.below(6) {
        0 => ReadStep::Stat,
        1 => ReadStep::Xattr {
            name: pick(random, &XATTRS),
        },
        2 => ReadStep::OmapGet { keys: keys(random) },
        3 => ReadStep::OmapScan {
            start: key(random),
            end: random.chance(500).then(|| key(random)),
            keys_only: random.chance(300),
            count_max: pick(random, &[1, 2, 3, 100]),
        },
        _ => ReadStep::Extents {
            offset: near(random),
            length: near(random),
        },
    }
}

fn step(random: &mut Generator, model: &Model, session: &Session) -> WriteStep {
    let clones = session.limits().clone_range != CloneRange::Unsupported;
    match random.below(20) {
        0..=3 => WriteStep::Write {
            offset: near(random),
            data: payload(random, 1),
        },
        4 | 5 => WriteStep::Append {
            data: payload(random, 0),
        },
        6 => WriteStep::Replace {
            data: payload(random, 0),
        },
        7 | 8 => WriteStep::Zero {
            offset: near(random),
            length: near(random),
        },
        9 | 10 => WriteStep::Truncate { size: near(random) },
        11 => WriteStep::Create,
        12 | 13 => WriteStep::OmapSet {
            entries: keys(random)
                .into_iter()
                .map(|key| (key, value(random)))
                .collect(),
        },
        14 => WriteStep::OmapRemove { keys: keys(random) },
        15 => WriteStep::OmapRemoveRange {
            start: key(random),
            end: key(random),
        },
        16 => WriteStep::XattrSet {
            name: pick(random, &XATTRS[..2]),
            value: value(random),
        },
        17 => WriteStep::epoch_set(XATTRS[2], random.below(4)),
        18 if clones && random.chance(700) => WriteStep::CloneRange {
            source: session.id(name(random)),
            source_offset: near(random),
            offset: near(random),
            length: 1 + near(random),
        },
        18 => WriteStep::XattrRemove {
            name: pick(random, &XATTRS),
        },
        _ => match snapshot(random, model) {
            Some(to) => WriteStep::Rollback { to },
            None => WriteStep::Create,
        },
    }
}

/// Two of three hold.
fn guard(random: &mut Generator, thing: Option<&Thing>) -> Guard {
    let holds = random.below(3) > 0;
    let nothing = Thing::default();
    let stored = thing.unwrap_or(&nothing);
    match random.below(8) {
        0 if holds == thing.is_none() => Guard::Absent,
        0 | 1 => Guard::Exists,
        2 => Guard::VersionIs(Version(stored.version + u64::from(!holds))),
        3 => {
            let offset = near(random);
            let length = near(random).min(9_000);
            let byte = |at| stored.bytes.get(at).copied().unwrap_or(0);
            let start = usize::try_from(offset).expect("near");
            let end = start + usize::try_from(length).expect("near");
            let mut data: Vec<u8> = (start..end).map(byte).collect();
            if !holds && let Some(last) = data.last_mut() {
                *last = last.wrapping_add(1);
            }
            Guard::BytesAre {
                offset,
                data: Bytes::from(data),
            }
        }
        4 | 5 => {
            let key = key(random);
            let stored = stored
                .map
                .get(&key.to_vec())
                .filter(|value| !value.is_empty());
            let value = match (holds, stored) {
                (true, stored) => stored.map(bytes),
                (false, Some(_)) => random.chance(500).then(|| bytes("other")),
                (false, None) => Some(bytes("other")),
            };
            Guard::OmapIs { key, value }
        }
        6 => {
            let name = pick(random, &XATTRS[..2]);
            let stored = stored.attributes.get(name.as_str());
            let value = stored.filter(|_| holds).map_or(bytes("other"), bytes);
            Guard::XattrIs { name, value }
        }
        _ => Guard::XattrAtMost {
            name: XATTRS[2],
            value: random.below(4),
        },
    }
}

fn snapshot(random: &mut Generator, model: &Model) -> Option<SnapId> {
    let ids: Vec<u64> = model.snapshots.keys().copied().collect();
    (!ids.is_empty()).then(|| SnapId(pick(random, &ids)))
}

fn near(random: &mut Generator) -> u64 {
    let edge = pick(random, &SIZES);
    (edge + random.below(5)).saturating_sub(2)
}

fn payload(random: &mut Generator, bytes_min: u64) -> Payload {
    let length = near(random).max(bytes_min);
    let byte = random.below(250).to_le_bytes()[0] + 1;
    let data = bytes(vec![byte; usize::try_from(length).expect("near")]);
    if random.chance(300) {
        let at = usize::try_from(random.below(length + 1)).expect("near");
        return Payload::from(vec![data.slice(..at), data.slice(at..)]);
    }
    data.into()
}

fn key(random: &mut Generator) -> Bytes {
    bytes(pick(random, &KEYS))
}

/// Some keys that may be set: an empty one only bounds ranges.
fn keys(random: &mut Generator) -> Vec<Bytes> {
    let count = 1 + random.below(4);
    (0..count)
        .map(|_| bytes(pick(random, &KEYS[1..])))
        .collect()
}

/// Guarded values are never empty.
fn value(random: &mut Generator) -> Bytes {
    let length = pick(random, &[1, 2, 100, 5_000]);
    bytes(vec![b'a' + random.below(26).to_le_bytes()[0]; length])
}
