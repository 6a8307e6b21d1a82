//! From a handle to a file system, and from a credential to who acts there.

use core::net::SocketAddr;

use super::fault::Fault;
use crate::export::{Exports, Rule, Share};
use crate::filesystem::{Caller, FileSystem, Keep, NodeId, Place};
use crate::session::reply_cache::CallKey;
use crate::wire::nfs3::attributes::{PostOp, Time, Wcc};
use crate::wire::nfs3::handle::Handle;
use crate::wire::nfs3::name::Name;
use crate::wire::nfs3::status::Status;
use crate::wire::rpc::credential::Credential;

/// A call's surroundings.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub exports: &'a Exports,
    pub client: SocketAddr,
    pub credential: &'a Credential,
    /// The server's time.
    pub now: Time,
    /// Of a call whose results are kept.
    pub call: Option<CallKey>,
}

/// A node that may be asked about, and who asks.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    pub share: &'a Share,
    pub rule: &'a Rule,
    pub id: NodeId,
    pub caller: Caller,
}

impl<'a> Ask<'a> {
    /// # Errors
    /// `BadHandle` for what never was one; `Stale` if its file system is not exported to this client;
    /// `Weak` for a port that the export does not take.
    pub fn admit(&self, handle: &Handle) -> Result<Target<'a>, Fault> {
        let id = NodeId::from_handle(handle).ok_or(Status::BadHandle)?;
        let share = self.exports.of_file_system(id.file_system);
        let share = share.ok_or(Status::Stale)?;
        let rule = share.rule_for(self.client.ip()).ok_or(Status::Stale)?;
        if !rule.takes_port_of(self.client) {
            return Err(Fault::Weak);
        }
        let identity = rule.identify(self.credential);
        let caller = Caller {
            uid: identity.uid,
            gid: identity.gid,
            groups: identity.groups,
            now: self.now,
        };
        Ok(Target {
            share,
            rule,
            id,
            caller,
        })
    }

    /// As `admit`, for a change.
    ///
    /// # Errors
    /// `ReadOnly` too.
    pub fn admit_change(&self, handle: &Handle) -> Result<Target<'a>, Fault> {
        let target = self.admit(handle)?;
        match target.rule.is_read_only {
            true => Err(Status::ReadOnly.into()),
            false => Ok(target),
        }
    }

    /// What is kept of a change.
    pub fn keep<T>(
        &self,
        encode: &'a (dyn Fn(&T) -> bytes::Bytes + Send + Sync),
    ) -> Option<Keep<'a, T>> {
        self.call.map(|call| Keep { call, encode })
    }
}

impl<'a> Target<'a> {
    #[must_use]
    pub fn file_system(&self) -> &'a dyn FileSystem {
        &*self.share.file_system
    }

    #[must_use]
    pub fn place<'b>(&self, name: &'b [u8]) -> Place<'b> {
        Place {
            directory: self.id,
            name,
        }
    }

    /// What a failure tells: the attributes as they are.
    pub async fn after(&self) -> PostOp {
        self.file_system().getattr(self.id).await.ok()
    }

    /// The same, where there might be attributes from before.
    pub async fn wcc(&self) -> Wcc {
        Wcc {
            before: None,
            after: self.after().await,
        }
    }
}

/// A name for something that is made: `.` and `..` are there already.
///
/// # Errors
/// `Exists` for these, and what `Name::check` says.
pub fn new_name(name: &Name) -> Result<&[u8], Status> {
    match name.check()? {
        b"." | b".." => Err(Status::Exists),
        name => Ok(name),
    }
}
