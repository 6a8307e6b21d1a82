//! READDIRPLUS (RFC 1813 section 3.3.17).

use super::readdir::{COOKIE_VERIFIER, page};
use super::{Done, early};
use crate::op::admit::{Ask, Target};
use crate::op::fault::Fault;
use crate::wire::nfs3::directory::{EntryPlus, Listing, ReadDirPlus, ReadDirPlusDone};
use crate::wire::nfs3::inquire::LookupFailed;
use crate::wire::nfs3::name::Name;

pub(super) async fn readdirplus(
    ask: &Ask<'_>,
    arguments: ReadDirPlus,
) -> Done<ReadDirPlusDone, LookupFailed> {
    let target = ask.admit(&arguments.directory).map_err(early)?;
    match list(&target, &arguments).await {
        Ok(done) => Ok(done),
        Err(fault) => Err((
            fault,
            LookupFailed {
                directory: target.after().await,
            },
        )),
    }
}

async fn list(target: &Target<'_>, asked: &ReadDirPlus) -> Result<ReadDirPlusDone, Fault> {
    // With attributes and handle an entry takes five times as much.
    let bytes = asked.dircount.min(asked.maxcount / 5);
    let found = page(target, asked.cookie, bytes, true).await?;
    let mut listing = Listing::new_plus(asked, Some(found.directory), COOKIE_VERIFIER);
    let count = found.entries.len();
    let mut taken = 0;
    for entry in found.entries {
        let entry = EntryPlus {
            fileid: entry.fileid,
            name: Name(entry.name),
            cookie: entry.cookie,
            attributes: entry.node.map(|node| node.attributes),
            handle: entry.node.map(|node| node.id.to_handle()),
        };
        if !listing.push(entry) {
            break;
        }
        taken += 1;
    }
    Ok(listing.finish(found.is_end && taken == count)?)
}
