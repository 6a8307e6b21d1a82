//! A connection: bytes become records, records become calls, and replies become bytes, each when its
//! call has ended.
//!
//! A client is held back by not reading what it sends: before a record is read that is not short, before
//! a call begins, and while too much of this client is under way. A call is under way until the last
//! byte of its reply is written.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};

use super::call::{Heard, Inbound, Tls, hear};
use super::output::Output;
use crate::limits::{
    CALLS_MAX, CONNECTION_BYTES_MAX, READ_AHEAD_BYTES, RECORD_BYTES_MAX, REPLY_BYTES,
};
use crate::wire::WireError;
use crate::wire::program::Program;
use crate::wire::record::{self, Deframer};
use crate::wire::rpc::reply::Reply;
use crate::wire::xdr::{Writer, Xdr};

/// A connection. `P` is a permit for bytes in memory.
#[derive(Debug)]
pub struct Connection<P> {
    programs: &'static [&'static Program],
    tls: Tls,
    deframer: Deframer,
    /// A record that waits for its permit.
    heard: Option<Heard>,
    granted: Option<(P, usize)>,
    record_bytes: usize,
    under_way: Arc<UnderWay>,
    output: Output<Hold<P>>,
    is_tls_due: bool,
}

/// What a call occupies, until dropped.
#[derive(Debug)]
pub struct Hold<P> {
    _permit: P,
    bytes: usize,
    under_way: Arc<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    calls: AtomicUsize,
    bytes: AtomicUsize,
}

/// What a connection needs to go on.
#[derive(Debug)]
pub enum Poll<P> {
    /// Is to be done, and answered by `reply` with its hold; dropping that answers nothing.
    Call(Box<Inbound>, Hold<P>),
    /// A permit for so many bytes, given by `grant`.
    Permit(usize),
    /// So many bytes at least, put into `buffer`.
    Read(usize),
    /// Nothing is read before a call has ended or bytes were written.
    Full,
    /// Once all is written, TLS begins; bytes that came behind the question are dropped.
    StartTls,
}

impl<P> Connection<P> {
    /// `programs` are those that are served here.
    #[must_use]
    pub fn new(programs: &'static [&'static Program], tls: Tls) -> Self {
        Self {
            programs,
            tls,
            deframer: Deframer::new(RECORD_BYTES_MAX),
            heard: None,
            granted: None,
            record_bytes: 0,
            under_way: Arc::default(),
            output: Output::new(),
            is_tls_due: false,
        }
    }

    /// Where bytes of the stream are put.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.deframer.buffer()
    }

    /// What is needed next. After `grant`, `reply` and `written` it may be something else.
    ///
    /// # Errors
    /// The stream is lost: the connection ends.
    pub fn poll(&mut self) -> Result<Poll<P>, WireError> {
        loop {
            if self.is_tls_due {
                return Ok(Poll::StartTls);
            }
            if self.is_full() {
                return Ok(Poll::Full);
            }
            let Some(heard) = &self.heard else {
                match self.deframer.poll()? {
                    record::Poll::Record(record) => {
                        self.record_bytes = record.len();
                        self.heard = Some(hear(record, self.programs, self.tls)?);
                        continue;
                    }
                    record::Poll::Wanted(bytes) => return Ok(self.wanted(bytes)),
                }
            };
            let needed = self.record_bytes + reply_bytes_max(heard);
            let Some((permit, granted)) = self.granted.take() else {
                return Ok(Poll::Permit(needed));
            };
            if granted < needed {
                drop(permit);
                return Ok(Poll::Permit(needed));
            }
            let hold = self.hold(permit, granted);
            match self.heard.take().expect("it was there above") {
                Heard::Call(call) => return Ok(Poll::Call(call, hold)),
                Heard::Answer(reply) => self.reply(hold, head(&reply)),
                Heard::StartTls(reply) => {
                    self.is_tls_due = true;
                    self.reply(hold, head(&reply));
                }
            }
        }
    }

    /// Gives what `Poll::Permit` asked for.
    pub fn grant(&mut self, permit: P, bytes: usize) {
        self.granted = Some((permit, bytes));
    }

    /// Answers a call with the parts of a record. The order of answers is that in which they come.
    pub fn reply(&mut self, hold: Hold<P>, parts: Vec<Bytes>) {
        self.output.push(parts, hold);
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output.bytes()
    }

    /// The next bytes to write. Returns how many slices there are.
    pub fn output<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.output.slices(slices)
    }

    /// So many bytes were written.
    ///
    /// # Panics
    /// If there were less.
    pub fn written(&mut self, bytes: usize) {
        self.output.advance(bytes);
    }

    /// TLS runs from here on. What came before it, unprotected, is forgotten.
    pub fn tls_runs(&mut self) {
        self.tls = Tls::Running;
        self.is_tls_due = false;
        self.deframer = Deframer::new(RECORD_BYTES_MAX);
    }

    /// Calls that have no whole answer yet.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.under_way.calls.load(Ordering::Acquire)
    }

    fn is_full(&self) -> bool {
        self.calls() >= CALLS_MAX
            || self.under_way.bytes.load(Ordering::Acquire) >= CONNECTION_BYTES_MAX
    }

    /// A record that is not short is read only with a permit for the whole of it.
    fn wanted(&self, bytes: usize) -> Poll<P> {
        let needed = self.deframer.record_bytes_max().unwrap_or(0);
        if needed <= READ_AHEAD_BYTES {
            return Poll::Read(bytes);
        }
        let needed = needed + REPLY_BYTES;
        match &self.granted {
            Some((_, granted)) if *granted >= needed => Poll::Read(bytes),
            Some(_) | None => Poll::Permit(needed),
        }
    }

    fn hold(&self, permit: P, bytes: usize) -> Hold<P> {
        let under_way = Arc::clone(&self.under_way);
        under_way.calls.fetch_add(1, Ordering::AcqRel);
        under_way.bytes.fetch_add(bytes, Ordering::AcqRel);
        Hold {
            _permit: permit,
            bytes,
            under_way,
        }
    }
}

impl<P> Drop for Hold<P> {
    fn drop(&mut self) {
        self.under_way.calls.fetch_sub(1, Ordering::AcqRel);
        self.under_way.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

fn reply_bytes_max(heard: &Heard) -> usize {
    let results = match heard {
        Heard::Call(call) => call.request.results_bytes_max(),
        Heard::Answer(_) | Heard::StartTls(_) => 0,
    };
    REPLY_BYTES + usize::try_from(results).expect("32 bits fit")
}

/// A reply without results, as a record.
fn head(reply: &Reply) -> Vec<Bytes> {
    let mut writer = Writer::record();
    reply.write(&mut writer);
    writer.finish()
}
