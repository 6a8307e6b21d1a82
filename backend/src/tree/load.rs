//! Reading rows that are not known here.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::header::{corrupt, corrupt_row};
use super::row::{Row, Value};
use super::shared::{AT_ONCE, Shared};
use crate::error::{Error, ErrorKind};
use crate::object::{ObjectId, ReadOp, ReadResult, ReadStep};

/// A row on its way, with the ticket for its answer.
#[derive(Debug)]
struct Wanted {
    row: Row,
    key: Bytes,
    ticket: u64,
    /// Shards of its directory when the reading began: it may be split meanwhile.
    shard_count: u32,
}

type Wants = BTreeMap<ObjectId, Vec<Wanted>>;

impl Shared {
    /// Makes rows known. One that is changed meanwhile is left alone, and the rows of a directory
    /// that is not known are left for the next time: whoever needs them asks again.
    ///
    /// # Errors
    /// What the store says; `Corrupt` if a row does not read.
    pub(super) async fn load(&self, rows: &[Row]) -> Result<(), Error> {
        let keys_max = self.store.limits(&self.place.pools.meta).omap_keys_max as usize;
        let mut parts = Vec::new();
        for (object, wants) in self.wants(rows) {
            let mut wants = wants.into_iter().peekable();
            while wants.peek().is_some() {
                let part: Vec<Wanted> = wants.by_ref().take(keys_max).collect();
                parts.push((object.clone(), part));
            }
        }
        stream::iter(parts)
            .map(|(object, part)| self.load_part(object, part))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    fn wants(&self, rows: &[Row]) -> Wants {
        let mut state = self.state();
        let overlay = &mut state.overlay;
        let mut wants = Wants::new();
        for row in rows {
            let mut row = *row;
            let mut shard_count = 1;
            if let Row::Entries { directory, .. } = row {
                match overlay.get(Row::Inode(directory)) {
                    Some((Some(Value::Inode(node)), _)) => shard_count = node.shard_count.max(1),
                    Some(_) => {}
                    None => row = Row::Inode(directory),
                }
            }
            if overlay.get(row).is_some() {
                continue;
            }
            let (object, key) = self.place.row(row, shard_count);
            let ticket = overlay.load_begin(row);
            wants.entry(object).or_default().push(Wanted {
                row,
                key,
                ticket,
                shard_count,
            });
        }
        wants
    }

    async fn load_part(&self, object: ObjectId, wants: Vec<Wanted>) -> Result<(), Error> {
        let keys = wants.iter().map(|want| want.key.clone()).collect();
        let op = ReadOp::new([ReadStep::OmapGet { keys }]);
        let values = match self.read(&object, op).await {
            Ok(output) => match output.results.into_iter().next() {
                Some(ReadResult::OmapValues(values)) if values.len() == wants.len() => Ok(values),
                _ => Err(corrupt(&object.to_string())),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![None; wants.len()]),
            Err(error) => Err(error),
        };
        let mut state = self.state();
        let overlay = &mut state.overlay;
        let values = match values {
            Ok(values) => values,
            Err(error) => {
                for want in &wants {
                    overlay.load_failed(want.row, want.ticket);
                }
                return Err(error);
            }
        };
        for (want, value) in wants.iter().zip(values) {
            let value = value.map(|bytes| Value::decode(want.row, &bytes));
            let value = value.transpose().map_err(|e| corrupt_row(want.row, e))?;
            let is_elsewhere = match want.row {
                Row::Entries { directory, .. } => !matches!(
                    overlay.get(Row::Inode(directory)),
                    Some((Some(Value::Inode(node)), _)) if node.shard_count == want.shard_count
                ),
                Row::Inode(_) | Row::Orphan(_) | Row::Totals => false,
            };
            if is_elsewhere {
                overlay.load_failed(want.row, want.ticket);
            } else {
                overlay.load_end(want.row, want.ticket, value);
            }
        }
        Ok(())
    }
}
