//! MKNOD (RFC 1813 section 3.3.11).

use super::setattr::check_times;
use super::{Done, created, early, encode};
use crate::filesystem::{Made, What};
use crate::op::admit::{Ask, new_name};
use crate::op::fault::Fault;
use crate::wire::nfs3::Results;
use crate::wire::nfs3::create::{Created, DirectoryFailed, MkNod, Node};
use crate::wire::nfs3::status::{Outcome, Status};

pub(super) async fn mknod(ask: &Ask<'_>, arguments: MkNod) -> Done<Created, DirectoryFailed> {
    let target = ask
        .admit_change(&arguments.place.directory)
        .map_err(early)?;
    let encode = |made: &Made| encode(&Results::MkNod(Outcome::Done(created(made))));
    let made = async {
        let name = new_name(&arguments.place.name)?;
        let place = target.place(name);
        let (what, attributes) = match arguments.what {
            Node::CharacterDevice(attributes, device) => {
                (What::CharacterDevice(device), attributes)
            }
            Node::BlockDevice(attributes, device) => (What::BlockDevice(device), attributes),
            Node::Socket(attributes) => (What::Socket, attributes),
            Node::Fifo(attributes) => (What::Fifo, attributes),
            Node::Other(_) => return Err(Status::BadType.into()),
        };
        check_times(&attributes)?;
        let made =
            target
                .file_system()
                .make(&target.caller, place, what, attributes, ask.keep(&encode));
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
