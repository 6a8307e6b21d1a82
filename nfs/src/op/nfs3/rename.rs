//! RENAME (RFC 1813 section 3.3.14).

use super::{Done, early, encode};
use crate::filesystem::Around;
use crate::op::admit::{Ask, Target};
use crate::op::fault::Fault;
use crate::wire::nfs3::Results;
use crate::wire::nfs3::change::{Rename, Renamed};
use crate::wire::nfs3::name::Name;
use crate::wire::nfs3::status::{Outcome, Status};

/// Both directories around the change.
type Both = (Around, Around);

pub(super) async fn rename(ask: &Ask<'_>, arguments: Rename) -> Done<Renamed, Renamed> {
    let from = ask.admit_change(&arguments.from.directory).map_err(early)?;
    let to = ask.admit_change(&arguments.to.directory).map_err(early)?;
    let done = |(from, to): &Both| Renamed {
        from: (*from).into(),
        to: (*to).into(),
    };
    let encode = |both: &Both| encode(&Results::Rename(Outcome::Done(done(both))));
    let renamed = async {
        check_same(&from, &to)?;
        let from_place = from.place(movable(&arguments.from.name)?);
        let to_place = to.place(movable(&arguments.to.name)?);
        let keep = ask.keep(&encode);
        let file_system = from.file_system();
        let renamed = file_system.rename(&from.caller, from_place, to_place, keep);
        Ok::<_, Fault>(renamed.await?)
    };
    match renamed.await {
        Ok(both) => Ok(done(&both)),
        Err(fault) => Err((
            fault,
            Renamed {
                from: from.wcc().await,
                to: to.wcc().await,
            },
        )),
    }
}

/// Both are in one file system.
pub(super) fn check_same(one: &Target<'_>, other: &Target<'_>) -> Result<(), Status> {
    match one.id.file_system == other.id.file_system {
        true => Ok(()),
        false => Err(Status::CrossDevice),
    }
}

fn movable(name: &Name) -> Result<&[u8], Status> {
    match name.check()? {
        b"." | b".." => Err(Status::Invalid),
        name => Ok(name),
    }
}
