//! READLINK (RFC 1813 section 3.3.5).

use super::{Done, early};
use crate::op::admit::Ask;
use crate::wire::nfs3::inquire::{ObjectFailed, ReadLink, ReadLinkDone};
use crate::wire::nfs3::name::Path;

pub(super) async fn readlink(
    ask: &Ask<'_>,
    arguments: ReadLink,
) -> Done<ReadLinkDone, ObjectFailed> {
    let target = ask.admit(&arguments.symlink).map_err(early)?;
    match target.file_system().readlink(target.id).await {
        Ok((path, attributes)) => Ok(ReadLinkDone {
            attributes: Some(attributes),
            path: Path(path),
        }),
        Err(error) => Err((
            error.into(),
            ObjectFailed {
                attributes: target.after().await,
            },
        )),
    }
}
