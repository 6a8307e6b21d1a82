//! UMNTALL: a client says that it has nothing mounted.

use core::net::IpAddr;

use super::Mounts;

pub(super) fn umntall(mounts: &mut Mounts, client: IpAddr) {
    let client = client.to_canonical();
    mounts.0.retain(|(other, _)| *other != client);
}
