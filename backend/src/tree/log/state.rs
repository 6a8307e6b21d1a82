//! What the log knows: rows, what waits to be logged, who waits for it.
//!
//! Pure: the tasks of `commit.rs` and `apply.rs` do what it says and tell it how that went.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::super::row::{Row, Value};
use super::overlay::Overlay;
use super::record::{KeptReply, Record};
use crate::error::{Error, ErrorKind};

/// Records that stay in the log although they are applied, for the answers in them.
const KEPT_RECORDS: usize = 4_096;
const KEPT_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of the log that are not applied, above which changes wait.
const UNAPPLIED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Changes that are applied at once rather than after a while.
const APPLY_ROWS: usize = 1_024;

#[derive(Debug)]
pub(in crate::tree) struct State {
    pub(in crate::tree) overlay: Overlay,
    /// What is not logged yet, by ascending sequence.
    queue: VecDeque<Staged>,
    /// What is in the log: sequence and bytes.
    logged: VecDeque<(u64, u64)>,
    logged_bytes: u64,
    /// Bytes of what is logged and not applied.
    unapplied_bytes: u64,
    sequence_next: u64,
    /// All up to here is logged.
    committed: u64,
    /// All up to here is in the objects.
    applied: u64,
    /// All up to here left the log.
    trimmed: u64,
    waiters: Vec<(u64, oneshot::Sender<Landed>)>,
    /// The store refused a record for want of space: each goes alone, so that what removes may
    /// draw on what the store keeps back.
    pub(in crate::tree) is_full: bool,
    /// Nothing is applied and removed any more but by who closes the tree.
    pub(in crate::tree) is_closing: bool,
    stopped: Option<(ErrorKind, String)>,
}

#[derive(Debug)]
pub(in crate::tree) struct Staged {
    pub(in crate::tree) sequence: u64,
    pub(in crate::tree) record: Bytes,
    pub(in crate::tree) removes: bool,
    landed: Option<oneshot::Sender<Landed>>,
}

/// How it went with a change, or with what a call has read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::tree) enum Landed {
    /// It is logged.
    Done,
    /// The store was full before it came to this one, which may fare better.
    Again,
    /// The store has no space for it.
    Full,
    /// Perhaps it is logged, perhaps not: the tree is served no more.
    Stopped,
}

impl State {
    /// The state behind a log that ends with `committed` and holds `records`, none of them applied
    /// as far as is known.
    pub(in crate::tree) fn recovered(
        trimmed: u64,
        committed: u64,
        records: Vec<(u64, u64, Record)>,
    ) -> (Self, Vec<KeptReply>) {
        let mut state = Self {
            overlay: Overlay::default(),
            queue: VecDeque::new(),
            logged: VecDeque::new(),
            logged_bytes: 0,
            unapplied_bytes: 0,
            sequence_next: committed + 1,
            committed,
            applied: trimmed,
            trimmed,
            waiters: Vec::new(),
            is_full: false,
            is_closing: false,
            stopped: None,
        };
        let mut replies = Vec::new();
        for (sequence, bytes, record) in records {
            state.note_logged(sequence, bytes);
            replies.extend(record.reply);
            for (row, value) in record.rows {
                state.overlay.change(sequence, row, value);
            }
        }
        (state, replies)
    }

    /// Makes the change visible and puts it in line. Whoever reads it waits until it is logged.
    pub(in crate::tree) fn stage(
        &mut self,
        record: Record,
        removes: bool,
    ) -> (u64, oneshot::Receiver<Landed>) {
        let sequence = self.sequence_next;
        self.sequence_next += 1;
        let (landed, receiver) = oneshot::channel();
        self.queue.push_back(Staged {
            sequence,
            record: record.encode(),
            removes,
            landed: Some(landed),
        });
        for (row, value) in record.rows {
            self.overlay.change(sequence, row, value);
        }
        (sequence, receiver)
    }

    /// Told when everything up to `sequence` is logged; `None` if it is.
    pub(in crate::tree) fn wait(&mut self, sequence: u64) -> Option<oneshot::Receiver<Landed>> {
        if sequence <= self.committed {
            return None;
        }
        let (landed, receiver) = oneshot::channel();
        self.waiters.push((sequence, landed));
        Some(receiver)
    }

    /// What goes into the log next: sequences and records from the head of the line, within these
    /// bounds but one at least.
    pub(in crate::tree) fn batch(
        &self,
        count_max: usize,
        bytes_max: u64,
    ) -> Vec<(u64, Bytes, bool)> {
        let count_max = if self.is_full { 1 } else { count_max };
        let mut bytes = 0;
        let mut batch = Vec::new();
        for staged in self.queue.iter().take(count_max) {
            bytes += staged.record.len() as u64;
            if bytes > bytes_max && !batch.is_empty() {
                break;
            }
            batch.push((staged.sequence, staged.record.clone(), staged.removes));
        }
        batch
    }

    /// Everything up to `sequence` is logged, and everything up to `trimmed` left the log.
    pub(in crate::tree) fn committed(&mut self, sequence: u64, trimmed: u64) {
        self.committed = sequence;
        while let Some(mut staged) = self.queue.pop_front_if(|next| next.sequence <= sequence) {
            if !staged.removes {
                self.is_full = false;
            }
            self.note_logged(staged.sequence, staged.record.len() as u64);
            tell(staged.landed.take(), Landed::Done);
        }
        for (waited, landed) in std::mem::take(&mut self.waiters) {
            if waited <= sequence {
                tell(Some(landed), Landed::Done);
            } else {
                self.waiters.push((waited, landed));
            }
        }
        self.trimmed = self.trimmed.max(trimmed);
        while let Some((_, bytes)) = self.logged.pop_front_if(|(first, _)| *first <= trimmed) {
            self.logged_bytes -= bytes;
        }
    }

    /// The store has no space for the batch up to `sequence`, and certainly did not take it.
    /// All that is not logged is taken back; only what can't fare better fails.
    pub(in crate::tree) fn refused_as_full(&mut self, sequence: u64) {
        let was_alone = self.is_full;
        self.is_full = true;
        self.overlay.roll_back(self.committed);
        for mut staged in std::mem::take(&mut self.queue) {
            let fails = staged.sequence <= sequence && (!staged.removes || was_alone);
            let landed = if fails { Landed::Full } else { Landed::Again };
            tell(staged.landed.take(), landed);
        }
        for (_, landed) in std::mem::take(&mut self.waiters) {
            tell(Some(landed), Landed::Again);
        }
    }

    /// Every later call fails so. The first reason counts.
    pub(in crate::tree) fn stop(&mut self, kind: ErrorKind, reason: &str) {
        if self.stopped.is_none() {
            self.stopped = Some((kind, reason.to_owned()));
        }
        for mut staged in std::mem::take(&mut self.queue) {
            tell(staged.landed.take(), Landed::Stopped);
        }
        for (_, landed) in std::mem::take(&mut self.waiters) {
            tell(Some(landed), Landed::Stopped);
        }
    }

    /// # Errors
    /// Why the tree is served no more.
    pub(in crate::tree) fn check_served(&self) -> Result<(), Error> {
        match &self.stopped {
            None => Ok(()),
            Some((kind, reason)) => Err(Error::new(*kind, format!("tree: {reason}"))),
        }
    }

    /// Whether what goes on in the background ends.
    pub(in crate::tree) fn is_ending(&self) -> bool {
        self.is_closing || self.stopped.is_some()
    }

    /// The sequence number of the last change, logged or not.
    pub(in crate::tree) fn last(&self) -> u64 {
        self.sequence_next - 1
    }

    pub(in crate::tree) fn committed_up_to(&self) -> u64 {
        self.committed
    }

    pub(in crate::tree) fn applied_up_to(&self) -> u64 {
        self.applied
    }

    pub(in crate::tree) fn is_queue_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Everything up to `barrier` is in the objects.
    pub(in crate::tree) fn applied(&mut self, barrier: u64) {
        self.applied = self.applied.max(barrier);
        let unapplied = self.logged.iter().rev();
        let unapplied = unapplied.take_while(|(sequence, _)| *sequence > self.applied);
        self.unapplied_bytes = unapplied.map(|(_, bytes)| bytes).sum();
    }

    /// What may leave the log: all that is applied but the last answers.
    pub(in crate::tree) fn trim_to(&self) -> u64 {
        let mut count = self.logged.len();
        let mut bytes = self.logged_bytes;
        let mut trim_to = self.trimmed;
        for (sequence, record_bytes) in &self.logged {
            let is_kept = count <= KEPT_RECORDS && bytes <= KEPT_BYTES;
            if is_kept || *sequence > self.applied {
                break;
            }
            trim_to = *sequence;
            count -= 1;
            bytes -= record_bytes;
        }
        trim_to
    }

    /// Whether a change may come: the log has room.
    pub(in crate::tree) fn has_room(&self) -> bool {
        self.unapplied_bytes < UNAPPLIED_BYTES_MAX
    }

    /// Whether so much is to be applied that it should not wait.
    pub(in crate::tree) fn is_apply_due(&self) -> bool {
        self.overlay.dirty_count() >= APPLY_ROWS || self.unapplied_bytes >= UNAPPLIED_BYTES_MAX / 4
    }

    fn note_logged(&mut self, sequence: u64, bytes: u64) {
        self.logged.push_back((sequence, bytes));
        self.logged_bytes += bytes;
        self.unapplied_bytes += bytes;
    }
}

/// Who waited may have gone.
fn tell(landed: Option<oneshot::Sender<Landed>>, how: Landed) {
    if let Some(landed) = landed {
        landed.send(how).ok();
    }
}

/// The last value of rows, as a change of a view.
pub(in crate::tree) type Rows = Vec<(Row, Option<Value>)>;
