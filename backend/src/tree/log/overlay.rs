//! Rows as they are now: what was changed and not yet applied lies over what the store holds.
//!
//! Pure: no I/O and no time. A row that is not known here has to be loaded; a row that was changed
//! keeps each change with its sequence number until it is applied, so that changes whose logging
//! failed can be taken back.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::super::row::{Row, Value};

/// Rows that are kept although the store holds the same: some 300 bytes each.
const CLEAN_ROWS_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub(in crate::tree) struct Overlay {
    slots: HashMap<Row, Slot>,
    /// Rows with changes.
    dirty: BTreeSet<Row>,
    /// Rows without, the longest known first. May name rows that are dirty or gone since.
    clean: VecDeque<Row>,
    /// Rows that are being loaded. A change takes the ticket away: what was read may be older.
    loading: HashMap<Row, u64>,
    ticket: u64,
    clean_rows_max: Option<usize>,
}

#[derive(Debug, Default)]
struct Slot {
    /// What the store holds, if that is known; in it `None` if it holds nothing.
    base: Option<Option<Value>>,
    /// By ascending sequence number.
    changes: Vec<(u64, Option<Value>)>,
}

/// The last change of a row up to some sequence number.
#[derive(Clone, Debug)]
pub(in crate::tree) struct Change {
    pub(in crate::tree) row: Row,
    pub(in crate::tree) sequence: u64,
    /// `None`: the row is removed.
    pub(in crate::tree) value: Option<Value>,
}

impl Overlay {
    /// The row as it is now, and the sequence number of the change that made it so, 0 for what is
    /// applied. `None` if it is not known here.
    pub(in crate::tree) fn get(&self, row: Row) -> Option<(Option<&Value>, u64)> {
        let slot = self.slots.get(&row)?;
        if let Some((sequence, value)) = slot.changes.last() {
            return Some((value.as_ref(), *sequence));
        }
        slot.base.as_ref().map(|value| (value.as_ref(), 0))
    }

    pub(in crate::tree) fn change(&mut self, sequence: u64, row: Row, value: Option<Value>) {
        self.loading.remove(&row);
        let slot = self.slots.entry(row).or_default();
        assert!(
            slot.changes.last().is_none_or(|(last, _)| *last < sequence),
            "changes of a row come in order"
        );
        slot.changes.push((sequence, value));
        self.dirty.insert(row);
    }

    /// Takes back every change behind `committed`.
    pub(in crate::tree) fn roll_back(&mut self, committed: u64) {
        let rows: Vec<Row> = self.dirty.iter().copied().collect();
        for row in rows {
            if let Some(slot) = self.slots.get_mut(&row) {
                slot.changes.retain(|(sequence, _)| *sequence <= committed);
            }
            self.settle(row);
        }
    }

    /// What is to be applied: of each row its last change up to `barrier`.
    pub(in crate::tree) fn changes(&self, barrier: u64) -> Vec<Change> {
        let last = |row: &Row| {
            let changes = &self.slots.get(row)?.changes;
            let within = |change: &&(u64, _)| change.0 <= barrier;
            let (sequence, value) = changes.iter().rev().find(within)?;
            Some(Change {
                row: *row,
                sequence: *sequence,
                value: value.clone(),
            })
        };
        self.dirty.iter().filter_map(last).collect()
    }

    /// The store holds this change now.
    pub(in crate::tree) fn applied(&mut self, change: Change) {
        let Some(slot) = self.slots.get_mut(&change.row) else {
            return;
        };
        slot.changes
            .retain(|(sequence, _)| *sequence > change.sequence);
        slot.base = Some(change.value);
        self.settle(change.row);
    }

    pub(in crate::tree) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// The changed rows of a directory from a hash on, as they are now.
    pub(in crate::tree) fn changed_entries(
        &self,
        directory: u64,
        from: u64,
    ) -> impl Iterator<Item = (u64, Option<&Value>, u64)> {
        let row = |hash| Row::Entries { directory, hash };
        self.dirty.range(row(from)..=row(u64::MAX)).map(|found| {
            let Row::Entries { hash, .. } = found else {
                unreachable!("between two rows of a directory lie only such");
            };
            let (value, sequence) = self.get(*found).expect("a changed row is known");
            (*hash, value, sequence)
        })
    }

    /// Of the changed rows of orphans: those that are there, some at most, and those that are not
    /// any more.
    pub(in crate::tree) fn orphans(&self, count_max: usize) -> (Vec<u64>, BTreeSet<u64>) {
        let mut there = Vec::new();
        let mut gone = BTreeSet::new();
        for row in self.dirty.range(Row::Orphan(0)..=Row::Orphan(u64::MAX)) {
            let Row::Orphan(number) = row else {
                unreachable!("between two rows of orphans lie only such");
            };
            match self.get(*row) {
                Some((Some(_), _)) if there.len() < count_max => there.push(*number),
                Some((Some(_), _)) => {}
                Some((None, _)) | None => {
                    gone.insert(*number);
                }
            }
        }
        (there, gone)
    }

    /// Somebody starts to read the row from the store. The ticket is handed back with the answer.
    pub(in crate::tree) fn load_begin(&mut self, row: Row) -> u64 {
        self.ticket += 1;
        self.loading.insert(row, self.ticket);
        self.ticket
    }

    /// What was read, unless the row was changed since or is read again.
    pub(in crate::tree) fn load_end(&mut self, row: Row, ticket: u64, value: Option<Value>) {
        if self.loading.get(&row) != Some(&ticket) {
            return;
        }
        self.loading.remove(&row);
        let slot = self.slots.entry(row).or_default();
        if slot.base.is_none() {
            slot.base = Some(value);
            self.settle(row);
        }
    }

    pub(in crate::tree) fn load_failed(&mut self, row: Row, ticket: u64) {
        if self.loading.get(&row) == Some(&ticket) {
            self.loading.remove(&row);
        }
    }

    /// A row without changes is clean, or unknown.
    fn settle(&mut self, row: Row) {
        let Some(slot) = self.slots.get(&row) else {
            return;
        };
        if !slot.changes.is_empty() {
            return;
        }
        self.dirty.remove(&row);
        if slot.base.is_none() {
            self.slots.remove(&row);
            return;
        }
        self.clean.push_back(row);
        let clean_rows_max = self.clean_rows_max.unwrap_or(CLEAN_ROWS_MAX);
        while self.clean.len() > clean_rows_max {
            let Some(oldest) = self.clean.pop_front() else {
                return;
            };
            let slot = self.slots.get(&oldest);
            if slot.is_some_and(|slot| slot.changes.is_empty()) {
                self.slots.remove(&oldest);
            }
        }
    }

    /// Keeps fewer rows, so that tests see them loaded again.
    #[cfg(test)]
    pub(in crate::tree) fn keep_at_most(&mut self, clean_rows_max: usize) {
        self.clean_rows_max = Some(clean_rows_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was read before a change is older than what the store holds after it.
    #[test]
    fn a_row_that_was_changed_while_it_was_read_is_read_again() {
        let mut overlay = Overlay::default();
        overlay.keep_at_most(0);
        let row = Row::Orphan(7);
        let ticket = overlay.load_begin(row);
        overlay.change(1, row, Some(Value::Orphan));
        for change in overlay.changes(1) {
            overlay.applied(change);
        }
        assert!(overlay.get(row).is_none(), "it is not kept");
        overlay.keep_at_most(10);
        overlay.load_end(row, ticket, None);
        assert!(overlay.get(row).is_none(), "what was read is older");
        let ticket = overlay.load_begin(row);
        overlay.load_end(row, ticket, Some(Value::Orphan));
        assert_eq!(overlay.get(row), Some((Some(&Value::Orphan), 0)));
    }
}
