//! COMMIT: what was written without waiting becomes stable.

use super::super::access::Access;
use super::super::error::TreeError;
use super::super::node::{Attributes, Handle};
use super::super::record::Kind;
use super::super::serve::Tree;
use super::super::shared::Shared;
use super::super::view::Caller;

/// Changes when unstable writes may have been lost. It stays for good where every write is stable.
pub type Verifier = [u8; 8];

impl Tree {
    /// All unstable writes to the file that were answered are stable then. The attributes are those
    /// after.
    ///
    /// # Errors
    /// `Invalid` and `IsDirectory` for what is no file; what the store says.
    pub async fn commit(
        &self,
        caller: &Caller,
        file: Handle,
    ) -> Result<(Attributes, Verifier), TreeError> {
        self.look(|view| {
            let node = view.node(file)?;
            check_file(node.kind)?;
            caller.credentials.check_data(&node, Access::WRITE)?;
            Ok(())
        })
        .await?;
        if self.shared.is_buffered() {
            self.shared.store.flush().await?;
        }
        let after = self.getattr(file).await?;
        Ok((after, self.verifier()))
    }

    #[must_use]
    pub fn verifier(&self) -> Verifier {
        let epoch = if self.shared.is_buffered() {
            self.shared.claim.epoch()
        } else {
            0
        };
        (self.shared.place.id ^ epoch).to_be_bytes()
    }
}

impl Shared {
    /// Whether a write may be answered before it is stable.
    pub(super) fn is_buffered(&self) -> bool {
        self.store.limits(&self.place.pools.data).buffered
    }
}

/// # Errors
/// What reading or writing of what is no file fails with.
pub(super) fn check_file(kind: Kind) -> Result<(), TreeError> {
    match kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(TreeError::IsDirectory),
        Kind::BlockDevice | Kind::CharacterDevice | Kind::Fifo | Kind::Socket | Kind::Symlink => {
            Err(TreeError::Invalid)
        }
    }
}
