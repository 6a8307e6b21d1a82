//! CREATE (RFC 1813 section 3.3.8).

use super::setattr::check_times;
use super::{Done, created, early, encode};
use crate::filesystem::Made;
use crate::op::admit::{Ask, new_name};
use crate::op::fault::Fault;
use crate::wire::nfs3::Results;
use crate::wire::nfs3::create::{Create, CreateHow, Created, DirectoryFailed};
use crate::wire::nfs3::status::Outcome;

pub(super) async fn create(ask: &Ask<'_>, arguments: Create) -> Done<Created, DirectoryFailed> {
    let target = ask
        .admit_change(&arguments.place.directory)
        .map_err(early)?;
    let encode = |made: &Made| encode(&Results::Create(Outcome::Done(created(made))));
    let made = async {
        let name = new_name(&arguments.place.name)?;
        let place = target.place(name);
        match &arguments.how {
            CreateHow::Unchecked(attributes) | CreateHow::Guarded(attributes) => {
                check_times(attributes)?;
            }
            CreateHow::Exclusive(_) => {}
        }
        let file_system = target.file_system();
        let made = file_system.create(&target.caller, place, arguments.how, ask.keep(&encode));
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
