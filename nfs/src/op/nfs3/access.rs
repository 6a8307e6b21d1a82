//! ACCESS (RFC 1813 section 3.3.4).

use super::{Done, early};
use crate::filesystem::Allowed;
use crate::op::admit::Ask;
use crate::wire::nfs3::attributes::FileType;
use crate::wire::nfs3::inquire::{Access, AccessDone, ObjectFailed, access as bits};

pub(super) async fn access(ask: &Ask<'_>, arguments: Access) -> Done<AccessDone, ObjectFailed> {
    let target = ask.admit(&arguments.object).map_err(early)?;
    let found = target.file_system().access(&target.caller, target.id).await;
    let (allowed, attributes) = found.map_err(early)?;
    let mut granted = granted(allowed, attributes.kind);
    if target.rule.is_read_only {
        granted &= !(bits::MODIFY | bits::EXTEND | bits::DELETE);
    }
    Ok(AccessDone {
        attributes: Some(attributes),
        access: granted & arguments.access,
    })
}

/// DELETE is about the entries of a directory; EXECUTE is about files.
fn granted(allowed: Allowed, kind: FileType) -> u32 {
    let is_directory = kind == FileType::Directory;
    let mut granted = 0;
    if allowed.read {
        granted |= bits::READ;
    }
    if allowed.write {
        granted |= bits::MODIFY | bits::EXTEND;
    }
    if allowed.write && allowed.execute && is_directory {
        granted |= bits::DELETE;
    }
    if allowed.execute {
        granted |= match is_directory {
            true => bits::LOOKUP,
            false => bits::EXECUTE,
        };
    }
    granted
}
