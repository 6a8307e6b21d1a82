//! The `aws-chunked` coding: a push decoder for signed and unsigned chunks with trailers.
//!
//! ```text
//! chunk   = hex-size [";chunk-signature=" signature] CRLF data CRLF
//! body    = *chunk last-chunk (CRLF / trailers)
//! trailers = 1*(name ":" value CRLF) ["x-amz-trailer-signature:" signature CRLF] CRLF
//! ```
//!
//! Lines are bounded; data is passed on as it comes, without a copy, so memory does not depend on
//! the size of chunks. A chunk's signature can only be checked behind its data: whoever takes the
//! data must be able to throw it away.

use bytes::Bytes;
use ring::digest;

use super::payload::ChunkSigner;
use crate::error::{Code, S3Error};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX};

const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// Takes an `aws-chunked` body apart.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    signer: Option<ChunkSigner>,
    /// Of the chunk being read.
    check: Option<ChunkCheck>,
    /// Names announced by `x-amz-trailer`, lower-case; `None` if no trailers may come.
    announced: Option<Vec<String>>,
    /// The line being read.
    line: Vec<u8>,
    /// Bytes of trailer lines so far.
    trailer_bytes: usize,
    trailers: Vec<(String, String)>,
    trailer_signature: Option<String>,
}

#[derive(Debug)]
enum State {
    /// In the line that starts a chunk.
    ChunkLine,
    Data {
        left: u64,
    },
    /// Before the line end behind data.
    DataEnd,
    /// In the lines behind the last chunk.
    Trailers,
    Done,
}

/// What a signed chunk is compared with at its end.
struct ChunkCheck {
    sha256: digest::Context,
    signature: String,
}

impl std::fmt::Debug for ChunkCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkCheck")
            .field("signature", &self.signature)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// `announced` are the names in `x-amz-trailer`; `None` if the coding has no trailers.
    #[must_use]
    pub fn new(signer: Option<ChunkSigner>, announced: Option<Vec<String>>) -> Self {
        Self {
            state: State::ChunkLine,
            signer,
            check: None,
            announced,
            line: Vec::new(),
            trailer_bytes: 0,
            trailers: Vec::new(),
            trailer_signature: None,
        }
    }

    /// Takes bytes of the body and appends the data in them to `data`.
    ///
    /// # Errors
    /// `InvalidRequest`, `MalformedTrailerError`, `SignatureDoesNotMatch`. The body is lost then.
    pub fn push(&mut self, bytes: &Bytes, data: &mut Vec<Bytes>) -> Result<(), S3Error> {
        let mut rest = bytes.clone();
        while !rest.is_empty() {
            match &mut self.state {
                State::ChunkLine => {
                    if let Some(line) = self.take_line(&mut rest, CHUNK_LINE_BYTES_MAX)? {
                        self.state = self.begin_chunk(&line)?;
                    }
                }
                State::Data { left } => {
                    let available = rest.len();
                    let take = usize::try_from(*left).map_or(available, |left| left.min(available));
                    let piece = rest.split_to(take);
                    *left -= take as u64;
                    if let Some(check) = &mut self.check {
                        check.sha256.update(&piece);
                    }
                    if *left == 0 {
                        self.state = State::DataEnd;
                        self.end_chunk()?;
                    }
                    data.push(piece);
                }
                State::DataEnd => {
                    if let Some(line) = self.take_line(&mut rest, 2)? {
                        if !line.is_empty() {
                            return Err(malformed());
                        }
                        self.state = State::ChunkLine;
                    }
                }
                State::Trailers => {
                    let room = TRAILER_BYTES_MAX - self.trailer_bytes.min(TRAILER_BYTES_MAX);
                    if let Some(line) = self.take_line(&mut rest, room)? {
                        self.trailer_bytes += line.len() + 2;
                        self.trailer_line(&line)?;
                    }
                }
                State::Done => return Err(malformed()),
            }
        }
        Ok(())
    }

    /// Ends the body and gives the trailers, names in lower case.
    ///
    /// # Errors
    /// `IncompleteBody` if the last chunk or the end of the trailers has not come.
    pub fn finish(self) -> Result<Vec<(String, String)>, S3Error> {
        match self.state {
            State::Done => Ok(self.trailers),
            State::ChunkLine | State::Data { .. } | State::DataEnd | State::Trailers => {
                Err(Code::IncompleteBody.into())
            }
        }
    }

    /// A whole line without its end, once it is there. Lines end in CRLF; some clients end
    /// trailers in a bare line feed.
    fn take_line(&mut self, rest: &mut Bytes, max: usize) -> Result<Option<String>, S3Error> {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(rest.len(), |end| end + 1);
        if self.line.len() + taken > max {
            return Err(malformed());
        }
        self.line.extend_from_slice(&rest.split_to(taken));
        if end.is_none() {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.line);
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map(Some).map_err(|_| malformed())
    }

    fn begin_chunk(&mut self, line: &str) -> Result<State, S3Error> {
        let (size, extensions) = line.split_once(';').unwrap_or((line, ""));
        let size = chunk_size(size)?;
        let signature = extensions
            .split(';')
            .find_map(|extension| extension.trim().strip_prefix("chunk-signature="));
        self.check = match (&self.signer, signature) {
            (Some(_), Some(signature)) => Some(ChunkCheck {
                sha256: digest::Context::new(&digest::SHA256),
                signature: signature.to_owned(),
            }),
            (Some(_), None) => return Err(Code::SignatureDoesNotMatch.into()),
            (None, _) => None,
        };
        if size > 0 {
            return Ok(State::Data { left: size });
        }
        self.end_chunk()?;
        Ok(State::Trailers)
    }

    fn end_chunk(&mut self) -> Result<(), S3Error> {
        if let (Some(signer), Some(check)) = (&mut self.signer, self.check.take()) {
            signer.check_chunk(&check.sha256.finish(), &check.signature)?;
        }
        Ok(())
    }

    fn trailer_line(&mut self, line: &str) -> Result<(), S3Error> {
        if line.is_empty() {
            return self.end_trailers();
        }
        let (name, value) = line.split_once(':').ok_or_else(malformed_trailer)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        if name == TRAILER_SIGNATURE && self.signer.is_some() && self.trailer_signature.is_none() {
            self.trailer_signature = Some(value);
            return Ok(());
        }
        let announced = self
            .announced
            .as_ref()
            .is_some_and(|names| names.contains(&name));
        let again = self.trailers.iter().any(|(other, _)| *other == name);
        if !announced || again || self.trailer_signature.is_some() {
            return Err(malformed_trailer());
        }
        self.trailers.push((name, value));
        Ok(())
    }

    fn end_trailers(&mut self) -> Result<(), S3Error> {
        let missing = self
            .announced
            .as_ref()
            .is_some_and(|names| names.len() != self.trailers.len());
        if missing {
            return Err(malformed_trailer());
        }
        if let (Some(signer), Some(_)) = (&mut self.signer, &self.announced) {
            // The API's own example has an empty line before the signature too.
            let Some(signature) = &self.trailer_signature else {
                return if self.trailers.is_empty() {
                    Err(malformed_trailer())
                } else {
                    Ok(())
                };
            };
            let mut sorted: Vec<&(String, String)> = self.trailers.iter().collect();
            sorted.sort_unstable();
            let lines: String = sorted
                .iter()
                .map(|(name, value)| format!("{name}:{value}\n"))
                .collect();
            signer.check_trailer(&lines, signature)?;
        }
        self.state = State::Done;
        Ok(())
    }
}

/// One to sixteen hexadecimal digits, within bounds.
fn chunk_size(text: &str) -> Result<u64, S3Error> {
    let text = text.trim_ascii_end();
    if text.is_empty() || text.len() > 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(malformed());
    }
    let size = u64::from_str_radix(text, 16).map_err(|_| malformed())?;
    if size > CHUNK_BYTES_MAX {
        return Err(Code::EntityTooLarge.into());
    }
    Ok(size)
}

fn malformed() -> S3Error {
    S3Error::new(Code::InvalidRequest).with_message("The aws-chunked body is malformed.")
}

fn malformed_trailer() -> S3Error {
    Code::MalformedTrailer.into()
}

#[cfg(test)]
mod tests;
