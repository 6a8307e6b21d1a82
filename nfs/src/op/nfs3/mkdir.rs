//! MKDIR (RFC 1813 section 3.3.9).

use super::setattr::check_times;
use super::{Done, created, early, encode};
use crate::filesystem::{Made, What};
use crate::op::admit::{Ask, new_name};
use crate::op::fault::Fault;
use crate::wire::nfs3::Results;
use crate::wire::nfs3::create::{Created, DirectoryFailed, MkDir};
use crate::wire::nfs3::status::Outcome;

pub(super) async fn mkdir(ask: &Ask<'_>, arguments: MkDir) -> Done<Created, DirectoryFailed> {
    let target = ask
        .admit_change(&arguments.place.directory)
        .map_err(early)?;
    let encode = |made: &Made| encode(&Results::MkDir(Outcome::Done(created(made))));
    let made = async {
        let name = new_name(&arguments.place.name)?;
        let place = target.place(name);
        check_times(&arguments.attributes)?;
        let made = target.file_system().make(
            &target.caller,
            place,
            What::Directory,
            arguments.attributes,
            ask.keep(&encode),
        );
        Ok::<_, Fault>(made.await?)
    };
    match made.await {
        Ok(made) => Ok(created(&made)),
        Err(fault) => Err((
            fault,
            DirectoryFailed {
                directory: target.wcc().await,
            },
        )),
    }
}
