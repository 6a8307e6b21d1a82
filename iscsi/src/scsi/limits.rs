//! Bounds of the command set. An initiator learns most of them from the VPD page B0h.

/// Bytes that one READ, WRITE, VERIFY or the like moves. Enough for the longest transfers that
/// initiators build (16 MiB of VMware), and what one command may hold in memory.
pub const TRANSFER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bytes in which initiators transfer best.
pub const TRANSFER_BYTES_OPTIMAL: u64 = 1024 * 1024;

/// Bytes that one WRITE SAME covers. It ends within the time that initiators give a command.
pub const WRITE_SAME_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bytes that one UNMAP covers in all its descriptors, for the same reason; giving back whole
/// objects is much faster than writing them.
pub const UNMAP_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Descriptors of one UNMAP.
pub const UNMAP_DESCRIPTORS_MAX: u32 = 256;

/// Bytes in which space comes back.
pub const UNMAP_GRAIN_BYTES: u64 = 64 * 1024;

/// Blocks of one COMPARE AND WRITE. It never crosses an object, and the one number that holds for
/// every LBA is 1; initiators that lock with it compare one block.
pub const COMPARE_BLOCKS_MAX: u8 = 1;

/// Bytes of one WRITE ATOMIC, where the objects of the image are not smaller.
pub const ATOMIC_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes that a command that covers a long range holds at a time.
pub const CHUNK_BYTES: u64 = 1024 * 1024;

/// Bytes of a parameter list: every one is far shorter.
pub const PARAMETER_LIST_BYTES_MAX: u64 = 64 * 1024;

/// Descriptors of one GET LBA STATUS; an initiator asks again for what lies behind.
pub const STATUS_DESCRIPTORS_MAX: u32 = 256;

/// Questions to the store for one GET LBA STATUS. The last descriptor may end earlier than it could.
pub const STATUS_LOOKS_MAX: u32 = 1_024;

/// I_T nexuses that one logical unit knows. Beyond it, the one that was lost first is forgotten.
pub const NEXUSES_MAX: usize = 4_096;

/// Bytes a second that SANITIZE writes, so that it leaves the store to others.
pub const SANITIZE_BYTES_PER_SECOND: u64 = 256 * 1024 * 1024;

const _: () = assert!(TRANSFER_BYTES_OPTIMAL <= TRANSFER_BYTES_MAX);
const _: () = assert!(ATOMIC_BYTES_MAX <= TRANSFER_BYTES_MAX);
const _: () = assert!(UNMAP_DESCRIPTORS_MAX as u64 * 16 + 8 <= PARAMETER_LIST_BYTES_MAX);
