//! Logging: whatever waits goes into the log with one operation, and then the next.

use bytes::Bytes;

use super::super::place::number_key;
use super::super::shared::Shared;
use crate::error::ErrorKind;
use crate::object::{Guard, WriteOp, WriteStep, XattrName};

/// The last sequence that was ever logged, 8 bytes big-endian. An operation that comes late, after
/// a later one, does nothing.
pub(super) const LAST: XattrName = XattrName::new("portico.tree.last");

/// All up to here left the log, 8 bytes big-endian. A record that comes back late is none.
pub(super) const TRIMMED: XattrName = XattrName::new("portico.tree.trimmed");

/// Payload bytes of one operation: a log of many small records, or a few large ones.
const BATCH_BYTES_MAX: u64 = 1024 * 1024;

impl Shared {
    /// Logs until the tree is served no more.
    pub(in crate::tree) async fn log_all(&self) {
        loop {
            let is_empty = {
                let state = self.state();
                if state.check_served().is_err() {
                    return;
                }
                state.is_queue_empty()
            };
            if is_empty {
                self.staged.notified().await;
            } else {
                self.log_batch().await;
            }
        }
    }

    async fn log_batch(&self) {
        let limits = self.store.limits(&self.place.pools.meta);
        let (batch, trim_to, is_full) = {
            let state = self.state();
            // The operation holds few keys besides.
            let count_max = limits.omap_keys_max as usize - 8;
            let batch = state.batch(count_max, BATCH_BYTES_MAX);
            (batch, state.trim_to(), state.is_full)
        };
        let Some((last, _, removes)) = batch.last() else {
            return;
        };
        let (last, is_forced) = (*last, is_full && *removes);
        let entry = |(sequence, record, _): (u64, Bytes, bool)| (number_key(sequence), record);
        let entries = batch.into_iter().map(entry).collect();
        let mut op = self.log_op(last, trim_to);
        op.steps.insert(0, WriteStep::OmapSet { entries });
        if is_forced {
            op = op.forced_when_full();
        }
        let logged = self.write(&self.place.log(), op).await;
        match logged {
            Ok(_) => {
                let mut state = self.state();
                state.committed(last, trim_to);
                self.logged.notify_one();
                if state.is_apply_due() {
                    self.apply_due.notify_one();
                }
            }
            Err((error, false)) if error.kind() == ErrorKind::NoSpace => {
                self.state().refused_as_full(last);
            }
            Err((error, _)) => self.stop(&error),
        }
    }

    /// An operation on the log that ends with `last`, and takes away what is before `trim_to`.
    fn log_op(&self, last: u64, trim_to: u64) -> WriteOp {
        let guard = Guard::XattrAtMost {
            name: LAST,
            value: last,
        };
        let op = WriteOp::new([
            WriteStep::OmapRemoveRange {
                start: number_key(0),
                end: number_key(trim_to + 1),
            },
            WriteStep::epoch_set(LAST, last),
            WriteStep::epoch_set(TRIMMED, trim_to),
        ]);
        self.claim.apply(op.guarded(guard))
    }

    /// Empties the log of what is applied, so that whoever opens the tree has nothing to apply.
    /// Answers that were kept go too.
    pub(in crate::tree) async fn trim_all(&self) -> Result<(), crate::error::Error> {
        let (last, applied) = {
            let state = self.state();
            (state.committed_up_to(), state.applied_up_to())
        };
        let op = self.log_op(last, applied).forced_when_full();
        let trimmed = self.write(&self.place.log(), op).await;
        trimmed.map(|_| ()).map_err(|(error, _)| error)
    }
}
