//! READDIR (RFC 1813 section 3.3.16).

use super::{Done, early};
use crate::filesystem;
use crate::op::admit::{Ask, Target};
use crate::op::fault::Fault;
use crate::wire::nfs3::directory::{Entry, Listing, ReadDir, ReadDirDone};
use crate::wire::nfs3::inquire::LookupFailed;
use crate::wire::nfs3::name::Name;

pub(super) async fn readdir(ask: &Ask<'_>, arguments: ReadDir) -> Done<ReadDirDone, LookupFailed> {
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

async fn list(target: &Target<'_>, asked: &ReadDir) -> Result<ReadDirDone, Fault> {
    let found = page(target, asked.cookie, asked.count, false).await?;
    let mut listing = Listing::new(asked, Some(found.directory), COOKIE_VERIFIER);
    let count = found.entries.len();
    let mut taken = 0;
    for entry in found.entries {
        let entry = Entry {
            fileid: entry.fileid,
            name: Name(entry.name),
            cookie: entry.cookie,
        };
        if !listing.push(entry) {
            break;
        }
        taken += 1;
    }
    Ok(listing.finish(found.is_end && taken == count)?)
}

/// So many entries as a client might take.
pub(super) async fn page(
    target: &Target<'_>,
    after: u64,
    bytes: u32,
    with_nodes: bool,
) -> Result<filesystem::Listing, Fault> {
    let count = (bytes / ENTRY_BYTES_MIN).clamp(1, ENTRIES_MAX);
    let listing = target
        .file_system()
        .readdir(&target.caller, target.id, after, count, with_nodes);
    Ok(listing.await?)
}

/// Cookies hold as long as the directory, whatever changes in it, so that there is nothing to verify. Some
/// clients take zeros for a server that has none.
pub(super) const COOKIE_VERIFIER: [u8; 8] = *b"portico1";

/// An entry with a name of one byte.
const ENTRY_BYTES_MIN: u32 = 28;

/// Of one page: a listing of 1 MiB would begin with 37,000 of which most do not fit.
const ENTRIES_MAX: u32 = 8_192;
