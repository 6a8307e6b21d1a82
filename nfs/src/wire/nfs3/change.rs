//! SETATTR, REMOVE, RMDIR, RENAME, LINK (RFC 1813 sections 3.3.2, 3.3.12 to 3.3.15).

use super::attributes::{PostOp, SetAttributes, Time, Wcc};
use super::handle::Handle;
use super::inquire::Place;
use crate::wire::xdr::message;

message! {
    /// Arguments of SETATTR.
    pub struct SetAttr {
        pub object: Handle,
        pub attributes: SetAttributes,
        /// `sattrguard3`: the ctime that it must have, or `NFS3ERR_NOT_SYNC`.
        pub guard: Option<Time>,
    }
}

message! {
    pub struct SetAttrDone {
        pub wcc: Wcc,
    }
}

message! {
    /// Arguments of REMOVE and RMDIR.
    pub struct Remove {
        pub place: Place,
    }
}

message! {
    /// Results of REMOVE and RMDIR.
    pub struct RemoveDone {
        pub directory: Wcc,
    }
}

message! {
    /// Arguments of RENAME.
    pub struct Rename {
        pub from: Place,
        pub to: Place,
    }
}

message! {
    /// Results of RENAME, whether it was done or not.
    #[derive(Default)]
    pub struct Renamed {
        pub from: Wcc,
        pub to: Wcc,
    }
}

message! {
    /// Arguments of LINK.
    pub struct Link {
        pub file: Handle,
        pub place: Place,
    }
}

message! {
    /// Results of LINK, whether it was done or not.
    #[derive(Default)]
    pub struct Linked {
        pub attributes: PostOp,
        pub directory: Wcc,
    }
}
