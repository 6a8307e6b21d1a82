//! COMMIT (RFC 1813 section 3.3.21).

use super::{Done, early};
use crate::op::admit::Ask;
use crate::wire::nfs3::attributes::Wcc;
use crate::wire::nfs3::data::{Commit, CommitDone, FileFailed};

/// The whole file, whatever part of it is asked for.
pub(super) async fn commit(ask: &Ask<'_>, arguments: Commit) -> Done<CommitDone, FileFailed> {
    let target = ask.admit_change(&arguments.file).map_err(early)?;
    match target.file_system().commit(&target.caller, target.id).await {
        Ok((after, verifier)) => Ok(CommitDone {
            wcc: Wcc {
                before: None,
                after: Some(after),
            },
            verifier,
        }),
        Err(error) => Err((
            error.into(),
            FileFailed {
                wcc: target.wcc().await,
            },
        )),
    }
}
