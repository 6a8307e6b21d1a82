//! REMOVE (RFC 1813 section 3.3.12).

use super::{Done, early, encode};
use crate::filesystem::Around;
use crate::op::admit::Ask;
use crate::op::fault::Fault;
use crate::wire::nfs3::Results;
use crate::wire::nfs3::change::{Remove, RemoveDone};
use crate::wire::nfs3::create::DirectoryFailed;
use crate::wire::nfs3::status::{Outcome, Status};

pub(super) async fn remove(ask: &Ask<'_>, arguments: Remove) -> Done<RemoveDone, DirectoryFailed> {
    let place = &arguments.place;
    let target = ask.admit_change(&place.directory).map_err(early)?;
    let done = |around: &Around| RemoveDone {
        directory: (*around).into(),
    };
    let encode = |around: &Around| encode(&Results::Remove(Outcome::Done(done(around))));
    let removed = async {
        let name = match place.name.check()? {
            b"." | b".." => return Err(Status::IsDirectory.into()),
            name => name,
        };
        let file_system = target.file_system();
        let removed = file_system.remove(&target.caller, target.place(name), ask.keep(&encode));
        Ok::<_, Fault>(removed.await?)
    };
    match removed.await {
        Ok(around) => Ok(done(&around)),
        Err(fault) => Err((
            fault,
            DirectoryFailed {
                directory: target.wcc().await,
            },
        )),
    }
}
