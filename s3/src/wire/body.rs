//! The body of a request that stores data: decoded, counted and checked while it streams.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use portico_backend::bucket::record::{Checksum, ChecksumAlgorithm, ChecksumKind};
use ring::digest;

use super::checksum::{self, Hasher, Md5};
use super::chunked::Decoder;
use super::encoding::hex;
use super::payload::Payload;
use crate::error::{Code, S3Error};
use crate::limits::PART_BYTES_MAX;

/// Takes a body as it arrives and gives the data of the object: undoes `aws-chunked`, checks
/// lengths, signatures of chunks, `x-amz-content-sha256`, `Content-MD5` and `x-amz-checksum-*`, in
/// headers and trailers. What came out of [`BodyDecoder::push`] counts only once
/// [`BodyDecoder::finish`] has said so.
#[derive(Debug)]
pub struct BodyDecoder {
    chunked: Option<Decoder>,
    sha256: Option<Sha256Check>,
    md5: Md5,
    md5_stated: Option<[u8; 16]>,
    hashers: Vec<Hasher>,
    stated: Option<Stated>,
    /// The checksum of the summary.
    wanted: Option<ChecksumAlgorithm>,
    size: u64,
    size_stated: Option<u64>,
}

/// A checksum that the client states.
#[derive(Clone, Debug)]
struct Stated {
    algorithm: ChecksumAlgorithm,
    /// `None` if a trailer will bring it.
    value: Option<Vec<u8>>,
}

struct Sha256Check {
    context: digest::Context,
    stated: [u8; 32],
}

impl std::fmt::Debug for Sha256Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sha256Check").finish_non_exhaustive()
    }
}

/// What a whole and correct body was.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BodySummary {
    pub size: u64,
    pub md5: [u8; 16],
    /// As asked by `algorithm` of [`BodyDecoder::new`], otherwise as stated by the client; `None`
    /// if neither named one.
    pub checksum: Option<Checksum>,
}

impl BodySummary {
    /// The ETag of an object or part that is this body.
    #[must_use]
    pub fn etag(&self) -> String {
        hex(&self.md5)
    }
}

impl BodyDecoder {
    /// `payload` is what the signature says about the body; `algorithm` is a checksum to compute
    /// in any case, whatever the client states.
    ///
    /// # Errors
    /// `MissingContentLength`, `EntityTooLarge`, `InvalidDigest`, `InvalidRequest` or `BadDigest`
    /// for headers that cannot be right.
    pub fn new(
        headers: &HeaderMap,
        payload: Payload,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> Result<Self, S3Error> {
        let stated = stated_checksum(headers, &announced_trailers(headers), &payload)?;
        Self::build(headers, payload, algorithm, stated)
    }

    /// For a body whose `x-amz-checksum-*` headers speak of an object and not of the body itself:
    /// CompleteMultipartUpload.
    ///
    /// # Errors
    /// As [`BodyDecoder::new`].
    pub fn without_checksums(headers: &HeaderMap, payload: Payload) -> Result<Self, S3Error> {
        Self::build(headers, payload, None, None)
    }

    fn build(
        headers: &HeaderMap,
        payload: Payload,
        algorithm: Option<ChecksumAlgorithm>,
        stated: Option<Stated>,
    ) -> Result<Self, S3Error> {
        let size_stated = stated_size(headers, matches!(payload, Payload::Chunked { .. }))?;
        if let Some(size) = size_stated.filter(|size| *size > PART_BYTES_MAX) {
            return Err(too_large(size));
        }
        let (chunked, sha256) = match payload {
            Payload::Unsigned => (None, None),
            Payload::Sha256(stated) => {
                let context = digest::Context::new(&digest::SHA256);
                (None, Some(Sha256Check { context, stated }))
            }
            Payload::Chunked { signer, trailer } => {
                let names = trailer.then(|| announced_trailers(headers));
                (Some(Decoder::new(signer, names)), None)
            }
        };
        let mut hashers: Vec<Hasher> = algorithm.map(Hasher::new).into_iter().collect();
        if let Some(one) = stated
            .as_ref()
            .filter(|one| Some(one.algorithm) != algorithm)
        {
            hashers.push(Hasher::new(one.algorithm));
        }
        Ok(Self {
            chunked,
            sha256,
            md5: Md5::default(),
            md5_stated: stated_md5(headers)?,
            hashers,
            wanted: algorithm.or(stated.as_ref().map(|one| one.algorithm)),
            stated,
            size: 0,
            size_stated,
        })
    }

    /// Bytes of data to come, if the client said so.
    #[must_use]
    pub fn size_hint(&self) -> Option<u64> {
        self.size_stated
    }

    /// The algorithm of the checksum that the client states, in a header or a trailer.
    #[must_use]
    pub fn stated_algorithm(&self) -> Option<ChecksumAlgorithm> {
        self.stated.as_ref().map(|one| one.algorithm)
    }

    /// Takes bytes of the body and appends the data in them to `data`.
    ///
    /// # Errors
    /// Whatever is wrong with the body; it is lost then.
    pub fn push(&mut self, bytes: &Bytes, data: &mut Vec<Bytes>) -> Result<(), S3Error> {
        let before = data.len();
        match &mut self.chunked {
            Some(decoder) => decoder.push(bytes, data)?,
            None if bytes.is_empty() => {}
            None => data.push(bytes.clone()),
        }
        for piece in data.iter().skip(before) {
            self.size += piece.len() as u64;
            if let Some(check) = &mut self.sha256 {
                check.context.update(piece);
            }
            self.md5.update(piece);
            for hasher in &mut self.hashers {
                hasher.update(piece);
            }
        }
        if self.size > PART_BYTES_MAX {
            return Err(too_large(self.size));
        }
        match self.size_stated {
            Some(stated) if self.size > stated => Err(Code::IncompleteBody.into()),
            Some(_) | None => Ok(()),
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    /// `IncompleteBody`, `BadDigest`, `XAmzContentSHA256Mismatch`, `SignatureDoesNotMatch`,
    /// `MalformedTrailerError`.
    pub fn finish(self) -> Result<BodySummary, S3Error> {
        let trailers = match self.chunked {
            Some(decoder) => decoder.finish()?,
            None => Vec::new(),
        };
        if self.size_stated.is_some_and(|stated| stated != self.size) {
            return Err(Code::IncompleteBody.into());
        }
        if let Some(check) = self.sha256 {
            check_sha256(check)?;
        }
        let md5 = self.md5.finish();
        if let Some(stated) = self.md5_stated.filter(|stated| *stated != md5) {
            return Err(S3Error::new(Code::BadDigest)
                .with_field("ExpectedDigest", STANDARD.encode(stated))
                .with_field("CalculatedDigest", STANDARD.encode(md5)));
        }
        let mut checksum = None;
        for hasher in self.hashers {
            let algorithm = hasher.algorithm();
            let value = hasher.finish();
            match &self.stated {
                Some(one) if one.algorithm == algorithm => {
                    check_value(one, &trailers, &value)?;
                }
                Some(_) | None => {}
            }
            if self.wanted == Some(algorithm) {
                checksum = Some(Checksum {
                    algorithm,
                    kind: ChecksumKind::FullObject,
                    value,
                });
            }
        }
        Ok(BodySummary {
            size: self.size,
            md5,
            checksum,
        })
    }
}

/// Bytes of data that the client promises. A body without any length is one only if it is
/// delimited otherwise.
fn stated_size(headers: &HeaderMap, chunked: bool) -> Result<Option<u64>, S3Error> {
    let length = number(headers, "content-length")?;
    let decoded = number(headers, "x-amz-decoded-content-length")?;
    let delimited = length.is_some() || headers.contains_key("transfer-encoding");
    match (chunked, decoded) {
        _ if !delimited => Err(Code::MissingContentLength.into()),
        (true, Some(decoded)) => Ok(Some(decoded)),
        // The length would be that of the chunks.
        (true, None) => Ok(None),
        (false, _) => Ok(length),
    }
}

fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, S3Error> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.map(Some).ok_or_else(|| {
        S3Error::invalid_argument(name, text, format!("The header {name} is not a length."))
    })
}

/// Names in `x-amz-trailer`, lower-case.
fn announced_trailers(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all("x-amz-trailer")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect()
}

/// The checksum in a header, or the one that a trailer will bring.
fn stated_checksum(
    headers: &HeaderMap,
    announced: &[String],
    payload: &Payload,
) -> Result<Option<Stated>, S3Error> {
    if let Some((algorithm, value)) = checksum::stated(headers)? {
        let other = |name: &String| name != checksum::header_name(algorithm);
        if announced.iter().any(other) {
            return Err(checksum::several());
        }
        let value = Some(value);
        return Ok(Some(Stated { algorithm, value }));
    }
    let mut found = None;
    for name in announced {
        let algorithm = checksum::ALGORITHMS
            .into_iter()
            .find(|algorithm| checksum::header_name(*algorithm) == name);
        match (algorithm, payload, &found) {
            (Some(algorithm), Payload::Chunked { trailer: true, .. }, None) => {
                let value = None;
                found = Some(Stated { algorithm, value });
            }
            _ => {
                return Err(S3Error::new(Code::InvalidRequest).with_message(
                    "The value specified in the x-amz-trailer header is not supported",
                ));
            }
        }
    }
    if found.is_none() && headers.contains_key("x-amz-sdk-checksum-algorithm") {
        return Err(S3Error::new(Code::InvalidRequest).with_message(
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or \
             x-amz-trailer headers were found.",
        ));
    }
    Ok(found)
}

/// The value of `Content-MD5`.
fn stated_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, S3Error> {
    let Some(value) = headers.get("content-md5") else {
        return Ok(None);
    };
    STANDARD
        .decode(value.as_bytes())
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .map(Some)
        .ok_or_else(|| Code::InvalidDigest.into())
}

fn check_sha256(check: Sha256Check) -> Result<(), S3Error> {
    let computed = check.context.finish();
    if computed.as_ref() == check.stated {
        return Ok(());
    }
    Err(S3Error::new(Code::XAmzContentSha256Mismatch)
        .with_field("ClientComputedContentSHA256", hex(&check.stated))
        .with_field("S3ComputedContentSHA256", hex(computed.as_ref())))
}

/// Compares a checksum with the header's value or the trailer's.
fn check_value(
    stated: &Stated,
    trailers: &[(String, String)],
    computed: &[u8],
) -> Result<(), S3Error> {
    let algorithm = stated.algorithm;
    let name = checksum::header_name(algorithm);
    let matches = match &stated.value {
        Some(value) => value == computed,
        None => {
            let text = trailers
                .iter()
                .find(|(trailer, _)| trailer == name)
                .map(|(_, value)| value.as_str())
                .ok_or_else(|| S3Error::new(Code::MalformedTrailer))?;
            checksum::parse_value(algorithm, text).ok_or_else(|| checksum::invalid_value(name))?
                == computed
        }
    };
    if matches {
        Ok(())
    } else {
        Err(checksum::mismatch(algorithm))
    }
}

fn too_large(size: u64) -> S3Error {
    S3Error::new(Code::EntityTooLarge)
        .with_field("ProposedSize", size.to_string())
        .with_field("MaxSizeAllowed", PART_BYTES_MAX.to_string())
}

#[cfg(test)]
mod tests;
