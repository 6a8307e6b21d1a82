//! WRITE (RFC 1813 section 3.3.7).

use super::{Done, early};
use crate::op::admit::Ask;
use crate::wire::nfs3::data::{FileFailed, Write, WriteDone};

pub(super) async fn write(ask: &Ask<'_>, arguments: Write) -> Done<WriteDone, FileFailed> {
    let target = ask.admit_change(&arguments.file).map_err(early)?;
    let count = u32::try_from(arguments.data.len()).expect("bounded by its record");
    let written = target
        .file_system()
        .write(
            &target.caller,
            target.id,
            arguments.offset,
            arguments.data,
            arguments.stable,
        )
        .await;
    match written {
        Ok(written) => Ok(WriteDone {
            wcc: written.file.into(),
            count,
            committed: written.committed,
            verifier: written.verifier,
        }),
        Err(error) => Err((
            error.into(),
            FileFailed {
                wcc: target.wcc().await,
            },
        )),
    }
}
