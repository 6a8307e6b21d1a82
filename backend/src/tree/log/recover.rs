//! Recovery: what the log holds lies over the objects again.
//!
//! Nothing is changed but the mark that refuses a former owner, so recovery may be cut short and
//! begun again at any point. Records that were applied already are applied once more, each row
//! with its last value.

use super::super::header::corrupt;
use super::super::place::{Place, number_key, number_of};
use super::commit::{LAST, TRIMMED};
use super::record::{KeptReply, Record};
use super::state::State;
use crate::claim::Claim;
use crate::error::Error;
use crate::object::{
    ObjectStore, OmapPage, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep, XattrName,
};

/// Records read at once: 64 KiB each at most.
const PAGE: u32 = 256;

impl State {
    /// The state that the log of this tree leads to, and the answers that were given last. From
    /// here on nobody logs with an older claim.
    ///
    /// # Errors
    /// `Corrupt` if a record does not read; `GuardFailed` if the claim is not the newest.
    pub(in crate::tree) async fn recover(
        store: &dyn ObjectStore,
        place: &Place,
        claim: &Claim,
    ) -> Result<(Self, Vec<KeptReply>), Error> {
        let object = place.log();
        let op = claim.apply(WriteOp::new([WriteStep::Create]).forced_when_full());
        store.write(&object, op).await?;
        let trimmed = number(store, place, TRIMMED).await?;
        let last = number(store, place, LAST).await?;
        let mut records = Vec::new();
        let mut start = number_key(trimmed + 1);
        loop {
            let page = scan(store, place, start).await?;
            for (key, value) in &page.entries {
                let sequence = number_of(key).ok_or_else(|| corrupt(&object.to_string()))?;
                let record = Record::decode(value)
                    .map_err(|error| corrupt(&object.to_string()).with_source(error))?;
                records.push((sequence, value.len() as u64, record));
            }
            match page.entries.last() {
                Some((key, _)) if page.more => start = [&key[..], &[0]].concat().into(),
                Some(_) | None => break,
            }
        }
        if records
            .last()
            .is_some_and(|(sequence, ..)| *sequence > last)
        {
            return Err(corrupt(&object.to_string()));
        }
        Ok(Self::recovered(trimmed, last, records))
    }
}

async fn number(store: &dyn ObjectStore, place: &Place, name: XattrName) -> Result<u64, Error> {
    let object = place.log();
    let output = store
        .read(&object, ReadOp::new([ReadStep::Xattr { name }]))
        .await?;
    match output.results.as_slice() {
        [ReadResult::Xattr(None)] => Ok(0),
        [ReadResult::Xattr(Some(value))] => {
            number_of(value).ok_or_else(|| corrupt(&object.to_string()))
        }
        _ => Err(corrupt(&object.to_string())),
    }
}

async fn scan(
    store: &dyn ObjectStore,
    place: &Place,
    start: bytes::Bytes,
) -> Result<OmapPage, Error> {
    let object = place.log();
    let op = ReadOp::new([ReadStep::OmapScan {
        start,
        end: None,
        keys_only: false,
        count_max: PAGE,
    }]);
    let output = store.read(&object, op).await?;
    match output.results.into_iter().next() {
        Some(ReadResult::OmapPage(page)) => Ok(page),
        _ => Err(corrupt(&object.to_string())),
    }
}
