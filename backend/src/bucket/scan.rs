//! Rows of one kind in ascending order over all shards, with skips that cost no reading.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::error::Error;
use super::row::{self, RowRange};
use super::shard::{Phase, View};
use super::{BucketId, Shared, corrupt, odd_answer, pause};
use crate::error::{Error as StoreError, ErrorKind};
use crate::object::{ObjectId, ReadOp, ReadOutput, ReadResult, ReadStep};

/// Rows of one read: the least, and the most.
const CHUNK_MIN: u32 = 16;
const CHUNK_MAX: u32 = 1_000;

/// Rows of the first read where common prefixes may skip most of them.
const CHUNK_FIRST: u32 = 64;

/// How often a scan looks for the shard that holds a place.
const TRIES_MAX: u32 = 200;

/// Walks over rows of one kind.
#[derive(Debug)]
pub(super) struct Scan {
    shared: Arc<Shared>,
    id: BucketId,
    /// Where reading goes on; `None` at the end.
    at: Option<Bytes>,
    end: Bytes,
    rows: VecDeque<(Bytes, Bytes)>,
    /// Rows of the next read: more while all are used, fewer while most are skipped.
    chunk: u32,
    used: usize,
    /// Rows that the caller still wants, as far as that is known.
    wanted: u32,
}

impl Scan {
    /// `wanted` is how many rows the caller takes if it skips none.
    pub(super) fn new(shared: &Arc<Shared>, id: BucketId, range: RowRange, wanted: u32) -> Self {
        let at = (range.start < range.end).then_some(range.start);
        Self {
            shared: Arc::clone(shared),
            id,
            at,
            end: range.end,
            rows: VecDeque::new(),
            chunk: CHUNK_MAX,
            used: 0,
            wanted,
        }
    }

    /// For a caller who skips most rows.
    pub(super) fn skipping(self) -> Self {
        Self {
            chunk: CHUNK_FIRST,
            ..self
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, Error> {
        loop {
            if let Some(row) = self.rows.pop_front() {
                self.used += 1;
                self.wanted = self.wanted.saturating_sub(1);
                return Ok(Some(row));
            }
            let Some(at) = self.at.clone() else {
                return Ok(None);
            };
            self.fill(at).await?;
        }
    }

    /// Leaves out all rows before `row`.
    pub(super) fn skip_to(&mut self, row: &Bytes) {
        let known = self.rows.len();
        while self.rows.front().is_some_and(|(first, _)| first < row) {
            self.rows.pop_front();
        }
        if !self.rows.is_empty() {
            return;
        }
        if let Some(at) = &self.at
            && at < row
        {
            self.at = (row < &self.end).then(|| row.clone());
            if known > self.used {
                self.chunk = (self.chunk / 2).max(CHUNK_MIN);
            }
        }
    }

    async fn fill(&mut self, at: Bytes) -> Result<(), Error> {
        if self.used >= usize::try_from(self.chunk).expect("a few rows") / 2 {
            self.chunk = (self.chunk * 2).min(CHUNK_MAX);
        }
        self.used = 0;
        let limit = self.shared.scan_rows_max();
        let step = ReadStep::OmapScan {
            start: at.clone(),
            end: Some(self.end.clone()),
            keys_only: false,
            count_max: self.chunk.min(limit).min(self.wanted.max(CHUNK_MIN)),
        };
        let (_, output, view) = self
            .shared
            .read_at(self.id, row::place(&at), [step])
            .await?;
        let Some(ReadResult::OmapPage(page)) = output.results.into_iter().nth(1) else {
            return Err(odd_answer(&self.shared.map_object(self.id)).into());
        };
        self.at = match (page.more, page.entries.last(), &view.state.end) {
            (true, Some((last, _)), _) => Some(row::after_row(last)),
            (true, None, _) => Some(at),
            (false, _, Some(end)) => Some([&at[..1], end].concat().into()),
            (false, _, None) => None,
        };
        self.at = self.at.take().filter(|at| *at < self.end);
        let count = page.entries.len() as u64;
        self.shared.stats.rows_scanned.add(count);
        self.rows.extend(page.entries);
        Ok(())
    }
}

impl Shared {
    /// Asks the shard that holds a place, in one operation with the check that it still does.
    pub(super) async fn read_at(
        &self,
        id: BucketId,
        place: &[u8],
        steps: impl IntoIterator<Item = ReadStep>,
    ) -> Result<(ObjectId, ReadOutput, View), Error> {
        let op = View::read_op(steps);
        for round in 0..TRIES_MAX {
            let map = match round {
                0 => self.map(id).await?,
                _ => self.fresh_map(id).await?,
            };
            let (_, number) = map.locate(place).expect("a map covers all places");
            let object = self.shard_object(id, number);
            if let Some((output, view)) = self.read_shard(&object, &op).await?
                && view.state.covers(place)
                && self.serves(id, place, number, &view).await?
            {
                return Ok((object, output, view));
            }
            if round > 0 {
                pause(round - 1).await;
            }
        }
        let context = format!("bucket {:x} leads to no shard", id.0);
        Err(StoreError::new(ErrorKind::Unavailable, context).into())
    }

    /// `None`: the shard is gone.
    async fn read_shard(
        &self,
        object: &ObjectId,
        op: &ReadOp,
    ) -> Result<Option<(ReadOutput, View)>, Error> {
        match self.read_retried(object, op.clone()).await {
            Ok(output) => {
                let view = View::new(op, output.clone()).map_err(|e| corrupt(object, e))?;
                Ok(Some((output, view)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether what was read of the shard is the bucket's state. A frozen or closed shard may have
    /// been left behind already; the map, read after it, tells.
    async fn serves(
        &self,
        id: BucketId,
        place: &[u8],
        number: u64,
        view: &View,
    ) -> Result<bool, Error> {
        match view.state.phase {
            Phase::Open | Phase::Splitting(_) => Ok(true),
            Phase::Moved | Phase::Filling => Ok(false),
            Phase::Frozen(_) | Phase::Closing { .. } => {
                let map = self.fresh_map(id).await?;
                Ok(map.locate(place).is_some_and(|(_, now)| now == number))
            }
        }
    }
}
