//! HTTP/1.1 as a client speaks it: one connection, one request at a time.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A head longer than this is no answer of an S3 server.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bodies up to this go out in one write with the head.
const JOINED_BYTES_MAX: usize = 64 * 1024;
const BUFFER_BYTES: usize = 256 * 1024;

/// What came back. `body` is kept only if asked for; `length` counts it either way.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) length: u64,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// Read and not yet used: `buffer[start..end]`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
        })
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn call(&mut self, head: &str, body: &[u8], keep: bool) -> Result<Answer> {
        if body.len() <= JOINED_BYTES_MAX {
            let joined = [head.as_bytes(), body].concat();
            self.stream.write_all(&joined).await?;
        } else {
            self.stream.write_all(head.as_bytes()).await?;
            self.stream.write_all(body).await?;
        }
        let head = self.read_head().await?;
        let status = head.get(9..12).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| broken("no status line"))?;
        let mut answer = Answer {
            status,
            length: 0,
            body: Vec::new(),
        };
        if status == 204 || status == 304 {
            return Ok(answer);
        }
        if let Some(length) = header(&head, "content-length") {
            let length = length.parse().map_err(|_| broken("content-length"))?;
            self.read_exactly(length, keep, &mut answer).await?;
        } else {
            self.read_chunks(keep, &mut answer).await?;
        }
        Ok(answer)
    }

    /// Status line and headers in lower case.
    async fn read_head(&mut self) -> Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.read_byte().await?);
            if head.len() > HEAD_BYTES_MAX {
                return Err(broken("endless head"));
            }
        }
        Ok(String::from_utf8_lossy(&head).to_ascii_lowercase())
    }

    async fn read_exactly(&mut self, length: u64, keep: bool, answer: &mut Answer) -> Result<()> {
        let mut missing = length;
        while missing > 0 {
            self.fill().await?;
            let have = self.end - self.start;
            let take = usize::try_from(missing).map_or(have, |missing| missing.min(have));
            if keep {
                answer
                    .body
                    .extend_from_slice(&self.buffer[self.start..self.start + take]);
            }
            self.start += take;
            missing -= take as u64;
        }
        answer.length += length;
        Ok(())
    }

    async fn read_chunks(&mut self, keep: bool, answer: &mut Answer) -> Result<()> {
        loop {
            let line = self.read_line().await?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(digits, 16).map_err(|_| broken("chunk size"))?;
            self.read_exactly(size, keep, answer).await?;
            self.read_line().await?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    async fn read_line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(self.read_byte().await?);
            if line.len() > HEAD_BYTES_MAX {
                return Err(broken("endless line"));
            }
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    async fn read_byte(&mut self) -> Result<u8> {
        self.fill().await?;
        self.start += 1;
        Ok(self.buffer[self.start - 1])
    }

    /// Makes sure that there is at least one unused byte.
    async fn fill(&mut self) -> Result<()> {
        if self.start == self.end {
            self.start = 0;
            self.end = self.stream.read(&mut self.buffer).await?;
            if self.end == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found == name).then(|| value.trim())
    })
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_owned())
}
