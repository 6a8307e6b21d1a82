//! Initiators and what they prove themselves with.

use bytes::Bytes;

use super::error::CatalogError;
use super::follow::Shared;
use super::iscsi_name::IscsiName;
use super::keyring::{Keyring, KeyringError, sealed_with};
use super::root::TableKind;
use super::secret::Secret;
use super::table::{Edit, corrupt};
use super::{ATTEMPTS_MAX, Catalog};
use crate::codec::{DecodeError, Reader, Writer};
use crate::error::Error;

/// The newest layout of a record.
const VERSION: u8 = 1;

/// Characters of a CHAP secret: fewer are refused by initiators (RFC 7143 section 9.2.1: 96 bits).
const SECRET_CHARS_MIN: usize = 12;

/// Bytes of a CHAP name.
const USER_BYTES_MAX: usize = 255;

const WHAT: &str = "initiator";

/// An initiator that has something to prove; others are known by their mappings alone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InitiatorRecord {
    pub name: IscsiName,
    pub created_ms: u64,
    /// With what it proves itself.
    pub chap: SealedChap,
    /// With what targets prove themselves to it.
    pub mutual: Option<SealedChap>,
}

/// A CHAP name and its sealed secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SealedChap {
    pub user: String,
    sealed: Bytes,
}

/// A CHAP name and its secret.
#[derive(Clone, Debug)]
pub struct Chap {
    pub user: String,
    pub secret: Secret,
}

impl Catalog {
    /// Sets what an initiator proves itself with, and with what targets prove themselves to it.
    ///
    /// # Errors
    /// `Invalid` for a name or secret that initiators refuse; `Refused` if both secrets are the
    /// same, which would let anybody answer a challenge by asking it back.
    pub async fn initiator_set(
        &self,
        name: &IscsiName,
        chap: &Chap,
        mutual: Option<&Chap>,
    ) -> Result<InitiatorRecord, CatalogError> {
        check(chap)?;
        if let Some(mutual) = mutual {
            check(mutual)?;
            if mutual.secret.matches(chap.secret.expose()) {
                return Err(CatalogError::Refused(
                    "the secrets of both directions are the same; choose two".to_owned(),
                ));
            }
        }
        let keyring = self.shared.keyring();
        let record = InitiatorRecord {
            name: name.clone(),
            created_ms: self.shared.clock.now_ms(),
            chap: SealedChap::seal(chap, name, "chap", &keyring)?,
            mutual: mutual
                .map(|mutual| SealedChap::seal(mutual, name, "mutual", &keyring))
                .transpose()?,
        };
        for _ in 0..ATTEMPTS_MAX {
            let before = self.shared.initiator_read(name).await?;
            let edit = edit(
                name,
                before.map(|(_, record)| record),
                Some(record.encode()),
            );
            if self.shared.commit(TableKind::Initiator, &[edit]).await? {
                return Ok(record);
            }
        }
        Err(CatalogError::Conflict)
    }

    /// All initiators with secrets, by name, from the store.
    ///
    /// # Errors
    /// What the store says.
    pub async fn initiators(&self) -> Result<Vec<InitiatorRecord>, CatalogError> {
        let loaded = self.shared.initiators.load(0).await?;
        let read = loaded.entries.iter().map(|(key, record)| {
            InitiatorRecord::decode(record).map_err(|error| corrupt(WHAT, key, error).into())
        });
        read.collect()
    }

    /// What the initiator proves itself with, and the targets to it.
    ///
    /// # Errors
    /// `Keyring` if the keyring does not open a secret.
    pub fn initiator_open(
        &self,
        initiator: &InitiatorRecord,
    ) -> Result<(Chap, Option<Chap>), CatalogError> {
        let keyring = self.shared.keyring();
        let chap = initiator.chap.open(&initiator.name, "chap", &keyring)?;
        let mutual = initiator
            .mutual
            .as_ref()
            .map(|mutual| mutual.open(&initiator.name, "mutual", &keyring))
            .transpose()?;
        Ok((chap, mutual))
    }

    /// Forgets an initiator's secrets: where it is let in by a mapping, it needs none any more.
    ///
    /// # Errors
    /// `NoSuch`.
    pub async fn initiator_delete(&self, name: &IscsiName) -> Result<(), CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((_, record)) = self.shared.initiator_read(name).await? else {
                return Err(CatalogError::NoSuch {
                    what: WHAT,
                    name: name.to_string(),
                });
            };
            let gone = edit(name, Some(record), None);
            if self.shared.commit(TableKind::Initiator, &[gone]).await? {
                return Ok(());
            }
        }
        Err(CatalogError::Conflict)
    }

    /// Seals the secrets of initiators anew that are not sealed with the active key; says how many
    /// were.
    pub(super) async fn reseal_initiators(&self) -> Result<u64, CatalogError> {
        let keyring = self.shared.keyring();
        let mut count = 0;
        for initiator in self.initiators().await? {
            let is_stale = |sealed: &&SealedChap| sealed.sealed_with() != keyring.active();
            let stale = initiator.secrets().filter(is_stale).count();
            if stale > 0 {
                let (chap, mutual) = self.initiator_open(&initiator)?;
                self.initiator_set(&initiator.name, &chap, mutual.as_ref())
                    .await?;
                count += u64::try_from(stale).expect("two at most");
            }
        }
        Ok(count)
    }
}

impl InitiatorRecord {
    pub(super) fn secrets(&self) -> impl Iterator<Item = &SealedChap> {
        std::iter::once(&self.chap).chain(&self.mutual)
    }

    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer.str(self.name.as_str()).u64(self.created_ms);
        writer.str(&self.chap.user).bytes(&self.chap.sealed);
        writer.bool(self.mutual.is_some());
        if let Some(mutual) = &self.mutual {
            writer.str(&mutual.user).bytes(&mutual.sealed);
        }
        writer.finish()
    }

    fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let name = IscsiName::new(reader.str()?);
        let initiator = Self {
            name: name.map_err(|_| DecodeError::Field("iSCSI name"))?,
            created_ms: reader.u64()?,
            chap: SealedChap::read(&mut reader)?,
            mutual: match reader.bool()? {
                true => Some(SealedChap::read(&mut reader)?),
                false => None,
            },
        };
        reader.finish()?;
        Ok(initiator)
    }
}

impl SealedChap {
    /// The key of the keyring that it is sealed with.
    #[must_use]
    pub fn sealed_with(&self) -> &str {
        sealed_with(&self.sealed).unwrap_or("?")
    }

    fn seal(
        chap: &Chap,
        name: &IscsiName,
        direction: &str,
        keyring: &Keyring,
    ) -> Result<Self, KeyringError> {
        let plain = chap.secret.expose().as_bytes();
        Ok(Self {
            user: chap.user.clone(),
            sealed: keyring.seal(plain, &binding(name, direction, &chap.user))?,
        })
    }

    fn open(
        &self,
        name: &IscsiName,
        direction: &str,
        keyring: &Keyring,
    ) -> Result<Chap, KeyringError> {
        let plain = keyring.open(&self.sealed, &binding(name, direction, &self.user))?;
        let secret = std::str::from_utf8(&plain).ok();
        let secret = secret.and_then(|text| Secret::new(text).ok());
        Ok(Chap {
            user: self.user.clone(),
            secret: secret.ok_or(KeyringError::Decode(DecodeError::Field("secret")))?,
        })
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            user: reader.str()?.to_owned(),
            sealed: Bytes::copy_from_slice(reader.bytes()?),
        })
    }
}

impl Shared {
    async fn initiator_read(
        &self,
        name: &IscsiName,
    ) -> Result<Option<(InitiatorRecord, Bytes)>, Error> {
        let key = name.as_str().as_bytes();
        let Some(record) = self.initiators.read(key).await? else {
            return Ok(None);
        };
        let initiator =
            InitiatorRecord::decode(&record).map_err(|error| corrupt(WHAT, key, error))?;
        Ok(Some((initiator, record)))
    }
}

/// What a sealed secret is bound to: its place. Only the user may hold any byte, and comes last.
fn binding(name: &IscsiName, direction: &str, user: &str) -> Vec<u8> {
    format!("portico {direction}\0{name}\0{user}").into_bytes()
}

fn check(chap: &Chap) -> Result<(), CatalogError> {
    let invalid = |field, value: &str, problem| {
        Err(CatalogError::Invalid {
            field,
            value: value.to_owned(),
            problem,
        })
    };
    if chap.user.is_empty() || chap.user.len() > USER_BYTES_MAX {
        return invalid("CHAP name", &chap.user, "must have 1 to 255 bytes");
    }
    if chap.user.chars().any(char::is_control) {
        return invalid("CHAP name", &chap.user, "must not hold control characters");
    }
    if chap.secret.expose().len() < SECRET_CHARS_MIN {
        return invalid(
            "CHAP secret",
            "(hidden)",
            "must have 12 characters at least",
        );
    }
    Ok(())
}

fn edit(name: &IscsiName, old: Option<Bytes>, new: Option<Bytes>) -> Edit {
    Edit {
        key: Bytes::copy_from_slice(name.as_str().as_bytes()),
        old,
        new,
    }
}
