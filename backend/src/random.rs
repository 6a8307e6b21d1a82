//! A small generator of numbers from a seed, for engines and suites that must repeat a run exactly.
//! Never for secrets or names that must be unique.

/// Numbers that depend on the seed alone (splitmix64).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Generator(u64);

impl Generator {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`.
    ///
    /// # Panics
    /// If `bound` is 0: there is no such number.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a range that holds a number");
        self.next_u64() % bound
    }

    /// `true` in about `per_mille` of 1,000 cases.
    pub fn chance(&mut self, per_mille: u16) -> bool {
        self.below(1_000) < u64::from(per_mille)
    }
}

/// A number that depends on the bytes and the seed; spread evenly, not safe against an adversary.
#[must_use]
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(mix(seed), |hash, byte| mix(hash ^ u64::from(*byte)))
}

fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let numbers = |seed| {
            let mut generator = Generator::new(seed);
            [0; 4].map(|_: u8| generator.below(1_000_000))
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        assert_ne!(hash(0, b"a"), hash(0, b"b"));
        assert_ne!(hash(0, b""), hash(1, b""));
    }
}
