//! Data that an ended writer left behind without a link.
//!
//! Only ids of writers are examined that can write no more. The head says for which key the data
//! was written; the rows of that key, read in one operation, say whether anything names it.

use std::sync::Arc;

use bytes::Bytes;

use super::data::{OWNER, WRITES_MAX};
use super::entry::{Entry, Garbage, GarbageWhat, Location, Owner, Part, PartTable, Role, Span};
use super::error::Error;
use super::map::BucketState;
use super::reclaim::{Task, next_start};
use super::record::UploadId;
use super::row::{self, DataId, ENTRY, GARBAGE, RowRange};
use super::shard::View;
use super::sweep::OBJECTS_PER_STEP;
use super::writer::{WriterRecord, number_of, writer_row, writers_object};
use super::{BucketId, Shared, corrupt, may_pass, odd_answer};
use crate::codec::DecodeError;
use crate::error::{Error as StoreError, ErrorKind};
use crate::object::{Guard, ObjectId, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep};

/// Ids examined in one step.
const IDS_PER_STEP: u64 = 64;

/// Rows of one key and kind that are looked through.
const ROWS_MAX: u32 = 300;

impl Shared {
    pub(super) async fn reclaim_writers(
        &self,
        start: Bytes,
        more: &mut Vec<Task>,
    ) -> Result<u64, Error> {
        let object = writers_object(&self.meta);
        let end = Bytes::from_static(&[0xff; 16]);
        let Some(page) = self.page(&object, RowRange { start, end }).await? else {
            return Ok(0);
        };
        for (row, value) in &page.entries {
            let Some(number) = number_of(row) else {
                continue;
            };
            let record = WriterRecord::decode(value).map_err(|e| corrupt(&object, e))?;
            if number != self.writer.number && self.has_ended(&record).await? {
                more.push(Task::Writer { number, record });
            }
        }
        if let Some(start) = next_start(&page) {
            more.push(Task::Writers { start });
        }
        Ok(0)
    }

    /// Whether a writer can write no more, whatever becomes of its session.
    pub(super) async fn has_writer_ended(&self, number: u64) -> Result<bool, Error> {
        let object = writers_object(&self.meta);
        let rows = self.rows_of(&object, &[writer_row(number)]).await?;
        match rows.into_iter().next().flatten() {
            // All it made was examined.
            None => Ok(true),
            Some(value) => {
                let record = WriterRecord::decode(&value).map_err(|e| corrupt(&object, e))?;
                self.has_ended(&record).await
            }
        }
    }

    async fn has_ended(&self, record: &WriterRecord) -> Result<bool, Error> {
        if record.ended {
            return Ok(true);
        }
        if record.session == self.store.session() {
            return Ok(false);
        }
        Ok(!self.store.may_write(&record.session).await?)
    }

    pub(super) async fn reclaim_writer(
        self: &Arc<Self>,
        number: u64,
        record: WriterRecord,
        more: &mut Vec<Task>,
    ) -> Result<u64, Error> {
        let last = record.high_water.min(record.examined + IDS_PER_STEP);
        let (mut end, mut removed) = (record.examined, 0);
        while end < last && removed < OBJECTS_PER_STEP {
            let counter = end;
            let data = DataId {
                writer: number,
                counter,
            };
            match self.examine(data).await? {
                Some(count) => removed += count,
                // Not decided yet; the next round begins here again.
                None => return Ok(removed),
            }
            end += 1;
        }
        let examined = WriterRecord {
            examined: end,
            // It stays so, also if its session is taken off a blocklist.
            ended: true,
            ..record.clone()
        };
        let row = writer_row(number);
        let step = if end == record.high_water {
            WriteStep::OmapRemove {
                keys: vec![row.clone()],
            }
        } else {
            WriteStep::OmapSet {
                entries: vec![(row.clone(), examined.encode())],
            }
        };
        let op = WriteOp::new([step]).guarded(Guard::OmapIs {
            key: row,
            value: Some(record.encode()),
        });
        match self.write(&writers_object(&self.meta), op).await {
            Ok(_) => {
                if end < record.high_water {
                    more.push(Task::Writer {
                        number,
                        record: examined,
                    });
                }
            }
            // Another node examines the same writer, or the next round does.
            Err(error) if error.kind() == ErrorKind::GuardFailed || may_pass(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(removed)
    }

    /// Removes what an id holds if nothing names it, and says how many objects these were. `None`:
    /// not to be decided now.
    async fn examine(&self, data: DataId) -> Result<Option<u64>, Error> {
        let head = self.data_object(data, 0);
        let op = ReadOp::new([ReadStep::Xattr { name: OWNER }]);
        let output = match self.read_retried(&head, op).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(0)),
            other => other?,
        };
        let Some(ReadResult::Xattr(value)) = output.results.into_iter().next() else {
            return Err(odd_answer(&head).into());
        };
        let Some(value) = value else {
            tracing::warn!(object = %head, "stored data says not for which key it was written");
            return Ok(Some(0));
        };
        let owner = Owner::decode(&value).map_err(|e| corrupt(&head, e))?;
        match self.is_named(data, &owner).await {
            Ok(Some(true)) => Ok(Some(0)),
            Ok(Some(false)) => Ok(Some(self.remove_orphan(data).await?)),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a row names the data. `None`: not to be decided now.
    async fn is_named(&self, data: DataId, owner: &Owner) -> Result<Option<bool>, Error> {
        let id = BucketId(owner.bucket);
        match self.fresh_map_any(id).await {
            Err(Error::NoSuchBucket) => return Ok(Some(false)),
            Err(error) => return Err(error),
            // Its rows are still being dealt with.
            Ok(map) if map.state == BucketState::Deleted => return Ok(None),
            Ok(_) => {}
        }
        let key = &owner.key;
        let ranges = [ENTRY, GARBAGE].map(|kind| row::key_range(kind, key));
        let mut steps: Vec<ReadStep> = ranges.iter().map(scan_step).collect();
        if let Role::Part { upload, number } = owner.role {
            steps.push(ReadStep::OmapGet {
                keys: vec![row::part(key, upload, number)],
            });
        }
        let (object, output, view) = self
            .read_at(id, row::place(&ranges[0].start), steps)
            .await?;
        let cut = |result: &ReadResult| matches!(result, ReadResult::OmapPage(page) if page.more);
        if output.results.iter().any(cut) {
            return Ok(None);
        }
        let naming = Naming { data, owner, view };
        let named = naming.by_rows().map_err(|e| corrupt(&object, e))?;
        match named {
            Named::Yes => Ok(Some(true)),
            Named::No => Ok(Some(false)),
            Named::PerhapsIn(tables) => self.is_in_tables(data, &tables).await,
        }
    }

    async fn is_in_tables(&self, data: DataId, tables: &[Span]) -> Result<Option<bool>, Error> {
        for table in tables {
            match self.load_table(&PartTable::Outside(*table)).await {
                Ok(parts) if parts.iter().any(|part| part.span.data == data) => {
                    return Ok(Some(true));
                }
                Ok(_) => {}
                // Another node removes it at this moment, or it is damaged.
                Err(Error::Store(error)) if error.kind() == ErrorKind::Corrupt => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(false))
    }

    /// Removes the objects of an id whose size nobody knows. At most `WRITES_MAX` writes were on
    /// their way when the writer ended, so a longer gap is the end.
    async fn remove_orphan(&self, data: DataId) -> Result<u64, Error> {
        let (mut count, mut number, mut gap) = (1, 1, 0);
        while gap <= WRITES_MAX {
            if self.object_exists(&self.data_object(data, number)).await? {
                count = number + 1;
                gap = 0;
            } else {
                gap += 1;
            }
            number += 1;
        }
        Ok(self.remove_objects(data, count).await?)
    }

    pub(super) async fn object_exists(&self, object: &ObjectId) -> Result<bool, StoreError> {
        match self
            .read_retried(object, ReadOp::new([ReadStep::Stat]))
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn scan_step(range: &RowRange) -> ReadStep {
    ReadStep::OmapScan {
        start: range.start.clone(),
        end: Some(range.end.clone()),
        keys_only: false,
        count_max: ROWS_MAX,
    }
}

/// The question whether the rows of a key name some data.
struct Naming<'a> {
    data: DataId,
    owner: &'a Owner,
    view: View,
}

enum Named {
    Yes,
    No,
    /// Only if one of these part tables lists it.
    PerhapsIn(Vec<Span>),
}

impl Naming<'_> {
    fn by_rows(&self) -> Result<Named, DecodeError> {
        let key = &self.owner.key;
        let mut tables = Vec::new();
        for (row, value) in self.view.rows_in(&row::key_range(ENTRY, key)) {
            let location = Entry::decode(row, value)?.location;
            let (spans, table) = match location {
                Location::Empty | Location::Inline => (Vec::new(), None),
                Location::Striped(span) => (vec![span], None),
                Location::Parts(PartTable::Here(parts)) => (spans_of(&parts), None),
                Location::Parts(PartTable::Outside(table)) => (Vec::new(), Some(table)),
            };
            if self.is_among(&spans, table, &mut tables) {
                return Ok(Named::Yes);
            }
        }
        for (_, value) in self.view.rows_in(&row::key_range(GARBAGE, key)) {
            let (spans, table) = match Garbage::decode(value)?.what {
                GarbageWhat::Spans(spans) => (spans, None),
                GarbageWhat::Table(table) => (Vec::new(), Some(table)),
            };
            if self.is_among(&spans, table, &mut tables) {
                return Ok(Named::Yes);
            }
        }
        if let Role::Part { upload, number } = self.owner.role
            && self.is_in_part_row(upload, number)?
        {
            return Ok(Named::Yes);
        }
        match self.owner.role {
            Role::Part { .. } if !tables.is_empty() => Ok(Named::PerhapsIn(tables)),
            Role::Part { .. } | Role::Object | Role::Table { .. } => Ok(Named::No),
        }
    }

    fn is_among(&self, spans: &[Span], table: Option<Span>, tables: &mut Vec<Span>) -> bool {
        tables.extend(table);
        let named = |span: &Span| span.data == self.data;
        spans.iter().any(named) || table.as_ref().is_some_and(named)
    }

    /// A part row counts while its upload goes on; afterwards reclaim deals with it.
    fn is_in_part_row(&self, upload: UploadId, number: u16) -> Result<bool, DecodeError> {
        match self.view.row(&row::part(&self.owner.key, upload, number)) {
            None => Ok(false),
            Some(value) => Ok(Part::decode(value)?.span.data == self.data),
        }
    }
}

fn spans_of(parts: &[Part]) -> Vec<Span> {
    parts.iter().map(|part| part.span).collect()
}
