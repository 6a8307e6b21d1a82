//! Values of the rows in a shard.

use bytes::Bytes;

use super::record::{
    Checksum, ChecksumAlgorithm, ChecksumKind, Key, ObjectAbout, ObjectRecord, PartRecord,
    UploadId, UploadRecord, VersionId,
};
use super::row::{self, DataId};
use crate::codec::{DecodeError, Reader, Writer};

const VERSION: u8 = 1;

/// Parts of one object (S3 API).
pub(super) const PARTS_MAX: usize = 10_000;

/// A part table of up to this many bytes lies in the entry.
const TABLE_BYTES_INLINE_MAX: usize = 1_024;

/// Bytes of a part in a table, at least.
const PART_BYTES_MIN: usize = 51;

/// Bytes stored in data objects: the first `object_bytes` in the head, and so on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Span {
    pub(super) data: DataId,
    pub(super) size: u64,
    pub(super) object_bytes: u32,
}

/// One version of a key and where its data lies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) record: ObjectRecord,
    pub(super) location: Location,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Location {
    /// No bytes: an empty object or a delete marker.
    Empty,
    /// The row of kind `INLINE` beside the entry.
    Inline,
    Striped(Span),
    Parts(PartTable),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum PartTable {
    Here(Vec<Part>),
    /// As stored data: [`encode_table`].
    Outside(Span),
}

/// A part and its data; one of size 0 stores none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Part {
    pub(super) record: PartRecord,
    pub(super) span: Span,
}

/// An upload in progress.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Upload {
    pub(super) record: UploadRecord,
    /// Goes up with every part that arrives.
    pub(super) part_changes: u64,
}

/// Data that nothing links any more, to be removed after the grace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Garbage {
    pub(super) unlinked_ms: u64,
    pub(super) what: GarbageWhat,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum GarbageWhat {
    Spans(Vec<Span>),
    /// A part table and all parts in it.
    Table(Span),
}

/// An upload that ended: what its part rows name is garbage, but for what `kept` lists.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Remains {
    pub(super) kept: Option<PartTable>,
}

/// What the head of stored data says about itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Owner {
    pub(super) bucket: u64,
    pub(super) key: Key,
    pub(super) role: Role,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Object,
    Part { upload: UploadId, number: u16 },
    Table { upload: UploadId },
}

impl Entry {
    pub(super) fn encode(&self) -> Bytes {
        let record = &self.record;
        let mut out = Writer::new(VERSION);
        out.bool(record.version != VersionId::Null)
            .bool(record.delete_marker)
            .u64(record.size)
            .u64(record.modified_ms)
            .u32(record.part_count)
            .bool(record.completed_upload.is_some())
            .u128(record.completed_upload.map_or(0, |upload| upload.0));
        put_about(&mut out, &record.about);
        match &self.location {
            Location::Empty => out.u8(0),
            Location::Inline => out.u8(1),
            Location::Striped(span) => put_span(out.u8(2), span),
            Location::Parts(table) => put_table(out.u8(3), table),
        };
        out.finish()
    }

    pub(super) fn decode(row: &[u8], value: &[u8]) -> Result<Self, DecodeError> {
        let (key, suffix) = row::decode_keyed(row).ok_or(DecodeError::Field("an entry's key"))?;
        let sequence = row::sequence_of(suffix).ok_or(DecodeError::Field("a sequence"))?;
        let (mut reader, _) = Reader::new(value, VERSION)?;
        let version = if reader.bool()? {
            VersionId::Numbered(sequence)
        } else {
            VersionId::Null
        };
        let delete_marker = reader.bool()?;
        let (size, modified_ms) = (reader.u64()?, reader.u64()?);
        let part_count = reader.u32()?;
        let (completed, upload) = (reader.bool()?, UploadId(reader.u128()?));
        let about = take_about(&mut reader)?;
        let location = match reader.u8()? {
            0 => Location::Empty,
            1 => Location::Inline,
            2 => Location::Striped(take_span(&mut reader)?),
            3 => Location::Parts(take_table(&mut reader)?),
            _ => return Err(DecodeError::Field("a location")),
        };
        reader.finish()?;
        let record = ObjectRecord {
            key,
            sequence,
            version,
            delete_marker,
            size,
            modified_ms,
            part_count,
            completed_upload: completed.then_some(upload),
            about,
        };
        Ok(Self { record, location })
    }

    /// What is left to remove when this entry goes, but for its inline data: the id that names it
    /// and what it is.
    pub(super) fn garbage(&self) -> Option<(DataId, GarbageWhat)> {
        match &self.location {
            Location::Empty | Location::Inline => None,
            Location::Striped(span) => Some((span.data, GarbageWhat::Spans(vec![*span]))),
            Location::Parts(PartTable::Outside(span)) => {
                Some((span.data, GarbageWhat::Table(*span)))
            }
            Location::Parts(PartTable::Here(parts)) => {
                let spans: Vec<Span> = parts.iter().map(|part| part.span).collect();
                let first = spans.first()?.data;
                Some((first, GarbageWhat::Spans(spans)))
            }
        }
    }
}

impl Upload {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        out.u64(self.record.initiated_ms).u64(self.part_changes);
        match self.record.checksum {
            None => out.u8(0).u8(0),
            Some((algorithm, kind)) => out.u8(algorithm_tag(algorithm)).u8(kind_tag(kind)),
        };
        put_about(&mut out, &self.record.about);
        out.finish()
    }

    pub(super) fn decode(row: &[u8], value: &[u8]) -> Result<Self, DecodeError> {
        let (key, suffix) = row::decode_keyed(row).ok_or(DecodeError::Field("an upload's key"))?;
        let upload = row::upload_of(suffix).ok_or(DecodeError::Field("an upload id"))?;
        let (mut reader, _) = Reader::new(value, VERSION)?;
        let (initiated_ms, part_changes) = (reader.u64()?, reader.u64()?);
        let (algorithm, kind) = (reader.u8()?, reader.u8()?);
        let checksum = match algorithm {
            0 => None,
            tag => Some((algorithm_of(tag)?, kind_of(kind)?)),
        };
        let about = take_about(&mut reader)?;
        reader.finish()?;
        Ok(Self {
            record: UploadRecord {
                key,
                upload,
                initiated_ms,
                about,
                checksum,
            },
            part_changes,
        })
    }
}

impl Part {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        put_part(&mut out, self);
        out.finish()
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(value, VERSION)?;
        let part = take_part(&mut reader)?;
        reader.finish()?;
        Ok(part)
    }
}

impl Garbage {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        out.u64(self.unlinked_ms);
        match &self.what {
            GarbageWhat::Spans(spans) => {
                out.u8(0).count(spans.len());
                for span in spans {
                    put_span(&mut out, span);
                }
            }
            GarbageWhat::Table(span) => {
                put_span(out.u8(1), span);
            }
        }
        out.finish()
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(value, VERSION)?;
        let unlinked_ms = reader.u64()?;
        let what = match reader.u8()? {
            0 => {
                let count = reader.count(SPAN_BYTES)?;
                let spans: Result<_, _> = (0..count).map(|_| take_span(&mut reader)).collect();
                GarbageWhat::Spans(spans?)
            }
            1 => GarbageWhat::Table(take_span(&mut reader)?),
            _ => return Err(DecodeError::Field("a kind of garbage")),
        };
        reader.finish()?;
        Ok(Self { unlinked_ms, what })
    }
}

impl Remains {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        match &self.kept {
            None => out.u8(0),
            Some(table) => put_table(out.u8(1), table),
        };
        out.finish()
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(value, VERSION)?;
        let kept = match reader.u8()? {
            0 => None,
            1 => Some(take_table(&mut reader)?),
            _ => return Err(DecodeError::Field("what an upload keeps")),
        };
        reader.finish()?;
        Ok(Self { kept })
    }
}

impl Owner {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        out.u64(self.bucket).str(self.key.as_str());
        match self.role {
            Role::Object => out.u8(0),
            Role::Part { upload, number } => out.u8(1).u128(upload.0).u16(number),
            Role::Table { upload } => out.u8(2).u128(upload.0),
        };
        out.finish()
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(value, VERSION)?;
        let bucket = reader.u64()?;
        let key = Key::new(reader.str()?).ok_or(DecodeError::Field("a key"))?;
        let role = match reader.u8()? {
            0 => Role::Object,
            1 => Role::Part {
                upload: UploadId(reader.u128()?),
                number: reader.u16()?,
            },
            2 => Role::Table {
                upload: UploadId(reader.u128()?),
            },
            _ => return Err(DecodeError::Field("a role")),
        };
        reader.finish()?;
        Ok(Self { bucket, key, role })
    }
}

/// Whether a table is short enough to lie in the entry.
pub(super) fn is_inline_table(encoded: &[u8]) -> bool {
    encoded.len() <= TABLE_BYTES_INLINE_MAX
}

pub(super) fn encode_table(parts: &[Part]) -> Bytes {
    let mut out = Writer::new(VERSION);
    put_parts(&mut out, parts);
    out.finish()
}

pub(super) fn decode_table(value: &[u8]) -> Result<Vec<Part>, DecodeError> {
    let (mut reader, _) = Reader::new(value, VERSION)?;
    let parts = take_parts(&mut reader)?;
    reader.finish()?;
    Ok(parts)
}

/// 8 + 8 + 8 + 4.
const SPAN_BYTES: usize = 28;

fn put_span<'a>(out: &'a mut Writer, span: &Span) -> &'a mut Writer {
    out.u64(span.data.writer)
        .u64(span.data.counter)
        .u64(span.size)
        .u32(span.object_bytes)
}

fn take_span(reader: &mut Reader<'_>) -> Result<Span, DecodeError> {
    let data = DataId {
        writer: reader.u64()?,
        counter: reader.u64()?,
    };
    let (size, object_bytes) = (reader.u64()?, reader.u32()?);
    if object_bytes == 0 {
        return Err(DecodeError::Field("the size of data objects"));
    }
    Ok(Span {
        data,
        size,
        object_bytes,
    })
}

fn put_table<'a>(out: &'a mut Writer, table: &PartTable) -> &'a mut Writer {
    match table {
        PartTable::Here(parts) => put_parts(out.u8(0), parts),
        PartTable::Outside(span) => put_span(out.u8(1), span),
    }
}

fn take_table(reader: &mut Reader<'_>) -> Result<PartTable, DecodeError> {
    match reader.u8()? {
        0 => Ok(PartTable::Here(take_parts(reader)?)),
        1 => Ok(PartTable::Outside(take_span(reader)?)),
        _ => Err(DecodeError::Field("the place of a part table")),
    }
}

fn put_parts<'a>(out: &'a mut Writer, parts: &[Part]) -> &'a mut Writer {
    out.count(parts.len());
    for part in parts {
        put_part(out, part);
    }
    out
}

fn take_parts(reader: &mut Reader<'_>) -> Result<Vec<Part>, DecodeError> {
    let count = reader.count(PART_BYTES_MIN)?;
    if count > PARTS_MAX {
        return Err(DecodeError::Field("a number of parts"));
    }
    (0..count).map(|_| take_part(reader)).collect()
}

fn put_part(out: &mut Writer, part: &Part) {
    out.u16(part.record.number)
        .u64(part.record.modified_ms)
        .u64(part.record.generation)
        .str(&part.record.etag);
    put_checksum(out, part.record.checksum.as_ref());
    put_span(out, &part.span);
}

fn take_part(reader: &mut Reader<'_>) -> Result<Part, DecodeError> {
    let (number, modified_ms, generation) = (reader.u16()?, reader.u64()?, reader.u64()?);
    let etag = reader.str()?.to_owned();
    let checksum = take_checksum(reader)?;
    let span = take_span(reader)?;
    Ok(Part {
        record: PartRecord {
            number,
            size: span.size,
            modified_ms,
            etag,
            checksum,
            generation,
        },
        span,
    })
}

fn put_about(out: &mut Writer, about: &ObjectAbout) {
    out.str(&about.etag);
    put_checksum(out, about.checksum.as_ref());
    out.str(&about.owner);
    for pairs in [&about.headers, &about.user_metadata, &about.tags] {
        out.count(pairs.len());
        for (name, value) in pairs {
            out.str(name).str(value);
        }
    }
    out.str(&about.storage_class).str(&about.acl);
}

fn take_about(reader: &mut Reader<'_>) -> Result<ObjectAbout, DecodeError> {
    Ok(ObjectAbout {
        etag: reader.str()?.to_owned(),
        checksum: take_checksum(reader)?,
        owner: reader.str()?.to_owned(),
        headers: take_pairs(reader)?,
        user_metadata: take_pairs(reader)?,
        tags: take_pairs(reader)?,
        storage_class: reader.str()?.to_owned(),
        acl: reader.str()?.to_owned(),
    })
}

fn take_pairs(reader: &mut Reader<'_>) -> Result<Vec<(String, String)>, DecodeError> {
    let count = reader.count(8)?;
    (0..count)
        .map(|_| Ok((reader.str()?.to_owned(), reader.str()?.to_owned())))
        .collect()
}

fn put_checksum(out: &mut Writer, checksum: Option<&Checksum>) {
    match checksum {
        None => {
            out.u8(0);
        }
        Some(sum) => {
            out.u8(algorithm_tag(sum.algorithm))
                .u8(kind_tag(sum.kind))
                .bytes(&sum.value);
        }
    }
}

fn take_checksum(reader: &mut Reader<'_>) -> Result<Option<Checksum>, DecodeError> {
    let tag = reader.u8()?;
    if tag == 0 {
        return Ok(None);
    }
    Ok(Some(Checksum {
        algorithm: algorithm_of(tag)?,
        kind: kind_of(reader.u8()?)?,
        value: reader.bytes()?.to_vec(),
    }))
}

fn algorithm_tag(algorithm: ChecksumAlgorithm) -> u8 {
    match algorithm {
        ChecksumAlgorithm::Crc32 => 1,
        ChecksumAlgorithm::Crc32c => 2,
        ChecksumAlgorithm::Crc64Nvme => 3,
        ChecksumAlgorithm::Sha1 => 4,
        ChecksumAlgorithm::Sha256 => 5,
    }
}

fn algorithm_of(tag: u8) -> Result<ChecksumAlgorithm, DecodeError> {
    match tag {
        1 => Ok(ChecksumAlgorithm::Crc32),
        2 => Ok(ChecksumAlgorithm::Crc32c),
        3 => Ok(ChecksumAlgorithm::Crc64Nvme),
        4 => Ok(ChecksumAlgorithm::Sha1),
        5 => Ok(ChecksumAlgorithm::Sha256),
        _ => Err(DecodeError::Field("a checksum algorithm")),
    }
}

fn kind_tag(kind: ChecksumKind) -> u8 {
    match kind {
        ChecksumKind::Composite => 1,
        ChecksumKind::FullObject => 2,
    }
}

fn kind_of(tag: u8) -> Result<ChecksumKind, DecodeError> {
    match tag {
        1 => Ok(ChecksumKind::Composite),
        2 => Ok(ChecksumKind::FullObject),
        _ => Err(DecodeError::Field("a checksum kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(counter: u64) -> Span {
        Span {
            data: DataId { writer: 3, counter },
            size: 7_000_000,
            object_bytes: 4_194_304,
        }
    }

    fn part(number: u16) -> Part {
        let span = span(u64::from(number));
        Part {
            record: PartRecord {
                number,
                size: span.size,
                modified_ms: 5,
                etag: "abc".to_owned(),
                checksum: Some(Checksum {
                    algorithm: ChecksumAlgorithm::Crc64Nvme,
                    kind: ChecksumKind::FullObject,
                    value: vec![1; 8],
                }),
                generation: 9,
            },
            span,
        }
    }

    fn entry(location: Location) -> Entry {
        let pair = |text: &str| vec![(text.to_owned(), "value".to_owned())];
        Entry {
            record: ObjectRecord {
                key: Key::new("k\0/\u{e4}").unwrap(),
                sequence: 77,
                version: VersionId::Null,
                delete_marker: false,
                size: 12,
                modified_ms: 34,
                part_count: 2,
                completed_upload: Some(UploadId(1 << 100)),
                about: ObjectAbout {
                    etag: "e".to_owned(),
                    checksum: None,
                    owner: "me".to_owned(),
                    headers: pair("content-type"),
                    user_metadata: pair("a"),
                    tags: pair("t"),
                    storage_class: "COLD".to_owned(),
                    acl: "private".to_owned(),
                },
            },
            location,
        }
    }

    #[test]
    fn rows_read_back_and_every_cut_is_refused() {
        for location in [
            Location::Empty,
            Location::Inline,
            Location::Striped(span(1)),
            Location::Parts(PartTable::Here(vec![part(1), part(2)])),
            Location::Parts(PartTable::Outside(span(2))),
        ] {
            let entry = entry(location);
            let row = row::entry(&entry.record.key, entry.record.sequence);
            let value = entry.encode();
            assert_eq!(Entry::decode(&row, &value), Ok(entry));
            for cut in 0..value.len() {
                assert!(Entry::decode(&row, &value[..cut]).is_err());
            }
        }
    }

    #[test]
    fn the_smallest_part_is_not_smaller_than_counted() {
        let mut small = part(1);
        small.record.etag.clear();
        small.record.checksum = None;
        // Version tag and count come before.
        assert_eq!(encode_table(&[small]).len() - 5, PART_BYTES_MIN);
        let parts: Vec<Part> = (1..=10_000).map(part).collect();
        assert_eq!(decode_table(&encode_table(&parts)), Ok(parts));
    }

    #[test]
    fn uploads_garbage_and_owners_read_back() {
        let upload = Upload {
            record: UploadRecord {
                key: Key::new("k").unwrap(),
                upload: UploadId(4),
                initiated_ms: 5,
                about: ObjectAbout::default(),
                checksum: Some((ChecksumAlgorithm::Sha1, ChecksumKind::Composite)),
            },
            part_changes: 6,
        };
        let row = row::upload(&upload.record.key, upload.record.upload);
        assert_eq!(Upload::decode(&row, &upload.encode()), Ok(upload));
        for what in [
            GarbageWhat::Spans(vec![span(1), span(2)]),
            GarbageWhat::Table(span(3)),
        ] {
            let garbage = Garbage {
                unlinked_ms: 1,
                what,
            };
            assert_eq!(Garbage::decode(&garbage.encode()), Ok(garbage));
        }
        for kept in [None, Some(PartTable::Here(vec![part(1)]))] {
            let remains = Remains { kept };
            assert_eq!(Remains::decode(&remains.encode()), Ok(remains));
        }
        for role in [
            Role::Object,
            Role::Part {
                upload: UploadId(1),
                number: 2,
            },
            Role::Table {
                upload: UploadId(1),
            },
        ] {
            let owner = Owner {
                bucket: 1,
                key: Key::new("k").unwrap(),
                role,
            };
            assert_eq!(Owner::decode(&owner.encode()), Ok(owner));
        }
    }
}
