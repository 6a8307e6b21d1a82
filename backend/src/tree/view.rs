//! A call's view of the tree: it reads rows and changes them, and nothing else sees the changes
//! before all of them are staged as one record.
//!
//! Pure. What a call needs and is not known here stops it as `Missing`; it is loaded and the call
//! begins anew. So a call decides on one state of the tree, and holds no locks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::access::Credentials;
use super::cookie::{self, SLOTS_MAX};
use super::error::TreeError;
use super::header::Header;
use super::log::overlay::Overlay;
use super::log::state::Rows;
use super::node::{Around, Attributes, Before, Handle};
use super::record::{Entry, Inode, Kind, Time, is_name};
use super::row::{Row, Totals, Value};

/// Why a call ends before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// Rows have to be loaded.
    Missing,
    Refused(TreeError),
}

impl<E: Into<TreeError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// What every call says.
#[derive(Clone, Debug)]
pub struct Caller {
    pub credentials: Credentials,
    /// The server's time.
    pub now: Time,
}

#[derive(Debug)]
pub(super) struct View<'a> {
    overlay: &'a Overlay,
    pub(super) tree: u64,
    header: &'a Header,
    epoch: u64,
    changes: BTreeMap<Row, Option<Value>>,
    missing: Vec<Row>,
    /// The last change of what was read.
    barrier: u64,
    removes: bool,
}

impl<'a> View<'a> {
    pub(super) fn new(overlay: &'a Overlay, tree: u64, header: &'a Header, epoch: u64) -> Self {
        Self {
            overlay,
            tree,
            header,
            epoch,
            changes: BTreeMap::new(),
            missing: Vec::new(),
            barrier: 0,
            removes: false,
        }
    }

    /// What was changed, what is missing, what the answer waits for, and whether a full store
    /// should take it.
    pub(super) fn finish(self) -> (Rows, Vec<Row>, u64, bool) {
        let rows = self.changes.into_iter().collect();
        (rows, self.missing, self.barrier, self.removes)
    }

    /// The change gives back space, or is needed for that: a full store takes it all the same.
    pub(super) fn removes(&mut self) {
        self.removes = true;
    }

    /// The call only asked what would be.
    pub(super) fn forget_changes(&mut self) {
        self.changes.clear();
    }

    /// Asks for rows that will be needed together, so that they are loaded together.
    pub(super) fn want(&mut self, rows: impl IntoIterator<Item = Row>) -> Result<(), Stop> {
        let missing = rows
            .into_iter()
            .filter(|row| !self.changes.contains_key(row) && self.overlay.get(*row).is_none());
        self.missing.extend(missing);
        if self.missing.is_empty() {
            Ok(())
        } else {
            Err(Stop::Missing)
        }
    }

    /// The node of a handle.
    pub(super) fn node(&mut self, handle: Handle) -> Result<Arc<Inode>, Stop> {
        if handle.tree != self.tree {
            return Err(TreeError::Stale.into());
        }
        match self.inode(handle.inode)? {
            Some(node) if node.generation == handle.generation && node.link_count > 0 => Ok(node),
            Some(_) | None => Err(TreeError::Stale.into()),
        }
    }

    pub(super) fn directory(&mut self, handle: Handle) -> Result<Arc<Inode>, Stop> {
        let node = self.node(handle)?;
        if node.kind == Kind::Directory {
            Ok(node)
        } else {
            Err(TreeError::NotDirectory.into())
        }
    }

    /// A node by its number; `None` if there is none.
    pub(super) fn inode(&mut self, number: u64) -> Result<Option<Arc<Inode>>, Stop> {
        match self.row(Row::Inode(number))? {
            None => Ok(None),
            Some(Value::Inode(node)) => Ok(Some(node)),
            Some(_) => Err(odd(Row::Inode(number))),
        }
    }

    /// The node that an entry leads to.
    pub(super) fn target(&mut self, entry: &Entry) -> Result<Arc<Inode>, Stop> {
        match self.inode(entry.inode)? {
            Some(node) if node.link_count > 0 => Ok(node),
            Some(_) | None => Err(TreeError::corrupt("an entry that leads nowhere").into()),
        }
    }

    pub(super) fn entry(&mut self, directory: u64, name: &[u8]) -> Result<Option<Entry>, Stop> {
        let entries = self.entries(self.entries_row(directory, name))?;
        let mut entries = entries.iter().map(|(_, entry)| entry);
        Ok(entries.find(|entry| entry.name == name).cloned())
    }

    /// Adds a name that is not there.
    pub(super) fn link(&mut self, directory: u64, entry: Entry) -> Result<(), Stop> {
        let row = self.entries_row(directory, &entry.name);
        let mut entries = (*self.entries(row)?).clone();
        let is_taken = |slot: &u8| entries.iter().any(|(taken, _)| taken == slot);
        let free = (0..SLOTS_MAX).find(|slot| !is_taken(slot));
        let slot = free.ok_or(TreeError::NoSpace)?;
        entries.push((slot, entry));
        entries.sort_unstable_by_key(|(slot, _)| *slot);
        self.set(row, Some(Value::Entries(entries.into())));
        Ok(())
    }

    /// Lets a name that is there lead to another node. Its cookie stays.
    pub(super) fn relink(&mut self, directory: u64, entry: &Entry) -> Result<(), Stop> {
        let row = self.entries_row(directory, &entry.name);
        let mut entries = (*self.entries(row)?).clone();
        for (_, found) in &mut entries {
            if found.name == entry.name {
                found.clone_from(entry);
            }
        }
        self.set(row, Some(Value::Entries(entries.into())));
        Ok(())
    }

    pub(super) fn unlink(&mut self, directory: u64, name: &[u8]) -> Result<(), Stop> {
        let row = self.entries_row(directory, name);
        let mut entries = (*self.entries(row)?).clone();
        entries.retain(|(_, entry)| entry.name != name);
        let value = (!entries.is_empty()).then(|| Value::Entries(entries.into()));
        self.set(row, value);
        Ok(())
    }

    pub(super) fn set_inode(&mut self, number: u64, node: Option<Inode>) {
        let value = node.map(|node| Value::Inode(node.into()));
        self.set(Row::Inode(number), value);
    }

    /// Marks a node whose objects remain to be removed, or are.
    pub(super) fn set_orphan(&mut self, number: u64, is_orphan: bool) {
        self.set(Row::Orphan(number), is_orphan.then_some(Value::Orphan));
    }

    /// Whether something of the node remains to be removed.
    pub(super) fn is_orphan(&mut self, number: u64) -> Result<bool, Stop> {
        Ok(self.row(Row::Orphan(number))?.is_some())
    }

    pub(super) fn totals(&mut self) -> Result<Totals, Stop> {
        match self.row(Row::Totals)? {
            Some(Value::Totals(totals)) => Ok(totals),
            _ => Err(odd(Row::Totals)),
        }
    }

    /// A number for a new node, counted.
    pub(super) fn new_number(&mut self) -> Result<u64, Stop> {
        let totals = self.totals()?;
        let quota = self.header.quota.inodes;
        if quota.is_some_and(|quota| totals.inode_count >= quota) {
            return Err(TreeError::Quota.into());
        }
        let number = totals.inode_next;
        let counted = Totals {
            inode_next: number + 1,
            inode_count: totals.inode_count + 1,
            ..totals
        };
        self.set(Row::Totals, Some(Value::Totals(counted)));
        Ok(number)
    }

    /// Counts bytes that a node takes more, or less.
    pub(super) fn charge(&mut self, before: u64, after: u64) -> Result<(), Stop> {
        if before == after {
            return Ok(());
        }
        let totals = self.totals()?;
        let used_bytes = (totals.used_bytes + after).saturating_sub(before);
        let quota = self.header.quota.bytes;
        if after > before && quota.is_some_and(|quota| used_bytes > quota) {
            return Err(TreeError::Quota.into());
        }
        let totals = Totals {
            used_bytes,
            ..totals
        };
        self.set(Row::Totals, Some(Value::Totals(totals)));
        Ok(())
    }

    /// Forgets nodes that are gone.
    pub(super) fn uncount(&mut self, count: u64) -> Result<(), Stop> {
        let totals = self.totals()?;
        let totals = Totals {
            inode_count: totals.inode_count.saturating_sub(count),
            ..totals
        };
        self.set(Row::Totals, Some(Value::Totals(totals)));
        Ok(())
    }

    /// A generation for new nodes: numbers are never given twice, so it need not differ.
    pub(super) fn generation(&self) -> u32 {
        u32::try_from(self.epoch & 0xffff_ffff).expect("32 bits")
    }

    pub(super) fn attributes(&self, number: u64, node: &Inode) -> Attributes {
        Attributes::new(self.tree, number, node)
    }

    /// Changes a node with its times, and tells how it was and is.
    pub(super) fn change_inode(
        &mut self,
        number: u64,
        node: &Inode,
        now: Time,
        change: impl FnOnce(&mut Inode),
    ) -> Around {
        let mut after = node.clone();
        change(&mut after);
        after.changed = later(now, node.changed);
        after.change_counter += 1;
        let around = Around {
            before: Before::from(node),
            after: self.attributes(number, &after),
        };
        self.set_inode(number, Some(after));
        around
    }

    /// Changes a directory whose entries change: its time of modification goes along.
    pub(super) fn change_directory(
        &mut self,
        number: u64,
        node: &Inode,
        now: Time,
        change: impl FnOnce(&mut Inode),
    ) -> Around {
        self.change_inode(number, node, now, |after| {
            change(after);
            after.modified = later(now, node.changed);
        })
    }

    fn entries_row(&self, directory: u64, name: &[u8]) -> Row {
        let hash = cookie::hash(&self.header.hash_key, name);
        Row::Entries { directory, hash }
    }

    fn entries(&mut self, row: Row) -> Result<Arc<Vec<(u8, Entry)>>, Stop> {
        match self.row(row)? {
            None => Ok(Arc::default()),
            Some(Value::Entries(entries)) => Ok(entries),
            Some(_) => Err(odd(row)),
        }
    }

    fn row(&mut self, row: Row) -> Result<Option<Value>, Stop> {
        if let Some(value) = self.changes.get(&row) {
            return Ok(value.clone());
        }
        let Some((value, sequence)) = self.overlay.get(row) else {
            self.missing.push(row);
            return Err(Stop::Missing);
        };
        self.barrier = self.barrier.max(sequence);
        Ok(value.cloned())
    }

    fn set(&mut self, row: Row, value: Option<Value>) {
        self.changes.insert(row, value);
    }
}

/// A time of change: greater than the one before, though clocks may stand still or go back.
pub(super) fn later(now: Time, before: Time) -> Time {
    if now > before {
        return now;
    }
    if before.nanoseconds < 999_999_999 {
        return Time {
            nanoseconds: before.nanoseconds + 1,
            ..before
        };
    }
    Time {
        seconds: before.seconds.saturating_add(1),
        nanoseconds: 0,
    }
}

/// # Errors
/// What is wrong with a name for an entry that shall be made or changed.
pub(super) fn check_name(name: &[u8]) -> Result<(), TreeError> {
    if name.len() > super::record::NAME_BYTES_MAX {
        return Err(TreeError::NameTooLong);
    }
    if is_name(name) {
        Ok(())
    } else {
        Err(TreeError::Invalid)
    }
}

fn odd(row: Row) -> Stop {
    TreeError::corrupt(&format!("the row {row:?}")).into()
}
