//! LUNs: images that are served as disks, and by which node.

use bytes::Bytes;
use tokio::sync::watch;

use super::error::CatalogError;
use super::follow::Shared;
use super::name::NodeId;
use super::root::TableKind;
use super::table::{Edit, corrupt};
use super::{ATTEMPTS_MAX, Catalog};
use crate::codec::{DecodeError, Reader, Writer};
use crate::error::Error;

/// The newest layout of a record.
const VERSION: u8 = 2;

/// The largest number a LUN may have: 14 bits with flat addressing (SAM-5 4.7.7).
pub const LUN_MAX: u16 = 0x3FFF;

const WHAT: &str = "LUN";

/// An image that is served as a disk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LunRecord {
    /// The name of its image; unique.
    pub name: String,
    /// The id of its image. `None` in records of the first layout.
    pub image_id: Option<String>,
    /// The node that serves it.
    pub node: NodeId,
    pub options: LunOptions,
    pub created_ms: u64,
    /// It is going away: nobody serves or maps it any more, and its image may be gone.
    pub deleting: bool,
}

/// How a LUN is served.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LunOptions {
    /// Nobody writes it, however it is mapped.
    pub read_only: bool,
    /// Writes are answered before they are on stable storage (WCE=1).
    pub write_cache: bool,
}

/// A LUN to be made, whose image exists.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewLun<'a> {
    pub name: &'a str,
    pub image_id: &'a str,
    pub node: NodeId,
    pub options: LunOptions,
}

impl Catalog {
    /// A new LUN over an image that exists.
    ///
    /// # Errors
    /// `Exists`.
    pub async fn lun_create(&self, new: NewLun<'_>) -> Result<LunRecord, CatalogError> {
        let lun = LunRecord {
            name: new.name.to_owned(),
            image_id: Some(new.image_id.to_owned()),
            node: new.node,
            options: new.options,
            created_ms: self.shared.clock.now_ms(),
            deleting: false,
        };
        let made = edit(&lun.name, None, Some(lun.encode()));
        if self.shared.commit(TableKind::Lun, &[made]).await? {
            Ok(lun)
        } else {
            Err(CatalogError::Exists {
                what: WHAT,
                name: lun.name,
            })
        }
    }

    /// The LUN of this name, from the store.
    ///
    /// # Errors
    /// What the store says.
    pub async fn lun(&self, name: &str) -> Result<Option<LunRecord>, CatalogError> {
        Ok(self.shared.lun_read(name).await?.map(|(lun, _)| lun))
    }

    /// All LUNs by name, those being deleted too, from the store.
    ///
    /// # Errors
    /// What the store says.
    pub async fn luns(&self) -> Result<Vec<LunRecord>, CatalogError> {
        let loaded = self.shared.luns.load(0).await?;
        let read = loaded.entries.iter().map(|(key, record)| {
            LunRecord::decode(record).map_err(|error| corrupt(WHAT, key, error).into())
        });
        read.collect()
    }

    /// Changes how a LUN is served.
    ///
    /// # Errors
    /// `NoSuch`, also if it is being deleted.
    pub async fn lun_set_options(
        &self,
        name: &str,
        set: impl Fn(&mut LunOptions),
    ) -> Result<LunRecord, CatalogError> {
        self.lun_change(name, |lun| {
            if lun.deleting {
                return Err(no_such(name));
            }
            set(&mut lun.options);
            Ok(())
        })
        .await
    }

    /// Begins to delete a LUN: from now on nobody serves or maps it. Beginning again is fine.
    ///
    /// # Errors
    /// `NoSuch`; `Refused` if a target maps it still, which leaves it as it was.
    pub async fn lun_delete_begin(&self, name: &str) -> Result<LunRecord, CatalogError> {
        // Who sees the mark stops serving it: one that is mapped is not even to be marked.
        self.refuse_mapped(name).await?;
        let mark = |deleting| {
            self.lun_change(name, move |lun| {
                lun.deleting = deleting;
                Ok(())
            })
        };
        let marked = mark(true).await?;
        // Whoever maps it does so first and looks for the mark next.
        if let Err(refused) = self.refuse_mapped(name).await {
            mark(false).await?;
            return Err(refused);
        }
        Ok(marked)
    }

    /// Ends what `lun_delete_begin` began, once the image is gone. Fine if somebody else did.
    ///
    /// # Errors
    /// What the store says.
    pub async fn lun_delete_end(&self, begun: &LunRecord) -> Result<(), CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((lun, record)) = self.shared.lun_read(&begun.name).await? else {
                return Ok(());
            };
            if lun.image_id != begun.image_id {
                return Ok(());
            }
            if !lun.deleting {
                return Err(CatalogError::Conflict);
            }
            let gone = edit(&begun.name, Some(record), None);
            if self.shared.commit(TableKind::Lun, &[gone]).await? {
                return Ok(());
            }
        }
        Err(CatalogError::Conflict)
    }

    /// Counts the moments at which LUNs, targets or initiators may have changed, also by others:
    /// within a second of the change, usually at once.
    #[must_use]
    pub fn block_changes(&self) -> watch::Receiver<u64> {
        self.shared.block_changes()
    }

    /// That nobody deletes the LUN.
    ///
    /// # Errors
    /// `NoSuch`, also while it is being deleted.
    pub(super) async fn lun_stays(&self, name: &str) -> Result<(), CatalogError> {
        let lun = self.shared.lun_read(name).await?;
        if lun.is_some_and(|(lun, _)| !lun.deleting) {
            return Ok(());
        }
        Err(no_such(name))
    }

    async fn refuse_mapped(&self, name: &str) -> Result<(), CatalogError> {
        let targets = self.targets().await?;
        let Some(holder) = targets.iter().find(|target| target.maps_lun(name)) else {
            return Ok(());
        };
        Err(CatalogError::Refused(format!(
            "the LUN {name:?} is mapped to the target {}; unmap it first",
            holder.name
        )))
    }

    async fn lun_change(
        &self,
        name: &str,
        change: impl Fn(&mut LunRecord) -> Result<(), CatalogError>,
    ) -> Result<LunRecord, CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut lun, record)) = self.shared.lun_read(name).await? else {
                return Err(no_such(name));
            };
            change(&mut lun)?;
            let new = lun.encode();
            if new == record {
                return Ok(lun);
            }
            let edit = edit(name, Some(record), Some(new));
            if self.shared.commit(TableKind::Lun, &[edit]).await? {
                return Ok(lun);
            }
        }
        Err(CatalogError::Conflict)
    }
}

impl Shared {
    pub(super) async fn lun_read(&self, name: &str) -> Result<Option<(LunRecord, Bytes)>, Error> {
        let Some(record) = self.luns.read(name.as_bytes()).await? else {
            return Ok(None);
        };
        let lun =
            LunRecord::decode(&record).map_err(|error| corrupt(WHAT, name.as_bytes(), error))?;
        Ok(Some((lun, record)))
    }
}

impl LunRecord {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer
            .str(&self.name)
            .u64(self.node.0)
            .bool(self.options.read_only)
            .bool(self.options.write_cache)
            .u64(self.created_ms)
            .bool(self.deleting)
            .str(self.image_id.as_deref().unwrap_or_default());
        writer.finish()
    }

    fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, version) = Reader::new(record, VERSION)?;
        let mut lun = Self {
            name: reader.str()?.to_owned(),
            image_id: None,
            node: NodeId(reader.u64()?),
            options: LunOptions {
                read_only: reader.bool()?,
                write_cache: reader.bool()?,
            },
            created_ms: reader.u64()?,
            deleting: reader.bool()?,
        };
        if version >= 2 {
            let id = reader.str()?;
            lun.image_id = (!id.is_empty()).then(|| id.to_owned());
        }
        reader.finish()?;
        Ok(lun)
    }
}

fn no_such(name: &str) -> CatalogError {
    CatalogError::NoSuch {
        what: WHAT,
        name: name.to_owned(),
    }
}

fn edit(name: &str, old: Option<Bytes>, new: Option<Bytes>) -> Edit {
    Edit {
        key: Bytes::copy_from_slice(name.as_bytes()),
        old,
        new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_both_layouts_are_read() {
        let lun = LunRecord {
            name: "disk".to_owned(),
            image_id: Some("1f2e3d".to_owned()),
            node: NodeId(7),
            options: LunOptions {
                read_only: true,
                write_cache: false,
            },
            created_ms: 12,
            deleting: true,
        };
        assert_eq!(LunRecord::decode(&lun.encode()), Ok(lun.clone()));
        let mut first = Writer::new(1);
        first.str("disk").u64(7).bool(true).bool(false);
        first.u64(12).bool(true);
        let first = LunRecord::decode(&first.finish());
        let image_id = None;
        assert_eq!(first, Ok(LunRecord { image_id, ..lun }));
    }
}
