//! How long a client may keep us waiting in a transfer. What it moves earns it time, so that one
//! that trickles is hung up on like one that is silent: both hold bytes in flight that others wait
//! for.

use std::time::Duration;

/// Time that is left to a client. Waiting takes from it and moving bytes adds to it, up to what it
/// had at first.
#[derive(Debug)]
pub(super) struct Patience {
    left: Duration,
    most: Duration,
    bytes_per_second_min: u64,
}

impl Patience {
    /// With a rate of 0 only silence counts: any byte is as good as many.
    pub(super) fn new(most: Duration, bytes_per_second_min: u64) -> Self {
        Self {
            left: most,
            most,
            bytes_per_second_min,
        }
    }

    /// How long the client may take for its next bytes.
    pub(super) fn left(&self) -> Duration {
        self.left
    }

    /// It took `waited` until it moved `bytes`.
    pub(super) fn moved(&mut self, waited: Duration, bytes: u64) {
        let earned = match bytes
            .saturating_mul(1_000_000)
            .checked_div(self.bytes_per_second_min)
        {
            Some(earned_us) => Duration::from_micros(earned_us),
            None if bytes > 0 => self.most,
            None => Duration::ZERO,
        };
        let left = self.left.saturating_sub(waited);
        self.left = left.saturating_add(earned).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn who_keeps_the_rate_goes_on_for_ever_and_who_does_not_ends() {
        let mut steady = Patience::new(60 * SECOND, 1_000);
        for _ in 0..1_000 {
            steady.moved(30 * SECOND, 30_000);
        }
        assert_eq!(steady.left(), 60 * SECOND);
        let mut trickle = Patience::new(60 * SECOND, 1_000);
        trickle.moved(30 * SECOND, 1);
        assert_eq!(trickle.left(), 30 * SECOND + SECOND / 1_000);
        trickle.moved(31 * SECOND, 0);
        assert_eq!(trickle.left(), Duration::ZERO);
        // What it earned at first it cannot save for later.
        let mut hoard = Patience::new(60 * SECOND, 1_000);
        hoard.moved(SECOND, u64::MAX);
        assert_eq!(hoard.left(), 60 * SECOND);
    }

    #[test]
    fn without_a_rate_any_byte_counts() {
        let mut patience = Patience::new(60 * SECOND, 0);
        patience.moved(59 * SECOND, 0);
        assert_eq!(patience.left(), SECOND);
        patience.moved(SECOND, 1);
        assert_eq!(patience.left(), 60 * SECOND);
    }
}
