//! Parts of a multipart upload.

use bytes::Bytes;

use super::error::Error;
use super::record::{Checksum, PartRecord};

/// Writes one part of an upload. Dropped without `finish`, nothing stays behind.
#[derive(Debug)]
pub struct PartWriter {}

impl PartWriter {
    /// Appends `data`. Waits while the store is behind, so memory stays at a few MiB.
    ///
    /// # Errors
    /// `EntityTooLarge` beyond 5 GiB; `Store` if the store fails. The part is lost then.
    pub async fn write(&mut self, data: Bytes) -> Result<(), Error> {
        let _unused = data;
        todo!()
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
        let _unused = (etag, checksum);
        todo!()
    }
}
