//! What Portico alone knows of an image: `portico_image.ID`, which RBD's tools never look at.
//!
//! Its attributes hold the claim; its omap holds the identity, a shrinking or removal on its way,
//! and room for what else a logical unit must remember.

use std::fmt;

use bytes::Bytes;
use ring::rand::{SecureRandom, SystemRandom};

use super::{ImagePools, Place, odd_answer};
use crate::codec::{DecodeError, Reader, Writer};
use crate::error::{Error, ErrorKind};
use crate::object::{
    Guard, ObjectId, ObjectName, ObjectStore, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep,
};

/// The version of each record here.
const VERSION: u8 = 1;

/// Draws of an identifier whose beginning no other image has.
const DRAWS_MAX: u32 = 64;

pub(super) const IDENTITY: &str = "identity";

/// A shrinking on its way: where the data ended before.
pub(super) const TRIM: &str = "trim";

/// A removal on its way.
pub(super) const REMOVING: &str = "removing";

/// An NAA identifier of 16 bytes (SPC-5 7.8.6.6.5, IEEE Registered Extended) with a locally
/// administered company id, drawn at random. No two images of a store agree in its first 4 bytes,
/// 8 characters: ESXi and Hyper-V look there.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Naa(pub [u8; 16]);

impl Naa {
    /// Without the first half byte, which says what kind it is, the company id is 3 bytes whose
    /// first has the bits 0 (group) and 1 (local).
    fn new(mut drawn: [u8; 16]) -> Self {
        drawn[0] = 0x60 | (drawn[0] & 0x0f);
        drawn[1] = (drawn[1] & 0xcf) | 0x20;
        Self(drawn)
    }

    fn beginning(&self) -> String {
        let mut text = self.to_string();
        text.truncate(8);
        text
    }
}

impl fmt::Display for Naa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// By what initiators know an image. Set once, when Portico first meets the image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    pub naa: Naa,
    /// 16 characters.
    pub serial: String,
    /// Bytes of a logical block: 512 or 4,096.
    pub block_bytes: u32,
}

impl Identity {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer
            .raw(&self.naa.0)
            .str(&self.serial)
            .u32(self.block_bytes);
        writer.finish()
    }

    fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let naa = <[u8; 16]>::try_from(reader.raw(16)?).map_err(|_| DecodeError::Truncated)?;
        let serial = reader.str()?.to_owned();
        let block_bytes = reader.u32()?;
        reader.finish()?;
        if !matches!(block_bytes, 512 | 4_096) {
            return Err(DecodeError::Field("the block size"));
        }
        Ok(Self {
            naa: Naa(naa),
            serial,
            block_bytes,
        })
    }
}

/// The facts as they are.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) identity: Identity,
    /// Where the data ended before a shrinking that is on its way.
    pub(super) trim_from: Option<u64>,
    pub(super) is_removing: bool,
}

/// # Errors
/// `NotFound` if Portico never met the image.
pub(super) async fn read(store: &dyn ObjectStore, object: &ObjectId) -> Result<Facts, Error> {
    let op = ReadOp::new([ReadStep::OmapGet {
        keys: [IDENTITY, TRIM, REMOVING].map(key).to_vec(),
    }]);
    let output = store.read(object, op).await?;
    let [ReadResult::OmapValues(values)] = output.results.as_slice() else {
        return Err(odd_answer(object));
    };
    let [identity, trim, removing] = values.as_slice() else {
        return Err(odd_answer(object));
    };
    let corrupt = |what: &str, error: DecodeError| {
        let context = format!("{object}: {what} is not readable");
        Error::new(ErrorKind::Corrupt, context).with_source(error)
    };
    let identity = identity.as_deref().unwrap_or_default();
    Ok(Facts {
        identity: Identity::decode(identity).map_err(|error| corrupt("the identity", error))?,
        trim_from: match trim {
            None => None,
            Some(record) => {
                Some(decode_trim(record).map_err(|error| corrupt("the shrinking", error))?)
            }
        },
        is_removing: removing.is_some(),
    })
}

/// Makes the facts of an image that has none, with an identity that no other image has.
///
/// # Errors
/// `AlreadyExists` if it has some.
pub(super) async fn create(
    store: &dyn ObjectStore,
    place: &Place,
    block_bytes: u32,
) -> Result<Identity, Error> {
    let naa = reserve_naa(store, place).await?;
    let text = naa.to_string();
    let identity = Identity {
        naa,
        serial: text[16..].to_owned(),
        block_bytes,
    };
    let op = WriteOp::new([set(IDENTITY, identity.encode())]).guarded(Guard::Absent);
    match store.write(&place.facts(), op).await {
        Ok(_) => Ok(identity),
        Err(error) => {
            if !error.kind().is_perhaps_applied() {
                release_naa(store, place, &naa).await?;
            }
            Err(error)
        }
    }
}

/// The facts of an image, which are made if Portico meets it for the first time.
pub(super) async fn ensure(store: &dyn ObjectStore, place: &Place) -> Result<Facts, Error> {
    let object = place.facts();
    match read(store, &object).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        answer => return answer,
    }
    match create(store, place, 512).await {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    read(store, &object).await
}

/// The identifier may be given to another image.
pub(super) async fn release_naa(
    store: &dyn ObjectStore,
    place: &Place,
    naa: &Naa,
) -> Result<(), Error> {
    let key = Bytes::from(naa.beginning());
    let op = WriteOp::new([WriteStep::OmapRemove {
        keys: vec![key.clone()],
    }])
    .guarded(Guard::OmapIs {
        key,
        value: Some(Bytes::copy_from_slice(place.id.as_bytes())),
    });
    match store.write(&naa_object(&place.pools), op).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::GuardFailed) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

async fn reserve_naa(store: &dyn ObjectStore, place: &Place) -> Result<Naa, Error> {
    let object = naa_object(&place.pools);
    store
        .write(&object, WriteOp::new([WriteStep::Create]))
        .await?;
    for _ in 0..DRAWS_MAX {
        let naa = Naa::new(draw()?);
        let key = Bytes::from(naa.beginning());
        let op = WriteOp::new([WriteStep::OmapSet {
            entries: vec![(key.clone(), Bytes::copy_from_slice(place.id.as_bytes()))],
        }])
        .guarded(Guard::OmapIs { key, value: None });
        match store.write(&object, op).await {
            Ok(_) => return Ok(naa),
            Err(error) if error.kind() == ErrorKind::GuardFailed => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(
        ErrorKind::Busy,
        format!("image {:?}: found no free NAA identifier", place.name),
    ))
}

pub(super) fn draw<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        let context = "image: the machine gives no random numbers";
        Error::new(ErrorKind::Unavailable, context)
    })?;
    Ok(bytes)
}

fn naa_object(pools: &ImagePools) -> ObjectId {
    ObjectId::new(&pools.meta, ObjectName::new("portico_naa"))
}

pub(super) fn key(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

pub(super) fn set(name: &'static str, value: Bytes) -> WriteStep {
    WriteStep::OmapSet {
        entries: vec![(key(name), value)],
    }
}

pub(super) fn clear(name: &'static str) -> WriteStep {
    WriteStep::OmapRemove {
        keys: vec![key(name)],
    }
}

pub(super) fn encode_trim(trim_from: u64) -> Bytes {
    let mut writer = Writer::new(VERSION);
    writer.u64(trim_from);
    writer.finish()
}

fn decode_trim(record: &[u8]) -> Result<u64, DecodeError> {
    let (mut reader, _) = Reader::new(record, VERSION)?;
    let trim_from = reader.u64()?;
    reader.finish()?;
    Ok(trim_from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_naa_is_of_type_6_and_local() {
        for drawn in [[0; 16], [0xff; 16], [0x35; 16]] {
            let Naa(bytes) = Naa::new(drawn);
            assert_eq!(bytes[0] >> 4, 6);
            // The first byte of the company id: the low half of byte 0 and the high half of byte 1.
            let company = (bytes[0] << 4) | (bytes[1] >> 4);
            assert_eq!(company & 0b11, 0b10);
        }
    }
}
