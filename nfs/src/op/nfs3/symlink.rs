//! SYMLINK (RFC 1813 section 3.3.10).

use super::setattr::check_times;
use super::{Done, created, early, encode};
use crate::filesystem::{Made, What};
use crate::op::admit::{Ask, new_name};
use crate::op::fault::Fault;
use crate::wire::nfs3::Results;
use crate::wire::nfs3::create::{Created, DirectoryFailed, SymLink};
use crate::wire::nfs3::status::Outcome;

pub(super) async fn symlink(ask: &Ask<'_>, arguments: SymLink) -> Done<Created, DirectoryFailed> {
    let target = ask
        .admit_change(&arguments.place.directory)
        .map_err(early)?;
    let encode = |made: &Made| encode(&Results::SymLink(Outcome::Done(created(made))));
    let made = async {
        let name = new_name(&arguments.place.name)?;
        let place = target.place(name);
        check_times(&arguments.attributes)?;
        // A copy: what is kept of the link must not keep its record.
        let path = bytes::Bytes::copy_from_slice(arguments.path.check()?);
        let made = target.file_system().make(
            &target.caller,
            place,
            What::SymbolicLink(path),
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
