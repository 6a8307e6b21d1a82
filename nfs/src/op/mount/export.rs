//! EXPORT: what may be mounted, and by whom.

use bytes::Bytes;

use crate::export::{Client, Exports, Share};
use crate::wire::mount::{DirPath, ExportNode, HostName};
use crate::wire::xdr::List;

pub(super) fn export(exports: &Exports) -> List<ExportNode> {
    let nodes = exports.shares().iter().map(|share| ExportNode {
        directory: DirPath(Bytes::copy_from_slice(share.path.as_bytes())),
        groups: List(groups(share)),
    });
    List(nodes.collect())
}

/// Nobody named is everybody.
fn groups(share: &Share) -> Vec<HostName> {
    let clients = || share.rules.iter().map(|rule| &rule.client);
    if clients().any(|client| *client == Client::Any) {
        return Vec::new();
    }
    clients()
        .map(|client| HostName(Bytes::from(client.name())))
        .collect()
}
