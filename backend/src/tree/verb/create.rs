//! CREATE: a file.

use super::super::access::Access;
use super::super::data::ahead_of;
use super::super::error::TreeError;
use super::super::node::{Around, Before, Handle};
use super::super::record::{Inode, Kind};
use super::super::serve::{Keep, Tree};
use super::super::view::{Caller, Stop, View};
use super::make::{Made, SetAttributes, make, searched};

/// `createhow3` (RFC 1813 section 3.3.8).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HowToCreate {
    /// A file that is there already is an error, unless it was made with the same verifier: it is
    /// the same call again. The file has no permissions until they are set.
    Exclusive([u8; 8]),
    /// A file that is there already is an error.
    Guarded(SetAttributes),
    /// A file that is there already is taken, and only cut if the size is set to 0.
    Unchecked(SetAttributes),
}

impl Tree {
    /// # Errors
    /// `Exists`; `IsDirectory`, `Access` and others for a file that is taken.
    pub async fn create(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        how: HowToCreate,
        keep: Option<Keep<'_, Made>>,
    ) -> Result<Made, TreeError> {
        let (attributes, verifier) = match how {
            HowToCreate::Exclusive(verifier) => (SetAttributes::default(), Some(verifier)),
            HowToCreate::Guarded(attributes) | HowToCreate::Unchecked(attributes) => {
                (attributes, None)
            }
        };
        let layout = self.shared.header.layout;
        let node = Inode {
            create_verifier: verifier,
            // Room for a small file, so that its first write need not log it.
            dirty_end: ahead_of(1, layout),
            ..Inode::new(Kind::File)
        };
        let made = self
            .change(
                |view| match taken(view, caller, directory, name, how)? {
                    Some(made) => Ok(made),
                    None => make(view, caller, directory, name, &node, &attributes),
                },
                keep.as_ref(),
            )
            .await?;
        let is_cut = matches!(how, HowToCreate::Unchecked(set) if set.size == Some(0));
        if made.node.size > 0 && is_cut {
            let cut = SetAttributes {
                size: Some(0),
                ..SetAttributes::default()
            };
            let around = self
                .setattr(caller, made.node.handle(), &cut, None, None)
                .await?;
            return Ok(Made {
                node: around.after,
                directory: made.directory,
            });
        }
        Ok(made)
    }
}

/// The file that is there already, if this way of creating takes it.
fn taken(
    view: &mut View<'_>,
    caller: &Caller,
    directory: Handle,
    name: &[u8],
    how: HowToCreate,
) -> Result<Option<Made>, Stop> {
    let parent = searched(view, &caller.credentials, directory)?;
    let Some(entry) = view.entry(directory.inode, name)? else {
        return Ok(None);
    };
    let node = view.target(&entry)?;
    match how {
        HowToCreate::Exclusive(verifier) if node.create_verifier == Some(verifier) => {}
        HowToCreate::Unchecked(_) if node.kind == Kind::Directory => {
            return Err(TreeError::IsDirectory.into());
        }
        HowToCreate::Unchecked(set) if node.kind == Kind::File => {
            if set.size == Some(0) {
                caller.credentials.check_data(&node, Access::WRITE)?;
            }
        }
        HowToCreate::Exclusive(_) | HowToCreate::Guarded(_) | HowToCreate::Unchecked(_) => {
            return Err(TreeError::Exists.into());
        }
    }
    let after = view.attributes(directory.inode, &parent);
    Ok(Some(Made {
        node: view.attributes(entry.inode, &node),
        directory: Around {
            before: Before::from(&*parent),
            after,
        },
    }))
}
