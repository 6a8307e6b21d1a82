//! DUMP: who has mounted what.

use bytes::Bytes;

use super::Mounts;
use crate::wire::mount::{DirPath, HostName, MountBody};
use crate::wire::xdr::List;

pub(super) fn dump(mounts: &Mounts) -> List<MountBody> {
    let bodies = mounts.0.iter().map(|(client, path)| MountBody {
        host: HostName(Bytes::from(client.to_string())),
        directory: DirPath(path.clone()),
    });
    List(bodies.collect())
}
