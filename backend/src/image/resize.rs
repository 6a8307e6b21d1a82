//! Changing the size of an image, open or not.
//!
//! Growing sets the size. Shrinking first notes where the data ends, then sets the size, tells who
//! serves the image, takes away what is behind, and clears the note. So after a crash the next
//! claimant takes it away, and no image grows over data that should be gone. Only a claimant cuts.

use std::time::Duration;

use bytes::Bytes;

use super::follow::SERVING;
use super::handle::{Shared, take};
use super::header::{self, Header};
use super::trim::Extent;
use super::{Image, ImagePools, Place, check_name, check_size, directory, facts, prefix_of};
use crate::claim::Claim;
use crate::error::{Error, ErrorKind};
use crate::object::{Guard, NotifyOutcome, ObjectStore, Version, WriteOp};

/// Attempts against others who change the header.
const ATTEMPTS_MAX: u32 = 16;

/// How long those who serve an image have to take a new size in.
const TOLD_MAX: Duration = Duration::from_secs(5);

impl Image {
    /// Changes the size of this image. When this returns, reads and writes go by the new size; the
    /// space behind it was given back.
    ///
    /// # Errors
    /// `Unsupported` for a size that no image has; `Busy` if a shrinking is on its way.
    pub async fn resize(&self, size_bytes: u64) -> Result<(), Error> {
        let shared = &*self.shared;
        shared.check_served()?;
        check_size(&shared.place.name, size_bytes, shared.identity.block_bytes)?;
        // A shrinking whose outcome was unknown.
        shared.look_again().await;
        shared.trim_if_noted().await?;
        let claim = Some(&shared.claim);
        set_size(&*shared.store, &shared.place, size_bytes, claim).await?;
        shared.take_in(size_bytes).await;
        tell(&*shared.store, &shared.place).await?;
        shared.trim_if_noted().await
    }

    /// Changes the size of an image that another session may serve, which learns of it before this
    /// returns unless it is too slow, and then within a second of hearing. The server gives back
    /// the space of a smaller image; without one this does.
    ///
    /// # Errors
    /// As [`Image::resize`], and those of [`Image::open`].
    pub async fn resize_named(
        store: &dyn ObjectStore,
        pools: &ImagePools,
        name: &str,
        size_bytes: u64,
    ) -> Result<(), Error> {
        check_name(name)?;
        let place = Place {
            pools: pools.clone(),
            name: name.to_owned(),
            id: directory::id_of(store, pools, name).await?,
        };
        Header::read(store, &place.header(), name).await?;
        let known = facts::ensure(store, &place).await?;
        check_size(name, size_bytes, known.identity.block_bytes)?;
        let before = set_size(store, &place, size_bytes, None).await?;
        let outcome = tell(store, &place).await?;
        if size_bytes >= before.size || is_served(&outcome) {
            return Ok(());
        }
        let claim = take(store, &place).await?;
        let header = Header::read(store, &place.header(), name).await?;
        let extent = Extent {
            store,
            pool: &place.pools.data,
            prefix: prefix_of(&header.object_prefix),
            layout: header.layout,
        };
        extent.trim(header.size, before.size).await?;
        clear_trim(store, &place, &claim).await?;
        claim.release(store, &place.facts()).await
    }
}

impl Shared {
    /// Takes away what a shrinking, of this or another session, left behind the size.
    pub(super) async fn trim_if_noted(&self) -> Result<(), Error> {
        // One at a time: who finds no note any more must not find a cut on its way either.
        let _alone = self.trimming.lock().await;
        let known = facts::read(&*self.store, &self.place.facts()).await?;
        let Some(end) = known.trim_from else {
            return Ok(());
        };
        self.extent().trim(self.size(), end).await?;
        clear_trim(&*self.store, &self.place, &self.claim).await
    }
}

/// Whether somebody who answered serves the image.
pub(super) fn is_served(outcome: &NotifyOutcome) -> bool {
    outcome.acks.iter().any(|ack| ack.payload == SERVING)
}

/// Tells everybody who has the image open that its header changed, as librbd does.
pub(super) async fn tell(store: &dyn ObjectStore, place: &Place) -> Result<NotifyOutcome, Error> {
    store.notify(&place.header(), Bytes::new(), TOLD_MAX).await
}

async fn clear_trim(store: &dyn ObjectStore, place: &Place, claim: &Claim) -> Result<(), Error> {
    let op = claim.apply(WriteOp::new([facts::clear(facts::TRIM)]));
    store.write(&place.facts(), op).await.map(|_| ())
}

/// Sets the size in the header; what it said before is the answer.
async fn set_size(
    store: &dyn ObjectStore,
    place: &Place,
    size_bytes: u64,
    claim: Option<&Claim>,
) -> Result<Header, Error> {
    let object = place.header();
    for _ in 0..ATTEMPTS_MAX {
        let header = Header::read(store, &object, &place.name).await?;
        // The header was read before the note: a shrinking that is noted later changes the header
        // first, and then this one fails.
        if facts::read(store, &place.facts())
            .await?
            .trim_from
            .is_some()
        {
            return Err(busy(place));
        }
        let mut noted = None;
        if size_bytes < header.size {
            noted = Some(note_trim(store, place, header.size, claim).await?);
        }
        let op =
            WriteOp::new([header::set_size(size_bytes)]).guarded(Guard::VersionIs(header.version));
        match store.write(&object, under(claim, op)).await {
            Ok(_) => return Ok(header),
            Err(error) if error.kind() == ErrorKind::GuardFailed => {
                if let Some(noted) = noted {
                    take_back(store, place, noted, claim).await?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(busy(place))
}

/// Notes where the data ends. The version of the facts with the note tells it from others.
///
/// # Errors
/// `Busy` if there is one.
pub(super) async fn note_trim(
    store: &dyn ObjectStore,
    place: &Place,
    end: u64,
    claim: Option<&Claim>,
) -> Result<Version, Error> {
    let note = facts::set(facts::TRIM, facts::encode_trim(end));
    let op = WriteOp::new([note]).guarded(Guard::OmapIs {
        key: facts::key(facts::TRIM),
        value: None,
    });
    let noted = store.write(&place.facts(), under(claim, op)).await;
    noted.map_err(|error| {
        if error.kind() == ErrorKind::GuardFailed {
            busy(place)
        } else {
            error
        }
    })
}

/// Takes the note of a shrinking back that did not come about. Were the facts changed since, the
/// note may be another's; if it is not, whoever serves the image finds nothing behind it to cut.
pub(super) async fn take_back(
    store: &dyn ObjectStore,
    place: &Place,
    noted: Version,
    claim: Option<&Claim>,
) -> Result<(), Error> {
    let op = WriteOp::new([facts::clear(facts::TRIM)]).guarded(Guard::VersionIs(noted));
    match store.write(&place.facts(), under(claim, op)).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::GuardFailed => Ok(()),
        Err(error) => Err(error),
    }
}

fn under(claim: Option<&Claim>, op: WriteOp) -> WriteOp {
    match claim {
        Some(claim) => claim.apply(op),
        None => op,
    }
}

fn busy(place: &Place) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!(
            "image {:?} is being resized, or was left half shrunk; try again, and open it once if \
             that does not help",
            place.name
        ),
    )
}
