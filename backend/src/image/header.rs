//! The header of an RBD image of format 2, as librbd writes it (`cls_rbd`): keys of an omap whose
//! values are little-endian numbers and texts with their length before them.

use bytes::Bytes;

use super::{NewImage, check_layout, odd_answer};
use crate::error::{Error, ErrorKind};
use crate::object::{
    ObjectId, ObjectStore, ReadOp, ReadResult, ReadStep, Version, WriteOp, WriteStep,
};
use crate::stripe::Layout;

/// Names of features that Portico may meet, by their bit (`include/rbd/features.h`).
const FEATURES: [(u64, &str); 11] = [
    (1 << 0, "layering"),
    (1 << 1, "striping"),
    (1 << 2, "exclusive-lock"),
    (1 << 3, "object-map"),
    (1 << 4, "fast-diff"),
    (1 << 5, "deep-flatten"),
    (1 << 6, "journaling"),
    (1 << 7, "data-pool"),
    (1 << 8, "operations"),
    (1 << 9, "migrating"),
    (1 << 10, "non-primary"),
];

const LAYERING: u64 = 1 << 0;
const STRIPING: u64 = 1 << 1;

/// The least and the greatest logarithm of the object size: 4 KiB and 32 MiB.
const ORDER_MIN: u8 = 12;
const ORDER_MAX: u8 = 25;

/// Bytes of an object's prefix, so that a number fits behind it.
const PREFIX_BYTES_MAX: usize = 256;

pub(super) const SIZE: &str = "size";

const KEYS: [&str; 7] = [
    SIZE,
    "order",
    "features",
    "object_prefix",
    "stripe_unit",
    "stripe_count",
    "parent",
];

/// What Portico needs of a header that it can honour.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) size: u64,
    pub(super) layout: Layout,
    pub(super) object_prefix: String,
    pub(super) version: Version,
}

impl Header {
    /// # Errors
    /// `NotFound` if there is none; `Unsupported` for an image that Portico can't honour, with the
    /// reason; `Corrupt` for one that breaks the format.
    pub(super) async fn read(
        store: &dyn ObjectStore,
        object: &ObjectId,
        name: &str,
    ) -> Result<Self, Error> {
        let key = |text: &'static str| Bytes::from_static(text.as_bytes());
        let op = ReadOp::new([
            ReadStep::OmapGet {
                keys: KEYS.map(key).to_vec(),
            },
            ReadStep::OmapScan {
                start: key("snapshot_"),
                end: Some(key("snapshot`")),
                keys_only: true,
                count_max: 1,
            },
        ]);
        let output = store.read(object, op).await?;
        let [
            ReadResult::OmapValues(values),
            ReadResult::OmapPage(snapshots),
        ] = output.results.as_slice()
        else {
            return Err(odd_answer(object));
        };
        let refuse = |problem: String| {
            let context = format!("image {name:?} can't be served: {problem}");
            Error::new(ErrorKind::Unsupported, context)
        };
        if !snapshots.entries.is_empty() || snapshots.more {
            return Err(refuse(
                "it has snapshots; remove them first (rbd snap purge)".to_owned(),
            ));
        }
        let values: Vec<Option<Bytes>> = values.clone();
        decode(&values, output.version, name).map_err(|problem| match problem {
            Problem::Broken(what) => Error::new(
                ErrorKind::Corrupt,
                format!("image {name:?}, header {object}: {what} is missing or not readable"),
            ),
            Problem::Refused(why) => refuse(why),
            Problem::Layout(error) => error,
        })
    }
}

enum Problem {
    Broken(&'static str),
    Refused(String),
    Layout(Error),
}

fn decode(values: &[Option<Bytes>], version: Version, name: &str) -> Result<Header, Problem> {
    let [size, order, features, prefix, unit, count, parent] = values else {
        return Err(Problem::Broken("the answer"));
    };
    let size = number(size.as_ref()).ok_or(Problem::Broken(SIZE))?;
    let features = number(features.as_ref()).ok_or(Problem::Broken("features"))?;
    if features & !(LAYERING | STRIPING) != 0 {
        return Err(Problem::Refused(format!(
            "it has features other than layering and striping: {}; switch them off first (rbd \
             feature disable) or make the image with --image-feature layering",
            feature_names(features & !(LAYERING | STRIPING))
        )));
    }
    if parent.is_some() {
        return Err(Problem::Refused(
            "it is a clone; flatten it first (rbd flatten)".to_owned(),
        ));
    }
    let order = match order.as_deref() {
        Some([order]) => *order,
        _ => return Err(Problem::Broken("order")),
    };
    if !(ORDER_MIN..=ORDER_MAX).contains(&order) {
        return Err(Problem::Refused(format!(
            "its objects have 2^{order} bytes, not 4 KiB to 32 MiB"
        )));
    }
    let object_size = 1_u32 << order;
    let (unit, count) = if features & STRIPING == 0 {
        (u64::from(object_size), 1)
    } else {
        let unit = number(unit.as_ref()).ok_or(Problem::Broken("stripe_unit"))?;
        let count = number(count.as_ref()).ok_or(Problem::Broken("stripe_count"))?;
        (unit, count)
    };
    let layout = check_layout(name, unit, count, object_size).map_err(Problem::Layout)?;
    let object_prefix = prefix
        .as_ref()
        .and_then(|value| text(value))
        .filter(|prefix| !prefix.is_empty() && prefix.len() <= PREFIX_BYTES_MAX)
        .ok_or(Problem::Broken("object_prefix"))?;
    Ok(Header {
        size,
        layout,
        object_prefix: object_prefix.to_owned(),
        version,
    })
}

/// The keys of a new image in the way of `cls_rbd`'s `create` and `set_stripe_unit_count`.
pub(super) fn create(id: &str, image: &NewImage) -> WriteOp {
    let is_striped = image.stripe_count != 1 || image.stripe_unit != image.object_size;
    let features = LAYERING | if is_striped { STRIPING } else { 0 };
    let order = u8::try_from(image.object_size.trailing_zeros()).expect("at most 32");
    let created = time(image.created_ms);
    let mut entries = vec![
        entry(SIZE, le64(image.size_bytes)),
        entry("order", Bytes::from(vec![order])),
        entry("object_prefix", encode_text(&format!("rbd_data.{id}"))),
        entry("features", le64(features)),
        entry("snap_seq", le64(0)),
        entry("create_timestamp", created.clone()),
        entry("access_timestamp", created.clone()),
        entry("modify_timestamp", created),
    ];
    if is_striped {
        entries.push(entry("stripe_unit", le64(u64::from(image.stripe_unit))));
        entries.push(entry("stripe_count", le64(u64::from(image.stripe_count))));
    }
    WriteOp::new([WriteStep::OmapSet { entries }])
}

pub(super) fn set_size(size_bytes: u64) -> WriteStep {
    WriteStep::OmapSet {
        entries: vec![entry(SIZE, le64(size_bytes))],
    }
}

fn entry(key: &'static str, value: Bytes) -> (Bytes, Bytes) {
    (Bytes::from_static(key.as_bytes()), value)
}

/// A text with its length in 4 bytes before it.
pub(super) fn encode_text(text: &str) -> Bytes {
    let length = u32::try_from(text.len()).expect("names are short");
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    Bytes::from(bytes)
}

/// `None` if the length does not fit, or it is no text.
pub(super) fn text(value: &[u8]) -> Option<&str> {
    let (length, text) = value.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length != text.len() {
        return None;
    }
    std::str::from_utf8(text).ok()
}

fn le64(value: u64) -> Bytes {
    Bytes::copy_from_slice(&value.to_le_bytes())
}

fn number(value: Option<&Bytes>) -> Option<u64> {
    let bytes = <[u8; 8]>::try_from(value?.as_ref()).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// Ceph's `utime_t`: seconds and nanoseconds, 4 bytes each.
fn time(ms: u64) -> Bytes {
    let seconds = u32::try_from(ms / 1_000).unwrap_or(u32::MAX);
    let nanoseconds = u32::try_from(ms % 1_000).expect("below 1,000") * 1_000_000;
    Bytes::from([seconds.to_le_bytes(), nanoseconds.to_le_bytes()].concat())
}

fn feature_names(features: u64) -> String {
    let mut names: Vec<String> = FEATURES
        .iter()
        .filter(|(bit, _)| features & bit != 0)
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let known = FEATURES.iter().fold(0, |all, (bit, _)| all | bit);
    if features & !known != 0 {
        names.push(format!("unknown ones ({:#x})", features & !known));
    }
    names.join(", ")
}
