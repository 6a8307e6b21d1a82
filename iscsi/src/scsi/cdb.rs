//! The bytes of a command descriptor block (SPC-5 4.3). Bytes behind its end read as zeros.

/// Reads fields of a CDB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cdb<'a>(pub(super) &'a [u8]);

/// A range of logical blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Blocks {
    pub(super) lba: u64,
    pub(super) count: u64,
}

impl Cdb<'_> {
    #[must_use]
    pub(super) fn u8(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    /// Whether any of these bits is set in this byte.
    #[must_use]
    pub(super) fn flag(self, at: usize, bits: u8) -> bool {
        self.u8(at) & bits != 0
    }

    #[must_use]
    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes([self.u8(at), self.u8(at + 1)])
    }

    #[must_use]
    pub(super) fn u32(self, at: usize) -> u32 {
        (u32::from(self.u16(at)) << 16) | u32::from(self.u16(at + 2))
    }

    #[must_use]
    pub(super) fn u64(self, at: usize) -> u64 {
        (u64::from(self.u32(at)) << 32) | u64::from(self.u32(at + 4))
    }

    /// The three bits in which READ, WRITE and their like ask for protection information.
    #[must_use]
    pub(super) fn protect(self) -> u8 {
        self.u8(1) >> 5
    }

    /// LBA and length where the four families of block commands have them; the group code of the
    /// operation code says which (SPC-5 4.3.5).
    #[must_use]
    pub(super) fn blocks(self) -> Blocks {
        match self.u8(0) >> 5 {
            0 => Blocks {
                lba: u64::from(self.u32(0) & 0x001f_ffff),
                // A length of 0 means 256 in CDBs of 6 bytes (SBC-4 5.14).
                count: match self.u8(4) {
                    0 => 256,
                    count => u64::from(count),
                },
            },
            5 => Blocks {
                lba: u64::from(self.u32(2)),
                count: u64::from(self.u32(6)),
            },
            4 => Blocks {
                lba: self.u64(2),
                count: u64::from(self.u32(10)),
            },
            _ => Blocks {
                lba: u64::from(self.u32(2)),
                count: u64::from(self.u16(7)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_places() {
        let range = |cdb: &[u8]| {
            let Blocks { lba, count } = Cdb(cdb).blocks();
            (lba, count)
        };
        assert_eq!(range(&[0x08, 0xff, 2, 3, 4, 0]), (0x1f_0203, 4));
        assert_eq!(range(&[0x08, 0, 0, 1, 0, 0]), (1, 256));
        assert_eq!(
            range(&[0x28, 0, 1, 2, 3, 4, 9, 5, 6, 0]),
            (0x0102_0304, 0x0506)
        );
        assert_eq!(
            range(&[0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]),
            (0x0102_0304, 0x0506_0708)
        );
        assert_eq!(
            range(&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]),
            (0x0102_0304_0506_0708, 0x090a_0b0c)
        );
    }

    #[test]
    fn a_short_cdb_reads_as_zeros() {
        assert_eq!(Cdb(&[0x88, 1]).blocks(), Blocks { lba: 0, count: 0 });
        assert_eq!((Cdb(&[]).u64(usize::MAX - 8), Cdb(&[1]).u16(0)), (0, 0x100));
    }
}
