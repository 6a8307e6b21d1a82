//! Serial numbers that wrap (RFC 7143 section 4.2.2.1, RFC 1982): `CmdSN`, `StatSN`, `DataSN`.

/// A number that follows `u32::MAX` by 0. Two numbers are compared only if they lie less than 2^31
/// apart.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Serial(pub u32);

impl Serial {
    #[must_use]
    pub fn next(self) -> Self {
        self.plus(1)
    }

    #[must_use]
    pub fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// How far this one lies behind `other`, which is not greater.
    #[must_use]
    pub fn since(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0)
    }

    /// Whether this one comes before `other`.
    #[must_use]
    pub fn is_before(self, other: Self) -> bool {
        let ahead = other.since(self);
        ahead != 0 && ahead < 1 << 31
    }

    /// Whether this one lies in `first..=last`; an empty window has `last` before `first`.
    #[must_use]
    pub fn is_within(self, first: Self, last: Self) -> bool {
        !self.is_before(first) && !last.is_before(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let last = Serial(u32::MAX);
        assert_eq!(last.next(), Serial(0));
        assert!(last.is_before(last.next()) && !last.next().is_before(last));
        assert!(!last.is_before(last));
        assert_eq!(Serial(3).since(last), 4);
        for (serial, first, end, within) in [
            (0, u32::MAX, 5, true),
            (u32::MAX, u32::MAX, 5, true),
            (5, u32::MAX, 5, true),
            (6, u32::MAX, 5, false),
            (u32::MAX - 1, u32::MAX, 5, false),
            // The closed window: MaxCmdSN is ExpCmdSN - 1.
            (7, 7, 6, false),
        ] {
            let [serial, first, end] = [serial, first, end].map(Serial);
            assert_eq!(serial.is_within(first, end), within, "{serial:?}");
        }
    }
}
