//! A bucket as a map in memory: no shards, no sessions, no failures.

use std::collections::BTreeMap;

use portico_backend::bucket::{
    BucketUsage, Error, ListAfter, ListQuery, Precondition, PreconditionFailure,
};

/// A bucket's keys and uploads. Cheap enough to clone before a step whose outcome may be unknown.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ModelBucket {
    pub objects: BTreeMap<String, ModelObject>,
    /// By key and upload id.
    pub uploads: BTreeMap<(String, u128), BTreeMap<u16, ModelPart>>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ModelObject {
    pub data: Vec<u8>,
    pub etag: String,
    pub tags: Vec<(String, String)>,
    /// Sizes of the parts; empty unless it came from an upload.
    pub parts: Vec<u64>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelPart {
    pub data: Vec<u8>,
    pub etag: String,
}

/// A page of keys and common prefixes; these end with the delimiter.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ModelPage {
    pub names: Vec<String>,
    pub truncated: bool,
}

impl ModelBucket {
    /// # Errors
    /// Says how the precondition fails.
    pub fn put(
        &mut self,
        key: &str,
        object: ModelObject,
        precondition: &Precondition,
    ) -> Result<(), PreconditionFailure> {
        self.check(key, precondition)?;
        self.objects.insert(key.to_owned(), object);
        Ok(())
    }

    /// # Errors
    /// Says how the precondition fails.
    pub fn delete(
        &mut self,
        key: &str,
        precondition: &Precondition,
    ) -> Result<bool, PreconditionFailure> {
        self.check(key, precondition)?;
        Ok(self.objects.remove(key).is_some())
    }

    /// Makes an object of the parts with these numbers.
    ///
    /// # Panics
    /// If the upload or a part is not there.
    pub fn complete(&mut self, key: &str, upload: u128, numbers: &[u16], etag: &str) {
        let parts = self
            .uploads
            .remove(&(key.to_owned(), upload))
            .expect("the upload is there");
        let mut object = ModelObject {
            etag: etag.to_owned(),
            ..ModelObject::default()
        };
        for number in numbers {
            let data = &parts[number].data;
            object.data.extend_from_slice(data);
            object.parts.push(data.len() as u64);
        }
        self.objects.insert(key.to_owned(), object);
    }

    /// All keys, one by one.
    #[must_use]
    pub fn list(&self, query: &ListQuery) -> ModelPage {
        let after = match &query.after {
            ListAfter::Start => None,
            ListAfter::Key(text) | ListAfter::Version(text, _) => Some(text.as_str()),
        };
        let mut page = ModelPage::default();
        for key in self.objects.keys() {
            let Some(rest) = key.strip_prefix(&query.prefix) else {
                continue;
            };
            let name = match &query.delimiter {
                Some(delimiter) => match rest.find(delimiter.as_str()) {
                    Some(at) => &key[..query.prefix.len() + at + delimiter.len()],
                    None => key,
                },
                None => key,
            };
            if after.is_some_and(|after| name <= after)
                || page.names.last().is_some_and(|last| last == name)
            {
                continue;
            }
            if page.names.len() as u64 == u64::from(query.count_max) {
                page.truncated = query.count_max > 0;
                break;
            }
            page.names.push(name.to_owned());
        }
        page
    }

    #[must_use]
    pub fn usage(&self) -> BucketUsage {
        let sizes = self.objects.values().map(|object| object.data.len() as u64);
        BucketUsage {
            object_count: self.objects.len() as u64,
            bytes: sizes.sum(),
        }
    }

    fn check(&self, key: &str, precondition: &Precondition) -> Result<(), PreconditionFailure> {
        let etag = self.objects.get(key).map(|object| object.etag.as_str());
        match (&precondition.if_match, &precondition.if_none_match, etag) {
            (Some(_), _, None) => Err(PreconditionFailure::NoVersion),
            (Some(one), _, Some(etag)) if !one.matches(etag) => Err(PreconditionFailure::NotMet),
            (_, Some(none), Some(etag)) if none.matches(etag) => Err(PreconditionFailure::NotMet),
            _ => Ok(()),
        }
    }
}

/// Whether an error leaves the outcome of a change open.
#[must_use]
pub fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.kind().is_perhaps_applied())
}
