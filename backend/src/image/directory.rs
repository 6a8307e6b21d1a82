//! Which images there are: `rbd_directory` and the object of each name, as librbd writes them.

use bytes::Bytes;

use super::header::{encode_text, text};
use super::{ImageEntry, ImagePools, Place, name_object, odd_answer, rbd_object};
use crate::error::{Error, ErrorKind};
use crate::object::{
    Guard, ObjectId, ObjectStore, Payload, ReadOp, ReadResult, ReadStep, WriteOp, WriteStep,
};

/// Bytes of an id that are believed; librbd makes 14 at most.
const ID_BYTES_MAX: u64 = 128;

/// Entries of the directory read at a time.
const PAGE_KEYS: u32 = 512;

fn directory(pools: &ImagePools) -> ObjectId {
    rbd_object(pools, "rbd_directory")
}

fn name_key(name: &str) -> Bytes {
    Bytes::from(format!("name_{name}"))
}

fn id_key(id: &str) -> Bytes {
    Bytes::from(format!("id_{id}"))
}

/// The id that `rbd_id.NAME` holds.
///
/// # Errors
/// `NotFound` if no image has this name, `Corrupt` if the object holds no id.
pub(super) async fn id_of(
    store: &dyn ObjectStore,
    pools: &ImagePools,
    name: &str,
) -> Result<String, Error> {
    let object = name_object(pools, name);
    let op = ReadOp::new([ReadStep::Extents {
        offset: 0,
        length: ID_BYTES_MAX,
    }]);
    let output = match store.read(&object, op).await {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let context = format!("there is no image {name:?}");
            return Err(Error::new(ErrorKind::NotFound, context).with_source(error));
        }
        Err(error) => return Err(error),
    };
    let [ReadResult::Extents(extents)] = output.results.as_slice() else {
        return Err(odd_answer(&object));
    };
    let id = match extents.as_slice() {
        [extent] if extent.offset == 0 => text(&extent.data),
        _ => None,
    };
    id.filter(|id| is_id(id)).map(str::to_owned).ok_or_else(|| {
        Error::new(
            ErrorKind::Corrupt,
            format!("image {name:?}: {object} holds no id of an image"),
        )
    })
}

/// The name is this image's from here on.
///
/// # Errors
/// `AlreadyExists` if another image has it.
pub(super) async fn take_name(store: &dyn ObjectStore, place: &Place) -> Result<(), Error> {
    let op = WriteOp::new([WriteStep::Write {
        offset: 0,
        data: Payload::from(encode_text(&place.id)),
    }])
    .guarded(Guard::Absent);
    store.write(&place.name_object(), op).await.map(|_| ())
}

/// The name is nobody's, unless another image has it by now.
pub(super) async fn release_name(store: &dyn ObjectStore, place: &Place) -> Result<(), Error> {
    let op = WriteOp::new([WriteStep::Remove]).guarded(Guard::BytesAre {
        offset: 0,
        data: encode_text(&place.id),
    });
    ended(store.write(&place.name_object(), op).await)
}

/// Lists the image.
pub(super) async fn add(store: &dyn ObjectStore, place: &Place) -> Result<(), Error> {
    let entries = vec![
        (name_key(&place.name), encode_text(&place.id)),
        (id_key(&place.id), encode_text(&place.name)),
    ];
    let op = WriteOp::new([WriteStep::OmapSet { entries }]);
    store.write(&directory(&place.pools), op).await.map(|_| ())
}

pub(super) async fn remove(store: &dyn ObjectStore, place: &Place) -> Result<(), Error> {
    let object = directory(&place.pools);
    let keys = vec![name_key(&place.name), id_key(&place.id)];
    // Only what names this image: the name may be another image's by now.
    let op = WriteOp::new([WriteStep::OmapRemove { keys }]).guarded(Guard::OmapIs {
        key: name_key(&place.name),
        value: Some(encode_text(&place.id)),
    });
    ended(store.write(&object, op).await)
}

/// What is not there, or another image's, need not be removed.
fn ended<T>(removed: Result<T, Error>) -> Result<(), Error> {
    match removed {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::GuardFailed) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Whether the image is listed.
pub(super) async fn lists(store: &dyn ObjectStore, place: &Place) -> Result<bool, Error> {
    let object = directory(&place.pools);
    let op = ReadOp::new([ReadStep::OmapGet {
        keys: vec![name_key(&place.name), id_key(&place.id)],
    }]);
    let output = match store.read(&object, op).await {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let [ReadResult::OmapValues(values)] = output.results.as_slice() else {
        return Err(odd_answer(&object));
    };
    Ok(values.iter().all(Option::is_some))
}

/// The id under which a name is listed, whether or not the object of that name is there.
pub(super) async fn listed_id(
    store: &dyn ObjectStore,
    pools: &ImagePools,
    name: &str,
) -> Result<Option<String>, Error> {
    let object = directory(pools);
    let op = ReadOp::new([ReadStep::OmapGet {
        keys: vec![name_key(name)],
    }]);
    let output = match store.read(&object, op).await {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let [ReadResult::OmapValues(values)] = output.results.as_slice() else {
        return Err(odd_answer(&object));
    };
    let id = values.first().and_then(Option::as_deref).and_then(text);
    Ok(id.filter(|id| is_id(id)).map(str::to_owned))
}

/// All images of the pool, by name.
pub(super) async fn list(
    store: &dyn ObjectStore,
    pools: &ImagePools,
) -> Result<Vec<ImageEntry>, Error> {
    const PREFIX: &[u8] = b"name_";
    let object = directory(pools);
    let mut images = Vec::new();
    let mut start = Bytes::from_static(PREFIX);
    loop {
        let op = ReadOp::new([ReadStep::OmapScan {
            start: start.clone(),
            end: Some(Bytes::from_static(b"name`")),
            keys_only: false,
            count_max: PAGE_KEYS,
        }]);
        let output = match store.read(&object, op).await {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(images),
            Err(error) => return Err(error),
        };
        let [ReadResult::OmapPage(page)] = output.results.as_slice() else {
            return Err(odd_answer(&object));
        };
        for (key, value) in &page.entries {
            let name = key.strip_prefix(PREFIX).map(String::from_utf8_lossy);
            if let (Some(name), Some(id)) = (name, text(value)) {
                images.push(ImageEntry {
                    name: name.into_owned(),
                    id: id.to_owned(),
                });
            }
        }
        match page.entries.last() {
            Some((last, _)) if page.more => start = after(last),
            _ => return Ok(images),
        }
    }
}

/// The least key above `key`.
fn after(key: &Bytes) -> Bytes {
    Bytes::from([key.as_ref(), &[0]].concat())
}

/// librbd's ids are letters and digits; what else is there is not made part of a name.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
