//! GETATTR (RFC 1813 section 3.3.1).

use super::{Done, early};
use crate::op::admit::Ask;
use crate::wire::nfs3::inquire::{GetAttr, GetAttrDone};

pub(super) async fn getattr(ask: &Ask<'_>, arguments: GetAttr) -> Done<GetAttrDone, ()> {
    let target = ask.admit(&arguments.object).map_err(early)?;
    let attributes = target.file_system().getattr(target.id).await;
    let attributes = attributes.map_err(early)?;
    Ok(GetAttrDone { attributes })
}
