//! What the catalog keeps: plain data and its form in the store.

use std::sync::Arc;

use bytes::Bytes;

use super::name::{AccessKeyId, BucketName, NodeId};
use super::secret::Secret;
use crate::bucket::BucketId;
use crate::codec::{DecodeError, Reader, Writer};
use crate::object::SessionId;

/// The newest layout of every record here.
const VERSION: u8 = 1;

/// Somebody who may own buckets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct User {
    /// 64 hexadecimal digits; never used again for another, also not for one of the same name.
    pub id: String,
    /// Unique among the users at a time.
    pub name: String,
    pub display_name: String,
    /// The access keys of a disabled user open nothing.
    pub disabled: bool,
    pub created_ms: u64,
    /// Somebody is deleting the user; the access keys open nothing any more.
    pub deleting: bool,
}

/// An access key without its secret, for lists.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessKey {
    pub id: AccessKeyId,
    /// The id of the user it belongs to.
    pub user: String,
    pub created_ms: u64,
    /// The key of the keyring that its secret is sealed with.
    pub sealed_with: String,
}

/// What a signature is checked with.
#[derive(Clone, Debug)]
pub struct Credential {
    pub access_key: AccessKeyId,
    pub secret: Secret,
    pub user: Arc<User>,
    /// Whether it opens anything: its user is neither disabled nor being deleted.
    pub enabled: bool,
}

/// A bucket as the catalog knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BucketRecord {
    pub id: BucketId,
    pub name: BucketName,
    /// The id of the user who owns it.
    pub owner: String,
    /// As its maker named it; empty for the region that has no name: see
    /// [`BucketRecord::region_name`].
    pub region: String,
    pub created_ms: u64,
    pub state: BucketState,
    /// Bucket tagging; empty for none.
    pub tags: Vec<(String, String)>,
    /// Who besides the owner may do what, in the protocol's own form (S3: a canned ACL); empty for
    /// nobody.
    pub acl: String,
}

/// How far a bucket's making or unmaking has come. Whoever meets a bucket that is not live may
/// finish what was begun: both ways, every step can be repeated.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum BucketState {
    /// The name is taken; the bucket's objects may not all exist yet.
    Creating,
    Live,
    /// The bucket's objects may be partly gone.
    Deleting,
}

/// A node: one program that serves this store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeRecord {
    pub id: NodeId,
    /// Unique among the nodes.
    pub name: String,
    /// The session under which it registered last.
    pub session: SessionId,
    pub registered_ms: u64,
}

/// An access key as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct SealedKey {
    pub(super) user: String,
    pub(super) created_ms: u64,
    pub(super) sealed: Bytes,
}

impl User {
    pub(super) fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer
            .str(&self.id)
            .str(&self.name)
            .str(&self.display_name)
            .bool(self.disabled)
            .u64(self.created_ms)
            .bool(self.deleting);
        writer.finish()
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let user = Self {
            id: reader.str()?.to_owned(),
            name: reader.str()?.to_owned(),
            display_name: reader.str()?.to_owned(),
            disabled: reader.bool()?,
            created_ms: reader.u64()?,
            deleting: reader.bool()?,
        };
        reader.finish()?;
        Ok(user)
    }
}

impl SealedKey {
    pub(super) fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer
            .str(&self.user)
            .u64(self.created_ms)
            .bytes(&self.sealed);
        writer.finish()
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let key = Self {
            user: reader.str()?.to_owned(),
            created_ms: reader.u64()?,
            sealed: Bytes::copy_from_slice(reader.bytes()?),
        };
        reader.finish()?;
        Ok(key)
    }
}

impl BucketRecord {
    /// The region the bucket lies in. A bucket that was made without naming one lies in us-east-1
    /// (S3 API, CreateBucket).
    #[must_use]
    pub fn region_name(&self) -> &str {
        match self.region.as_str() {
            "" => "us-east-1",
            region => region,
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer
            .u64(self.id.0)
            .str(self.name.as_str())
            .str(&self.owner)
            .str(&self.region)
            .u64(self.created_ms)
            .u8(self.state.tag())
            .count(self.tags.len());
        for (key, value) in &self.tags {
            writer.str(key).str(value);
        }
        writer.str(&self.acl);
        writer.finish()
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let mut bucket = Self {
            id: BucketId(reader.u64()?),
            name: BucketName::new(reader.str()?).map_err(|_| DecodeError::Field("bucket name"))?,
            owner: reader.str()?.to_owned(),
            region: reader.str()?.to_owned(),
            created_ms: reader.u64()?,
            state: BucketState::from_tag(reader.u8()?)?,
            tags: Vec::new(),
            acl: String::new(),
        };
        for _ in 0..reader.count(8)? {
            let tag = (reader.str()?.to_owned(), reader.str()?.to_owned());
            bucket.tags.push(tag);
        }
        bucket.acl = reader.str()?.to_owned();
        reader.finish()?;
        Ok(bucket)
    }
}

impl BucketState {
    fn tag(self) -> u8 {
        match self {
            Self::Creating => 1,
            Self::Live => 2,
            Self::Deleting => 3,
        }
    }

    fn from_tag(tag: u8) -> Result<Self, DecodeError> {
        match tag {
            1 => Ok(Self::Creating),
            2 => Ok(Self::Live),
            3 => Ok(Self::Deleting),
            _ => Err(DecodeError::Field("bucket state")),
        }
    }
}

impl NodeRecord {
    pub(super) fn encode(&self) -> Bytes {
        let mut writer = Writer::new(VERSION);
        writer
            .u64(self.id.0)
            .str(&self.name)
            .str(&self.session.0)
            .u64(self.registered_ms);
        writer.finish()
    }

    pub(super) fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let (mut reader, _) = Reader::new(record, VERSION)?;
        let node = Self {
            id: NodeId(reader.u64()?),
            name: reader.str()?.to_owned(),
            session: SessionId(Arc::from(reader.str()?)),
            registered_ms: reader.u64()?,
        };
        reader.finish()?;
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back_and_cut_ones_do_not() {
        let bucket = BucketRecord {
            id: BucketId(7),
            name: BucketName::new("photos").unwrap(),
            owner: "o".into(),
            region: "us-east-1".into(),
            created_ms: 5,
            state: BucketState::Deleting,
            tags: vec![("k".into(), String::new())],
            acl: "public-read".into(),
        };
        let record = bucket.encode();
        assert_eq!(BucketRecord::decode(&record), Ok(bucket));
        for length in 0..record.len() {
            assert!(BucketRecord::decode(&record[..length]).is_err());
        }
        let user = User {
            id: "i".into(),
            name: "n".into(),
            display_name: "d".into(),
            disabled: true,
            created_ms: 5,
            deleting: false,
        };
        assert_eq!(User::decode(&user.encode()), Ok(user));
        let node = NodeRecord {
            id: NodeId(1),
            name: "a".into(),
            session: SessionId(Arc::from("s")),
            registered_ms: 9,
        };
        assert_eq!(NodeRecord::decode(&node.encode()), Ok(node));
        let key = SealedKey {
            user: "i".into(),
            created_ms: 1,
            sealed: Bytes::from_static(b"x"),
        };
        assert_eq!(SealedKey::decode(&key.encode()), Ok(key));
    }
}
