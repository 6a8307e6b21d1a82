//! READ (RFC 1813 section 3.3.6).

use super::{Done, early};
use crate::limits::DATA_BYTES_MAX;
use crate::op::admit::Ask;
use crate::wire::nfs3::data::{Read, ReadDone};
use crate::wire::nfs3::inquire::ObjectFailed;

pub(super) async fn read(ask: &Ask<'_>, arguments: Read) -> Done<ReadDone, ObjectFailed> {
    let target = ask.admit(&arguments.file).map_err(early)?;
    let count = arguments.count.min(DATA_BYTES_MAX);
    let read = target
        .file_system()
        .read(&target.caller, target.id, arguments.offset, count)
        .await;
    match read {
        Ok(read) => Ok(ReadDone {
            attributes: Some(read.attributes),
            eof: read.eof,
            data: read.pieces,
        }),
        Err(error) => Err((
            error.into(),
            ObjectFailed {
                attributes: target.after().await,
            },
        )),
    }
}
