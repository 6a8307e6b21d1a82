//! Writing and reading the data of one object.

use std::ops::Range;

use bytes::Bytes;

use super::error::Error;
use super::record::{ObjectAbout, ObjectRecord, Precondition};

/// Writes one object. Dropped without `finish`, nothing is visible and nothing stays behind.
#[derive(Debug)]
pub struct ObjectWriter {}

impl ObjectWriter {
    /// Appends `data`. Waits while the store is behind, so memory stays at a few MiB.
    ///
    /// # Errors
    /// `EntityTooLarge` beyond 5 TiB; `Store` if the store fails. The object is lost then.
    pub async fn write(&mut self, data: Bytes) -> Result<(), Error> {
        let _unused = data;
        todo!()
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
        let _unused = (about, precondition);
        todo!()
    }
}

/// An object to read from.
#[derive(Clone, Debug)]
pub struct Object {
    record: ObjectRecord,
}

impl Object {
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
        let _unused = range;
        todo!()
    }
}

/// Gives the bytes of a range in pieces of at most 1 MiB, reading a little ahead.
#[derive(Debug)]
pub struct ObjectReader {}

impl ObjectReader {
    /// The next piece; `None` behind the last. After an error there is nothing more.
    pub async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        todo!()
    }
}
