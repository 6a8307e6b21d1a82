//! Every bound below the protocols, with its reason.

/// Bytes of an object's name. RADOS allows 2,048 by default; long names cost space in every index.
pub const OBJECT_NAME_BYTES_MAX: usize = 512;

/// Bytes of a pool's name and of a namespace.
pub const POOL_NAME_BYTES_MAX: usize = 128;

/// Bytes of an extended attribute's name; Linux file systems under an OSD allow 255.
pub const XATTR_NAME_BYTES_MAX: usize = 64;

/// Bytes of an extended attribute's value: RADOS keeps small ones inside the object's own record.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of an omap key: an S3 key of 1,024 bytes, escaped to twice that at worst, and its sequence.
pub const OMAP_KEY_BYTES_MAX: usize = 2 * 1024 + 64;

/// Omap entries of one request; RADOS cuts a larger read short (`osd_max_omap_entries_per_request`).
pub const OMAP_KEYS_PER_OP_MAX: u32 = 1_024;

/// Omap keys of one object: Ceph's deep scrub warns above 200,000, and recovery of an object blocks
/// it as a whole, so indexes split well before.
pub const OMAP_KEYS_PER_OBJECT_MAX: u32 = 50_000;

/// Bytes of one object: RADOS refuses more than 128 MiB by default (`osd_max_object_size`).
pub const OBJECT_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Payload bytes of one operation: RADOS refuses more than 90 MiB (`osd_max_write_size`).
pub const OP_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Payload bytes of an operation that a full store accepts all the same (`WhenFull::Force`): a few
/// records of who serves and what is under way.
pub const FORCED_BYTES_MAX: u64 = 4 * 1024;

/// Guards and steps of one operation.
pub const OP_STEPS_MAX: usize = 2_048;

const _: () = assert!(OP_BYTES_MAX <= OBJECT_BYTES_MAX);
const _: () = assert!(OMAP_KEYS_PER_OP_MAX < OMAP_KEYS_PER_OBJECT_MAX);
