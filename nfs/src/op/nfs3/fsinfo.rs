//! FSINFO (RFC 1813 section 3.3.19).

use super::{Done, early};
use crate::limits::DATA_BYTES_MAX;
use crate::op::admit::Ask;
use crate::wire::nfs3::attributes::Time;
use crate::wire::nfs3::filesystem::{FsInfo, OfRoot, properties};
use crate::wire::nfs3::inquire::ObjectFailed;

pub(super) async fn fsinfo(ask: &Ask<'_>, arguments: OfRoot) -> Done<FsInfo, ObjectFailed> {
    let target = ask.admit(&arguments.object).map_err(early)?;
    let attributes = target.file_system().getattr(target.id).await;
    let bounds = target.file_system().bounds();
    Ok(FsInfo {
        attributes: Some(attributes.map_err(early)?),
        rtmax: DATA_BYTES_MAX,
        rtpref: DATA_BYTES_MAX,
        rtmult: BLOCK_BYTES,
        wtmax: DATA_BYTES_MAX,
        wtpref: DATA_BYTES_MAX,
        wtmult: BLOCK_BYTES,
        dtpref: LISTING_BYTES,
        maxfilesize: bounds.file_bytes_max,
        time_delta: Time {
            seconds: 0,
            nanoseconds: 1,
        },
        properties: properties::LINK
            | properties::SYMLINK
            | properties::HOMOGENEOUS
            | properties::CAN_SET_TIME,
    })
}

const BLOCK_BYTES: u32 = 4_096;

/// A listing that a directory of some hundred entries fits in.
const LISTING_BYTES: u32 = 64 << 10;
