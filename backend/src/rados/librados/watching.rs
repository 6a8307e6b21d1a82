//! Watches and notifications. librados' callbacks know a watch by its number and nothing else, so
//! none can meet one that is gone.

use std::ffi::{CStr, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

use super::flight::{Underway, launch};
use super::symbols::Raw;
use super::{Code, IoCtx, chars, int, take_buffer};
use crate::rados::watch;

/// A watch that was registered. Dropping it ends the watch, some time later.
#[derive(Debug)]
pub(in crate::rados) struct WatchHandle {
    io: Arc<IoCtx>,
    cookie: u64,
}

impl WatchHandle {
    /// Registers; the callbacks name `number`. `None` in the cargo until it worked.
    pub(in crate::rados) fn register(
        io: &Arc<IoCtx>,
        object: &CStr,
        number: u64,
        timeout_s: u32,
    ) -> Result<Underway<Box<u64>>, Code> {
        let argument = std::ptr::without_provenance_mut(usize_of(number));
        launch(io, Box::new(0_u64), |symbols, cookie, completion| {
            let cookie = std::ptr::from_ref::<u64>(cookie).cast_mut();
            // SAFETY: context, completion and the cookie's box live until the completion, and
            // nobody reads the cookie before; the argument is never followed.
            unsafe {
                (symbols.aio_watch2)(
                    io.raw,
                    object.as_ptr(),
                    completion,
                    cookie,
                    heard,
                    failed,
                    timeout_s,
                    argument,
                )
            }
        })
    }

    pub(in crate::rados) fn new(io: &Arc<IoCtx>, cookie: u64) -> Self {
        Self {
            io: Arc::clone(io),
            cookie,
        }
    }

    /// Lets the notifier go on; returns at once.
    pub(in crate::rados) fn acknowledge(&self, object: &CStr, id: u64, payload: &[u8]) {
        let (start, length) = (chars(payload), int(payload.len()));
        // SAFETY: the context is open; librados copies the payload.
        let _a_notifier_that_is_gone_hears_nothing = unsafe {
            let acknowledge = self.io.cluster.symbols.notify_ack;
            acknowledge(self.io.raw, object.as_ptr(), id, self.cookie, start, length)
        };
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        let cookie = self.cookie;
        let io = &self.io;
        let submitted = launch(io, (), |symbols, (), completion| {
            // SAFETY: the cookie is that of a registered watch, and this its only end.
            unsafe { (symbols.aio_unwatch)(io.raw, cookie, completion) }
        });
        // Nobody waits for the end; the cluster forgets the watch by its time-out at the latest.
        drop(submitted);
    }
}

/// A notification under way: the payload, and where librados puts the answers.
pub(in crate::rados) struct Notified {
    payload: bytes::Bytes,
    reply: *mut (*mut std::ffi::c_char, usize),
    io: Arc<IoCtx>,
}

// SAFETY: the reply has one owner at a time.
unsafe impl Send for Notified {}

impl Notified {
    pub(in crate::rados) fn submit(
        io: &Arc<IoCtx>,
        object: &CStr,
        payload: bytes::Bytes,
        timeout_ms: u64,
    ) -> Result<Underway<Self>, Code> {
        let notified = Self {
            payload,
            reply: Box::into_raw(Box::new((null_mut(), 0))),
            io: Arc::clone(io),
        };
        launch(io, notified, |symbols, notified, completion| {
            let (payload, reply) = (&notified.payload, notified.reply);
            // SAFETY: context, completion, payload and reply live until the completion.
            unsafe {
                (symbols.aio_notify)(
                    io.raw,
                    object.as_ptr(),
                    completion,
                    chars(payload),
                    int(payload.len()),
                    timeout_ms,
                    &raw mut (*reply).0,
                    &raw mut (*reply).1,
                )
            }
        })
    }

    /// Who answered and who did not, as librados encodes it. After the completion.
    pub(in crate::rados) fn take_reply(&mut self) -> Vec<u8> {
        // SAFETY: librados is done with the reply.
        let (start, length) = std::mem::replace(unsafe { &mut *self.reply }, (null_mut(), 0));
        take_buffer(self.io.cluster.symbols, start, length)
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        drop(self.take_reply());
        // SAFETY: made by `submit`; librados is done with it.
        drop(unsafe { Box::from_raw(self.reply) });
    }
}

unsafe extern "C" fn heard(
    number: Raw,
    id: u64,
    _cookie: u64,
    notifier: u64,
    payload: Raw,
    length: usize,
) {
    let payload = match payload.is_null() || length == 0 {
        true => bytes::Bytes::new(),
        // SAFETY: librados gives that many bytes for the time of the call.
        false => bytes::Bytes::copy_from_slice(unsafe {
            std::slice::from_raw_parts(payload.cast::<u8>(), length)
        }),
    };
    watch::heard(number.addr() as u64, id, notifier, payload);
}

unsafe extern "C" fn failed(number: Raw, _cookie: u64, _error: c_int) {
    watch::failed(number.addr() as u64);
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).expect("64-bit machines")
}
