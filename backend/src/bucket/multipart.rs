//! Multipart uploads: parts are rows beside the upload's own, and completion links them in one
//! step in the key's shard.

use std::sync::Arc;

use bytes::Bytes;

use super::change::{Answer, Change, Completion};
use super::data::{DataWriter, Staged, Written};
use super::entry::{
    Owner, PARTS_MAX, Part, PartTable, Role, Span, Upload, encode_table, is_inline_table,
};
use super::error::Error;
use super::object::OBJECT_SIZE_MAX;
use super::record::{Checksum, Key, ObjectAbout, ObjectRecord, PartRecord, Precondition, UploadId};
use super::row;
use super::{BucketId, Shared, corrupt};
use crate::object::{ReadResult, ReadStep};

/// Bytes of a part (S3 API, "Multipart upload limits"): 5 GiB.
const PART_SIZE_MAX: u64 = 5 << 30;

/// How often a completion is tried while parts go on arriving.
const TRIES_MAX: u32 = 8;

/// An upload to be ended with an object, and what the object shall be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completing<'a> {
    pub(super) key: &'a Key,
    pub(super) upload: UploadId,
    pub(super) parts: &'a [PartRecord],
    pub(super) about: &'a ObjectAbout,
    pub(super) precondition: &'a Precondition,
}

/// Writes one part of an upload. Dropped without `finish`, nothing stays behind.
#[derive(Debug)]
pub struct PartWriter {
    shared: Arc<Shared>,
    id: BucketId,
    key: Key,
    upload: UploadId,
    number: u16,
    data: DataWriter,
}

impl PartWriter {
    pub(super) fn new(
        shared: &Arc<Shared>,
        id: BucketId,
        key: Key,
        upload: UploadId,
        number: u16,
    ) -> Self {
        let owner = Owner {
            bucket: id.0,
            key: key.clone(),
            role: Role::Part { upload, number },
        };
        Self {
            shared: Arc::clone(shared),
            id,
            key,
            upload,
            number,
            data: DataWriter::new(shared, owner, PART_SIZE_MAX, 0),
        }
    }

    /// Appends `data`. Waits while the store is behind, so memory stays at a few MiB.
    ///
    /// # Errors
    /// `EntityTooLarge` beyond 5 GiB; `Store` if the store fails. The part is lost then.
    pub async fn write(&mut self, data: Bytes) -> Result<(), Error> {
        self.data.write(data).await
    }

    /// Makes the part one of the upload's.
    ///
    /// # Errors
    /// `NoSuchUpload`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn finish(
        self,
        etag: String,
        checksum: Option<Checksum>,
    ) -> Result<PartRecord, Error> {
        let (span, staged) = match self.data.finish().await? {
            Written::Staged(staged) => (staged.span(), Some(staged)),
            Written::Empty | Written::Inline(_) => {
                // An id alone, by which the part's row differs from others; nothing is stored.
                let span = Span {
                    data: self.shared.new_data_id().await?,
                    size: 0,
                    object_bytes: self.shared.options.object_bytes,
                };
                self.shared.settle_id(span.data);
                (span, None)
            }
        };
        let change = Change::PutPart {
            upload: self.upload,
            number: self.number,
            etag,
            checksum,
            span,
        };
        let answer = self.shared.change(self.id, &self.key, change, staged);
        let Answer::Part(record) = answer.await? else {
            unreachable!("a part answers with a part")
        };
        Ok(record)
    }
}

impl Shared {
    /// The upload and a page of its parts.
    pub(super) async fn read_parts(
        &self,
        id: BucketId,
        key: &Key,
        upload: UploadId,
        after: u16,
        count_max: u32,
    ) -> Result<(Upload, Vec<Part>, bool), Error> {
        let upload_row = row::upload(key, upload);
        let range = row::parts_after(key, upload, after);
        let steps = [
            ReadStep::OmapGet {
                keys: vec![upload_row.clone()],
            },
            ReadStep::OmapScan {
                start: range.start.clone(),
                end: Some(range.end.clone()),
                keys_only: false,
                count_max: count_max.clamp(1, self.scan_rows_max()),
            },
        ];
        let place = row::place(&upload_row);
        let (object, output, view) = self.read_at(id, place, steps).await?;
        let value = view.row(&upload_row).ok_or(Error::NoSuchUpload)?;
        let upload = Upload::decode(&upload_row, value).map_err(|e| corrupt(&object, e))?;
        if count_max == 0 {
            return Ok((upload, Vec::new(), false));
        }
        let more = match output.results.last() {
            Some(ReadResult::OmapPage(page)) => page.more,
            _ => false,
        };
        let parts = view.rows_in(&range).map(|(_, value)| Part::decode(value));
        let parts: Result<Vec<Part>, _> = parts.collect();
        Ok((upload, parts.map_err(|e| corrupt(&object, e))?, more))
    }

    pub(super) async fn complete_upload(
        self: &Arc<Self>,
        id: BucketId,
        completing: &Completing<'_>,
    ) -> Result<ObjectRecord, Error> {
        let (key, upload) = (completing.key, completing.upload);
        for _round in 0..TRIES_MAX {
            let chosen = match self.choose_parts(id, key, upload, completing.parts).await {
                Ok(chosen) => chosen,
                Err(Error::NoSuchUpload) => return self.completed(id, key, upload).await,
                Err(error) => return Err(error),
            };
            let (part_changes, parts) = chosen;
            let size = parts.iter().map(|part| part.span.size).sum();
            if size > OBJECT_SIZE_MAX {
                return Err(Error::EntityTooLarge);
            }
            let (table, staged) = self.store_table(id, key, upload, &parts).await?;
            let change = Change::Complete(Completion {
                upload,
                part_changes,
                table,
                part_count: u32::try_from(parts.len()).expect("10,000 at most"),
                size,
                about: completing.about.clone(),
                precondition: completing.precondition.clone(),
            });
            match self.change(id, key, change, staged).await? {
                Answer::Object(record) | Answer::Repeated(record) => return Ok(*record),
                Answer::Stale => {}
                Answer::Deleted(_)
                | Answer::Done
                | Answer::Part(_)
                | Answer::Labelled(_)
                | Answer::Upload(_) => unreachable!("a completion answers with an object"),
            }
        }
        Err(Error::Conflict)
    }

    /// The object that an upload that ended was completed to, while it is current.
    async fn completed(
        &self,
        id: BucketId,
        key: &Key,
        upload: UploadId,
    ) -> Result<ObjectRecord, Error> {
        match self.find_entry(id, key, None).await {
            Ok(entry) if entry.record.completed_upload == Some(upload) => Ok(entry.record),
            Ok(_) | Err(Error::NoSuchKey) => Err(Error::NoSuchUpload),
            Err(error) => Err(error),
        }
    }

    /// The parts that are wanted, as they are now, and the upload's count of changes before they
    /// were read.
    async fn choose_parts(
        &self,
        id: BucketId,
        key: &Key,
        upload: UploadId,
        wanted: &[PartRecord],
    ) -> Result<(u64, Vec<Part>), Error> {
        let mut wanted = wanted.iter().peekable();
        let mut chosen = Vec::with_capacity(wanted.len().min(PARTS_MAX));
        let (mut after, mut part_changes) = (0, None);
        loop {
            let page = self.read_parts(id, key, upload, after, u32::MAX).await?;
            let (state, parts, more) = page;
            let part_changes = *part_changes.get_or_insert(state.part_changes);
            after = parts.last().map_or(u16::MAX, |part| part.record.number);
            for part in parts {
                let record = &part.record;
                let next = wanted.peek();
                if next.is_some_and(|want| want.number < record.number) {
                    break;
                }
                if next.is_some_and(|want| want.number == record.number) {
                    let want = wanted.next().expect("it was seen");
                    if want.generation != record.generation || want.etag != record.etag {
                        return Err(Error::InvalidPart {
                            number: want.number,
                        });
                    }
                    chosen.push(part);
                }
            }
            match wanted.peek() {
                Some(want) if want.number <= after || !more => {
                    return Err(Error::InvalidPart {
                        number: want.number,
                    });
                }
                Some(_) => {}
                None => return Ok((part_changes, chosen)),
            }
        }
    }

    async fn store_table(
        self: &Arc<Self>,
        id: BucketId,
        key: &Key,
        upload: UploadId,
        parts: &[Part],
    ) -> Result<(PartTable, Option<Staged>), Error> {
        let encoded = encode_table(parts);
        if is_inline_table(&encoded) {
            return Ok((PartTable::Here(parts.to_vec()), None));
        }
        let owner = Owner {
            bucket: id.0,
            key: key.clone(),
            role: Role::Table { upload },
        };
        let mut writer = DataWriter::new(self, owner, u64::MAX, 0);
        writer.write(encoded).await?;
        match writer.finish().await? {
            Written::Staged(staged) => Ok((PartTable::Outside(staged.span()), Some(staged))),
            Written::Empty | Written::Inline(_) => unreachable!("a table has bytes"),
        }
    }
}
