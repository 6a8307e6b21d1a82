//! `multipart/form-data` as browsers send it to upload one file (RFC 7578): a push decoder. Fields
//! come first and are bounded; the part named `file` is passed on as it comes; what follows it is
//! ignored, as the API says.

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::{Code, S3Error};
use crate::limits::{FORM_FIELDS_BYTES_MAX, FORM_FIELDS_MAX, FORM_HEADER_BYTES_MAX};

/// Characters of a boundary (RFC 2046, section 5.1.1).
const BOUNDARY_CHARS_MAX: usize = 70;

/// The fields before the file, and the file's own name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FormFields {
    fields: Vec<(String, String)>,
    /// The name of the file at the client, without directories.
    pub file_name: Option<String>,
}

impl FormFields {
    /// The first field of a name, in whichever case.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The field `key` with `${filename}` replaced.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        let name = self.file_name.as_deref().unwrap_or_default();
        self.first("key")
            .map(|key| key.replace("${filename}", name))
    }

    /// Fields that are headers of PutObject, as such. What cannot be a header is left out.
    #[must_use]
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in self.iter() {
            let name = name.to_ascii_lowercase();
            let is_header = name.starts_with("content-")
                || name.starts_with("x-amz-")
                || matches!(name.as_str(), "cache-control" | "expires");
            let header = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_bytes(value.as_bytes());
            if let (true, Ok(header), Ok(value)) = (is_header, header, value) {
                headers.append(header, value);
            }
        }
        headers
    }

    #[cfg(test)]
    pub(crate) fn of(fields: &[(&str, &str)]) -> Self {
        let fields = fields
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        Self {
            fields: fields.collect(),
            ..Self::default()
        }
    }
}

/// Takes a form apart.
#[derive(Debug)]
pub struct FormDecoder {
    /// `CRLF -- boundary`.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: State,
    fields: FormFields,
    fields_bytes: usize,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum State {
    /// Before the first boundary.
    Preamble,
    /// Behind a boundary, before its line end.
    Boundary,
    Headers,
    /// In the value of the field of this name.
    Field(String),
    File,
    /// Behind the file.
    Done,
}

impl FormDecoder {
    /// `content_type` is that of the request.
    ///
    /// # Errors
    /// `MalformedPOSTRequest` unless it is `multipart/form-data` with a boundary.
    pub fn new(content_type: &str) -> Result<Self, S3Error> {
        let boundary = boundary(content_type).ok_or_else(malformed)?;
        let mut delimiter = b"\r\n--".to_vec();
        delimiter.extend_from_slice(boundary.as_bytes());
        // The first boundary may stand at the very start: as if a line end were before it.
        let buffer = BytesMut::from(&b"\r\n"[..]);
        Ok(Self {
            delimiter,
            buffer,
            state: State::Preamble,
            fields: FormFields::default(),
            fields_bytes: 0,
        })
    }

    /// Takes bytes of the body and appends the file's data in them to `file`.
    ///
    /// # Errors
    /// `MalformedPOSTRequest`, `MaxPostPreDataLengthExceededError`; `InvalidArgument` if the form
    /// ends without a file.
    pub fn push(&mut self, bytes: &Bytes, file: &mut Vec<Bytes>) -> Result<(), S3Error> {
        if self.state == State::Done {
            return Ok(());
        }
        self.buffer.extend_from_slice(bytes);
        while self.step(file)? {}
        Ok(())
    }

    /// The fields, once the file's data has begun.
    #[must_use]
    pub fn fields(&self) -> Option<&FormFields> {
        matches!(self.state, State::File | State::Done).then_some(&self.fields)
    }

    /// Ends the form.
    ///
    /// # Errors
    /// `MalformedPOSTRequest` if it is cut short.
    pub fn finish(self) -> Result<FormFields, S3Error> {
        match self.state {
            State::Done => Ok(self.fields),
            State::Preamble | State::Boundary | State::Headers | State::Field(_) | State::File => {
                Err(malformed())
            }
        }
    }

    /// One step; `false` if more bytes are needed.
    fn step(&mut self, file: &mut Vec<Bytes>) -> Result<bool, S3Error> {
        match self.state.clone() {
            State::Preamble => self.preamble(),
            State::Boundary => self.boundary_end(),
            State::Headers => self.headers(),
            State::Field(name) => self.field(name),
            State::File => Ok(self.file(file)),
            State::Done => Ok(false),
        }
    }

    fn preamble(&mut self) -> Result<bool, S3Error> {
        match find(&self.buffer, &self.delimiter) {
            Some(at) => {
                self.buffer.advance(at + self.delimiter.len());
                self.state = State::Boundary;
                Ok(true)
            }
            None if self.buffer.len() > FORM_HEADER_BYTES_MAX => Err(malformed()),
            None => Ok(false),
        }
    }

    fn boundary_end(&mut self) -> Result<bool, S3Error> {
        if self.buffer.starts_with(b"--") {
            return Err(no_file());
        }
        match find(&self.buffer, b"\r\n") {
            Some(at) if self.buffer[..at].iter().all(|b| matches!(b, b' ' | b'\t')) => {
                // The line end stays: an empty block of headers is only a second one.
                self.buffer.advance(at);
                self.state = State::Headers;
                Ok(true)
            }
            Some(_) => Err(malformed()),
            None if self.buffer.len() > FORM_HEADER_BYTES_MAX => Err(malformed()),
            None => Ok(false),
        }
    }

    fn headers(&mut self) -> Result<bool, S3Error> {
        let Some(end) = find(&self.buffer, b"\r\n\r\n") else {
            return if self.buffer.len() > FORM_HEADER_BYTES_MAX {
                Err(malformed())
            } else {
                Ok(false)
            };
        };
        if end > FORM_HEADER_BYTES_MAX {
            return Err(malformed());
        }
        let block = self.buffer.split_to(end);
        self.buffer.advance(4);
        let part = Part::parse(&block)?;
        self.count(block.len())?;
        if part.name.eq_ignore_ascii_case("file") {
            self.fields.file_name = part.file_name.as_deref().map(base_name);
            self.state = State::File;
        } else {
            self.state = State::Field(part.name);
        }
        Ok(true)
    }

    fn field(&mut self, name: String) -> Result<bool, S3Error> {
        let Some(end) = find(&self.buffer, &self.delimiter) else {
            if self.fields_bytes + self.buffer.len() > FORM_FIELDS_BYTES_MAX + self.delimiter.len()
            {
                return Err(Code::MaxPostPreDataLengthExceeded.into());
            }
            return Ok(false);
        };
        self.count(end)?;
        if self.fields.fields.len() == FORM_FIELDS_MAX {
            return Err(Code::MaxPostPreDataLengthExceeded.into());
        }
        let value = self.buffer.split_to(end);
        self.buffer.advance(self.delimiter.len());
        let value = std::str::from_utf8(&value).map_err(|_| malformed())?;
        self.fields.fields.push((name, value.to_owned()));
        self.state = State::Boundary;
        Ok(true)
    }

    /// Everything that cannot be the start of the boundary is the file's.
    fn file(&mut self, file: &mut Vec<Bytes>) -> bool {
        if let Some(end) = find(&self.buffer, &self.delimiter) {
            let data = self.buffer.split_to(end).freeze();
            if !data.is_empty() {
                file.push(data);
            }
            self.buffer = BytesMut::new();
            self.state = State::Done;
            return false;
        }
        let keep = partial_end(&self.buffer, &self.delimiter);
        let data = self.buffer.split_to(self.buffer.len() - keep).freeze();
        if !data.is_empty() {
            file.push(data);
        }
        false
    }

    fn count(&mut self, bytes: usize) -> Result<(), S3Error> {
        self.fields_bytes += bytes;
        if self.fields_bytes > FORM_FIELDS_BYTES_MAX {
            return Err(Code::MaxPostPreDataLengthExceeded.into());
        }
        Ok(())
    }
}

/// What the headers of a part say.
#[derive(Debug, Default)]
struct Part {
    name: String,
    file_name: Option<String>,
}

impl Part {
    fn parse(block: &[u8]) -> Result<Self, S3Error> {
        let block = std::str::from_utf8(block).map_err(|_| malformed())?;
        let mut part = Self::default();
        let mut named = false;
        for line in block.split("\r\n").filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or_else(malformed)?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-disposition") {
                let (kind, parameters) = value.split_once(';').ok_or_else(malformed)?;
                if !kind.trim().eq_ignore_ascii_case("form-data") {
                    return Err(malformed());
                }
                part.name = parameter(parameters, "name").ok_or_else(malformed)?;
                part.file_name = parameter(parameters, "filename");
                named = true;
            }
        }
        if named { Ok(part) } else { Err(malformed()) }
    }
}

/// The value of a parameter `name=value` or `name="value"` in a list divided by `;`. Inside quotes
/// `\"` stands for a quote; other backslashes stay, as browsers send them in paths.
fn parameter(list: &str, wanted: &str) -> Option<String> {
    let mut rest = list;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        let (name, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, after) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), after)
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = after;
    }
}

fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = quoted.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' if characters.peek().is_some_and(|(_, next)| *next == '"') => {
                value.push('"');
                characters.next();
            }
            other => value.push(other),
        }
    }
    None
}

fn boundary(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    parameter(parameters, "boundary")
        .filter(|text| (1..=BOUNDARY_CHARS_MAX).contains(&text.len()) && text.is_ascii())
}

/// The last part of a path of either kind of system.
fn base_name(path: &str) -> String {
    let name = path.rsplit(['/', '\\']).next();
    name.unwrap_or_default().to_owned()
}

/// Where `needle`, which starts with a carriage return, begins in `haystack`.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + haystack.get(from..)?.iter().position(|b| *b == b'\r')?;
        if haystack[at..].starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// How many bytes at the end of `data` may be the start of `needle`.
fn partial_end(data: &[u8], needle: &[u8]) -> usize {
    let longest = (needle.len() - 1).min(data.len());
    (1..=longest)
        .rev()
        .find(|count| data.ends_with(&needle[..*count]))
        .unwrap_or(0)
}

/// The error of a form without a file.
#[must_use]
pub fn no_file() -> S3Error {
    S3Error::invalid_argument(
        "file",
        "0",
        "POST requires exactly one file upload per request.",
    )
}

fn malformed() -> S3Error {
    Code::MalformedPostRequest.into()
}

#[cfg(test)]
mod tests;
