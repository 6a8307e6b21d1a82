//! Bytes in flight: a permit is taken before a payload is read and dropped after its reply is
//! written, so a slow store slows its clients down instead of filling the memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit unit: a semaphore counts in 32 bits.
const UNIT_BYTES: u64 = 4_096;

/// A bound on bytes in flight. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget {
    units: Arc<Semaphore>,
    units_max: u32,
}

/// Bytes taken from a budget until dropped.
#[derive(Debug)]
pub struct Permit {
    _units: OwnedSemaphorePermit,
}

impl Budget {
    /// # Panics
    /// If `bytes` is less than 4 KiB or more than 8 TiB: budgets come from a checked configuration.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let units_max = u32::try_from(bytes / UNIT_BYTES).expect("at most 2^32 units");
        assert!(units_max > 0, "a budget holds at least one unit");
        let units = Arc::new(Semaphore::new(
            usize::try_from(units_max).expect("32 bits fit"),
        ));
        Self { units, units_max }
    }

    /// Waits until `bytes` are free, in order of asking. More than the whole budget counts as the
    /// whole budget, so that nothing waits for ever.
    pub async fn take(&self, bytes: u64) -> Permit {
        let units = self.units_for(bytes);
        let acquired = Arc::clone(&self.units).acquire_many_owned(units).await;
        Permit {
            _units: acquired.expect("the semaphore is never closed"),
        }
    }

    /// Takes `bytes` if they are free now.
    #[must_use]
    pub fn try_take(&self, bytes: u64) -> Option<Permit> {
        let units = self.units_for(bytes);
        let acquired = Arc::clone(&self.units).try_acquire_many_owned(units).ok()?;
        Some(Permit { _units: acquired })
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
            .min(u64::from(self.units_max));
        u32::try_from(units).expect("bounded by units_max")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn permits_return_when_dropped_and_giants_do_not_wait_for_ever() {
        let budget = Budget::new(16 * 1024);
        let giant = budget.take(u64::MAX).await;
        assert!(budget.try_take(1).is_none());
        drop(giant);
        let _small = budget.try_take(1).unwrap();
        assert_eq!(budget.free_bytes(), 12 * 1024);
    }
}
