//! LINK (RFC 1813 section 3.3.15).

use super::rename::check_same;
use super::{Done, early, encode};
use crate::filesystem::Made;
use crate::op::admit::{Ask, new_name};
use crate::op::fault::Fault;
use crate::wire::nfs3::Results;
use crate::wire::nfs3::change::{Link, Linked};
use crate::wire::nfs3::status::Outcome;

pub(super) async fn link(ask: &Ask<'_>, arguments: Link) -> Done<Linked, Linked> {
    let file = ask.admit_change(&arguments.file).map_err(early)?;
    let target = ask
        .admit_change(&arguments.place.directory)
        .map_err(early)?;
    let done = |made: &Made| Linked {
        attributes: Some(made.node.attributes),
        directory: made.directory.into(),
    };
    let encode = |made: &Made| encode(&Results::Link(Outcome::Done(done(made))));
    let linked = async {
        check_same(&file, &target)?;
        let place = target.place(new_name(&arguments.place.name)?);
        let keep = ask.keep(&encode);
        let file_system = target.file_system();
        let linked = file_system.link(&target.caller, file.id, place, keep);
        Ok::<_, Fault>(linked.await?)
    };
    match linked.await {
        Ok(made) => Ok(done(&made)),
        Err(fault) => Err((
            fault,
            Linked {
                attributes: file.after().await,
                directory: target.wcc().await,
            },
        )),
    }
}
