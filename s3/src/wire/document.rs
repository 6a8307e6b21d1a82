//! Documents that clients send, read into plain data: the lists of CompleteMultipartUpload and
//! DeleteObjects. Elements that are not known are passed over, as S3 does; the counts are bounded.

use portico_backend::bucket::record::{ChecksumAlgorithm, EtagMatch, Precondition};

use super::checksum::{self, ALGORITHMS};
use super::precondition;
use super::time::{parse_http_date, parse_iso8601};
use super::xml::Reader;
use crate::error::{Code, S3Error};
use crate::limits::{PAGE_COUNT_MAX, PART_NUMBER_MAX};

/// A part as a client names it for completion.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CompletedPart {
    /// 1 to 10,000.
    pub number: u16,
    /// Without quotes.
    pub etag: String,
    /// As many as the client names; one is usual.
    pub checksums: Vec<(ChecksumAlgorithm, Vec<u8>)>,
}

/// What DeleteObjects asks for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DeleteList {
    /// Whether only failures are answered.
    pub quiet: bool,
    /// 1 to 1,000.
    pub objects: Vec<DeleteEntry>,
}

/// One key to delete.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DeleteEntry {
    /// As sent: it may break the rules for keys.
    pub key: String,
    pub version: Option<String>,
    pub precondition: Precondition,
}

/// Reads a document `CompleteMultipartUpload`.
///
/// # Errors
/// `MalformedXML` also without parts; `InvalidPartOrder` if a number is less than the one before.
/// Of several parts with the same number the last one counts.
pub fn completed_parts(body: &[u8]) -> Result<Vec<CompletedPart>, S3Error> {
    let mut reader = Reader::root(body, "CompleteMultipartUpload")?;
    let mut parts: Vec<CompletedPart> = Vec::new();
    while let Some(name) = reader.child()? {
        if name != "Part" {
            reader.skip()?;
            continue;
        }
        let part = completed_part(&mut reader)?;
        match parts.last_mut() {
            Some(last) if last.number > part.number => {
                return Err(Code::InvalidPartOrder.into());
            }
            // A client that sends a part again while it is still sending it names it twice.
            Some(last) if last.number == part.number => *last = part,
            Some(_) | None => parts.push(part),
        }
    }
    reader.finish()?;
    if parts.is_empty() {
        return Err(malformed());
    }
    Ok(parts)
}

/// Reads a document `Delete`.
///
/// # Errors
/// `MalformedXML` also without objects or with more than 1,000.
pub fn delete_list(body: &[u8]) -> Result<DeleteList, S3Error> {
    let mut reader = Reader::root(body, "Delete")?;
    let mut list = DeleteList::default();
    while let Some(name) = reader.child()? {
        match name.as_str() {
            "Object" => {
                if list.objects.len() as u64 == u64::from(PAGE_COUNT_MAX) {
                    return Err(malformed());
                }
                list.objects.push(delete_entry(&mut reader)?);
            }
            "Quiet" => list.quiet = reader.text()?.trim().eq_ignore_ascii_case("true"),
            _ => reader.skip()?,
        }
    }
    reader.finish()?;
    if list.objects.is_empty() {
        return Err(malformed());
    }
    Ok(list)
}

fn completed_part(reader: &mut Reader<'_>) -> Result<CompletedPart, S3Error> {
    let mut part = CompletedPart::default();
    while let Some(name) = reader.child()? {
        match name.as_str() {
            "PartNumber" => part.number = part_number(&reader.text()?)?,
            "ETag" => reader
                .text()?
                .trim()
                .trim_matches('"')
                .clone_into(&mut part.etag),
            other => match checksum_element(other) {
                Some(algorithm) => {
                    let text = reader.text()?;
                    let value = checksum::parse_value(algorithm, text.trim())
                        .ok_or_else(|| checksum::invalid_value(other))?;
                    part.checksums.push((algorithm, value));
                }
                None => reader.skip()?,
            },
        }
    }
    if part.number == 0 {
        return Err(malformed());
    }
    Ok(part)
}

fn part_number(text: &str) -> Result<u16, S3Error> {
    match text.trim().parse() {
        Ok(number) if (1..=PART_NUMBER_MAX).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(S3Error::invalid_argument(
            "PartNumber",
            text,
            "PartNumber must be an integer between 1 and 10000, inclusive",
        )),
    }
}

fn checksum_element(name: &str) -> Option<ChecksumAlgorithm> {
    ALGORITHMS
        .into_iter()
        .find(|algorithm| checksum::element_name(*algorithm) == name)
}

fn delete_entry(reader: &mut Reader<'_>) -> Result<DeleteEntry, S3Error> {
    let mut entry = DeleteEntry::default();
    let mut named = false;
    while let Some(name) = reader.child()? {
        match name.as_str() {
            // Which of two is meant nobody knows, and what is deleted is gone.
            "Key" if named => return Err(malformed()),
            "VersionId" if entry.version.is_some() => return Err(malformed()),
            "Key" => {
                entry.key = reader.text()?;
                named = true;
            }
            "VersionId" => entry.version = Some(reader.text()?).filter(|id| !id.is_empty()),
            "ETag" => entry.precondition.if_match = etag(&reader.text()?),
            "Size" => {
                let text = reader.text()?;
                let size = text.trim().parse().map_err(|_| malformed())?;
                entry.precondition.size_is = Some(size);
            }
            "LastModifiedTime" => {
                let text = reader.text()?;
                let time = parse_http_date(&text).or_else(|| parse_iso8601(text.trim()));
                entry.precondition.modified_is_ms = Some(time.ok_or_else(malformed)?);
            }
            _ => reader.skip()?,
        }
    }
    if named { Ok(entry) } else { Err(malformed()) }
}

fn etag(text: &str) -> Option<EtagMatch> {
    (!text.trim().is_empty()).then(|| precondition::etag(text))
}

fn malformed() -> S3Error {
    Code::MalformedXml.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_in_order() {
        let body = br#"<?xml version="1.0"?>
            <CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
            <Part><ETag>&quot;a&quot;</ETag><PartNumber>1</PartNumber></Part>
            <Part><PartNumber>10000</PartNumber><ETag>b</ETag>
            <ChecksumCRC32>y/Q5Jg==</ChecksumCRC32><New>x</New></Part>
            </CompleteMultipartUpload>"#;
        let parts = completed_parts(body).unwrap();
        assert_eq!((parts[0].number, parts[0].etag.as_str()), (1, "a"));
        assert_eq!((parts[1].number, parts[1].etag.as_str()), (10_000, "b"));
        let twice =
            b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>a</ETag></Part>\
            <Part><PartNumber>1</PartNumber><ETag>b</ETag></Part></CompleteMultipartUpload>";
        let last = completed_parts(twice).unwrap();
        assert_eq!((last.len(), last[0].etag.as_str()), (1, "b"));
        let crc = (ChecksumAlgorithm::Crc32, vec![0xcb, 0xf4, 0x39, 0x26]);
        assert_eq!(parts[1].checksums, [crc]);
    }

    #[test]
    fn faults_of_part_lists_have_their_codes() {
        let code = |parts: &str| {
            let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
            completed_parts(body.as_bytes()).unwrap_err().code()
        };
        let part = |number: &str| format!("<Part><PartNumber>{number}</PartNumber></Part>");
        assert_eq!(code(""), Code::MalformedXml);
        assert_eq!(code("<Part/>"), Code::MalformedXml);
        assert_eq!(code(&(part("2") + &part("1"))), Code::InvalidPartOrder);
        for number in ["0", "10001", "-1", "x", "65537"] {
            assert_eq!(code(&part(number)), Code::InvalidArgument, "{number}");
        }
        let bad = "<Part><PartNumber>1</PartNumber><ChecksumSHA1>bad</ChecksumSHA1></Part>";
        assert_eq!(code(bad), Code::BadDigest);
        assert_eq!(completed_parts(b"").unwrap_err().code(), Code::MalformedXml);
    }

    #[test]
    fn ten_thousand_parts_with_checksums_fit() {
        use std::fmt::Write as _;
        let mut body = "<CompleteMultipartUpload>".to_owned();
        for number in 1..=10_000 {
            write!(
                body,
                "<Part><ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag>\
                 <ChecksumSHA256>47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=</ChecksumSHA256>\
                 <PartNumber>{number}</PartNumber></Part>"
            )
            .unwrap();
        }
        let whole = body.clone() + "</CompleteMultipartUpload>";
        assert_eq!(completed_parts(whole.as_bytes()).unwrap().len(), 10_000);
    }

    #[test]
    fn a_thousand_keys_may_be_deleted_at_once() {
        let list = |count: usize| {
            let objects = "<Object><Key>k</Key></Object>".repeat(count);
            delete_list(format!("<Delete>{objects}</Delete>").as_bytes())
        };
        assert_eq!(list(1_000).unwrap().objects.len(), 1_000);
        for count in [0, 1_001] {
            assert_eq!(list(count).unwrap_err().code(), Code::MalformedXml);
        }
        let body = b"<Delete><Quiet>true</Quiet><Object><Key>a&#xd;b</Key>\
            <VersionId>null</VersionId><ETag>&quot;e&quot;</ETag><Size>7</Size>\
            <LastModifiedTime>1994-11-06T08:49:37Z</LastModifiedTime></Object></Delete>";
        let list = delete_list(body).unwrap();
        assert!(list.quiet);
        let entry = &list.objects[0];
        assert_eq!(entry.key, "a\rb");
        assert_eq!(entry.version.as_deref(), Some("null"));
        assert_eq!(
            entry.precondition,
            Precondition {
                if_match: Some(EtagMatch::OneOf(vec!["e".to_owned()])),
                if_none_match: None,
                size_is: Some(7),
                modified_is_ms: Some(784_111_777_000),
            }
        );
        let nameless = b"<Delete><Object><VersionId>1</VersionId></Object></Delete>";
        assert_eq!(
            delete_list(nameless).unwrap_err().code(),
            Code::MalformedXml
        );
    }
}
