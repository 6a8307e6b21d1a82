//! Bytes in flight: a permit is taken before a payload is read and dropped after its reply is
//! written, so a slow store slows its clients down instead of filling the memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit unit: a semaphore counts in 32 bits.
const UNIT_BYTES: u64 = 4_096;

/// Units of the largest permit that counts as small (64 KiB).
const SMALL_UNITS_MAX: u32 = 16;

/// A bound on bytes in flight. Cheap to clone.
///
/// A quarter of it is kept for small permits, so that whoever holds large ones for long, such as
/// clients on slow lines, does not keep the small requests of others waiting.
#[derive(Clone, Debug)]
pub struct Budget {
    units: Arc<Semaphore>,
    /// What large permits may take of `units` together; they take from here first.
    large: Arc<Semaphore>,
    large_max: u32,
    bytes: u64,
}

/// Bytes taken from a budget until dropped.
#[derive(Debug)]
pub struct Permit {
    _units: OwnedSemaphorePermit,
    _large: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// # Panics
    /// If `bytes` is less than 4 KiB or more than 8 TiB: budgets come from a checked configuration.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let units_max = u32::try_from(bytes / UNIT_BYTES).expect("at most 2^32 units");
        assert!(units_max > 0, "a budget holds at least one unit");
        let large_max = units_max - units_max / 4;
        let semaphore = |units: u32| {
            let units = usize::try_from(units).expect("32 bits fit");
            Arc::new(Semaphore::new(units))
        };
        Self {
            units: semaphore(units_max),
            large: semaphore(large_max),
            large_max,
            bytes: u64::from(units_max) * UNIT_BYTES,
        }
    }

    /// Bytes in all, whole units.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until `bytes` are free, in order of asking. More than large permits may take together
    /// counts as that much, so that nothing waits for ever.
    pub async fn take(&self, bytes: u64) -> Permit {
        let units = self.units_for(bytes);
        let large = if units > SMALL_UNITS_MAX {
            let acquired = Arc::clone(&self.large).acquire_many_owned(units).await;
            Some(acquired.expect("the semaphore is never closed"))
        } else {
            None
        };
        let acquired = Arc::clone(&self.units).acquire_many_owned(units).await;
        Permit {
            _units: acquired.expect("the semaphore is never closed"),
            _large: large,
        }
    }

    /// Takes `bytes` if they are free now.
    #[must_use]
    pub fn try_take(&self, bytes: u64) -> Option<Permit> {
        let units = self.units_for(bytes);
        let try_acquire =
            |semaphore: &Arc<Semaphore>| Arc::clone(semaphore).try_acquire_many_owned(units).ok();
        let large = if units > SMALL_UNITS_MAX {
            Some(try_acquire(&self.large)?)
        } else {
            None
        };
        Some(Permit {
            _units: try_acquire(&self.units)?,
            _large: large,
        })
    }

    /// Bytes free now.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.units.available_permits() as u64 * UNIT_BYTES
    }

    fn units_for(&self, bytes: u64) -> u32 {
        let units = bytes
            .div_ceil(UNIT_BYTES)
            .max(1)
            .min(u64::from(self.large_max));
        u32::try_from(units).expect("bounded by large_max")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn permits_return_when_dropped_and_giants_do_not_wait_for_ever() {
        let budget = Budget::new((1 << 20) + 1);
        assert_eq!(budget.bytes(), 1 << 20);
        let giant = budget.take(u64::MAX).await;
        assert!(budget.try_take(128 << 10).is_none());
        drop(giant);
        let _small = budget.try_take(1).unwrap();
        assert_eq!(budget.free_bytes(), (1 << 20) - 4_096);
        let _giant = budget.try_take(u64::MAX).unwrap();
    }

    #[tokio::test]
    async fn large_permits_leave_a_quarter_to_small_ones() {
        let budget = Budget::new(1 << 20);
        let large: Vec<Permit> = std::iter::from_fn(|| budget.try_take(128 << 10)).collect();
        assert_eq!(large.len(), 6);
        let small: Vec<Permit> = std::iter::from_fn(|| budget.try_take(64 << 10)).collect();
        assert_eq!(small.len(), 4);
        assert_eq!(budget.free_bytes(), 0);
    }
}
