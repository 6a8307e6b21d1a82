//! Tags of objects and buckets: the header `x-amz-tagging` and the document `Tagging`.

use super::encoding::query_decode;
use super::xml::{Reader, Writer};
use crate::error::{Code, S3Error};
use crate::limits::{BUCKET_TAGS_MAX, OBJECT_TAGS_MAX, TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX};

/// Keys and values in the order of the keys, as S3 answers them.
pub type Tags = Vec<(String, String)>;

/// Whose tags.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tagged {
    Bucket,
    Object,
}

impl Tagged {
    fn count_max(self) -> usize {
        match self {
            Self::Bucket => BUCKET_TAGS_MAX,
            Self::Object => OBJECT_TAGS_MAX,
        }
    }
}

/// Reads `key=value&key=value` of the header `x-amz-tagging`, percent-encoded.
///
/// # Errors
/// `InvalidArgument` if it cannot be decoded, `InvalidTag` if a rule is broken.
pub fn parse_header(value: &str) -> Result<Tags, S3Error> {
    let refused = || {
        S3Error::invalid_argument(
            "x-amz-tagging",
            value,
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query \
             parameters without tag name duplicates.",
        )
    };
    let mut tags = Tags::new();
    for pair in value.split('&').filter(|pair| !pair.is_empty()) {
        let (key, tag_value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = query_decode(key).map_err(|_| refused())?;
        let tag_value = query_decode(tag_value).map_err(|_| refused())?;
        add(&mut tags, key, tag_value, Tagged::Object)?;
    }
    tags.sort_unstable();
    Ok(tags)
}

/// Reads a document `Tagging`.
///
/// # Errors
/// `MalformedXML`, or `InvalidTag` if a rule is broken.
pub fn parse_document(body: &[u8], whose: Tagged) -> Result<Tags, S3Error> {
    let mut reader = Reader::root(body, "Tagging")?;
    let mut tags = None;
    while let Some(name) = reader.child()? {
        match name.as_str() {
            "TagSet" if tags.is_none() => tags = Some(tag_set(&mut reader, whose)?),
            _ => return Err(Code::MalformedXml.into()),
        }
    }
    reader.finish()?;
    tags.ok_or_else(|| Code::MalformedXml.into())
}

/// The document `Tagging`.
#[must_use]
pub fn document(tags: &[(String, String)]) -> String {
    let mut writer = Writer::document();
    writer.open_root("Tagging");
    writer.open("TagSet");
    for (key, value) in tags {
        writer.open("Tag");
        writer.text("Key", key);
        writer.text("Value", value);
        writer.close("Tag");
    }
    writer.close("TagSet");
    writer.close("Tagging");
    writer.finish()
}

fn tag_set(reader: &mut Reader<'_>, whose: Tagged) -> Result<Tags, S3Error> {
    let mut tags = Tags::new();
    while let Some(name) = reader.child()? {
        if name != "Tag" {
            return Err(Code::MalformedXml.into());
        }
        let (mut key, mut value) = (None, None);
        while let Some(name) = reader.child()? {
            match name.as_str() {
                "Key" if key.is_none() => key = Some(reader.text()?),
                "Value" if value.is_none() => value = Some(reader.text()?),
                _ => return Err(Code::MalformedXml.into()),
            }
        }
        let (Some(key), Some(value)) = (key, value) else {
            return Err(Code::MalformedXml.into());
        };
        add(&mut tags, key, value, whose)?;
    }
    tags.sort_unstable();
    Ok(tags)
}

fn add(tags: &mut Tags, key: String, value: String, whose: Tagged) -> Result<(), S3Error> {
    let invalid = |message: &'static str, key: &str| {
        Err(S3Error::new(Code::InvalidTag)
            .with_message(message)
            .with_field("TagKey", key))
    };
    let key_chars = key.chars().count();
    if key_chars == 0 || key_chars > TAG_KEY_CHARS_MAX || !key.chars().all(is_allowed) {
        return invalid("The TagKey you have provided is invalid", &key);
    }
    if key
        .get(..4)
        .is_some_and(|start| start.eq_ignore_ascii_case("aws:"))
    {
        return invalid("System tags cannot be added or updated by requester", &key);
    }
    if value.chars().count() > TAG_VALUE_CHARS_MAX || !value.chars().all(is_allowed) {
        return invalid("The TagValue you have provided is invalid", &key);
    }
    if tags.iter().any(|(other, _)| *other == key) {
        return invalid("Cannot provide multiple Tags with the same key", &key);
    }
    if tags.len() == whose.count_max() {
        let message = match whose {
            Tagged::Bucket => "Bucket tag count cannot be greater than 50",
            Tagged::Object => "Object tags cannot be greater than 10",
        };
        return invalid(message, &key);
    }
    tags.push((key, value));
    Ok(())
}

/// Letters, digits and blanks of any script, and these signs (S3 user guide, "Categorizing your
/// storage using tags").
fn is_allowed(character: char) -> bool {
    character.is_alphanumeric()
        || character == ' '
        || matches!(character, '+' | '-' | '=' | '.' | '_' | ':' | '/' | '@')
        // Marks that letters of many scripts are written with.
        || (!character.is_ascii() && !character.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(tags: &Tags) -> Vec<(&str, &str)> {
        tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
    }

    #[test]
    fn header_and_document_say_the_same() {
        let tags = parse_header("g&a=1&b%20c=d%2Be+f").unwrap();
        assert_eq!(pairs(&tags), [("a", "1"), ("b c", "d+e f"), ("g", "")]);
        let document = document(&tags);
        assert_eq!(
            parse_document(document.as_bytes(), Tagged::Object).unwrap(),
            tags
        );
        assert_eq!(parse_header("").unwrap(), Tags::new());
        let empty = b"<Tagging><TagSet/></Tagging>";
        assert_eq!(parse_document(empty, Tagged::Bucket).unwrap(), Tags::new());
    }

    #[test]
    fn limits_are_exact() {
        let many = |count: usize| {
            let pairs: Vec<_> = (0..count).map(|i| format!("k{i}=v")).collect();
            parse_header(&pairs.join("&"))
        };
        many(10).unwrap();
        assert_eq!(many(11).unwrap_err().code(), Code::InvalidTag);
        let one = |key: usize, value: usize| {
            parse_header(&format!("{}={}", "\u{e4}".repeat(key), "b".repeat(value)))
        };
        one(128, 256).unwrap();
        for (key, value) in [(129, 0), (0, 1), (1, 257)] {
            assert_eq!(one(key, value).unwrap_err().code(), Code::InvalidTag);
        }
        for bad in ["a=1&a=2", "aws:x=1", "a%00=1", "a=%3Cb%3E"] {
            assert_eq!(
                parse_header(bad).unwrap_err().code(),
                Code::InvalidTag,
                "{bad}"
            );
        }
        assert_eq!(
            parse_header("a=%zz").unwrap_err().code(),
            Code::InvalidArgument
        );
    }

    #[test]
    fn other_documents_are_malformed() {
        for body in [
            "<Tagging/>",
            "<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>",
            "<Tagging><TagSet><Tag><Key>a</Key><Key>b</Key><Value/></Tag></TagSet></Tagging>",
            "<Tagging><TagSet/><TagSet/></Tagging>",
            "<TagSet/>",
            "",
        ] {
            let error = parse_document(body.as_bytes(), Tagged::Object).unwrap_err();
            assert_eq!(error.code(), Code::MalformedXml, "{body}");
        }
    }
}
