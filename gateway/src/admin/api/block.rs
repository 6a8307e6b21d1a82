//! The documents of LUNs, targets, initiators and iSCSI sessions.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Lun {
    pub(crate) name: String,
    /// The node that it belongs to.
    pub(crate) node: String,
    /// `served`, `elsewhere` (by another node), `waiting` or `deleting`.
    pub(crate) state: String,
    /// Why it is waiting.
    pub(crate) reason: Option<String>,
    pub(crate) read_only: bool,
    pub(crate) write_cache: bool,
    pub(crate) created_ms: u64,
    /// `None` if its image cannot be looked at.
    pub(crate) image: Option<LunImage>,
    pub(crate) maps: Vec<LunMap>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LunImage {
    pub(crate) id: String,
    pub(crate) size_bytes: u64,
    pub(crate) object_size: u32,
    pub(crate) stripe_unit: u32,
    pub(crate) stripe_count: u32,
    /// What follows is `None` before Portico has served the image for the first time.
    pub(crate) block_bytes: Option<u32>,
    /// By which initiators know the disk, without `naa.`.
    pub(crate) naa: Option<String>,
    pub(crate) serial: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Luns {
    pub(crate) luns: Vec<Lun>,
    /// Ask again with `after` set to this for the next page.
    pub(crate) next: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLun {
    pub(crate) name: String,
    /// Left out for an image that exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size_bytes: Option<u64>,
    /// 512, the default, or 4,096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) block_bytes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object_size: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stripe_unit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stripe_count: Option<u32>,
    #[serde(default)]
    pub(crate) read_only: bool,
    #[serde(default)]
    pub(crate) write_cache: bool,
    /// Serve the image of this name that is there.
    #[serde(default)]
    pub(crate) existing: bool,
}

/// Another size, or other options.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LunChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size_bytes: Option<u64>,
    /// What lies behind a smaller size may go.
    #[serde(default)]
    pub(crate) shrink: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) write_cache: Option<bool>,
}

/// A LUN as an initiator, or any, sees it at a target.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LunMap {
    pub(crate) target: String,
    /// Its number.
    pub(crate) lun: u16,
    pub(crate) name: String,
    /// `None` for any.
    pub(crate) initiator: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLunMap {
    /// Of the LUN.
    pub(crate) name: String,
    /// The least that is free from 1 on if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lun: Option<u16>,
    /// Any if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) initiator: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) created_ms: u64,
    pub(crate) maps: Vec<LunMap>,
    /// Sessions that this node has with it.
    pub(crate) session_count: usize,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Targets {
    pub(crate) targets: Vec<Target>,
    /// Ask again with `after` set to this for the next page.
    pub(crate) next: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTarget {
    pub(crate) name: String,
}

/// An initiator that proves itself; secrets are never told.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Initiator {
    pub(crate) name: String,
    pub(crate) chap_user: String,
    /// With what targets prove themselves to it.
    pub(crate) mutual_user: Option<String>,
    pub(crate) created_ms: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Initiators {
    pub(crate) initiators: Vec<Initiator>,
    /// Ask again with `after` set to this for the next page.
    pub(crate) next: Option<String>,
}

/// Takes the place of what there was of the same name.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewInitiator {
    pub(crate) name: String,
    pub(crate) chap_user: String,
    pub(crate) chap_secret: String,
    /// Both or neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mutual_user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mutual_secret: Option<String>,
}

/// An iSCSI session with this node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct IscsiSession {
    /// The handle (TSIH).
    pub(crate) id: u16,
    pub(crate) initiator: String,
    /// 12 hexadecimal digits.
    pub(crate) isid: String,
    /// `None` for a discovery session.
    pub(crate) target: Option<String>,
    /// The portal that its first connection came to.
    pub(crate) portal: String,
    pub(crate) connection_count: usize,
    pub(crate) commands_in_work: usize,
    pub(crate) commands: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct IscsiSessions {
    pub(crate) sessions: Vec<IscsiSession>,
}
