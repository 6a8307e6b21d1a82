//! What the three listings of a bucket's keys have in common: their parameters and elements.

use portico_backend::bucket::{ListItem, ListPage, ObjectRecord};

use super::{Context, about};
use crate::error::S3Error;
use crate::limits::PAGE_COUNT_MAX;
use crate::wire::encoding::{Keep, percent_encode};
use crate::wire::{Query, checksum, time, xml};

/// The parameters that every listing takes.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) prefix: String,
    pub(crate) delimiter: Option<String>,
    pub(crate) count_max: u32,
    /// Whether keys are answered in percent encoding: XML cannot hold every key.
    pub(crate) encoded: bool,
}

impl Selection {
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn parse(query: &Query) -> Result<Self, S3Error> {
        let encoded = encoded_keys(query)?;
        let delimiter = query.first("delimiter").filter(|text| !text.is_empty());
        Ok(Self {
            prefix: query.first("prefix").unwrap_or_default().to_owned(),
            delimiter: delimiter.map(str::to_owned),
            count_max: query
                .count("max-keys", PAGE_COUNT_MAX)?
                .unwrap_or(PAGE_COUNT_MAX),
            encoded,
        })
    }

    /// Writes an element that holds a key or a part of one.
    pub(crate) fn key(&self, writer: &mut xml::Writer, name: &str, key: &str) {
        if self.encoded {
            writer.text(name, &percent_encode(key, Keep::Listing));
        } else {
            writer.text(name, key);
        }
    }

    /// Writes the elements that say what was asked for, but for the prefix.
    pub(crate) fn echo(&self, cx: &Context<'_>, writer: &mut xml::Writer) {
        writer.text("Name", cx.record().name.as_str());
        if let Some(delimiter) = &self.delimiter {
            self.key(writer, "Delimiter", delimiter);
        }
        writer.number("MaxKeys", self.count_max.into());
        if self.encoded {
            writer.text("EncodingType", "url");
        }
    }

    /// Writes the common prefixes of a page.
    pub(crate) fn common_prefixes(&self, writer: &mut xml::Writer, page: &ListPage) {
        for item in &page.items {
            if let ListItem::CommonPrefix(prefix) = item {
                writer.open("CommonPrefixes");
                self.key(writer, "Prefix", prefix);
                writer.close("CommonPrefixes");
            }
        }
    }

    /// Writes the objects of a page of current objects.
    pub(crate) fn contents(
        &self,
        cx: &Context<'_>,
        writer: &mut xml::Writer,
        page: &ListPage,
        with_owner: bool,
    ) {
        let mut owners = Owners::default();
        for item in &page.items {
            if let ListItem::Object(record, _) = item {
                writer.open("Contents");
                self.key(writer, "Key", record.key.as_str());
                data_elements(writer, record);
                if with_owner {
                    owners.write(cx, writer, &record.about.owner);
                }
                writer.close("Contents");
            }
        }
    }
}

/// Whether keys shall be answered in percent encoding.
///
/// # Errors
/// `InvalidArgument` for another encoding.
pub(crate) fn encoded_keys(query: &Query) -> Result<bool, S3Error> {
    match query.first("encoding-type") {
        None | Some("") => Ok(false),
        Some("url") => Ok(true),
        Some(other) => Err(S3Error::invalid_argument(
            "encoding-type",
            other,
            "Invalid Encoding Method specified in Request",
        )),
    }
}

/// The key or common prefix at which a page ends.
pub(crate) fn last_key(page: &ListPage) -> Option<&str> {
    page.items.last().map(|item| match item {
        ListItem::CommonPrefix(prefix) => prefix.as_str(),
        ListItem::Object(record, _) => record.key.as_str(),
    })
}

/// Writes what a listing says about the data of an object.
pub(crate) fn data_elements(writer: &mut xml::Writer, record: &ObjectRecord) {
    writer.text("LastModified", &time::iso8601(record.modified_ms));
    writer.text("ETag", &about::quoted(&record.about.etag));
    if let Some(checksum) = &record.about.checksum {
        let algorithm = checksum::algorithm_name(checksum.algorithm);
        writer.text("ChecksumAlgorithm", algorithm);
        writer.text("ChecksumType", checksum::kind_name(checksum.kind));
    }
    writer.number("Size", record.size);
    writer.text("StorageClass", about::storage_class_name(&record.about));
}

/// Writes owners; mostly the same one again and again.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    last: Option<(String, String)>,
}

impl Owners {
    pub(crate) fn write(&mut self, cx: &Context<'_>, writer: &mut xml::Writer, id: &str) {
        let name = match self.last.take() {
            Some((last, name)) if last == id => name,
            Some(_) | None => cx.display_name(id),
        };
        writer.open("Owner");
        writer.text("ID", id);
        writer.text("DisplayName", &name);
        writer.close("Owner");
        self.last = Some((id.to_owned(), name));
    }
}
