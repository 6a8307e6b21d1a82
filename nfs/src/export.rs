//! Who may use a file system, from where, and as whom.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::filesystem::FileSystem;
use crate::wire::rpc::credential::{AuthSys, Credential};

/// What is exported.
#[derive(Clone, Debug, Default)]
pub struct Exports {
    shares: Vec<Share>,
}

/// A file system under a path.
#[derive(Clone, Debug)]
pub struct Share {
    /// Begins with a slash, and does not end in one.
    pub path: String,
    pub file_system: Arc<dyn FileSystem>,
    /// The first that fits a client counts; a client that none fits may do nothing.
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    pub client: Client,
    pub is_read_only: bool,
    pub squash: Squash,
    /// What users become that are squashed, and callers that do not say who they are.
    pub anonymous: Anonymous,
    /// Calls come from ports below 1024, which only root can use on most clients.
    pub needs_reserved_port: bool,
}

/// Whom a rule is for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Client {
    Any,
    Host(IpAddr),
    /// All addresses that begin with these bits.
    Network(IpAddr, u8),
    /// A host by name, with the addresses that it has: whoever sets the rules asks for them.
    Name(String, Vec<IpAddr>),
}

/// Who does not stay who they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Squash {
    None,
    /// uid 0 and gid 0.
    Root,
    All,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Anonymous {
    pub uid: u32,
    pub gid: u32,
}

/// Who a caller became.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Exports {
    #[must_use]
    pub fn new(shares: Vec<Share>) -> Self {
        Self { shares }
    }

    #[must_use]
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// By the number in a handle.
    #[must_use]
    pub fn of_file_system(&self, id: u64) -> Option<&Share> {
        self.shares
            .iter()
            .find(|share| share.file_system.id() == id)
    }

    /// The share with the longest path that `path` is or lies below, and the rest of it without a slash
    /// first.
    #[must_use]
    pub fn of_path<'a, 'b>(&'a self, path: &'b [u8]) -> Option<(&'a Share, &'b [u8])> {
        let fitting = self.shares.iter().filter_map(|share| {
            let rest = path.strip_prefix(share.path.as_bytes())?;
            let is_below = rest.is_empty() || rest[0] == b'/';
            is_below.then_some((share, rest.strip_prefix(b"/").unwrap_or(rest)))
        });
        fitting.max_by_key(|(share, _)| share.path.len())
    }
}

impl Share {
    #[must_use]
    pub fn rule_for(&self, client: IpAddr) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.client.fits(client))
    }
}

impl Rule {
    /// Whether a call may come from this port.
    #[must_use]
    pub fn takes_port_of(&self, client: SocketAddr) -> bool {
        !self.needs_reserved_port || client.port() < RESERVED_PORTS_END
    }

    /// As whom a call is done.
    #[must_use]
    pub fn identify(&self, credential: &Credential) -> Identity {
        let Credential::Sys(sys) = credential else {
            return self.anonymous();
        };
        match self.squash {
            Squash::All => self.anonymous(),
            Squash::Root => self.without_root(sys),
            Squash::None => Identity {
                uid: sys.uid,
                gid: sys.gid,
                groups: sys.gids.clone(),
            },
        }
    }

    fn anonymous(&self) -> Identity {
        Identity {
            uid: self.anonymous.uid,
            gid: self.anonymous.gid,
            groups: Vec::new(),
        }
    }

    /// Each id by itself: who is no root may still be in its group.
    fn without_root(&self, sys: &AuthSys) -> Identity {
        let gid = |gid| match gid {
            0 => self.anonymous.gid,
            gid => gid,
        };
        Identity {
            uid: match sys.uid {
                0 => self.anonymous.uid,
                uid => uid,
            },
            gid: gid(sys.gid),
            groups: sys.gids.iter().copied().map(gid).collect(),
        }
    }
}

impl Client {
    #[must_use]
    pub fn fits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        match self {
            Self::Any => true,
            Self::Host(host) => host.to_canonical() == client,
            Self::Network(network, bits) => begin_alike(*network, client, *bits),
            Self::Name(_, addresses) => addresses.iter().any(|at| at.to_canonical() == client),
        }
    }

    /// As an export list says it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Any => "*".to_owned(),
            Self::Host(host) => host.to_string(),
            Self::Network(network, bits) => format!("{network}/{bits}"),
            Self::Name(name, _) => name.clone(),
        }
    }
}

fn begin_alike(one: IpAddr, other: IpAddr, bits: u8) -> bool {
    let differing = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    differing >= u32::from(bits)
}

const RESERVED_PORTS_END: u16 = 1_024;

#[cfg(test)]
mod tests;
