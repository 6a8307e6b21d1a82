//! Who writes data: each node registers as a writer with its session, so that what it leaves
//! behind can be told from what it still works on.
//!
//! A data id is (writer, counter). A writer stores how far it may count before it counts so far,
//! so everything an ended writer ever made lies below its stored high-water mark.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Mutex;

use super::error::Error;
use super::map::{decode_number, encode_number};
use super::row::DataId;
use super::{Shared, TRIES_MAX, corrupt, may_pass, odd_answer, pause};
use crate::codec::{DecodeError, Reader, Writer as RecordWriter};
use crate::error::{Error as StoreError, ErrorKind};
use crate::object::{
    Guard, ObjectId, ObjectName, ObjectStore, Pool, ReadOp, ReadResult, ReadStep, SessionId,
    WriteOp, WriteStep,
};

const VERSION: u8 = 1;

/// The next writer's number.
const NEXT: &[u8] = b"n";
const WRITER: u8 = b'w';

/// Ids that a writer takes at once.
const BLOCK: u64 = 1_000;

/// A writer as the store knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct WriterRecord {
    pub(super) session: SessionId,
    /// Counters from here on were never used.
    pub(super) high_water: u64,
    /// What has a counter below is linked, or was removed: the writer itself knew, or it was
    /// examined after the writer had ended.
    pub(super) examined: u64,
    pub(super) ended: bool,
}

/// This node as a writer.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) number: u64,
    ids: Mutex<Ids>,
    /// Counters of data that is neither linked nor removed, as far as this node knows.
    unsettled: std::sync::Mutex<BTreeSet<u64>>,
}

#[derive(Debug)]
struct Ids {
    next: u64,
    record: WriterRecord,
}

impl WriterRecord {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = RecordWriter::new(VERSION);
        out.str(&self.session.0)
            .u64(self.high_water)
            .u64(self.examined)
            .bool(self.ended);
        out.finish()
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(value, VERSION)?;
        let record = Self {
            session: SessionId(Arc::from(reader.str()?)),
            high_water: reader.u64()?,
            examined: reader.u64()?,
            ended: reader.bool()?,
        };
        reader.finish()?;
        Ok(record)
    }
}

pub(super) fn writer_row(number: u64) -> Bytes {
    [&[WRITER][..], &number.to_be_bytes()].concat().into()
}

/// The number in a writer's row.
pub(super) fn number_of(row: &[u8]) -> Option<u64> {
    let number = row.strip_prefix(&[WRITER])?.try_into().ok()?;
    Some(u64::from_be_bytes(number))
}

pub(super) fn writers_object(meta: &Pool) -> ObjectId {
    ObjectId::new(meta, ObjectName::new("bucket.writers"))
}

impl Writer {
    /// Takes a number that nobody had before. After an unknown outcome the next number is taken:
    /// a number without ids costs nothing.
    pub(super) async fn register(store: &Arc<dyn ObjectStore>, meta: &Pool) -> Result<Self, Error> {
        let object = writers_object(meta);
        let record = WriterRecord {
            session: store.session(),
            high_water: 0,
            examined: 0,
            ended: false,
        };
        let mut failures = 0;
        loop {
            match try_register(store, &object, &record).await {
                Ok(Some(number)) => {
                    let ids = Mutex::new(Ids { next: 0, record });
                    return Ok(Self {
                        number,
                        ids,
                        unsettled: std::sync::Mutex::default(),
                    });
                }
                Ok(None) => {}
                Err(Error::Store(error)) if may_pass(&error) && failures < TRIES_MAX => {
                    failures += 1;
                    pause(failures).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// `None`: another writer came first.
async fn try_register(
    store: &Arc<dyn ObjectStore>,
    object: &ObjectId,
    record: &WriterRecord,
) -> Result<Option<u64>, Error> {
    let keys = vec![Bytes::from_static(NEXT)];
    let read = ReadOp::new([ReadStep::OmapGet { keys }]);
    let (number, guard) = match store.read(object, read).await {
        Ok(output) => match output.results.into_iter().next() {
            Some(ReadResult::OmapValues(values)) => match values.into_iter().next() {
                Some(Some(value)) => (
                    decode_number(&value).map_err(|e| corrupt(object, e))?,
                    Guard::OmapIs {
                        key: Bytes::from_static(NEXT),
                        value: Some(value),
                    },
                ),
                _ => return Err(odd_answer(object).into()),
            },
            _ => return Err(odd_answer(object).into()),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => (1, Guard::Absent),
        Err(error) => return Err(error.into()),
    };
    let entries = vec![
        (Bytes::from_static(NEXT), encode_number(number + 1)),
        (writer_row(number), record.encode()),
    ];
    // A program that starts over a full store must be able to delete.
    let op = WriteOp::new([WriteStep::OmapSet { entries }])
        .guarded(guard)
        .forced_when_full();
    match store.write(object, op).await {
        Ok(_) => Ok(Some(number)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::GuardFailed | ErrorKind::AlreadyExists
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

impl Shared {
    /// An id that was never used.
    pub(super) async fn new_data_id(&self) -> Result<DataId, Error> {
        let mut ids = self.writer.ids.lock().await;
        if ids.next == ids.record.high_water {
            let record = self.stored_writer().await?;
            let raised = WriterRecord {
                high_water: record.high_water + BLOCK,
                examined: self.settled_below(ids.next),
                ..record.clone()
            };
            self.replace_writer(&record, &raised).await?;
            ids.record = raised;
        }
        let counter = ids.next;
        ids.next += 1;
        let mut unsettled = self.writer.unsettled.lock().expect(super::LOCK);
        unsettled.insert(counter);
        Ok(DataId {
            writer: self.writer.number,
            counter,
        })
    }

    /// Says that this writer makes no more ids and has no write on its way.
    pub(super) async fn end_writer(&self) -> Result<(), Error> {
        let mut ids = self.writer.ids.lock().await;
        let record = self.stored_writer().await?;
        let ended = WriterRecord {
            ended: true,
            examined: self.settled_below(ids.next),
            ..record.clone()
        };
        self.replace_writer(&record, &ended).await?;
        ids.record = ended;
        Ok(())
    }

    /// What has this id is linked, or removed for good.
    pub(super) fn settle_id(&self, data: DataId) {
        let mut unsettled = self.writer.unsettled.lock().expect(super::LOCK);
        unsettled.remove(&data.counter);
    }

    fn settled_below(&self, next: u64) -> u64 {
        let unsettled = self.writer.unsettled.lock().expect(super::LOCK);
        unsettled.first().copied().unwrap_or(next)
    }

    /// This writer's row, which an earlier attempt of unknown outcome may have raised.
    async fn stored_writer(&self) -> Result<WriterRecord, Error> {
        let object = writers_object(&self.meta);
        let rows = self
            .rows_of(&object, &[writer_row(self.writer.number)])
            .await?;
        let record = rows.into_iter().next().flatten();
        let record = record.map(|value| WriterRecord::decode(&value));
        match record.transpose().map_err(|e| corrupt(&object, e))? {
            Some(record) if !record.ended => Ok(record),
            // Whoever examines what it made has said that it ended, or was through with it.
            Some(_) | None => Err(self.ended_by_another().await.into()),
        }
    }

    /// Only this writer writes its row while its session lives, so the guard tells whether an
    /// attempt of unknown outcome happened.
    async fn replace_writer(&self, old: &WriterRecord, new: &WriterRecord) -> Result<(), Error> {
        let object = writers_object(&self.meta);
        let row = writer_row(self.writer.number);
        let entries = vec![(row.clone(), new.encode())];
        let op = WriteOp::new([WriteStep::OmapSet { entries }])
            .guarded(Guard::OmapIs {
                key: row,
                value: Some(old.encode()),
            })
            .forced_when_full();
        let mut unknown = false;
        for round in 0.. {
            match self.store.write(&object, op.clone()).await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::GuardFailed && unknown => return Ok(()),
                Err(error) if error.kind() == ErrorKind::GuardFailed => {
                    return Err(self.ended_by_another().await.into());
                }
                Err(error) if may_pass(&error) && round < TRIES_MAX => {
                    unknown |= error.kind().is_perhaps_applied();
                    pause(round).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Others took this session for fenced, and perhaps that was undone before it noticed. What it
    /// writes may be gone already, so it ends here for good.
    async fn ended_by_another(&self) -> StoreError {
        if let Err(error) = self.store.fence(&self.store.session()).await {
            tracing::debug!(%error, "the session of an ended writer was fenced before");
        }
        StoreError::new(ErrorKind::Fenced, "another session ended this writer")
    }
}
