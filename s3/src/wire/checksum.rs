//! Checksums of the S3 API, computed while data streams by, and put together from those of parts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, checksum_combine};
use http::HeaderMap;
use md5::Digest as _;
use portico_backend::bucket::record::{Checksum, ChecksumAlgorithm, ChecksumKind};
use ring::digest;

use crate::error::{Code, S3Error};

/// Every algorithm, in the order of the names.
pub const ALGORITHMS: [ChecksumAlgorithm; 5] = [
    ChecksumAlgorithm::Crc32,
    ChecksumAlgorithm::Crc32c,
    ChecksumAlgorithm::Crc64Nvme,
    ChecksumAlgorithm::Sha1,
    ChecksumAlgorithm::Sha256,
];

/// The name in headers and documents.
#[must_use]
pub fn algorithm_name(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Crc32 => "CRC32",
        ChecksumAlgorithm::Crc32c => "CRC32C",
        ChecksumAlgorithm::Crc64Nvme => "CRC64NVME",
        ChecksumAlgorithm::Sha1 => "SHA1",
        ChecksumAlgorithm::Sha256 => "SHA256",
    }
}

/// The header and trailer that carries it.
#[must_use]
pub fn header_name(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Crc32 => "x-amz-checksum-crc32",
        ChecksumAlgorithm::Crc32c => "x-amz-checksum-crc32c",
        ChecksumAlgorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
        ChecksumAlgorithm::Sha1 => "x-amz-checksum-sha1",
        ChecksumAlgorithm::Sha256 => "x-amz-checksum-sha256",
    }
}

/// The element of documents that carries it.
#[must_use]
pub fn element_name(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Crc32 => "ChecksumCRC32",
        ChecksumAlgorithm::Crc32c => "ChecksumCRC32C",
        ChecksumAlgorithm::Crc64Nvme => "ChecksumCRC64NVME",
        ChecksumAlgorithm::Sha1 => "ChecksumSHA1",
        ChecksumAlgorithm::Sha256 => "ChecksumSHA256",
    }
}

/// `COMPOSITE` or `FULL_OBJECT`.
#[must_use]
pub fn kind_name(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::Composite => "COMPOSITE",
        ChecksumKind::FullObject => "FULL_OBJECT",
    }
}

/// Reads the name of an algorithm, in either case.
///
/// # Errors
/// `InvalidRequest` for another.
pub fn parse_algorithm(name: &str) -> Result<ChecksumAlgorithm, S3Error> {
    ALGORITHMS
        .into_iter()
        .find(|algorithm| algorithm_name(*algorithm).eq_ignore_ascii_case(name))
        .ok_or_else(|| {
            S3Error::new(Code::InvalidRequest).with_message(
                "Checksum algorithm provided is unsupported. Please try again with any of the \
                 valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]",
            )
        })
}

/// Reads `COMPOSITE` or `FULL_OBJECT`.
///
/// # Errors
/// `InvalidRequest` for another.
pub fn parse_kind(name: &str) -> Result<ChecksumKind, S3Error> {
    match name {
        "COMPOSITE" => Ok(ChecksumKind::Composite),
        "FULL_OBJECT" => Ok(ChecksumKind::FullObject),
        _ => Err(S3Error::new(Code::InvalidRequest)
            .with_message("Value for x-amz-checksum-type header is invalid.")),
    }
}

/// What the algorithm is used as when the client does not say: CRC64NVME only exists over the
/// whole object, the others are taken over the checksums of parts.
#[must_use]
pub fn default_kind(algorithm: ChecksumAlgorithm) -> ChecksumKind {
    match algorithm {
        ChecksumAlgorithm::Crc64Nvme => ChecksumKind::FullObject,
        ChecksumAlgorithm::Crc32
        | ChecksumAlgorithm::Crc32c
        | ChecksumAlgorithm::Sha1
        | ChecksumAlgorithm::Sha256 => ChecksumKind::Composite,
    }
}

/// Whether multipart uploads may use the algorithm that way.
#[must_use]
pub fn is_valid_kind(algorithm: ChecksumAlgorithm, kind: ChecksumKind) -> bool {
    match algorithm {
        ChecksumAlgorithm::Crc32 | ChecksumAlgorithm::Crc32c => true,
        ChecksumAlgorithm::Crc64Nvme => kind == ChecksumKind::FullObject,
        ChecksumAlgorithm::Sha1 | ChecksumAlgorithm::Sha256 => kind == ChecksumKind::Composite,
    }
}

/// Bytes of a checksum's value.
#[must_use]
pub fn value_bytes(algorithm: ChecksumAlgorithm) -> usize {
    match algorithm {
        ChecksumAlgorithm::Crc32 | ChecksumAlgorithm::Crc32c => 4,
        ChecksumAlgorithm::Crc64Nvme => 8,
        ChecksumAlgorithm::Sha1 => 20,
        ChecksumAlgorithm::Sha256 => 32,
    }
}

/// Reads the base64 of a value; a composite's ends with `-` and the number of parts.
#[must_use]
pub fn parse_value(algorithm: ChecksumAlgorithm, text: &str) -> Option<Vec<u8>> {
    let value = STANDARD.decode(text).ok()?;
    (value.len() == value_bytes(algorithm)).then_some(value)
}

/// The value as the API writes it; `part_count` is written behind composites of objects.
#[must_use]
pub fn value_text(checksum: &Checksum, part_count: u32) -> String {
    let text = STANDARD.encode(&checksum.value);
    match checksum.kind {
        ChecksumKind::Composite if part_count > 0 => format!("{text}-{part_count}"),
        ChecksumKind::Composite | ChecksumKind::FullObject => text,
    }
}

/// The checksum that a request states in a header; at most one may be.
///
/// # Errors
/// Those of [`stated_text`]; `BadDigest` if the value is not of its algorithm.
pub fn stated(headers: &HeaderMap) -> Result<Option<(ChecksumAlgorithm, Vec<u8>)>, S3Error> {
    let Some((algorithm, text)) = stated_text(headers)? else {
        return Ok(None);
    };
    let value = parse_value(algorithm, text);
    let value = value.ok_or_else(|| invalid_value(header_name(algorithm)))?;
    Ok(Some((algorithm, value)))
}

/// As [`stated`], with the value as it was sent: that of an upload's object has a form of its own.
///
/// # Errors
/// `InvalidRequest` if there are several, or one of an algorithm that is not built: nothing would
/// be compared with it.
pub fn stated_text(headers: &HeaderMap) -> Result<Option<(ChecksumAlgorithm, &str)>, S3Error> {
    let mut found = None;
    for (name, value) in headers {
        let Some(suffix) = name.as_str().strip_prefix("x-amz-checksum-") else {
            continue;
        };
        if matches!(suffix, "algorithm" | "mode" | "type") {
            continue;
        }
        let algorithm = parse_algorithm(suffix)?;
        if found.is_some() {
            return Err(several());
        }
        let text = value.to_str().map_err(|_| invalid_value(name.as_str()))?;
        found = Some((algorithm, text));
    }
    Ok(found)
}

/// `InvalidRequest` for a request that states more than one checksum.
#[must_use]
pub fn several() -> S3Error {
    S3Error::new(Code::InvalidRequest).with_message(
        "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
    )
}

/// `BadDigest` for a value that is not of its algorithm.
#[must_use]
pub fn invalid_value(name: &str) -> S3Error {
    S3Error::new(Code::BadDigest).with_message(format!("Value for {name} header is invalid."))
}

/// `BadDigest` for a checksum that does not match.
#[must_use]
pub fn mismatch(algorithm: ChecksumAlgorithm) -> S3Error {
    S3Error::new(Code::BadDigest).with_message(format!(
        "The {} you specified did not match the calculated checksum.",
        algorithm_name(algorithm)
    ))
}

/// One checksum while data streams by.
#[derive(Clone)]
pub struct Hasher(State);

#[derive(Clone)]
enum State {
    Crc(ChecksumAlgorithm, crc_fast::Digest),
    Sha(ChecksumAlgorithm, digest::Context),
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hasher").field(&self.algorithm()).finish()
    }
}

impl Hasher {
    #[must_use]
    pub fn new(algorithm: ChecksumAlgorithm) -> Self {
        let crc = |kind| State::Crc(algorithm, crc_fast::Digest::new(kind));
        let sha = |kind| State::Sha(algorithm, digest::Context::new(kind));
        Self(match algorithm {
            ChecksumAlgorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            ChecksumAlgorithm::Crc32c => crc(CrcAlgorithm::Crc32Iscsi),
            ChecksumAlgorithm::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme),
            ChecksumAlgorithm::Sha1 => sha(&digest::SHA1_FOR_LEGACY_USE_ONLY),
            ChecksumAlgorithm::Sha256 => sha(&digest::SHA256),
        })
    }

    #[must_use]
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        match &self.0 {
            State::Crc(algorithm, _) | State::Sha(algorithm, _) => *algorithm,
        }
    }

    pub fn update(&mut self, data: &[u8]) {
        match &mut self.0 {
            State::Crc(_, digest) => digest.update(data),
            State::Sha(_, context) => context.update(data),
        }
    }

    /// The value, in the byte order of the API.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        match self.0 {
            State::Crc(algorithm, digest) => crc_bytes(algorithm, digest.finalize()),
            State::Sha(_, context) => context.finish().as_ref().to_vec(),
        }
    }
}

/// The checksum of a whole value.
#[must_use]
pub fn of(algorithm: ChecksumAlgorithm, data: &[u8]) -> Vec<u8> {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(data);
    hasher.finish()
}

/// MD5 while data streams by.
#[derive(Clone, Debug, Default)]
pub struct Md5(md5::Md5);

impl Md5 {
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    #[must_use]
    pub fn finish(self) -> [u8; 16] {
        self.0.finalize().into()
    }
}

/// The ETag of a completed upload: MD5 over the MD5s of the parts, `-`, and their number. `None`
/// if an ETag is not the MD5 of a part.
#[must_use]
pub fn multipart_etag<'a>(part_etags: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut md5 = Md5::default();
    let mut count = 0_u32;
    for etag in part_etags {
        md5.update(&super::encoding::unhex(etag).filter(|bytes| bytes.len() == 16)?);
        count += 1;
    }
    Some(format!("{}-{count}", super::encoding::hex(&md5.finish())))
}

/// The checksum of a completed upload from those of its parts, which are all of `algorithm`, with
/// their sizes. `None` if a part has none of that algorithm.
///
/// # Panics
/// If the algorithm cannot be used that way: see [`is_valid_kind`].
#[must_use]
pub fn of_parts<'a>(
    algorithm: ChecksumAlgorithm,
    kind: ChecksumKind,
    parts: impl IntoIterator<Item = (Option<&'a Checksum>, u64)>,
) -> Option<Checksum> {
    assert!(is_valid_kind(algorithm, kind), "no such checksum");
    let mut composite = Hasher::new(algorithm);
    let mut full: Option<u64> = None;
    for (checksum, size) in parts {
        let checksum = checksum.filter(|checksum| checksum.algorithm == algorithm)?;
        match kind {
            ChecksumKind::Composite => composite.update(&checksum.value),
            ChecksumKind::FullObject => {
                let crc = crc_number(&checksum.value)?;
                full = Some(match full {
                    None => crc,
                    Some(before) => checksum_combine(crc_algorithm(algorithm)?, before, crc, size),
                });
            }
        }
    }
    let value = match kind {
        ChecksumKind::Composite => composite.finish(),
        ChecksumKind::FullObject => {
            full.map_or_else(|| of(algorithm, b""), |crc| crc_bytes(algorithm, crc))
        }
    };
    Some(Checksum {
        algorithm,
        kind,
        value,
    })
}

fn crc_algorithm(algorithm: ChecksumAlgorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        ChecksumAlgorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        ChecksumAlgorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        ChecksumAlgorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        ChecksumAlgorithm::Sha1 | ChecksumAlgorithm::Sha256 => None,
    }
}

/// Big-endian, as many bytes as the CRC has.
fn crc_bytes(algorithm: ChecksumAlgorithm, crc: u64) -> Vec<u8> {
    let bytes = crc.to_be_bytes();
    bytes[bytes.len() - value_bytes(algorithm)..].to_vec()
}

fn crc_number(value: &[u8]) -> Option<u64> {
    let mut bytes = [0; 8];
    let start = bytes.len().checked_sub(value.len())?;
    bytes[start..].copy_from_slice(value);
    Some(u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::encoding::hex;

    #[test]
    fn check_values_of_the_catalogues() {
        let of = |algorithm| hex(&of(algorithm, b"123456789"));
        assert_eq!(of(ChecksumAlgorithm::Crc32), "cbf43926");
        assert_eq!(of(ChecksumAlgorithm::Crc32c), "e3069283");
        assert_eq!(of(ChecksumAlgorithm::Crc64Nvme), "ae8b14860a799888");
        assert_eq!(
            of(ChecksumAlgorithm::Sha1),
            "f7c3bc1d808e04732adf679965ccc34ca7ae3441"
        );
        assert_eq!(
            of(ChecksumAlgorithm::Sha256),
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
        );
        let mut md5 = Md5::default();
        md5.update(b"1234");
        md5.update(b"56789");
        assert_eq!(hex(&md5.finish()), "25f9e794323b453885f5181f1b624d0b");
    }

    #[test]
    fn crcs_of_parts_make_the_crc_of_the_whole() {
        let data: Vec<u8> = (0..100_000_u32)
            .map(|i| i.to_le_bytes()[i as usize % 3])
            .collect();
        for algorithm in ALGORITHMS {
            for cuts in [
                vec![],
                vec![0],
                vec![1, 99_999],
                vec![5, 5, 70_000],
                vec![100_000],
            ] {
                let mut bounds = vec![0];
                bounds.extend(cuts);
                bounds.push(data.len());
                let parts: Vec<(Checksum, u64)> = bounds
                    .windows(2)
                    .map(|pair| {
                        let piece = &data[pair[0]..pair[1]];
                        let checksum = Checksum {
                            algorithm,
                            kind: ChecksumKind::FullObject,
                            value: of(algorithm, piece),
                        };
                        (checksum, piece.len() as u64)
                    })
                    .collect();
                let given = || parts.iter().map(|(checksum, size)| (Some(checksum), *size));
                if is_valid_kind(algorithm, ChecksumKind::FullObject) {
                    let whole = of_parts(algorithm, ChecksumKind::FullObject, given()).unwrap();
                    assert_eq!(whole.value, of(algorithm, &data), "{algorithm:?}");
                }
                if is_valid_kind(algorithm, ChecksumKind::Composite) {
                    let whole = of_parts(algorithm, ChecksumKind::Composite, given()).unwrap();
                    let all: Vec<u8> = parts.iter().flat_map(|(c, _)| c.value.clone()).collect();
                    assert_eq!(whole.value, of(algorithm, &all));
                    assert!(value_text(&whole, 3).ends_with("=-3"));
                }
            }
        }
    }

    #[test]
    fn a_part_without_its_checksum_spoils_the_whole() {
        let crc32 = Checksum {
            algorithm: ChecksumAlgorithm::Crc32,
            kind: ChecksumKind::FullObject,
            value: vec![0; 4],
        };
        let kind = ChecksumKind::FullObject;
        for part in [None, Some(&crc32)] {
            assert_eq!(of_parts(ChecksumAlgorithm::Crc32c, kind, [(part, 1)]), None);
        }
    }

    #[test]
    fn the_etag_of_an_upload_is_the_md5_of_md5s() {
        let one = "d41d8cd98f00b204e9800998ecf8427e";
        let etag = multipart_etag([one, one]).unwrap();
        let mut md5 = Md5::default();
        md5.update(&crate::wire::encoding::unhex(&one.repeat(2)).unwrap());
        assert_eq!(etag, format!("{}-2", hex(&md5.finish())));
        assert_eq!(multipart_etag(["abc"]), None);
    }

    #[test]
    fn one_well_formed_checksum_may_be_stated() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            pairs
                .iter()
                .map(|(name, value)| {
                    let name = http::HeaderName::from_static(name);
                    (name, http::HeaderValue::from_static(value))
                })
                .collect()
        };
        let good = stated(&headers(&[("x-amz-checksum-crc32", "y/Q5Jg==")])).unwrap();
        assert_eq!(
            good,
            Some((ChecksumAlgorithm::Crc32, vec![0xcb, 0xf4, 0x39, 0x26]))
        );
        assert_eq!(stated(&HeaderMap::new()).unwrap(), None);
        for bad in ["y/Q5Jg", "sailor", "", "y/Q5JgAA"] {
            assert!(stated(&headers(&[("x-amz-checksum-crc32", bad)])).is_err());
        }
        let both = [
            ("x-amz-checksum-crc32", "y/Q5Jg=="),
            ("x-amz-checksum-crc32c", "y/Q5Jg=="),
        ];
        assert!(stated(&headers(&both)).is_err());
        let mut twice = headers(&both[..1]);
        twice.append(
            "x-amz-checksum-crc32",
            http::HeaderValue::from_static("AAAAAA=="),
        );
        assert!(stated(&twice).is_err(), "the second would not be compared");
    }

    #[test]
    fn a_checksum_that_nothing_would_compare_is_refused() {
        let of = |name: &'static str| {
            let value = http::HeaderValue::from_static("AAAAAA==");
            stated(
                &[(http::HeaderName::from_static(name), value)]
                    .into_iter()
                    .collect(),
            )
        };
        for unknown in ["sha512", "md5", "xxhash64"] {
            let name: &'static str = format!("x-amz-checksum-{unknown}").leak();
            assert_eq!(of(name).unwrap_err().code(), Code::InvalidRequest, "{name}");
        }
        for other in ["algorithm", "mode", "type"] {
            let name: &'static str = format!("x-amz-checksum-{other}").leak();
            assert_eq!(of(name).unwrap(), None, "{name} is no checksum");
        }
    }
}
