//! The basic header segment (RFC 7143 section 11.2.1): 48 bytes with fields at fixed places.

use std::fmt;

/// Bytes of a basic header segment.
pub const BHS_BYTES: usize = 48;

/// Bytes of all additional header segments: their length is one byte, in words of four bytes.
pub const AHS_BYTES_MAX: usize = 255 * 4;

/// A tag that stands for none (`ITT`, `TTT`).
pub const RESERVED_TAG: u32 = 0xffff_ffff;

/// A basic header segment. Places are those of RFC 7143, in bytes from its start.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Header(pub [u8; BHS_BYTES]);

impl Header {
    /// An empty one with its opcode.
    #[must_use]
    pub(super) fn new(opcode: u8) -> Self {
        let mut bytes = [0; BHS_BYTES];
        bytes[0] = opcode;
        Self(bytes)
    }

    /// Opcode without the immediate bit.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// Whether the command is for immediate delivery and takes no `CmdSN`.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Bytes of the additional header segments.
    #[must_use]
    pub fn ahs_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of the data segment without its padding.
    #[must_use]
    pub fn data_segment_length(&self) -> u32 {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]])
    }

    /// # Panics
    /// If it is 2^24 or more: what is sent was cut to the peer's limit before.
    pub(super) fn set_data_segment_length(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes < 1 << 24);
        let bytes = bytes.expect("a data segment of less than 16 MiB");
        self.0[5..8].copy_from_slice(&bytes.to_be_bytes()[1..]);
    }

    pub(super) fn flag(&self, at: usize, mask: u8) -> bool {
        self.0[at] & mask != 0
    }

    pub(super) fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    /// # Panics
    /// If the field does not lie in the header: the places are constants.
    pub(super) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().expect("N bytes")
    }

    pub(super) fn set(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(super) fn set_flag(&mut self, at: usize, mask: u8, value: bool) -> &mut Self {
        if value {
            self.0[at] |= mask;
        }
        self
    }

    pub(super) fn set_u8(&mut self, at: usize, value: u8) -> &mut Self {
        self.set(at, &[value])
    }

    pub(super) fn set_u16(&mut self, at: usize, value: u16) -> &mut Self {
        self.set(at, &value.to_be_bytes())
    }

    pub(super) fn set_u32(&mut self, at: usize, value: u32) -> &mut Self {
        self.set(at, &value.to_be_bytes())
    }

    pub(super) fn set_u64(&mut self, at: usize, value: u64) -> &mut Self {
        self.set(at, &value.to_be_bytes())
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Header(")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// Places that many PDUs share.
pub(super) mod place {
    pub(crate) const FLAGS: usize = 1;
    pub(crate) const LUN: usize = 8;
    pub(crate) const ITT: usize = 16;
    /// Target transfer tag, or referenced task tag.
    pub(crate) const TTT: usize = 20;
    pub(crate) const CMD_SN: usize = 24;
    pub(crate) const STAT_SN: usize = 24;
    pub(crate) const EXP_STAT_SN: usize = 28;
    pub(crate) const EXP_CMD_SN: usize = 28;
    pub(crate) const MAX_CMD_SN: usize = 32;
    pub(crate) const DATA_SN: usize = 36;
    pub(crate) const BUFFER_OFFSET: usize = 40;
}
