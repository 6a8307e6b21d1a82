//! Removing what nothing links any more, a bounded number of objects at a time.
//!
//! One row of garbage may stand for a million objects. What a step leaves of it is a task of the
//! same round; after a restart the row is begun anew, and what has gone by then is passed over.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::entry::{Garbage, GarbageWhat, Part, Remains, Span, decode_table};
use super::error::Error;
use super::reclaim::{Task, odd_row};
use super::record::{Key, UploadId};
use super::row::{self, DataId};
use super::{BucketId, Shared, corrupt};
use crate::error::{Error as StoreError, ErrorKind};
use crate::object::ObjectId;

/// Objects that one step removes or finds gone. A step that examines the ids of an ended writer
/// ends with the id that exceeds it.
pub(super) const OBJECTS_PER_STEP: u64 = 512;

/// What a step may still do, and how many objects it removed.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
    removed: u64,
}

/// A row that reclaim deals with.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) id: BucketId,
    /// The shard that held the row when it was read.
    pub(super) object: ObjectId,
    pub(super) row: Bytes,
}

/// A row of garbage on its way: what is left to remove before the row goes.
#[derive(Debug)]
pub(super) struct Sweep {
    source: Source,
    spans: VecDeque<Span>,
    begun: Option<Begun>,
}

/// An upload that ended, on its way: its part rows go in ascending order, then its own.
#[derive(Debug)]
pub(super) struct Clearing {
    source: Source,
    key: Key,
    upload: UploadId,
    /// What its object took over.
    kept: HashSet<DataId>,
    begun: Option<Begun>,
}

/// Data of which the objects `1..next` are gone.
#[derive(Clone, Copy, Debug)]
struct Begun {
    data: DataId,
    next: u64,
}

impl Budget {
    pub(super) fn of_step() -> Self {
        Self {
            left: OBJECTS_PER_STEP,
            removed: 0,
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }

    pub(super) fn removed(&self) -> u64 {
        self.removed
    }

    fn spend(&mut self, asked: u64, removed: u64) {
        self.left = self.left.saturating_sub(asked);
        self.removed += removed;
    }
}

impl Shared {
    /// Removes unlinked data whose grace is over, as far as the budget goes.
    pub(super) async fn begin_garbage(
        self: &Arc<Self>,
        source: Source,
        value: &Bytes,
        budget: &mut Budget,
    ) -> Result<Option<Task>, Error> {
        let object = &source.object;
        let garbage = Garbage::decode(value).map_err(|e| corrupt(object, e))?;
        let due_ms = garbage.unlinked_ms.saturating_add(self.options.grace_ms);
        if due_ms > self.now_ms() {
            return Ok(None);
        }
        let spans = match garbage.what {
            GarbageWhat::Spans(spans) => spans,
            GarbageWhat::Table(table) => {
                let mut spans = Vec::new();
                if let Some(bytes) = self.read_span_if_there(&table).await? {
                    let parts = decode_table(&bytes).map_err(|e| corrupt(object, e))?;
                    spans.extend(parts.iter().map(|part| part.span));
                }
                // Behind all that it names.
                spans.push(table);
                spans
            }
        };
        let sweep = Sweep {
            source,
            spans: spans.into(),
            begun: None,
        };
        self.sweep(sweep, budget).await
    }

    /// Goes on with a row of garbage; gives back what is left of it.
    pub(super) async fn sweep(
        self: &Arc<Self>,
        mut sweep: Sweep,
        budget: &mut Budget,
    ) -> Result<Option<Task>, Error> {
        while let Some(span) = sweep.spans.front() {
            if !self.remove_some(span, &mut sweep.begun, budget).await? {
                return Ok(Some(Task::Garbage(sweep)));
            }
            sweep.spans.pop_front();
        }
        let Source { id, object, row } = sweep.source;
        let (key, _) = row::decode_keyed(&row).ok_or_else(|| odd_row(&object))?;
        self.collect(id, &object, &key, vec![row]).await?;
        Ok(None)
    }

    /// Removes the parts of an ended upload that its object does not use, as far as the budget
    /// goes.
    pub(super) async fn begin_upload(
        self: &Arc<Self>,
        source: Source,
        value: &Bytes,
        budget: &mut Budget,
    ) -> Result<Option<Task>, Error> {
        let object = &source.object;
        let (key, upload) = row::decode_keyed(&source.row)
            .and_then(|(key, suffix)| Some((key, row::upload_of(suffix)?)))
            .ok_or_else(|| odd_row(object))?;
        let remains = Remains::decode(value).map_err(|e| corrupt(object, e))?;
        let kept = self.kept_parts(source.id, &key, upload, &remains).await?;
        let clearing = Clearing {
            source,
            key,
            upload,
            kept,
            begun: None,
        };
        self.clear_upload(clearing, budget).await
    }

    /// Goes on with an ended upload; gives back what is left of it.
    pub(super) async fn clear_upload(
        self: &Arc<Self>,
        mut clearing: Clearing,
        budget: &mut Budget,
    ) -> Result<Option<Task>, Error> {
        loop {
            let Source { id, object, row } = &clearing.source;
            let range = row::parts_after(&clearing.key, clearing.upload, 0);
            let Some(page) = self.page_of_key(*id, object, range).await? else {
                return Ok(None);
            };
            let mut rows = Vec::with_capacity(page.entries.len() + 1);
            let mut whole = true;
            for (row, value) in page.entries {
                let part = Part::decode(&value).map_err(|e| corrupt(object, e))?;
                whole = if budget.is_spent() {
                    false
                } else if clearing.kept.contains(&part.span.data) {
                    budget.spend(1, 0);
                    true
                } else {
                    let begun = &mut clearing.begun;
                    self.remove_some(&part.span, begun, budget).await?
                };
                if !whole {
                    break;
                }
                rows.push(row);
            }
            let ended = whole && !page.more;
            if ended {
                rows.push(row.clone());
            }
            if !rows.is_empty() {
                self.collect(*id, object, &clearing.key, rows).await?;
            }
            if ended {
                return Ok(None);
            }
            if budget.is_spent() {
                return Ok(Some(Task::Upload(clearing)));
            }
        }
    }

    /// Removes objects of a span, the head last; `false` if some are left.
    async fn remove_some(
        &self,
        span: &Span,
        begun: &mut Option<Begun>,
        budget: &mut Budget,
    ) -> Result<bool, StoreError> {
        let (data, count) = (span.data, span.object_count());
        let head = self.data_object(data, 0);
        if count == 0 {
            budget.spend(1, 0);
            return Ok(true);
        }
        let mut next = match begun.filter(|begun| begun.data == data) {
            Some(begun) => begun.next,
            // What is linked was written whole, so nothing is left where no head is.
            None if count > 1 && !self.object_exists(&head).await? => {
                budget.spend(1, 0);
                return Ok(true);
            }
            None => 1,
        };
        let end = count.min(next.saturating_add(budget.left));
        let removed = self.remove_pieces(data, next..end).await?;
        budget.spend(end - next, removed);
        next = end;
        if budget.is_spent() {
            *begun = Some(Begun { data, next });
            return Ok(false);
        }
        budget.spend(1, self.remove_object(head).await?);
        *begun = None;
        Ok(true)
    }

    /// The data that an ended upload's object took over.
    async fn kept_parts(
        &self,
        id: BucketId,
        key: &Key,
        upload: UploadId,
        remains: &Remains,
    ) -> Result<HashSet<DataId>, Error> {
        let Some(table) = &remains.kept else {
            return Ok(HashSet::new());
        };
        match self.load_table(table).await {
            Ok(parts) => Ok(parts.iter().map(|part| part.span.data).collect()),
            Err(Error::Store(error)) if error.kind() == ErrorKind::Corrupt => {
                // A table goes after all parts in it, and only when the object has gone.
                match self.find_entry(id, key, None).await {
                    Ok(entry) if entry.record.completed_upload == Some(upload) => Err(error.into()),
                    Ok(_) | Err(Error::NoSuchKey | Error::NoSuchBucket) => Ok(HashSet::new()),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// A table, or `None` if an earlier step removed it.
    async fn read_span_if_there(&self, span: &Span) -> Result<Option<Bytes>, Error> {
        match self.read_span(span).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let first = self.data_object(span.data, 0);
                let there = self.object_exists(&first).await?;
                // The head goes last: what lacks another piece was being removed.
                let partly = there && span.size <= u64::from(span.object_bytes);
                if partly { Err(error.into()) } else { Ok(None) }
            }
            Err(error) => Err(error.into()),
        }
    }
}
