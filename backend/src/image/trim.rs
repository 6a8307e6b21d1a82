//! Taking away the data of an image behind a size, or all of it.

use std::sync::Arc;

use futures_util::{TryStreamExt, stream};

use super::create::remove_object;
use crate::error::{Error, ErrorKind};
use crate::object::{
    ListCursor, ObjectId, ObjectName, ObjectStore, Pool, Priority, WriteOp, WriteStep,
};
use crate::stripe::Layout;

/// Objects cut or removed at a time.
const AT_ONCE: usize = 16;

/// Names listed at a time.
const PAGE_NAMES: u32 = 1_000;

/// The data of one image.
#[derive(Clone, Debug)]
pub(super) struct Extent<'a> {
    pub(super) store: &'a dyn ObjectStore,
    pub(super) pool: &'a Pool,
    pub(super) prefix: Arc<str>,
    pub(super) layout: Layout,
}

impl Extent<'_> {
    /// Takes away what lies in `size..end`. An image is mostly holes: where the pool has fewer
    /// objects than the range, those are listed instead.
    pub(super) async fn trim(&self, size: u64, end: u64) -> Result<(), Error> {
        if size >= end {
            return Ok(());
        }
        let first = self.layout.first_touched(size);
        let count = self.layout.object_count(end);
        let usage = self.store.usage(self.pool).await?;
        if count.saturating_sub(first) <= usage.object_count.saturating_add(AT_ONCE as u64) {
            return stream::iter((first..count).map(Ok))
                .try_for_each_concurrent(AT_ONCE, |number| self.cut(number, size))
                .await;
        }
        let mut cursor = ListCursor::start();
        loop {
            let page = self.store.list(self.pool, cursor, PAGE_NAMES).await?;
            let numbers = page
                .names
                .iter()
                .filter(|name| name.prefix() == &*self.prefix)
                .filter_map(ObjectName::number)
                .filter(|number| (first..count).contains(number));
            stream::iter(numbers.map(Ok))
                .try_for_each_concurrent(AT_ONCE, |number| self.cut(number, size))
                .await?;
            match page.next {
                Some(next) => cursor = next,
                None => return Ok(()),
            }
        }
    }

    async fn cut(&self, number: u64, size: u64) -> Result<(), Error> {
        let name = ObjectName::numbered(&self.prefix, number);
        let object = ObjectId::new(self.pool, name);
        let keep = self.layout.kept_bytes(number, size);
        if keep == 0 {
            return remove_object(self.store, &object).await;
        }
        if keep == u64::from(self.layout.object_size()) {
            return Ok(());
        }
        let op =
            WriteOp::new([WriteStep::Truncate { size: keep }]).with_priority(Priority::Background);
        match self.store.write(&object, op).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}
