//! UMNT: a client says that it leaves.

use core::net::IpAddr;

use bytes::Bytes;

use super::Mounts;

pub(super) fn umnt(mounts: &mut Mounts, client: IpAddr, path: Bytes) {
    mounts.0.remove(&(client.to_canonical(), path));
}
