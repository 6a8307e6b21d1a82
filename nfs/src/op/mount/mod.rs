//! The procedures of MOUNT (RFC 1813 appendix I).

mod dump;
mod export;
mod mnt;
mod umnt;
mod umntall;

use core::net::IpAddr;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::admit::Ask;
use crate::limits::MOUNTS_MAX;
use crate::session::request::MountRequest;
use crate::wire::mount::{ExportNode, MntResults, MountBody};
use crate::wire::xdr::{List, Writer, Xdr};

/// Who has mounted what: what clients said, for whoever asks. Nothing depends on it.
#[derive(Debug, Default)]
pub struct Mounts(BTreeSet<(IpAddr, Bytes)>);

/// What a call is answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MountAnswer {
    Nothing,
    Mnt(MntResults),
    Dump(List<MountBody>),
    Export(List<ExportNode>),
}

impl MountAnswer {
    pub fn write(&self, writer: &mut Writer) {
        match self {
            Self::Nothing => {}
            Self::Mnt(results) => results.write(writer),
            Self::Dump(list) => list.write(writer),
            Self::Export(list) => list.write(writer),
        }
    }
}

impl Mounts {
    /// The list is not longer than `MOUNTS_MAX`: others are not told then.
    fn add(&mut self, client: IpAddr, path: Bytes) {
        if self.0.len() < MOUNTS_MAX {
            self.0.insert((client.to_canonical(), path));
        }
    }
}

/// Does what is asked for.
pub async fn call(ask: &Ask<'_>, mounts: &Mutex<Mounts>, request: MountRequest) -> MountAnswer {
    let mounts = || mounts.lock().unwrap_or_else(PoisonError::into_inner);
    let client = ask.client.ip();
    match request {
        MountRequest::Null => MountAnswer::Nothing,
        MountRequest::Mnt(path) => {
            let results = mnt::mnt(ask, &path).await;
            if matches!(results, MntResults::Done(_)) {
                mounts().add(client, Bytes::copy_from_slice(&path.0));
            }
            MountAnswer::Mnt(results)
        }
        MountRequest::Dump => MountAnswer::Dump(dump::dump(&mounts())),
        MountRequest::Umnt(path) => {
            umnt::umnt(&mut mounts(), client, path.0);
            MountAnswer::Nothing
        }
        MountRequest::UmntAll => {
            umntall::umntall(&mut mounts(), client);
            MountAnswer::Nothing
        }
        MountRequest::Export => MountAnswer::Export(export::export(ask.exports)),
    }
}
