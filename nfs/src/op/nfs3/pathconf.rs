//! PATHCONF (RFC 1813 section 3.3.20).

use super::{Done, early};
use crate::limits::NAME_BYTES_MAX;
use crate::op::admit::Ask;
use crate::wire::nfs3::filesystem::{OfRoot, PathConf};
use crate::wire::nfs3::inquire::ObjectFailed;

pub(super) async fn pathconf(ask: &Ask<'_>, arguments: OfRoot) -> Done<PathConf, ObjectFailed> {
    let target = ask.admit(&arguments.object).map_err(early)?;
    let attributes = target.file_system().getattr(target.id).await;
    Ok(PathConf {
        attributes: Some(attributes.map_err(early)?),
        linkmax: target.file_system().bounds().links_max,
        name_max: u32::try_from(NAME_BYTES_MAX).expect("255"),
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    })
}
