//! Writing and reading the data of one object.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use super::change::{Answer, Change, Content};
use super::data::{DataWriter, Written};
use super::entry::{Location, Owner, Part, PartTable, Role, Span, decode_table};
use super::error::Error;
use super::record::{Key, ObjectAbout, ObjectRecord, Precondition};
use super::{BucketId, Shared, corrupt};
use crate::error::{Error as StoreError, ErrorKind};

/// Bytes of an object (S3 API, "Multipart upload limits"): 5 TiB.
pub(super) const OBJECT_SIZE_MAX: u64 = 5 << 40;

/// Pieces asked for before the reader's caller wants them.
const READ_AHEAD: usize = 2;

/// Writes one object. Dropped without `finish`, nothing is visible and nothing stays behind.
#[derive(Debug)]
pub struct ObjectWriter {
    shared: Arc<Shared>,
    id: BucketId,
    key: Key,
    data: DataWriter,
}

impl ObjectWriter {
    pub(super) fn new(shared: &Arc<Shared>, id: BucketId, key: Key) -> Self {
        let owner = Owner {
            bucket: id.0,
            key: key.clone(),
            role: Role::Object,
        };
        let inline_bytes_max = shared.options.inline_bytes_max;
        Self {
            shared: Arc::clone(shared),
            id,
            key,
            data: DataWriter::new(shared, owner, OBJECT_SIZE_MAX, inline_bytes_max),
        }
    }

    /// Appends `data`. Waits while the store is behind, so memory stays at a few MiB.
    ///
    /// # Errors
    /// `EntityTooLarge` beyond 5 TiB; `Store` if the store fails. The object is lost then.
    pub async fn write(&mut self, data: Bytes) -> Result<(), Error> {
        self.data.write(data).await
    }

    /// Makes the object the key's current one if `precondition` holds, in one atomic step.
    ///
    /// # Errors
    /// `PreconditionFailed`, `NoSuchBucket`; `Store` if the store fails.
    pub async fn finish(
        self,
        about: ObjectAbout,
        precondition: &Precondition,
    ) -> Result<ObjectRecord, Error> {
        let (content, staged) = match self.data.finish().await? {
            Written::Empty => (Content::Empty, None),
            Written::Inline(data) => (Content::Inline(data), None),
            Written::Staged(staged) => (Content::Striped(staged.span()), Some(staged)),
        };
        let change = Change::Put {
            about,
            content,
            precondition: precondition.clone(),
        };
        let answer = self.shared.change(self.id, &self.key, change, staged);
        let Answer::Object(record) = answer.await? else {
            unreachable!("a put answers with an object")
        };
        Ok(*record)
    }
}

/// An object to read from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Object {
    shared: Arc<Shared>,
    record: ObjectRecord,
    body: Arc<Body>,
}

#[derive(Debug)]
enum Body {
    Empty,
    Inline(Bytes),
    Striped(Span),
    Parts {
        table: PartTable,
        /// Read when it is first needed.
        parts: OnceCell<Vec<Part>>,
    },
}

impl Object {
    /// `inline` is the data of an entry that has it in the shard.
    pub(super) fn new(
        shared: &Arc<Shared>,
        record: ObjectRecord,
        location: Location,
        inline: Option<Bytes>,
    ) -> Result<Self, Error> {
        let body = match location {
            Location::Empty => Body::Empty,
            Location::Inline => Body::Inline(inline.ok_or_else(|| missing(&record.key))?),
            Location::Striped(span) => Body::Striped(span),
            Location::Parts(table) => Body::Parts {
                table,
                parts: OnceCell::new(),
            },
        };
        let size = match &body {
            Body::Empty => 0,
            Body::Inline(data) => data.len() as u64,
            Body::Striped(span) => span.size,
            Body::Parts { .. } => record.size,
        };
        if size != record.size {
            return Err(missing(&record.key).into());
        }
        Ok(Self {
            shared: Arc::clone(shared),
            record,
            body: Arc::new(body),
        })
    }

    #[must_use]
    pub fn record(&self) -> &ObjectRecord {
        &self.record
    }

    /// Reads the bytes of `range`.
    ///
    /// # Panics
    /// If `range` ends beyond the object's size.
    #[must_use]
    pub fn read(&self, range: Range<u64>) -> ObjectReader {
        assert!(range.end <= self.record.size, "a range ends in the object");
        ObjectReader {
            object: self.clone(),
            at: range.start.min(range.end),
            end: range.end,
            ahead: VecDeque::new(),
        }
    }

    pub(super) async fn parts(&self) -> Result<&[Part], Error> {
        match &*self.body {
            Body::Empty | Body::Inline(_) | Body::Striped(_) => Ok(&[]),
            Body::Parts { table, parts } => {
                let parts = parts.get_or_try_init(|| self.load_parts(table)).await?;
                Ok(parts)
            }
        }
    }

    async fn load_parts(&self, table: &PartTable) -> Result<Vec<Part>, Error> {
        let parts = self.shared.load_table(table).await?;
        let size: u64 = parts.iter().map(|part| part.span.size).sum();
        if size != self.record.size {
            return Err(missing(&self.record.key).into());
        }
        Ok(parts)
    }

    /// The piece at `at`, and where the next one starts. `at` lies before `end`.
    async fn piece(&self, at: u64, end: u64) -> Result<(Source, u64), Error> {
        let piece_bytes = u64::from(self.shared.data_limits.stream_read_bytes);
        let piece_end = |base: u64, span: &Span| {
            let object_bytes = u64::from(span.object_bytes);
            let inside = at - base;
            let stop = (inside - inside % object_bytes + object_bytes).min(span.size);
            stop.min(inside + piece_bytes).min(end - base)
        };
        match &*self.body {
            Body::Empty => Err(missing(&self.record.key).into()),
            Body::Inline(data) => {
                let index = |at: u64| usize::try_from(at).expect("inline data is small");
                Ok((Source::Here(data.slice(index(at)..index(end))), end))
            }
            Body::Striped(span) => {
                let stop = piece_end(0, span);
                Ok((Source::Stored(*span, at..stop), stop))
            }
            Body::Parts { .. } => {
                let mut base = 0;
                for part in self.parts().await? {
                    if at < base + part.span.size {
                        let stop = piece_end(base, &part.span);
                        return Ok((Source::Stored(part.span, at - base..stop), base + stop));
                    }
                    base += part.span.size;
                }
                Err(missing(&self.record.key).into())
            }
        }
    }
}

/// Where a piece comes from.
enum Source {
    Here(Bytes),
    Stored(Span, Range<u64>),
}

/// Gives the bytes of a range in pieces of the size that serves the store best, reading a little ahead.
#[derive(Debug)]
pub struct ObjectReader {
    object: Object,
    at: u64,
    end: u64,
    ahead: VecDeque<JoinHandle<Result<Bytes, StoreError>>>,
}

impl ObjectReader {
    /// The next piece; `None` behind the last. After an error there is nothing more.
    pub async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        let result = self.advance().await;
        if result.is_err() {
            self.at = self.end;
            self.ahead.clear();
        }
        result.transpose()
    }

    async fn advance(&mut self) -> Result<Option<Bytes>, Error> {
        while self.at < self.end && self.ahead.len() < READ_AHEAD {
            let (source, next) = self.object.piece(self.at, self.end).await?;
            self.at = next;
            let shared = Arc::clone(&self.object.shared);
            match source {
                Source::Here(data) => return Ok(Some(data)),
                Source::Stored(span, range) => self.ahead.push_back(tokio::spawn(async move {
                    shared.read_piece(&span, range).await
                })),
            }
        }
        let Some(read) = self.ahead.front_mut() else {
            return Ok(None);
        };
        let result = read.await;
        self.ahead.pop_front();
        match result {
            Ok(data) => Ok(Some(data?)),
            Err(_) => {
                let context = "the task of a read ended early";
                Err(StoreError::new(ErrorKind::Unavailable, context).into())
            }
        }
    }
}

impl Shared {
    pub(super) async fn load_table(&self, table: &PartTable) -> Result<Vec<Part>, Error> {
        match table {
            PartTable::Here(parts) => Ok(parts.clone()),
            PartTable::Outside(span) => {
                let bytes = self.read_span(span).await?;
                let head = self.data_object(span.data, 0);
                decode_table(&bytes).map_err(|error| corrupt(&head, error))
            }
        }
    }
}

fn missing(key: &Key) -> StoreError {
    let context = format!("the index and the data of {key:?} do not agree");
    StoreError::new(ErrorKind::Corrupt, context)
}
