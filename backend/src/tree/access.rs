//! Who may do what: the permission checks of POSIX.1-2024 (XBD 4.7, file access permissions), with
//! the supplementary groups and the sticky bit of XSH. Pure: an answer depends on its arguments.

use super::record::{Inode, Kind, MODE_MASK};

/// Set-user-ID.
pub const SET_UID: u16 = 0o4000;
/// Set-group-ID; on a directory: what is made in it gets its group.
pub const SET_GID: u16 = 0o2000;
/// On a directory: only its owner and the owner of an entry take the entry away.
pub const STICKY: u16 = 0o1000;

const GROUP_EXECUTE: u16 = 0o010;
const ANY_EXECUTE: u16 = 0o111;

/// On whose behalf a call is made. Squashing happens before.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups, in no order.
    pub groups: Vec<u32>,
}

/// What is asked for, as the bits of one `rwx` triple.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Access(u16);

impl Access {
    pub const NONE: Self = Self(0);
    /// Of a directory: passing through it by name.
    pub const EXECUTE: Self = Self(1);
    pub const WRITE: Self = Self(2);
    pub const READ: Self = Self(4);

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The permission bits say no: `EACCES`.
    Access,
    /// Only an owner or root may: `EPERM`.
    Permission,
}

/// A time that a call sets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimeChange {
    Keep,
    /// The server's time.
    Now,
    /// A time that the caller chose.
    Chosen,
}

/// What a call changes of who owns a node and how it is protected.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OwnerChange {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl Credentials {
    #[must_use]
    pub fn root() -> Self {
        Self {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        }
    }

    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    #[must_use]
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// What of `READ`, `WRITE` and `EXECUTE` is allowed. The first class that fits decides, even
    /// if a later one allows more. Root may do all but execute a file that nobody may execute.
    #[must_use]
    pub fn allowed(&self, node: &Inode) -> Access {
        if self.is_root() {
            let executes = node.kind == Kind::Directory || node.mode & ANY_EXECUTE != 0;
            return Access(if executes { 7 } else { 6 });
        }
        let class = if self.uid == node.uid {
            node.mode >> 6
        } else if self.is_in_group(node.gid) {
            node.mode >> 3
        } else {
            node.mode
        };
        Access(class & 7)
    }

    /// # Errors
    /// `Access` unless all of `wanted` is allowed.
    pub fn check(&self, node: &Inode, wanted: Access) -> Result<(), Refusal> {
        if self.allowed(node).includes(wanted) {
            Ok(())
        } else {
            Err(Refusal::Access)
        }
    }

    /// Whether reading or writing of a file goes on. NFS has no open, so an owner who took a
    /// right from themselves after an open must not lose it here (RFC 1813, section 4.4).
    ///
    /// # Errors
    /// `Access` unless the caller owns the file or all of `wanted` is allowed.
    pub fn check_data(&self, node: &Inode, wanted: Access) -> Result<(), Refusal> {
        if self.uid == node.uid {
            Ok(())
        } else {
            self.check(node, wanted)
        }
    }

    /// Whether an entry of `directory` that leads to `victim` may be taken away or replaced.
    ///
    /// # Errors
    /// `Access` if the directory can't be changed; `Permission` if its sticky bit forbids it.
    pub fn check_remove(&self, directory: &Inode, victim: &Inode) -> Result<(), Refusal> {
        self.check(directory, Access::WRITE.and(Access::EXECUTE))?;
        let is_free = directory.mode & STICKY == 0
            || self.is_root()
            || self.uid == directory.uid
            || self.uid == victim.uid;
        if is_free {
            Ok(())
        } else {
            Err(Refusal::Permission)
        }
    }

    /// Whether the owner, group and mode may become these (chmod, chown with
    /// `_POSIX_CHOWN_RESTRICTED`). Says which mode the node has then; `None` if it stays.
    ///
    /// # Errors
    /// `Permission` if somebody else owns the node, gives it away, or gives it to a group that
    /// they are not in.
    pub fn change_owner(&self, node: &Inode, change: OwnerChange) -> Result<Option<u16>, Refusal> {
        let is_owner = self.uid == node.uid;
        let names_owner = change.uid.is_some() || change.gid.is_some();
        if !self.is_root() {
            let keeps_uid = change.uid.is_none_or(|uid| uid == node.uid);
            let knows_gid = change
                .gid
                .is_none_or(|gid| gid == node.gid || self.is_in_group(gid));
            if (change.mode.is_some() || names_owner) && !(is_owner && keeps_uid && knows_gid) {
                return Err(Refusal::Permission);
            }
        }
        let gid = change.gid.unwrap_or(node.gid);
        if let Some(mode) = change.mode {
            let mode = mode & MODE_MASK;
            let drops = node.kind != Kind::Directory && !self.is_root() && !self.is_in_group(gid);
            return Ok(Some(if drops { mode & !SET_GID } else { mode }));
        }
        // As Linux does it, for root too: a file that changes hands lends nobody's rights.
        let is_cleared = names_owner && node.kind == Kind::File;
        Ok(is_cleared.then(|| without_lent_rights(node.mode)))
    }

    /// Whether times may be set so (utimensat).
    ///
    /// # Errors
    /// `Permission` for a chosen time, or for one time of two, unless the caller owns the node;
    /// `Access` for the present time unless the caller owns the node or may write it.
    pub fn check_times(
        &self,
        node: &Inode,
        access: TimeChange,
        modify: TimeChange,
    ) -> Result<(), Refusal> {
        if access == TimeChange::Keep && modify == TimeChange::Keep {
            return Ok(());
        }
        if self.is_root() || self.uid == node.uid {
            return Ok(());
        }
        if access == TimeChange::Now && modify == TimeChange::Now {
            return self.check(node, Access::WRITE);
        }
        Err(Refusal::Permission)
    }

    /// Group and mode of what this caller makes in `directory`.
    #[must_use]
    pub fn inherit(&self, directory: &Inode, kind: Kind, mode: u16) -> (u32, u16) {
        let mode = mode & MODE_MASK;
        if directory.mode & SET_GID != 0 {
            let passed_on = if kind == Kind::Directory { SET_GID } else { 0 };
            let is_foreign = !self.is_root() && !self.is_in_group(directory.gid);
            let dropped = if kind == Kind::File && is_foreign {
                SET_GID
            } else {
                0
            };
            return (directory.gid, (mode & !dropped) | passed_on);
        }
        (self.gid, mode)
    }

    /// The mode of a file after this caller wrote to it or cut it: nobody's rights are lent to
    /// bytes of somebody else.
    #[must_use]
    pub fn mode_after_write(&self, mode: u16) -> u16 {
        if self.is_root() {
            mode
        } else {
            without_lent_rights(mode)
        }
    }
}

/// Set-group-ID without group execution is no lent right (it once marked mandatory locks).
fn without_lent_rights(mode: u16) -> u16 {
    let group = if mode & GROUP_EXECUTE != 0 {
        SET_GID
    } else {
        0
    };
    mode & !(SET_UID | group)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 10;
    const GROUP: u32 = 20;

    fn node(kind: Kind, mode: u16) -> Inode {
        Inode {
            mode,
            uid: OWNER,
            gid: GROUP,
            ..Inode::new(kind)
        }
    }

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials {
            uid,
            gid,
            groups: groups.to_vec(),
        }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let owner = caller(OWNER, 1, &[]);
        let primary = caller(11, GROUP, &[]);
        let supplementary = caller(11, 1, &[2, GROUP]);
        let other = caller(11, 1, &[2]);
        let root = Credentials::root();
        for (mode, caller, bits) in [
            (0o421, &owner, 4),
            (0o421, &primary, 2),
            (0o421, &supplementary, 2),
            (0o421, &other, 1),
            (0o077, &owner, 0),
            (0o707, &primary, 0),
            (0o707, &supplementary, 0),
            (0o000, &root, 6),
            (0o001, &root, 7),
        ] {
            let allowed = caller.allowed(&node(Kind::File, mode));
            assert_eq!(allowed, Access(bits), "{mode:o} {caller:?}");
        }
        assert_eq!(root.allowed(&node(Kind::Directory, 0)), Access(7));
    }

    #[test]
    fn an_owner_goes_on_with_data_that_the_mode_forbids() {
        let closed = node(Kind::File, 0);
        assert_eq!(
            caller(OWNER, 1, &[]).check_data(&closed, Access::WRITE),
            Ok(())
        );
        let other = caller(11, 1, &[]);
        assert_eq!(
            other.check_data(&closed, Access::READ),
            Err(Refusal::Access)
        );
    }

    #[test]
    fn a_sticky_directory_keeps_what_others_own() {
        let victim = Inode {
            uid: 30,
            ..Inode::new(Kind::File)
        };
        for (mode, uid, answer) in [
            (0o777, 11, Ok(())),
            (0o755, 11, Err(Refusal::Access)),
            (0o775 | STICKY, OWNER, Ok(())),
            (0o777 | STICKY, 11, Err(Refusal::Permission)),
            (0o777 | STICKY, 30, Ok(())),
            (0o777 | STICKY, 0, Ok(())),
            (0o755 | STICKY, 30, Err(Refusal::Access)),
            (0o776, 11, Err(Refusal::Access)),
        ] {
            let directory = node(Kind::Directory, mode);
            let found = caller(uid, 1, &[]).check_remove(&directory, &victim);
            assert_eq!(found, answer, "{mode:o} by {uid}");
        }
    }

    #[test]
    fn nodes_change_hands_as_posix_restricts_it() {
        let owner = caller(OWNER, 1, &[GROUP, 2]);
        let other = caller(11, GROUP, &[]);
        let root = Credentials::root();
        let change = |mode, uid, gid| OwnerChange { mode, uid, gid };
        let refused = Err(Refusal::Permission);
        for (caller, before, asked, answer) in [
            (
                &owner,
                0o755,
                change(Some(0o6711), None, None),
                Ok(Some(0o6711)),
            ),
            (&other, 0o777, change(Some(0o777), None, None), refused),
            (&owner, 0o755, change(None, Some(11), None), refused),
            (
                &owner,
                0o6755,
                change(None, Some(OWNER), None),
                Ok(Some(0o755)),
            ),
            (&owner, 0o6755, change(None, None, Some(2)), Ok(Some(0o755))),
            (
                &owner,
                0o2745,
                change(None, None, Some(2)),
                Ok(Some(0o2745)),
            ),
            (&owner, 0o755, change(None, None, Some(99)), refused),
            (&other, 0o777, change(None, None, Some(GROUP)), refused),
            (
                &root,
                0o6755,
                change(None, Some(11), Some(99)),
                Ok(Some(0o755)),
            ),
            (&other, 0o777, change(None, None, None), Ok(None)),
            (
                &owner,
                0o755,
                change(Some(0o2755), None, Some(2)),
                Ok(Some(0o2755)),
            ),
        ] {
            let found = caller.change_owner(&node(Kind::File, before), asked);
            assert_eq!(found, answer, "{before:o} {caller:?} {asked:?}");
        }
        // Its group is not the owner's, so the file must not lend it.
        let stranger = caller(OWNER, 1, &[]);
        let asked = change(Some(0o2755), None, None);
        let file = stranger.change_owner(&node(Kind::File, 0o644), asked);
        assert_eq!(file, Ok(Some(0o755)));
        let directory = stranger.change_owner(&node(Kind::Directory, 0o755), asked);
        assert_eq!(directory, Ok(Some(0o2755)));
        let given = change(None, None, Some(GROUP));
        let kept = owner.change_owner(&node(Kind::Directory, 0o6755), given);
        assert_eq!(kept, Ok(None));
    }

    #[test]
    fn times_are_the_owners_but_now_is_every_writers() {
        use TimeChange::{Chosen, Keep, Now};
        let owner = caller(OWNER, 1, &[]);
        let writer = caller(11, GROUP, &[]);
        let reader = caller(11, 1, &[]);
        let file = node(Kind::File, 0o664);
        for (caller, access, modify, answer) in [
            (&owner, Chosen, Chosen, Ok(())),
            (&writer, Now, Now, Ok(())),
            (&writer, Now, Keep, Err(Refusal::Permission)),
            (&writer, Chosen, Now, Err(Refusal::Permission)),
            (&reader, Now, Now, Err(Refusal::Access)),
            (&reader, Keep, Keep, Ok(())),
            (&Credentials::root(), Chosen, Keep, Ok(())),
        ] {
            let found = caller.check_times(&file, access, modify);
            assert_eq!(found, answer, "{caller:?} {access:?} {modify:?}");
        }
    }

    #[test]
    fn a_set_group_id_directory_passes_its_group_on() {
        let member = caller(11, 1, &[GROUP]);
        let other = caller(11, 1, &[]);
        for (mode, caller, kind, asked, made) in [
            (0o777, &member, Kind::File, 0o2755, (1, 0o2755)),
            (0o2777, &member, Kind::File, 0o2755, (GROUP, 0o2755)),
            (0o2777, &other, Kind::File, 0o2755, (GROUP, 0o755)),
            (0o2777, &other, Kind::Directory, 0o755, (GROUP, 0o2755)),
        ] {
            let directory = node(Kind::Directory, mode);
            assert_eq!(caller.inherit(&directory, kind, asked), made, "{mode:o}");
        }
    }

    #[test]
    fn writing_takes_lent_rights_away() {
        let writer = caller(11, 1, &[]);
        for (before, after) in [(0o6755, 0o755), (0o2745, 0o2745), (0o4600, 0o600)] {
            assert_eq!(writer.mode_after_write(before), after, "{before:o}");
            assert_eq!(Credentials::root().mode_after_write(before), before);
        }
    }
}
