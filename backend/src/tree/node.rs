//! How nodes are named and described to those outside.

use super::error::TreeError;
use super::record::{Inode, Kind, Time};

/// The version of a handle, its first byte.
const HANDLE_VERSION: u8 = 1;

/// Bytes of a handle.
pub const HANDLE_BYTES: usize = 21;

/// A node of a tree, named so that the name holds as long as the node: across restarts, renames
/// and takeovers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Handle {
    pub tree: u64,
    pub inode: u64,
    pub generation: u32,
}

/// What is told of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attributes {
    /// The tree, as a number that tells file systems apart.
    pub tree: u64,
    pub inode: u64,
    pub generation: u32,
    pub kind: Kind,
    /// Bits of [`super::record::MODE_MASK`].
    pub mode: u16,
    pub link_count: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used_bytes: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    pub born: Time,
    /// Greater after each change.
    pub change_counter: u64,
}

/// What tells whether a node was changed (`wcc_attr` of RFC 1813).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Before {
    pub size: u64,
    pub modified: Time,
    pub changed: Time,
    pub change_counter: u64,
}

/// A node around one change: nothing came between the two.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Around {
    pub before: Before,
    pub after: Attributes,
}

impl Handle {
    #[must_use]
    pub fn to_bytes(self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[0] = HANDLE_VERSION;
        bytes[1..9].copy_from_slice(&self.tree.to_be_bytes());
        bytes[9..17].copy_from_slice(&self.inode.to_be_bytes());
        bytes[17..].copy_from_slice(&self.generation.to_be_bytes());
        bytes
    }

    /// # Errors
    /// `BadHandle` if these bytes were never a handle.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TreeError> {
        let bytes: &[u8; HANDLE_BYTES] = bytes.try_into().map_err(|_| TreeError::BadHandle)?;
        if bytes[0] != HANDLE_VERSION {
            return Err(TreeError::BadHandle);
        }
        let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_be_bytes);
        Ok(Self {
            tree: number(1).map_err(|_| TreeError::BadHandle)?,
            inode: number(9).map_err(|_| TreeError::BadHandle)?,
            generation: bytes[17..]
                .try_into()
                .map(u32::from_be_bytes)
                .map_err(|_| TreeError::BadHandle)?,
        })
    }
}

impl Attributes {
    pub(super) fn new(tree: u64, inode: u64, node: &Inode) -> Self {
        Self {
            tree,
            inode,
            generation: node.generation,
            kind: node.kind,
            mode: node.mode,
            link_count: node.link_count,
            uid: node.uid,
            gid: node.gid,
            size: node.size,
            used_bytes: node.used_bytes,
            device: node.device,
            accessed: node.accessed,
            modified: node.modified,
            changed: node.changed,
            born: node.born,
            change_counter: node.change_counter,
        }
    }

    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle {
            tree: self.tree,
            inode: self.inode,
            generation: self.generation,
        }
    }
}

impl From<&Inode> for Before {
    fn from(node: &Inode) -> Self {
        Self {
            size: node.size,
            modified: node.modified,
            changed: node.changed,
            change_counter: node.change_counter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_read_back_and_others_are_none() {
        let handle = Handle {
            tree: u64::MAX - 1,
            inode: 2,
            generation: 3,
        };
        let bytes = handle.to_bytes();
        assert_eq!(Handle::from_bytes(&bytes).unwrap(), handle);
        for broken in [
            &bytes[1..],
            &[&bytes[..], &[0]].concat()[..],
            &[0; HANDLE_BYTES],
        ] {
            let answer = Handle::from_bytes(broken);
            assert!(matches!(answer, Err(TreeError::BadHandle)), "{broken:?}");
        }
    }
}
