//! FSSTAT (RFC 1813 section 3.3.18).

use super::{Done, early};
use crate::op::admit::Ask;
use crate::wire::nfs3::filesystem::{FsStat, OfRoot};
use crate::wire::nfs3::inquire::ObjectFailed;

pub(super) async fn fsstat(ask: &Ask<'_>, arguments: OfRoot) -> Done<FsStat, ObjectFailed> {
    let target = ask.admit(&arguments.object).map_err(early)?;
    let attributes = target.file_system().getattr(target.id).await;
    let attributes = Some(attributes.map_err(early)?);
    let space = target.file_system().statfs().await;
    let space = space.map_err(|error| (error.into(), ObjectFailed { attributes }))?;
    Ok(FsStat {
        attributes,
        tbytes: space.total_bytes,
        fbytes: space.free_bytes,
        abytes: space.free_bytes,
        tfiles: space.total_files,
        ffiles: space.free_files,
        afiles: space.free_files,
        invarsec: 0,
    })
}
