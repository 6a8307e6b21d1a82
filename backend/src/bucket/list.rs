//! Listing: pages of keys, versions and uploads, with common prefixes skipped over as a whole.

use std::sync::Arc;

use bytes::Bytes;

use super::entry::{Entry, Upload};
use super::error::Error;
use super::record::{
    KEY_BYTES_MAX, Key, ListAfter, ListItem, ListPage, ListQuery, UploadItem, UploadPage,
    UploadQuery, VersionId,
};
use super::row::{self, ENTRY, RowRange, UPLOAD};
use super::scan::Scan;
use super::{BucketId, Shared, corrupt};
use crate::object::ReadStep;

/// Versions of one key that are searched for its null version at a time.
const VERSIONS_PER_READ: u32 = 1_000;

/// What a page is taken from.
#[derive(Clone, Copy, Debug)]
struct Listing<'a> {
    kind: u8,
    prefix: &'a str,
    delimiter: Option<&'a str>,
    count_max: u32,
}

impl Shared {
    pub(super) async fn list(
        self: &Arc<Self>,
        id: BucketId,
        query: &ListQuery,
    ) -> Result<ListPage, Error> {
        let mut page = ListPage::default();
        let listing = Listing {
            kind: ENTRY,
            prefix: &query.prefix,
            delimiter: query.delimiter.as_deref(),
            count_max: query.count_max,
        };
        let (start, mut last) = self.list_start(id, query, listing).await?;
        let Some(mut scan) = listing.scan(self, id, start) else {
            self.map(id).await?;
            return Ok(page);
        };
        while let Some((row, value)) = scan.next().await? {
            let decoded = Entry::decode(&row, &value);
            let record = decoded
                .map_err(|e| corrupt(&self.map_object(id), e))?
                .record;
            let key = record.key.clone();
            let newest = last.as_ref() != Some(&key);
            last = Some(key.clone());
            let hidden = record.delete_marker && !query.versions;
            if !hidden && page.items.len() as u64 >= u64::from(query.count_max) {
                page.truncated = true;
                break;
            }
            let group = listing.group(key.as_str());
            if hidden {
                scan.skip_to(&row::after_key(ENTRY, key.as_str()));
            } else if let Some(group) = group {
                scan.skip_to(&row::after_prefix(ENTRY, group));
                page.items.push(ListItem::CommonPrefix(group.to_owned()));
            } else {
                if !query.versions {
                    scan.skip_to(&row::after_key(ENTRY, key.as_str()));
                }
                page.items.push(ListItem::Object(Box::new(record), newest));
            }
        }
        Ok(page)
    }

    pub(super) async fn list_uploads(
        self: &Arc<Self>,
        id: BucketId,
        query: &UploadQuery,
    ) -> Result<UploadPage, Error> {
        let mut page = UploadPage::default();
        let listing = Listing {
            kind: UPLOAD,
            prefix: &query.prefix,
            delimiter: query.delimiter.as_deref(),
            count_max: query.count_max,
        };
        let start = match &query.after {
            None => None,
            Some((text, upload)) => {
                let behind = || row::after_key(UPLOAD, text);
                let group = listing.group(text);
                Some(match (group, upload, Key::new(text)) {
                    (Some(group), _, _) => row::after_prefix(UPLOAD, group),
                    (None, Some(upload), Some(key)) => row::after_row(&row::upload(&key, *upload)),
                    _ => behind(),
                })
            }
        };
        let Some(mut scan) = listing.scan(self, id, start) else {
            self.map(id).await?;
            return Ok(page);
        };
        while let Some((row, value)) = scan.next().await? {
            if page.items.len() as u64 >= u64::from(query.count_max) {
                page.truncated = true;
                break;
            }
            let decoded = Upload::decode(&row, &value);
            let record = decoded
                .map_err(|e| corrupt(&self.map_object(id), e))?
                .record;
            match listing.group(record.key.as_str()) {
                Some(group) => {
                    scan.skip_to(&row::after_prefix(UPLOAD, group));
                    page.items.push(UploadItem::CommonPrefix(group.to_owned()));
                }
                None => page.items.push(UploadItem::Upload(Box::new(record))),
            }
        }
        Ok(page)
    }

    /// The row from which on a page lists, and the key whose newest version came before.
    async fn list_start(
        &self,
        id: BucketId,
        query: &ListQuery,
        listing: Listing<'_>,
    ) -> Result<(Option<Bytes>, Option<Key>), Error> {
        let text = match &query.after {
            ListAfter::Start => return Ok((None, None)),
            ListAfter::Key(text) | ListAfter::Version(text, _) => text,
        };
        let group = listing.group(text);
        if let Some(group) = group {
            return Ok((Some(row::after_prefix(ENTRY, group)), None));
        }
        if let ListAfter::Version(text, version) = &query.after
            && let Some(key) = Key::new(text)
        {
            let sequence = match version {
                VersionId::Numbered(sequence) => Some(*sequence),
                VersionId::Null => self.null_sequence(id, &key).await?,
            };
            if let Some(sequence) = sequence {
                return Ok((Some(row::after_row(&row::entry(&key, sequence))), Some(key)));
            }
        }
        Ok((Some(row::after_key(ENTRY, text)), None))
    }

    async fn null_sequence(&self, id: BucketId, key: &Key) -> Result<Option<u64>, Error> {
        let range = row::key_range(ENTRY, key);
        let step = ReadStep::OmapScan {
            start: range.start.clone(),
            end: Some(range.end.clone()),
            keys_only: false,
            count_max: VERSIONS_PER_READ.min(self.scan_rows_max()),
        };
        let place = range.start.clone();
        let (object, _, view) = self.read_at(id, row::place(&place), [step]).await?;
        for (row, value) in view.rows_in(&range) {
            let record = Entry::decode(row, value)
                .map_err(|e| corrupt(&object, e))?
                .record;
            if record.version == VersionId::Null {
                return Ok(Some(record.sequence));
            }
        }
        Ok(None)
    }
}

impl Listing<'_> {
    /// `None`: there is nothing to list.
    fn scan(&self, shared: &Arc<Shared>, id: BucketId, start: Option<Bytes>) -> Option<Scan> {
        if self.prefix.len() > KEY_BYTES_MAX || self.count_max == 0 {
            return None;
        }
        let first = Bytes::from(row::row_at(self.kind, self.prefix));
        let range = RowRange {
            start: start.map_or(first.clone(), |start| start.max(first)),
            end: row::after_prefix(self.kind, self.prefix),
        };
        // One more tells whether the page is the last.
        let wanted = self.count_max.saturating_add(1);
        let scan = Scan::new(shared, id, range, wanted);
        Some(match self.delimiter {
            None => scan,
            Some(_) => scan.skipping(),
        })
    }

    /// The common prefix that a key is rolled up into.
    fn group<'a>(&self, key: &'a str) -> Option<&'a str> {
        let delimiter = self.delimiter.filter(|text| !text.is_empty())?;
        let rest = key.strip_prefix(self.prefix)?;
        let at = rest.find(delimiter)?;
        key.get(..self.prefix.len() + at + delimiter.len())
    }
}
