//! MKNOD: a device, socket or FIFO.

use super::super::error::TreeError;
use super::super::node::Handle;
use super::super::record::{Inode, Kind};
use super::super::serve::{Keep, Tree};
use super::super::view::Caller;
use super::make::{Made, SetAttributes, make};

impl Tree {
    /// `device` is major and minor number, of devices.
    ///
    /// # Errors
    /// As `mkdir`; `BadType` for files, directories and links; `Permission` for a device that root
    /// does not make.
    pub async fn mknod(
        &self,
        caller: &Caller,
        place: (Handle, &[u8]),
        what: (Kind, (u32, u32)),
        attributes: &SetAttributes,
        keep: Option<Keep<'_, Made>>,
    ) -> Result<Made, TreeError> {
        let (kind, device) = what;
        let device = match kind {
            Kind::BlockDevice | Kind::CharacterDevice => {
                if !caller.credentials.is_root() {
                    return Err(TreeError::Permission);
                }
                device
            }
            Kind::Fifo | Kind::Socket => (0, 0),
            Kind::Directory | Kind::File | Kind::Symlink => return Err(TreeError::BadType),
        };
        let node = Inode {
            device,
            ..Inode::new(kind)
        };
        let (directory, name) = place;
        self.change(
            |view| make(view, caller, directory, name, &node, attributes),
            keep.as_ref(),
        )
        .await
    }
}
