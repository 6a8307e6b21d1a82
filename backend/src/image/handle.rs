//! An open image: reading, writing, flushing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::{Mutex, RwLock, watch};
use tokio::task::JoinHandle;

use super::facts::{self, Identity};
use super::header::Header;
use super::trim::Extent;
use super::{ImagePools, Place, check_pools, directory, odd_answer, prefix_of};
use crate::claim::Claim;
use crate::error::{Error, ErrorKind};
use crate::object::{
    Durability, ObjectId, ObjectName, ObjectStore, Payload, ReadOp, ReadOutput, ReadResult,
    ReadStep, WriteOp, WriteStep,
};
use crate::stripe::{Layout, Piece};

/// Operations of one call on their way.
pub(super) const AT_ONCE: usize = 8;

/// What reads of nothing point to.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// An image that this session serves. One handle for an image and session; share it in an `Arc`.
///
/// A call that was polled goes on in the store although its future is dropped: whoever drops the
/// future of a write does not know when it takes effect.
#[derive(Debug)]
pub struct Image {
    pub(super) shared: Arc<Shared>,
    follower: std::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) place: Place,
    pub(super) layout: Layout,
    pub(super) prefix: Arc<str>,
    pub(super) identity: Identity,
    pub(super) claim: Claim,
    size: AtomicU64,
    size_told: watch::Sender<u64>,
    /// Why it is served no more.
    refused: OnceLock<String>,
    /// Held by each change of data; alone by who makes the image smaller.
    pub(super) changing: RwLock<()>,
    /// Held by who cuts what a shrinking left.
    pub(super) trimming: Mutex<()>,
}

impl Image {
    /// Opens the image of this name for serving: takes its claim and fences the session that had
    /// it. An image that Portico meets for the first time gets its identity, with blocks of 512
    /// bytes.
    ///
    /// # Errors
    /// `NotFound` if no image has the name; `Unsupported`, with the reason, for an image that
    /// Portico can't serve: features other than layering and striping, a parent, snapshots, or
    /// being removed.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        pools: &ImagePools,
        name: &str,
    ) -> Result<Self, Error> {
        super::check_name(name)?;
        check_pools(&*store, pools)?;
        let place = Place {
            pools: pools.clone(),
            name: name.to_owned(),
            id: directory::id_of(&*store, pools, name).await?,
        };
        // Nothing is changed of an image that can't be served.
        Header::read(&*store, &place.header(), name).await?;
        facts::ensure(&*store, &place).await?;
        let claim = take(&*store, &place).await?;
        let watch = store.watch(&place.header()).await?;
        let header = Header::read(&*store, &place.header(), name).await?;
        let facts = facts::read(&*store, &place.facts()).await?;
        if facts.is_removing {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("image {name:?} is half removed; remove it again"),
            ));
        }
        if !directory::lists(&*store, &place).await? {
            directory::add(&*store, &place).await?;
        }
        let (size_told, _) = watch::channel(header.size);
        let shared = Arc::new(Shared {
            store,
            place,
            layout: header.layout,
            prefix: prefix_of(&header.object_prefix),
            identity: facts.identity,
            claim,
            size: AtomicU64::new(header.size),
            size_told,
            refused: OnceLock::new(),
            changing: RwLock::new(()),
            trimming: Mutex::new(()),
        });
        shared.trim_if_noted().await?;
        let follower = tokio::spawn(super::follow::follow(Arc::clone(&shared), watch));
        Ok(Self {
            shared,
            follower: std::sync::Mutex::new(Some(follower)),
        })
    }

    /// Gives the image back, so that whoever opens it next fences nobody. What is on its way must
    /// have ended.
    ///
    /// # Errors
    /// What the store says; the image is closed all the same.
    pub async fn close(&self) -> Result<(), Error> {
        self.shared.refuse("it is closed".to_owned());
        if let Some(follower) = self.take_follower() {
            follower.abort();
            // It ended, whether by the abort or before.
            follower.await.ok();
        }
        let shared = &self.shared;
        shared.store.flush().await?;
        shared
            .claim
            .release(&*shared.store, &shared.place.facts())
            .await
    }

    /// Changes while the image is open; see [`Image::size_watch`].
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.shared.size()
    }

    /// Says when the size was changed, by this or another session.
    #[must_use]
    pub fn size_watch(&self) -> watch::Receiver<u64> {
        self.shared.size_told.subscribe()
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.place.name
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.place.id
    }

    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// One object is the most that a change does as a whole.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.shared.layout
    }

    /// The claim under which this session serves; greater for each later one.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.shared.claim.epoch()
    }

    /// The bytes of a range; zeros where nothing is. Takes as much memory as the range is long.
    ///
    /// # Errors
    /// `TooLarge` if the range does not lie in the image.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Payload, Error> {
        let shared = &*self.shared;
        shared.check_range(offset, length)?;
        let mut pieces = shared.layout.map(offset, length);
        let (Some(first), second) = (pieces.next(), pieces.next()) else {
            return Ok(Payload::default());
        };
        let Some(second) = second else {
            return shared.read_piece(first).await.map(Payload::from);
        };
        let pieces = [first, second].into_iter().chain(pieces);
        let parts: Vec<Vec<Bytes>> = stream::iter(pieces)
            .map(|piece| shared.read_piece(piece))
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(Payload::from(parts.concat()))
    }

    /// The same as [`Image::read`] where the engine answers at once from memory; `None` says
    /// nothing but "ask `read`".
    pub fn try_read_cached(&self, offset: u64, length: u64) -> Option<Result<Payload, Error>> {
        let shared = &*self.shared;
        if let Err(error) = shared.check_range(offset, length) {
            return Some(Err(error));
        }
        let mut bytes = Vec::new();
        for piece in shared.layout.map(offset, length) {
            let object = shared.object(piece.object_number);
            let answer = shared.store.try_read_cached(&object, &extents_of(&piece))?;
            match filled(&object, &piece, answer) {
                Ok(part) => bytes.extend(part),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(Payload::from(bytes)))
    }

    /// Writes `data` at `offset`. Of each 4 KiB block all or nothing is written, whatever fails; so
    /// is all that lies in one object of a `Durable` write. Parts that lie in different objects are
    /// written at the same time. Two writes of one block that overlap in time have no order.
    ///
    /// # Errors
    /// `TooLarge` if the range does not lie in the image; `Fenced` if another session took the
    /// image. Parts may have been written whatever the error is.
    pub async fn write(
        &self,
        offset: u64,
        data: Payload,
        durability: Durability,
    ) -> Result<(), Error> {
        let shared = &*self.shared;
        let _changing = shared.changing.read().await;
        shared.check_range(offset, data.len())?;
        let mut pieces = shared.layout.map(offset, data.len());
        let (Some(first), second) = (pieces.next(), pieces.next()) else {
            return Ok(());
        };
        let Some(second) = second else {
            return shared.write_piece(first, data, durability).await;
        };
        let pieces = [first, second].into_iter().chain(pieces);
        let writes = pieces.map(|piece| {
            let part = data.slice(piece.buffer_offset, piece.length);
            shared.write_piece(piece, part, durability)
        });
        all(writes).await
    }

    /// When this returns, every `Buffered` change that returned before the call is stable.
    ///
    /// # Errors
    /// What the store says.
    pub async fn flush(&self) -> Result<(), Error> {
        self.shared.check_served()?;
        self.shared.store.flush().await
    }

    fn take_follower(&self) -> Option<JoinHandle<()>> {
        self.follower
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Some(follower) = self.take_follower() {
            follower.abort();
        }
    }
}

impl Shared {
    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::SeqCst)
    }

    pub(super) fn set_size(&self, size_bytes: u64) {
        self.size.store(size_bytes, Ordering::SeqCst);
        self.size_told.send_if_modified(|told| {
            let is_new = *told != size_bytes;
            *told = size_bytes;
            is_new
        });
    }

    /// Every later call fails. The first reason counts.
    pub(super) fn refuse(&self, reason: String) {
        tracing::debug!(image = %self.place.name, %reason, "image is served no more");
        // Only the first one is kept.
        self.refused.set(reason).ok();
    }

    pub(super) fn check_served(&self) -> Result<(), Error> {
        match self.refused.get() {
            None => Ok(()),
            Some(reason) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("image {:?} is served no more: {reason}", self.place.name),
            )),
        }
    }

    pub(super) fn check_range(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.check_served()?;
        let size = self.size();
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "image {:?}: {length} bytes at {offset} end behind its {size} bytes",
                    self.place.name
                ),
            )),
        }
    }

    pub(super) fn object(&self, number: u64) -> ObjectId {
        let name = ObjectName::numbered(&self.prefix, number);
        ObjectId::new(&self.place.pools.data, name)
    }

    pub(super) fn extent(&self) -> Extent<'_> {
        Extent {
            store: &*self.store,
            pool: &self.place.pools.data,
            prefix: Arc::clone(&self.prefix),
            layout: self.layout,
        }
    }

    async fn read_piece(&self, piece: Piece) -> Result<Vec<Bytes>, Error> {
        let object = self.object(piece.object_number);
        let answer = self.store.read(&object, extents_of(&piece)).await;
        filled(&object, &piece, answer)
    }

    async fn write_piece(
        &self,
        piece: Piece,
        data: Payload,
        durability: Durability,
    ) -> Result<(), Error> {
        let object = self.object(piece.object_number);
        let step = WriteStep::Write {
            offset: piece.object_offset,
            data,
        };
        let op = WriteOp {
            durability,
            ..WriteOp::new([step])
        };
        self.store.write(&object, op).await.map(|_| ())
    }
}

/// Takes the claim of an image, and makes sure that nobody who had it writes any more.
pub(super) async fn take(store: &dyn ObjectStore, place: &Place) -> Result<Claim, Error> {
    let claim = Claim::take(store, &place.facts()).await?;
    claim.fence_former(store, &place.facts()).await?;
    Ok(claim)
}

/// Waits for all, a few at a time, also if one fails: nothing is on its way when this returns.
pub(super) async fn all<F>(calls: impl Iterator<Item = F>) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
    let mut outcome = Ok(());
    while let Some(answer) = calls.next().await {
        outcome = outcome.and(answer);
    }
    outcome
}

fn extents_of(piece: &Piece) -> ReadOp {
    ReadOp::new([ReadStep::Extents {
        offset: piece.object_offset,
        length: piece.length,
    }])
}

/// The bytes of a piece with its holes filled.
fn filled(
    object: &ObjectId,
    piece: &Piece,
    answer: Result<ReadOutput, Error>,
) -> Result<Vec<Bytes>, Error> {
    let end = piece.object_offset + piece.length;
    let mut at = piece.object_offset;
    let mut bytes = Vec::with_capacity(1);
    let output = match answer {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if let Some(output) = output {
        let [ReadResult::Extents(extents)] = output.results.as_slice() else {
            return Err(odd_answer(object));
        };
        for extent in extents {
            let extent_end = extent.offset + extent.data.len() as u64;
            if extent.offset < at || extent_end > end {
                return Err(odd_answer(object));
            }
            push_zeros(&mut bytes, extent.offset - at);
            bytes.push(extent.data.clone());
            at = extent_end;
        }
    }
    push_zeros(&mut bytes, end - at);
    Ok(bytes)
}

fn push_zeros(bytes: &mut Vec<Bytes>, count: u64) {
    let mut rest = count;
    while rest > 0 {
        let length = rest.min(ZEROS.len() as u64);
        let length_here = usize::try_from(length).expect("at most the length of a slice");
        bytes.push(Bytes::from_static(&ZEROS[..length_here]));
        rest -= length;
    }
}
