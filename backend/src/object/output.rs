//! What a read gives back.

use bytes::Bytes;

use super::{ListCursor, ObjectName, Version};

/// One result for each step of the operation, in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadOutput {
    pub version: Version,
    pub results: Vec<ReadResult>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReadResult {
    Stat {
        size: u64,
    },
    /// Data in ascending order without overlap, clipped to the object's size. What lies between
    /// reads as zeros; an engine without sparse reads gives the zeros too.
    Extents(Vec<Extent>),
    /// `None` if the object has no such attribute.
    Xattr(Option<Bytes>),
    /// One value for each key asked for, in the order asked.
    OmapValues(Vec<Option<Bytes>>),
    OmapPage(OmapPage),
}

/// Bytes of an object from `offset` on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Extent {
    pub offset: u64,
    pub data: Bytes,
}

/// Part of an omap in ascending order of keys.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OmapPage {
    /// Key and value; the value is empty in a scan of keys only.
    pub entries: Vec<(Bytes, Bytes)>,
    /// Whether keys in the asked range remain behind the last entry. May be so with fewer entries
    /// than asked for.
    pub more: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListPage {
    pub names: Vec<ObjectName>,
    /// `None` at the end.
    pub next: Option<ListCursor>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Bytes the pool's device may hold.
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub object_count: u64,
}
