//! READDIR and READDIRPLUS: what lies in a directory, page by page.
//!
//! Entries stand in the order of their cookies, which depend on the names: those that stay are
//! told once, whatever comes and goes between two pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::super::access::Access;
use super::super::cookie::{HASH_END, cookie, parts};
use super::super::error::TreeError;
use super::super::header::corrupt_row;
use super::super::log::state::Landed;
use super::super::node::{Attributes, Handle};
use super::super::place::{number_key, number_of, shard_of};
use super::super::record::{COOKIE_MIN, Inode, Kind};
use super::super::row::{Row, Value};
use super::super::serve::Tree;
use super::super::view::Caller;
use crate::error::{Error, ErrorKind};
use crate::object::{ReadOp, ReadResult, ReadStep};

/// An entry as it is listed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    pub name: Bytes,
    /// Where the listing goes on behind it.
    pub cookie: u64,
    pub inode: u64,
    pub kind: Kind,
    /// If they were asked for, and the node is still there.
    pub attributes: Option<Attributes>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listing {
    /// By ascending cookies, "." and ".." first.
    pub entries: Vec<Listed>,
    /// Whether nothing is behind the last one.
    pub is_end: bool,
    pub directory: Attributes,
}

/// Rows of a directory, and whether more follow in the same shard.
type Rows = (BTreeMap<u64, Value>, bool);

impl Tree {
    /// At most `count_max` entries behind `cookie`, 0 for the beginning.
    ///
    /// # Errors
    /// `BadCookie` for one that no listing gives; `NotDirectory`; `Access`.
    pub async fn readdir(
        &self,
        caller: &Caller,
        directory: Handle,
        after: u64,
        count_max: u32,
        with_attributes: bool,
    ) -> Result<Listing, TreeError> {
        let node = self
            .look(|view| {
                let node = view.directory(directory)?;
                caller.credentials.check(&node, Access::READ)?;
                Ok(node)
            })
            .await?;
        let count_max = count_max.max(1) as usize;
        let mut entries = dots(directory, &node, after)?;
        let mut is_end = false;
        let mut at = parts(after).0;
        while entries.len() < count_max && !is_end {
            let (rows, next) = self.rows(directory.inode, at, count_max).await?;
            for (hash, value) in rows {
                push_entries(&mut entries, hash, &value, after);
            }
            at = next;
            is_end = at >= HASH_END;
        }
        if entries.len() > count_max {
            entries.truncate(count_max);
            is_end = false;
        }
        if with_attributes {
            self.add_attributes(&mut entries).await?;
        }
        let attributes = self.getattr(directory).await?;
        Ok(Listing {
            entries,
            is_end,
            directory: attributes,
        })
    }

    /// Rows of a directory from a hash on, and the hash behind the last of them.
    async fn rows(
        &self,
        directory: u64,
        from: u64,
        count_max: usize,
    ) -> Result<(BTreeMap<u64, Value>, u64), TreeError> {
        let shared = &self.shared;
        loop {
            let Some(node) = self.look(|view| view.inode(directory)).await? else {
                return Ok((BTreeMap::new(), HASH_END));
            };
            let (_, end) = shard_of(from, node.shard_count.max(1));
            // What is changed comes first: a change that is applied in between is seen either way.
            let (changed, landed) = {
                let mut state = shared.state();
                state.check_served()?;
                let mut barrier = 0;
                let mut changed = Vec::new();
                for (hash, value, sequence) in state.overlay.changed_entries(directory, from) {
                    if hash >= end {
                        break;
                    }
                    barrier = barrier.max(sequence);
                    changed.push((hash, value.cloned()));
                }
                (changed, state.wait(barrier))
            };
            if let Some(landed) = landed {
                match landed.await {
                    Ok(Landed::Done) => {}
                    Ok(Landed::Again | Landed::Full) => continue,
                    Ok(Landed::Stopped) | Err(_) => {
                        shared.state().check_served()?;
                        return Err(Error::new(ErrorKind::Unavailable, "tree: listing").into());
                    }
                }
            }
            let (mut rows, more) = self.stored(directory, &node, from, count_max).await?;
            let now = self.look(|view| view.inode(directory)).await?;
            if now.is_none_or(|now| now.shard_count != node.shard_count) {
                // It was split, and rows went elsewhere.
                continue;
            }
            let last = rows.keys().next_back().copied();
            let next = last.filter(|_| more).map_or(end, |last| last + 1);
            for (hash, value) in changed {
                if hash >= next {
                    break;
                }
                match value {
                    Some(value) => rows.insert(hash, value),
                    None => rows.remove(&hash),
                };
            }
            return Ok((rows, next));
        }
    }

    async fn stored(
        &self,
        directory: u64,
        node: &Inode,
        from: u64,
        count_max: usize,
    ) -> Result<Rows, TreeError> {
        let shared = &self.shared;
        let (start, end) = shard_of(from, node.shard_count.max(1));
        let object = shared.place.shard(directory, start);
        let keys_max = shared.store.limits(&object.pool).omap_keys_max;
        let op = ReadOp::new([ReadStep::OmapScan {
            start: number_key(from),
            end: Some(number_key(end)),
            keys_only: false,
            count_max: u32::try_from(count_max).unwrap_or(u32::MAX).min(keys_max),
        }]);
        let odd = || TreeError::corrupt(&object.to_string());
        let page = match shared.read(&object, op).await {
            Ok(output) => match output.results.into_iter().next() {
                Some(ReadResult::OmapPage(page)) => page,
                _ => return Err(odd()),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Rows::default()),
            Err(error) => return Err(error.into()),
        };
        let mut rows = BTreeMap::new();
        for (key, value) in &page.entries {
            let hash = number_of(key).ok_or_else(odd)?;
            let row = Row::Entries { directory, hash };
            let value = Value::decode(row, value).map_err(|error| corrupt_row(row, error))?;
            rows.insert(hash, value);
        }
        Ok((rows, page.more))
    }

    async fn add_attributes(&self, entries: &mut [Listed]) -> Result<(), TreeError> {
        let numbers: Arc<[u64]> = entries.iter().map(|entry| entry.inode).collect();
        let found = self
            .look(|view| {
                view.want(numbers.iter().map(|number| Row::Inode(*number)))?;
                let mut found = Vec::with_capacity(numbers.len());
                for number in numbers.iter() {
                    let node = view.inode(*number)?.filter(|node| node.link_count > 0);
                    found.push(node.map(|node| view.attributes(*number, &node)));
                }
                Ok(found)
            })
            .await?;
        for (entry, attributes) in entries.iter_mut().zip(found) {
            entry.attributes = attributes;
        }
        Ok(())
    }
}

/// "." and "..", as far as they are behind `after`.
fn dots(directory: Handle, node: &Inode, after: u64) -> Result<Vec<Listed>, TreeError> {
    let (hash, _) = parts(after);
    if hash >= HASH_END || (hash == 0 && after >= COOKIE_MIN) {
        return Err(TreeError::BadCookie);
    }
    let all = [(&b"."[..], directory.inode), (b"..", node.parent)];
    let listed = all
        .into_iter()
        .zip(1..)
        .map(|((name, inode), cookie)| Listed {
            name: Bytes::from_static(name),
            cookie,
            inode,
            kind: Kind::Directory,
            attributes: None,
        });
    Ok(listed.filter(|entry| entry.cookie > after).collect())
}

fn push_entries(entries: &mut Vec<Listed>, hash: u64, value: &Value, after: u64) {
    let Value::Entries(found) = value else {
        return;
    };
    for (slot, entry) in found.iter() {
        let cookie = cookie(hash, *slot);
        if cookie > after {
            entries.push(Listed {
                name: entry.name.clone(),
                cookie,
                inode: entry.inode,
                kind: entry.kind,
                attributes: None,
            });
        }
    }
}
