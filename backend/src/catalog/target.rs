//! Targets, and which LUNs they show to whom.

use bytes::Bytes;

use super::error::CatalogError;
use super::follow::Shared;
use super::iscsi_name::IscsiName;
use super::lun::LUN_MAX;
use super::root::{Counter, TableKind};
use super::table::{Edit, corrupt};
use super::{ATTEMPTS_MAX, Catalog};
use crate::codec::{DecodeError, Reader, Writer};
use crate::error::Error;

/// The newest layout of a record.
const VERSION: u8 = 1;

/// Mappings of one target: its record stays below 512 KiB.
pub const MAPPINGS_MAX: usize = 1_024;

const WHAT: &str = "target";

/// A target: a name under which initiators find LUNs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TargetRecord {
    pub name: IscsiName,
    /// Never used again for another target.
    pub id: u64,
    pub created_ms: u64,
    /// By number and initiator.
    pub maps: Vec<Mapping>,
}

/// One LUN as one initiator, or any, sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mapping {
    /// 0 to `LUN_MAX`.
    pub lun: u16,
    /// The name of the LUN's record and of its image.
    pub lun_name: String,
    /// `None` for whoever may log in at all.
    pub initiator: Option<IscsiName>,
}

impl Catalog {
    /// A new target that shows nothing yet.
    ///
    /// # Errors
    /// `Exists`.
    pub async fn target_create(&self, name: &IscsiName) -> Result<TargetRecord, CatalogError> {
        let target = TargetRecord {
            name: name.clone(),
            id: self.shared.root.count(Counter::Target).await?,
            created_ms: self.shared.clock.now_ms(),
            maps: Vec::new(),
        };
        let made = edit(name, None, Some(target.encode()));
        if self.shared.commit(TableKind::Target, &[made]).await? {
            Ok(target)
        } else {
            Err(CatalogError::Exists {
                what: WHAT,
                name: name.to_string(),
            })
        }
    }

    /// The target of this name, from the store.
    ///
    /// # Errors
    /// What the store says.
    pub async fn target(&self, name: &IscsiName) -> Result<Option<TargetRecord>, CatalogError> {
        Ok(self
            .shared
            .target_read(name)
            .await?
            .map(|(target, _)| target))
    }

    /// All targets by name, from the store.
    ///
    /// # Errors
    /// What the store says.
    pub async fn targets(&self) -> Result<Vec<TargetRecord>, CatalogError> {
        let loaded = self.shared.targets.load(0).await?;
        let read = loaded.entries.iter().map(|(key, record)| {
            TargetRecord::decode(record).map_err(|error| corrupt(WHAT, key, error).into())
        });
        read.collect()
    }

    /// Deletes a target that shows nothing.
    ///
    /// # Errors
    /// `NoSuch`; `Refused` while it maps LUNs.
    pub async fn target_delete(&self, name: &IscsiName) -> Result<(), CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((target, record)) = self.shared.target_read(name).await? else {
                return Err(no_such(name));
            };
            if let Some(mapping) = target.maps.first() {
                return Err(CatalogError::Refused(format!(
                    "the target {name} maps the LUN {:?} still; unmap it first",
                    mapping.lun_name
                )));
            }
            let gone = edit(name, Some(record), None);
            if self.shared.commit(TableKind::Target, &[gone]).await? {
                return Ok(());
            }
        }
        Err(CatalogError::Conflict)
    }

    /// Shows a LUN under a number: the one asked for, or the least from 1 on that is free. Mapping
    /// the same again is fine.
    ///
    /// # Errors
    /// `NoSuch` for the target or the LUN; `Refused` if the number is taken, or the initiator sees
    /// the LUN under another one.
    pub async fn lun_map(
        &self,
        name: &IscsiName,
        lun: Option<u16>,
        wanted: &Mapping,
    ) -> Result<Mapping, CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut target, record)) = self.shared.target_read(name).await? else {
                return Err(no_such(name));
            };
            let mapping = Mapping {
                lun: match lun {
                    Some(lun) => lun,
                    None => target.free_lun(wanted)?,
                },
                ..wanted.clone()
            };
            if target.maps.contains(&mapping) {
                return Ok(mapping);
            }
            target.check(&mapping)?;
            self.lun_stays(&mapping.lun_name).await?;
            target.maps.push(mapping.clone());
            target.sort();
            let edit = edit(name, Some(record), Some(target.encode()));
            if !self.shared.commit(TableKind::Target, &[edit]).await? {
                continue;
            }
            // Whoever deletes the LUN marks it first and looks for mappings next.
            let stays = self.lun_stays(&mapping.lun_name).await;
            if stays.is_err() {
                self.lun_unmap(name, mapping.lun, mapping.initiator.as_ref())
                    .await?;
            }
            return stays.map(|()| mapping);
        }
        Err(CatalogError::Conflict)
    }

    /// Takes a mapping away.
    ///
    /// # Errors
    /// `NoSuch` for the target or the mapping.
    pub async fn lun_unmap(
        &self,
        name: &IscsiName,
        lun: u16,
        initiator: Option<&IscsiName>,
    ) -> Result<(), CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((mut target, record)) = self.shared.target_read(name).await? else {
                return Err(no_such(name));
            };
            let count = target.maps.len();
            target
                .maps
                .retain(|mapping| mapping.lun != lun || mapping.initiator.as_ref() != initiator);
            if target.maps.len() == count {
                let whom = initiator.map_or("any initiator", IscsiName::as_str);
                return Err(CatalogError::NoSuch {
                    what: "mapping",
                    name: format!("{lun} of {name} for {whom}"),
                });
            }
            let edit = edit(name, Some(record), Some(target.encode()));
            if self.shared.commit(TableKind::Target, &[edit]).await? {
                return Ok(());
            }
        }
        Err(CatalogError::Conflict)
    }
}

impl TargetRecord {
    /// Whether it shows this LUN to anybody.
    #[must_use]
    pub fn maps_lun(&self, lun_name: &str) -> bool {
        self.maps.iter().any(|map| map.lun_name == lun_name)
    }

    fn free_lun(&self, wanted: &Mapping) -> Result<u16, CatalogError> {
        let is_free = |lun: &u16| {
            let at = |mapping: &&Mapping| mapping.lun == *lun;
            !self.maps.iter().filter(at).any(|m| m.meets(wanted))
        };
        (1..=LUN_MAX).find(is_free).ok_or_else(|| {
            CatalogError::Refused(format!("the target {} has no free LUN", self.name))
        })
    }

    fn check(&self, new: &Mapping) -> Result<(), CatalogError> {
        if new.lun > LUN_MAX {
            return Err(CatalogError::Refused(format!(
                "{} is no LUN; use a number from 0 to {LUN_MAX}",
                new.lun
            )));
        }
        if self.maps.len() >= MAPPINGS_MAX {
            return Err(CatalogError::Refused(format!(
                "the target {} has {MAPPINGS_MAX} mappings already; make another target",
                self.name
            )));
        }
        for known in self.maps.iter().filter(|known| known.meets(new)) {
            if known.lun == new.lun {
                return Err(CatalogError::Refused(format!(
                    "LUN {} of {} is {:?} already; choose another number",
                    known.lun, self.name, known.lun_name
                )));
            }
            if known.lun_name == new.lun_name {
                return Err(CatalogError::Refused(format!(
                    "{:?} is LUN {} of {} already",
                    known.lun_name, known.lun, self.name
                )));
            }
        }
        Ok(())
    }

    fn sort(&mut self) {
        self.maps
            .sort_by(|a, b| (a.lun, &a.initiator).cmp(&(b.lun, &b.initiator)));
    }

    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer
            .str(self.name.as_str())
            .u64(self.id)
            .u64(self.created_ms)
            .count(self.maps.len());
        for mapping in &self.maps {
            let initiator = mapping.initiator.as_ref().map_or("", IscsiName::as_str);
            writer
                .u16(mapping.lun)
                .str(&mapping.lun_name)
                .str(initiator);
        }
        writer.finish()
    }

    fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let mut target = Self {
            name: name_of(reader.str()?)?,
            id: reader.u64()?,
            created_ms: reader.u64()?,
            maps: Vec::new(),
        };
        const MAPPING_BYTES_MIN: usize = 2 + 4 + 4;
        for _ in 0..reader.count(MAPPING_BYTES_MIN)? {
            target.maps.push(Mapping {
                lun: reader.u16()?,
                lun_name: reader.str()?.to_owned(),
                initiator: match reader.str()? {
                    "" => None,
                    name => Some(name_of(name)?),
                },
            });
        }
        reader.finish()?;
        Ok(target)
    }
}

impl Mapping {
    /// Whether some initiator sees both.
    fn meets(&self, other: &Self) -> bool {
        match (&self.initiator, &other.initiator) {
            (Some(one), Some(other)) => one == other,
            (None, _) | (_, None) => true,
        }
    }
}

impl Shared {
    async fn target_read(&self, name: &IscsiName) -> Result<Option<(TargetRecord, Bytes)>, Error> {
        let key = name.as_str().as_bytes();
        let Some(record) = self.targets.read(key).await? else {
            return Ok(None);
        };
        let target = TargetRecord::decode(&record).map_err(|error| corrupt(WHAT, key, error))?;
        Ok(Some((target, record)))
    }
}

fn name_of(text: &str) -> Result<IscsiName, DecodeError> {
    IscsiName::new(text).map_err(|_| DecodeError::Field("iSCSI name"))
}

fn no_such(name: &IscsiName) -> CatalogError {
    CatalogError::NoSuch {
        what: WHAT,
        name: name.to_string(),
    }
}

fn edit(name: &IscsiName, old: Option<Bytes>, new: Option<Bytes>) -> Edit {
    Edit {
        key: Bytes::copy_from_slice(name.as_str().as_bytes()),
        old,
        new,
    }
}
