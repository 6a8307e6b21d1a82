//! MNT: the handle of an exported directory, or of one below it.

use crate::filesystem::{Caller, Error, Node, Place};
use crate::op::admit::Ask;
use crate::wire::mount::{DirPath, MntResults, MountStatus, Mounted};
use crate::wire::rpc::credential::AUTH_SYS;

pub(super) async fn mnt(ask: &Ask<'_>, path: &DirPath) -> MntResults {
    match find(ask, path).await {
        Ok(node) => MntResults::Done(Mounted {
            handle: node.id.to_handle(),
            flavors: vec![AUTH_SYS],
        }),
        Err(status) => MntResults::Failed(status),
    }
}

/// A path leads downwards, through no link.
async fn find(ask: &Ask<'_>, path: &DirPath) -> Result<Node, MountStatus> {
    let path = path.check()?;
    let (share, rest) = ask.exports.of_path(path).ok_or(MountStatus::NoEntry)?;
    let rule = share.rule_for(ask.client.ip());
    let rule = rule.ok_or(MountStatus::Access)?;
    if !rule.takes_port_of(ask.client) {
        return Err(MountStatus::Access);
    }
    let identity = rule.identify(ask.credential);
    let caller = Caller {
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups,
        now: ask.now,
    };
    let file_system = &share.file_system;
    let mut node = file_system.root().await.map_err(status)?;
    for name in rest.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => continue,
            b".." => return Err(MountStatus::Access),
            _ => {}
        }
        let directory = node.id;
        let place = Place { directory, name };
        (node, _) = file_system.lookup(&caller, place).await.map_err(status)?;
    }
    match node.is_directory() {
        true => Ok(node),
        false => Err(MountStatus::NotDirectory),
    }
}

fn status(error: Error) -> MountStatus {
    match error {
        Error::Access => MountStatus::Access,
        Error::NotOwner => MountStatus::NotOwner,
        Error::NoEntry | Error::Stale => MountStatus::NoEntry,
        Error::NotDirectory => MountStatus::NotDirectory,
        Error::NameTooLong => MountStatus::NameTooLong,
        Error::BadCookie
        | Error::BadType
        | Error::Exists
        | Error::FileTooBig
        | Error::Invalid
        | Error::Io
        | Error::IsDirectory
        | Error::NoSpace
        | Error::NotEmpty
        | Error::NotSync
        | Error::Quota
        | Error::TooManyLinks
        | Error::Unanswerable => MountStatus::Io,
    }
}
