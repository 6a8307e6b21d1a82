//! Stored data: bytes striped over objects of the data pool under an id that was never used.
//!
//! The head, object 0, is written first and removed last, and says in an attribute for which key
//! the data was written. So data exists at most where its head exists.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::entry::{Owner, Span};
use super::error::Error;
use super::row::DataId;
use super::{Shared, may_pass, odd_answer, pause};
use crate::error::{Error as StoreError, ErrorKind};
use crate::object::{
    ObjectId, ObjectName, Payload, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep, XattrName,
};

/// For which key the data was written: [`Owner`].
pub(super) const OWNER: XattrName = XattrName::new("bucket.owner");

/// Writes of one object on their way at most while a further one is gathered.
pub(super) const WRITES_MAX: usize = 2;

/// Bytes of these together, unless one alone has more.
const WRITES_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// How long closing waits for changes on their way.
const CLOSING_MAX: Duration = Duration::from_secs(30);

/// Objects removed at a time.
const REMOVALS: usize = 8;

/// Pieces gathered before they become one: a client may send single bytes.
const PIECES_MAX: usize = 256;

/// How often a write of fresh data is tried. Twice is harmless: nobody else knows the id.
const TRIES_MAX: u32 = 4;

/// Data of this node that was never linked and could not be removed at once.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<VecDeque<Failure>>);

/// Objects `0..object_count` of an id; removed again at `due_ms`, when writes of unknown outcome
/// have long happened or never will.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) span: Span,
    pub(super) due_ms: u64,
}

impl Failures {
    pub(super) fn push(&self, failure: Failure) {
        self.0.lock().expect(super::LOCK).push_back(failure);
    }

    /// One whose time has come.
    pub(super) fn take_due(&self, now_ms: u64) -> Option<Failure> {
        let mut list = self.0.lock().expect(super::LOCK);
        let index = list.iter().position(|failure| failure.due_ms <= now_ms)?;
        list.remove(index)
    }
}

pub(super) fn name_prefix(data: DataId) -> Arc<str> {
    Arc::from(format!(
        "bucket.data.{:016x}.{:016x}",
        data.writer, data.counter
    ))
}

impl Span {
    pub(super) fn object_count(&self) -> u64 {
        self.size.div_ceil(u64::from(self.object_bytes))
    }
}

/// Data being written or waiting for its link. Dropped without `keep`, it is removed.
#[derive(Debug)]
pub(super) struct Staged {
    shared: Arc<Shared>,
    span: Span,
    in_flight: VecDeque<JoinHandle<Result<(), StoreError>>>,
    doubtful: bool,
    kept: bool,
}

impl Staged {
    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// The data is linked.
    pub(super) fn keep(self) {
        self.shared.settle_id(self.span.data);
        self.leave();
    }

    /// The data may be linked: it is examined once this writer has ended.
    pub(super) fn leave(mut self) {
        self.kept = true;
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.kept || self.span.size == 0 {
            return;
        }
        let (shared, span, doubtful) = (Arc::clone(&self.shared), self.span, self.doubtful);
        let in_flight = std::mem::take(&mut self.in_flight);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    let mut doubtful = doubtful;
                    for write in in_flight {
                        doubtful |= !matches!(write.await, Ok(Ok(())));
                    }
                    shared.dispose(span, doubtful).await;
                });
            }
            Err(_) => shared.failures.push(Failure { span, due_ms: 0 }),
        }
    }
}

/// Writes data as it comes; keeps back what is short enough to lie in the index.
#[derive(Debug)]
pub(super) struct DataWriter {
    shared: Arc<Shared>,
    owner: Owner,
    size_max: u64,
    inline_bytes_max: usize,
    staged: Option<Staged>,
    gathered: Vec<Bytes>,
    gathered_bytes: usize,
    failed: bool,
}

/// What a writer made.
#[derive(Debug)]
pub(super) enum Written {
    Empty,
    Inline(Bytes),
    Staged(Staged),
}

impl DataWriter {
    pub(super) fn new(
        shared: &Arc<Shared>,
        owner: Owner,
        size_max: u64,
        inline_bytes_max: u32,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            owner,
            size_max,
            inline_bytes_max: usize::try_from(inline_bytes_max).expect("64 KiB at most"),
            staged: None,
            gathered: Vec::new(),
            gathered_bytes: 0,
            failed: false,
        }
    }

    pub(super) async fn write(&mut self, mut data: Bytes) -> Result<(), Error> {
        let unit = usize::try_from(self.shared.unit_bytes()).expect("32 bits fit");
        let written = self.staged.as_ref().map_or(0, |staged| staged.span.size);
        let size = written + (self.gathered_bytes + data.len()) as u64;
        if size > self.size_max {
            self.failed = true;
            return Err(Error::EntityTooLarge);
        }
        while !data.is_empty() {
            let taken = data.split_to(data.len().min(unit - self.gathered_bytes));
            self.gather(taken);
            if self.gathered_bytes == unit {
                self.send().await?;
            }
        }
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<Written, Error> {
        if self.failed {
            return Err(already_failed().into());
        }
        if self.staged.is_none() {
            if self.gathered_bytes == 0 {
                return Ok(Written::Empty);
            }
            if self.gathered_bytes <= self.inline_bytes_max {
                return Ok(Written::Inline(Payload::from(self.gathered).to_bytes()));
            }
        }
        if self.gathered_bytes > 0 {
            self.send().await?;
        }
        while self.wait_one().await? {}
        let staged = self.staged.take().expect("something was sent");
        Ok(Written::Staged(staged))
    }

    fn gather(&mut self, data: Bytes) {
        self.gathered_bytes += data.len();
        self.gathered.push(data);
        if self.gathered.len() > PIECES_MAX {
            self.gathered = vec![Bytes::from(self.gathered.concat())];
        }
    }

    /// Sends what is gathered, when few enough writes are on their way.
    async fn send(&mut self) -> Result<(), Error> {
        if self.failed {
            return Err(already_failed().into());
        }
        let data = Payload::from(std::mem::take(&mut self.gathered));
        let length = std::mem::take(&mut self.gathered_bytes) as u64;
        let Some(staged) = &self.staged else {
            return self.send_head(data, length).await;
        };
        if staged.in_flight.len() >= self.shared.writes_max() {
            self.wait_one().await?;
        }
        let staged = self.staged.as_mut().expect("it was there");
        let at = staged.span.size;
        staged.span.size += length;
        let object_bytes = u64::from(staged.span.object_bytes);
        let object = self.shared.data_object(staged.span.data, at / object_bytes);
        let op = WriteOp::new([WriteStep::Write {
            offset: at % object_bytes,
            data,
        }]);
        staged
            .in_flight
            .push_back(self.shared.spawn_write(object, op));
        Ok(())
    }

    async fn send_head(&mut self, data: Payload, length: u64) -> Result<(), Error> {
        let span = Span {
            data: self.shared.new_data_id().await?,
            size: length,
            object_bytes: self.shared.options.object_bytes,
        };
        let op = WriteOp::new([
            WriteStep::XattrSet {
                name: OWNER,
                value: self.owner.encode(),
            },
            WriteStep::Write { offset: 0, data },
        ]);
        let head = self.shared.data_object(span.data, 0);
        let write = self.shared.spawn_write(head, op);
        self.staged = Some(Staged {
            shared: Arc::clone(&self.shared),
            span,
            in_flight: VecDeque::from([write]),
            doubtful: false,
            kept: false,
        });
        self.wait_one().await.map(drop)
    }

    /// Waits for the oldest write; `false` if there is none.
    async fn wait_one(&mut self) -> Result<bool, Error> {
        let Some(staged) = &mut self.staged else {
            return Ok(false);
        };
        let Some(write) = staged.in_flight.front_mut() else {
            return Ok(false);
        };
        let result = write.await;
        staged.in_flight.pop_front();
        let result = result.unwrap_or_else(|_| {
            Err(StoreError::new(
                ErrorKind::Unavailable,
                "the task of a write ended early",
            ))
        });
        if let Err(error) = result {
            self.failed = true;
            staged.doubtful = true;
            return Err(error.into());
        }
        Ok(true)
    }
}

fn already_failed() -> StoreError {
    StoreError::new(ErrorKind::Unavailable, "an earlier write of it failed")
}

impl Shared {
    /// Bytes of one write of data. Objects of the data pool are filled by whole ones.
    pub(super) fn unit_bytes(&self) -> u32 {
        let best = self.data_limits.stream_write_bytes;
        self.options.object_bytes.min(best)
    }

    fn writes_max(&self) -> usize {
        let count = usize::try_from(WRITES_BYTES_MAX / self.unit_bytes()).expect("32 bits fit");
        count.clamp(1, WRITES_MAX)
    }

    pub(super) fn data_object(&self, data: DataId, number: u64) -> ObjectId {
        let name = ObjectName::numbered(&name_prefix(data), number);
        ObjectId::new(&self.data, name)
    }

    /// Writes in a task of its own: a client that goes away must not leave a write half polled.
    fn spawn_write(
        self: &Arc<Self>,
        object: ObjectId,
        op: WriteOp,
    ) -> JoinHandle<Result<(), StoreError>> {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let mut round = 0;
            loop {
                round += 1;
                match shared.write(&object, op.clone()).await {
                    Err(error) if may_pass(&error) && round < TRIES_MAX => pause(round).await,
                    other => return other.map(drop),
                }
            }
        })
    }

    /// Removes data of this node that nothing links.
    async fn dispose(&self, span: Span, doubtful: bool) {
        let removed = self.remove_span(&span).await;
        if let Err(error) = &removed {
            tracing::debug!(%error, "data stays behind for a later step of reclaim");
        }
        if doubtful || removed.is_err() {
            let due_ms = self.now_ms().saturating_add(self.options.grace_ms);
            self.failures.push(Failure { span, due_ms });
        } else {
            self.settle_id(span.data);
        }
    }

    /// Removes the objects of a span, the head last. Objects that are not there are fine.
    ///
    /// # Errors
    /// What the store says; some objects may be left then, and the head is.
    pub(super) async fn remove_span(&self, span: &Span) -> Result<u64, StoreError> {
        self.remove_objects(span.data, span.object_count()).await
    }

    /// Removes the objects `0..count` of an id, the head last; says how many there were.
    pub(super) async fn remove_objects(&self, data: DataId, count: u64) -> Result<u64, StoreError> {
        let removed = self.remove_pieces(data, 1..count).await?;
        Ok(removed + self.remove_object(self.data_object(data, 0)).await?)
    }

    /// Removes some objects of an id in any order; says how many there were.
    pub(super) async fn remove_pieces(
        &self,
        data: DataId,
        numbers: Range<u64>,
    ) -> Result<u64, StoreError> {
        let removals =
            stream::iter(numbers).map(|number| self.remove_object(self.data_object(data, number)));
        let counts = removals.buffer_unordered(REMOVALS);
        counts.try_fold(0, async |sum, one| Ok(sum + one)).await
    }

    /// Removes one object; 0 if it is not there.
    pub(super) async fn remove_object(&self, object: ObjectId) -> Result<u64, StoreError> {
        let op = WriteOp::new([WriteStep::Remove]);
        match self.write_settled(&object, op).await {
            Ok(_) => Ok(1),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Reads a range that lies in one data object.
    ///
    /// # Errors
    /// `Corrupt` if the object is missing or short: what is linked is whole.
    pub(super) async fn read_piece(
        &self,
        span: &Span,
        range: Range<u64>,
    ) -> Result<Bytes, StoreError> {
        let object_bytes = u64::from(span.object_bytes);
        let object = self.data_object(span.data, range.start / object_bytes);
        let (offset, length) = (range.start % object_bytes, range.end - range.start);
        let op = ReadOp::new([ReadStep::Stat, ReadStep::Extents { offset, length }]);
        let output = match self.read_retried(&object, op).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let context = format!("{object}, which a bucket links, is missing");
                return Err(StoreError::new(ErrorKind::Corrupt, context));
            }
            other => other?,
        };
        let mut results = output.results.into_iter();
        let (Some(ReadResult::Stat { size }), Some(ReadResult::Extents(extents))) =
            (results.next(), results.next())
        else {
            return Err(odd_answer(&object));
        };
        if size < offset + length {
            let context = format!("{object} holds {size} bytes and should hold more");
            return Err(StoreError::new(ErrorKind::Corrupt, context));
        }
        join_extents(offset, length, extents).ok_or_else(|| odd_answer(&object))
    }

    /// Reads a whole span that fits into memory: a part table.
    pub(super) async fn read_span(&self, span: &Span) -> Result<Bytes, StoreError> {
        let object_bytes = u64::from(span.object_bytes);
        let mut whole = Vec::new();
        let mut at = 0;
        while at < span.size {
            let end = (at - at % object_bytes + object_bytes).min(span.size);
            whole.extend_from_slice(&self.read_piece(span, at..end).await?);
            at = end;
        }
        Ok(whole.into())
    }
}

/// The bytes of `offset..offset + length`, all of which exist; where an engine left a hole, they
/// are zeros by contract.
fn join_extents(offset: u64, length: u64, extents: Vec<crate::object::Extent>) -> Option<Bytes> {
    let size = usize::try_from(length).ok()?;
    if let [one] = extents.as_slice()
        && one.offset == offset
        && one.data.len() == size
    {
        return Some(one.data.clone());
    }
    let mut whole = vec![0; size];
    for extent in extents {
        let at = usize::try_from(extent.offset.checked_sub(offset)?).ok()?;
        let end = at.checked_add(extent.data.len())?;
        whole.get_mut(at..end)?.copy_from_slice(&extent.data);
    }
    Some(whole.into())
}

impl Shared {
    fn has_changes_waiting(&self) -> bool {
        !self.queues.lock().expect(super::LOCK).is_empty()
    }

    /// Refuses all later writes and ends this writer, unless a write may still be on its way.
    pub(super) async fn close(&self) -> Result<(), Error> {
        let since = Instant::now();
        while self.has_changes_waiting() && since.elapsed() < CLOSING_MAX {
            pause(2).await;
        }
        {
            let mut closed = self.closed.write().await;
            if *closed {
                return Ok(());
            }
            *closed = true;
        }
        if self.uncertain.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.end_writer().await
    }
}
