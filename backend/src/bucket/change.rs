//! Changes of one key, decided on a view of its shard: pure functions of what was read.

use bytes::Bytes;

use super::entry::{Entry, Garbage, GarbageWhat, Location, Part, PartTable, Remains, Span, Upload};
use super::error::Error;
use super::record::{
    Checksum, DeleteOutcome, Key, ObjectAbout, ObjectRecord, PartRecord, Precondition, UploadId,
    UploadRecord, VersionId,
};
use super::row::{self, ENTRY, UPLOAD};
use super::shard::View;
use crate::codec::DecodeError;
use crate::object::ReadStep;

/// A change of one key.
#[derive(Debug)]
pub(super) enum Change {
    Abort {
        upload: UploadId,
    },
    /// Removes rows of garbage and part rows that were dealt with.
    Collect {
        rows: Vec<Bytes>,
    },
    Complete(Completion),
    Delete {
        version: Option<VersionId>,
        precondition: Precondition,
    },
    Put {
        about: ObjectAbout,
        content: Content,
        precondition: Precondition,
    },
    PutPart {
        upload: UploadId,
        number: u16,
        etag: String,
        checksum: Option<Checksum>,
        span: Span,
    },
    SetLabel {
        version: Option<VersionId>,
        label: Label,
    },
    UploadBegin(Box<UploadRecord>),
}

/// What may change of an object without its data.
#[derive(Clone, Debug)]
pub(super) enum Label {
    Acl(String),
    Tags(Vec<(String, String)>),
}

/// The data of an object.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Empty,
    Inline(Bytes),
    Striped(Span),
}

/// The end of an upload with an object.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) upload: UploadId,
    /// The upload's parts are as they were when the table was made.
    pub(super) part_changes: u64,
    pub(super) table: PartTable,
    pub(super) part_count: u32,
    pub(super) size: u64,
    pub(super) about: ObjectAbout,
    pub(super) precondition: Precondition,
}

/// What a change did.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Deleted(DeleteOutcome),
    Done,
    Object(Box<ObjectRecord>),
    Part(PartRecord),
    /// The upload was completed before, and this is the object.
    Repeated(Box<ObjectRecord>),
    /// The parts changed since the table was made.
    Stale,
    Labelled(VersionId),
    Upload(Box<UploadRecord>),
}

/// Why a change was not decided.
#[derive(Debug)]
pub(super) enum Refusal {
    Decode(DecodeError),
    Error(Error),
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Change {
    /// What must be read of the shard to decide it.
    pub(super) fn reads(&self, key: &Key) -> Vec<ReadStep> {
        let get = |row: Bytes| ReadStep::OmapGet { keys: vec![row] };
        match self {
            Self::Abort { upload } => vec![get(row::upload(key, *upload))],
            Self::Collect { rows } => vec![ReadStep::OmapGet { keys: rows.clone() }],
            Self::Complete(completion) => {
                vec![newest(key), get(row::upload(key, completion.upload))]
            }
            Self::Delete { version, .. } | Self::SetLabel { version, .. } => match version {
                Some(VersionId::Numbered(sequence)) => vec![get(row::entry(key, *sequence))],
                None | Some(VersionId::Null) => vec![newest(key)],
            },
            Self::Put { .. } => vec![newest(key)],
            Self::PutPart { upload, number, .. } => vec![ReadStep::OmapGet {
                keys: vec![row::upload(key, *upload), row::part(key, *upload, *number)],
            }],
            Self::UploadBegin(_) => Vec::new(),
        }
    }

    /// Bytes that it puts into the shard, roughly.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Put {
                content: Content::Inline(data),
                ..
            } => data.len() + 1_024,
            Self::Collect { rows } => rows.len() * 64,
            Self::Abort { .. }
            | Self::Complete(_)
            | Self::Delete { .. }
            | Self::Put { .. }
            | Self::PutPart { .. }
            | Self::SetLabel { .. }
            | Self::UploadBegin(_) => 2_048,
        }
    }

    /// Whether it only takes away.
    pub(super) fn is_freeing(&self) -> bool {
        match self {
            Self::Abort { .. } | Self::Collect { .. } | Self::Delete { .. } => true,
            Self::Complete(_)
            | Self::Put { .. }
            | Self::PutPart { .. }
            | Self::SetLabel { .. }
            | Self::UploadBegin(_) => false,
        }
    }

    /// Rows that it reads or writes, at most.
    pub(super) fn row_count(&self) -> usize {
        match self {
            Self::Collect { rows } => rows.len(),
            Self::Abort { .. }
            | Self::Complete(_)
            | Self::Delete { .. }
            | Self::Put { .. }
            | Self::PutPart { .. }
            | Self::SetLabel { .. }
            | Self::UploadBegin(_) => 6,
        }
    }

    /// Decides the change and notes it in the view.
    pub(super) fn decide(
        &self,
        key: &Key,
        view: &mut View,
        now_ms: u64,
    ) -> Result<Answer, Refusal> {
        match self {
            Self::Abort { upload } => {
                end_upload(key, *upload, None, view)?;
                Ok(Answer::Done)
            }
            Self::Collect { rows } => {
                for row in rows
                    .iter()
                    .filter(|row| view.row(row).is_some())
                    .cloned()
                    .collect::<Vec<_>>()
                {
                    view.remove(row);
                }
                Ok(Answer::Done)
            }
            Self::Complete(completion) => complete(key, completion, view, now_ms),
            Self::Delete {
                version,
                precondition,
            } => delete(key, *version, precondition, view, now_ms),
            Self::Put {
                about,
                content,
                precondition,
            } => put(key, about, content, precondition, view, now_ms),
            Self::PutPart { upload, .. } => self.put_part(key, *upload, view, now_ms),
            Self::SetLabel { version, label } => set_label(key, *version, label, view),
            Self::UploadBegin(record) => {
                let upload = Upload {
                    record: (**record).clone(),
                    part_changes: 0,
                };
                view.set(row::upload(key, record.upload), upload.encode());
                Ok(Answer::Upload(record.clone()))
            }
        }
    }

    fn put_part(
        &self,
        key: &Key,
        upload: UploadId,
        view: &mut View,
        now_ms: u64,
    ) -> Result<Answer, Refusal> {
        let Self::PutPart {
            number,
            etag,
            checksum,
            span,
            ..
        } = self
        else {
            unreachable!("called for a part alone")
        };
        let mut state = upload_of(key, upload, view)?.ok_or(Error::NoSuchUpload)?;
        state.part_changes += 1;
        let part_row = row::part(key, upload, *number);
        if let Some(value) = view.row(&part_row) {
            let old = Part::decode(value)?;
            if old.span.size > 0 {
                let what = GarbageWhat::Spans(vec![old.span]);
                unlink(key, old.span.data, what, view, now_ms);
            }
        }
        let part = Part {
            record: PartRecord {
                number: *number,
                size: span.size,
                modified_ms: now_ms,
                etag: etag.clone(),
                checksum: checksum.clone(),
                generation: state.part_changes,
            },
            span: *span,
        };
        view.set(part_row, part.encode());
        view.set(row::upload(key, upload), state.encode());
        Ok(Answer::Part(part.record))
    }
}

/// The newest version of a key.
fn newest(key: &Key) -> ReadStep {
    let range = row::key_range(ENTRY, key);
    ReadStep::OmapScan {
        start: range.start,
        end: Some(range.end),
        keys_only: false,
        count_max: 1,
    }
}

/// The newest version of a key in a view.
pub(super) fn current(key: &Key, view: &View) -> Result<Option<Entry>, DecodeError> {
    view.first(&row::key_range(ENTRY, key))
        .map(|(row, value)| Entry::decode(row, value))
        .transpose()
}

/// The version of a key that is asked for, in a view that holds the newest one and any that a
/// number names.
pub(super) fn find(
    key: &Key,
    version: Option<VersionId>,
    view: &View,
) -> Result<Option<Entry>, DecodeError> {
    match version {
        None => current(key, view),
        Some(VersionId::Null) => {
            Ok(current(key, view)?.filter(|entry| entry.record.version == VersionId::Null))
        }
        Some(VersionId::Numbered(sequence)) => {
            let row = row::entry(key, sequence);
            let entry = view.row(&row).map(|value| Entry::decode(&row, value));
            let entry = entry.transpose()?;
            Ok(entry.filter(|entry| entry.record.version != VersionId::Null))
        }
    }
}

fn put(
    key: &Key,
    about: &ObjectAbout,
    content: &Content,
    precondition: &Precondition,
    view: &mut View,
    now_ms: u64,
) -> Result<Answer, Refusal> {
    let (size, location) = match content {
        Content::Empty => (0, Location::Empty),
        Content::Inline(data) => (data.len() as u64, Location::Inline),
        Content::Striped(span) => (span.size, Location::Striped(*span)),
    };
    let record = ObjectRecord {
        key: key.clone(),
        sequence: 0,
        version: VersionId::Null,
        delete_marker: false,
        size,
        modified_ms: 0,
        part_count: 0,
        completed_upload: None,
        about: about.clone(),
    };
    let record = link(Entry { record, location }, precondition, view, now_ms)?;
    if let Content::Inline(data) = content {
        view.set(row::inline(key, record.sequence), stored_inline(data));
    }
    Ok(Answer::Object(Box::new(record)))
}

fn complete(
    key: &Key,
    completion: &Completion,
    view: &mut View,
    now_ms: u64,
) -> Result<Answer, Refusal> {
    let Some(upload) = upload_of(key, completion.upload, view)? else {
        let repeated = current(key, view)?
            .filter(|entry| entry.record.completed_upload == Some(completion.upload));
        return match repeated {
            Some(entry) => Ok(Answer::Repeated(Box::new(entry.record))),
            None => Err(Error::NoSuchUpload.into()),
        };
    };
    if upload.part_changes != completion.part_changes {
        return Ok(Answer::Stale);
    }
    let record = ObjectRecord {
        key: key.clone(),
        sequence: 0,
        version: VersionId::Null,
        delete_marker: false,
        size: completion.size,
        modified_ms: 0,
        part_count: completion.part_count,
        completed_upload: Some(completion.upload),
        about: completion.about.clone(),
    };
    let location = Location::Parts(completion.table.clone());
    let entry = Entry { record, location };
    let record = link(entry, &completion.precondition, view, now_ms)?;
    end_upload(key, completion.upload, Some(completion.table.clone()), view)?;
    Ok(Answer::Object(Box::new(record)))
}

/// Makes `entry` the key's newest version in place of its null version, with a sequence and a time
/// above the last ones whatever the clock says.
fn link(
    mut entry: Entry,
    precondition: &Precondition,
    view: &mut View,
    now_ms: u64,
) -> Result<ObjectRecord, Refusal> {
    let key = entry.record.key.clone();
    let old = current(&key, view)?;
    precondition
        .check(old.as_ref().map(|old| &old.record))
        .map_err(Error::PreconditionFailed)?;
    let (sequence, modified_ms) = match &old {
        Some(old) => (old.record.sequence + 1, old.record.modified_ms),
        None => (0, 0),
    };
    entry.record.sequence = sequence.max(now_ms);
    entry.record.modified_ms = modified_ms.max(now_ms);
    if let Some(old) = old
        && old.record.version == VersionId::Null
    {
        remove_entry(&old, view, now_ms);
    }
    view.count_object(true, entry.record.size);
    view.set(row::entry(&key, entry.record.sequence), entry.encode());
    Ok(entry.record)
}

fn delete(
    key: &Key,
    version: Option<VersionId>,
    precondition: &Precondition,
    view: &mut View,
    now_ms: u64,
) -> Result<Answer, Refusal> {
    let found = find(key, version, view)?;
    precondition
        .check(found.as_ref().map(|entry| &entry.record))
        .map_err(Error::PreconditionFailed)?;
    let Some(entry) = found else {
        return Ok(Answer::Deleted(DeleteOutcome::default()));
    };
    remove_entry(&entry, view, now_ms);
    let id = Some(entry.record.version);
    Ok(Answer::Deleted(DeleteOutcome {
        deleted: id,
        delete_marker: id.filter(|_| entry.record.delete_marker),
    }))
}

fn set_label(
    key: &Key,
    version: Option<VersionId>,
    label: &Label,
    view: &mut View,
) -> Result<Answer, Refusal> {
    let missing = match version {
        None => Error::NoSuchKey,
        Some(_) => Error::NoSuchVersion,
    };
    let found = find(key, version, view)?.filter(|entry| !entry.record.delete_marker);
    let mut entry = found.ok_or(missing)?;
    let about = &mut entry.record.about;
    match label {
        Label::Acl(acl) => about.acl.clone_from(acl),
        Label::Tags(tags) => about.tags.clone_from(tags),
    }
    view.set(row::entry(key, entry.record.sequence), entry.encode());
    Ok(Answer::Labelled(entry.record.version))
}

/// Takes a version away; its data becomes garbage in the same step.
fn remove_entry(entry: &Entry, view: &mut View, now_ms: u64) {
    let record = &entry.record;
    if let Some((id, what)) = entry.garbage() {
        unlink(&record.key, id, what, view, now_ms);
    }
    if entry.location == Location::Inline {
        view.remove(row::inline(&record.key, record.sequence));
    }
    view.remove(row::entry(&record.key, record.sequence));
    if !record.delete_marker {
        view.count_object(false, record.size);
    }
}

fn unlink(key: &Key, id: row::DataId, what: GarbageWhat, view: &mut View, now_ms: u64) {
    let garbage = Garbage {
        unlinked_ms: now_ms,
        what,
    };
    view.set(row::garbage(key, id), garbage.encode());
}

/// Ends an upload; its part rows stay for reclaim, which spares what `kept` lists.
fn end_upload(
    key: &Key,
    upload: UploadId,
    kept: Option<PartTable>,
    view: &mut View,
) -> Result<(), Refusal> {
    upload_of(key, upload, view)?.ok_or(Error::NoSuchUpload)?;
    view.remove(row::upload(key, upload));
    view.set(row::remains(key, upload), Remains { kept }.encode());
    Ok(())
}

fn upload_of(key: &Key, upload: UploadId, view: &View) -> Result<Option<Upload>, DecodeError> {
    let row = row::upload(key, upload);
    debug_assert_eq!(row.first(), Some(&UPLOAD));
    view.row(&row)
        .map(|value| Upload::decode(&row, value))
        .transpose()
}

/// The version tag of inline data, so that no stored value is empty or without one.
const INLINE_VERSION: u8 = 1;

fn stored_inline(data: &Bytes) -> Bytes {
    [&[INLINE_VERSION], data.as_ref()].concat().into()
}

/// The data in an inline row.
pub(super) fn inline_data(value: &Bytes) -> Result<Bytes, DecodeError> {
    match value.first() {
        Some(&INLINE_VERSION) => Ok(value.slice(1..)),
        Some(&other) => Err(DecodeError::Version(other)),
        None => Err(DecodeError::Truncated),
    }
}
