//! LOOKUP (RFC 1813 section 3.3.3).

use super::{Done, early};
use crate::op::admit::Ask;
use crate::op::fault::Fault;
use crate::wire::nfs3::inquire::{Lookup, LookupDone, LookupFailed};

pub(super) async fn lookup(ask: &Ask<'_>, arguments: Lookup) -> Done<LookupDone, LookupFailed> {
    let place = &arguments.what;
    let target = ask.admit(&place.directory).map_err(early)?;
    let found = match place.name.check() {
        Ok(name) => {
            let found = target
                .file_system()
                .lookup(&target.caller, target.place(name));
            found.await.map_err(Fault::from)
        }
        Err(status) => Err(status.into()),
    };
    match found {
        Ok((node, directory)) => Ok(LookupDone {
            object: node.id.to_handle(),
            attributes: Some(node.attributes),
            directory: Some(directory),
        }),
        Err(fault) => Err((
            fault,
            LookupFailed {
                directory: target.after().await,
            },
        )),
    }
}
