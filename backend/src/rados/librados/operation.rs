//! Compound operations: what a write or a read asks, and where its answers lie.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use bytes::Bytes;

use super::flight::{Underway, launch};
use super::symbols::{Raw, Symbols};
use super::{Code, IoCtx, chars};

/// Guards and steps of a write. Used once: submitting consumes it.
pub(in crate::rados) struct WriteOp {
    symbols: &'static Symbols,
    raw: Raw,
}

// SAFETY: an operation has one owner at a time.
unsafe impl Send for WriteOp {}

impl Drop for WriteOp {
    fn drop(&mut self) {
        // SAFETY: the operation is complete or was never submitted.
        unsafe { (self.symbols.release_write_op)(self.raw) };
    }
}

/// One guard or step, with everything it needs.
#[derive(Debug)]
#[expect(clippy::enum_variant_names, reason = "named as librados names them")]
pub(in crate::rados) enum Write<'a> {
    AssertExists,
    AssertVersion(u64),
    Compare(u64, &'a [u8]),
    /// Name, operator, value.
    CompareXattr(&'a CStr, u8, &'a [u8]),
    /// Key and value; no value is the same as an empty one.
    CompareOmap(&'a [u8], &'a [u8]),
    /// Whether it must not exist.
    Create(bool),
    Write(u64, &'a [u8]),
    WriteFull(&'a [u8]),
    Append(&'a [u8]),
    Truncate(u64),
    Zero(u64, u64),
    Remove,
    /// The next failure of the step before is no failure.
    FailOk,
    SetXattr(&'a CStr, &'a [u8]),
    RemoveXattr(&'a CStr),
    /// Keys and values.
    OmapSet(&'a [&'a [u8]], &'a [&'a [u8]]),
    OmapRemove(&'a [&'a [u8]]),
    OmapRemoveRange(&'a [u8], &'a [u8]),
    OmapClear,
    /// Class, method, argument.
    Execute(&'a CStr, &'a CStr, &'a [u8]),
}

/// `LIBRADOS_CMPXATTR_OP_EQ`.
pub(in crate::rados) const EQUAL: u8 = 1;
/// `LIBRADOS_CMPXATTR_OP_GTE`: the value given is at least the one stored.
pub(in crate::rados) const AT_LEAST: u8 = 4;
/// `LIBRADOS_OPERATION_FULL_TRY`
pub(in crate::rados) const FULL_TRY: c_int = 64;
/// `LIBRADOS_OPERATION_FULL_FORCE`
pub(in crate::rados) const FULL_FORCE: c_int = 128;
const FAIL_OK: c_int = 2;

fn columns(texts: &[&[u8]]) -> (Vec<*const c_char>, Vec<usize>) {
    texts.iter().map(|text| (chars(text), text.len())).unzip()
}

impl WriteOp {
    pub(in crate::rados) fn new(io: &IoCtx) -> Self {
        let symbols = io.cluster.symbols;
        // SAFETY: needs nothing.
        let raw = unsafe { (symbols.create_write_op)() };
        Self { symbols, raw }
    }

    pub(in crate::rados) fn push(&mut self, step: &Write<'_>) {
        let (s, op) = (self.symbols, self.raw);
        // SAFETY: the operation is ours and not submitted; texts are terminated, lengths are those
        // of the slices, and librados copies all of it before it returns.
        unsafe {
            match *step {
                Write::AssertExists => (s.write_op_assert_exists)(op),
                Write::AssertVersion(version) => (s.write_op_assert_version)(op, version),
                Write::Compare(at, data) => {
                    (s.write_op_cmpext)(op, chars(data), data.len(), at, null_mut());
                }
                Write::CompareXattr(name, how, value) => {
                    (s.write_op_cmpxattr)(op, name.as_ptr(), how, chars(value), value.len());
                }
                Write::CompareOmap(key, value) => {
                    let (k, v) = (key.len(), value.len());
                    (s.write_op_omap_cmp2)(op, chars(key), EQUAL, chars(value), k, v, null_mut());
                }
                Write::Create(exclusive) => {
                    (s.write_op_create)(op, c_int::from(exclusive), null());
                }
                Write::Write(at, data) => (s.write_op_write)(op, chars(data), data.len(), at),
                Write::WriteFull(data) => (s.write_op_write_full)(op, chars(data), data.len()),
                Write::Append(data) => (s.write_op_append)(op, chars(data), data.len()),
                Write::Truncate(size) => (s.write_op_truncate)(op, size),
                Write::Zero(at, length) => (s.write_op_zero)(op, at, length),
                Write::Remove => (s.write_op_remove)(op),
                Write::FailOk => (s.write_op_set_flags)(op, FAIL_OK),
                Write::SetXattr(name, value) => {
                    (s.write_op_setxattr)(op, name.as_ptr(), chars(value), value.len());
                }
                Write::RemoveXattr(name) => (s.write_op_rmxattr)(op, name.as_ptr()),
                Write::OmapSet(keys, values) => {
                    let (keys, values) = (columns(keys), columns(values));
                    let (k, v) = (keys.0.as_ptr(), values.0.as_ptr());
                    let (key_lengths, count) = (keys.1.as_ptr(), keys.1.len());
                    (s.write_op_omap_set2)(op, k, v, key_lengths, values.1.as_ptr(), count);
                }
                Write::OmapRemove(keys) => {
                    let (keys, lengths) = columns(keys);
                    (s.write_op_omap_rm_keys2)(op, keys.as_ptr(), lengths.as_ptr(), keys.len());
                }
                Write::OmapRemoveRange(start, end) => {
                    let (first, last) = (chars(start), chars(end));
                    (s.write_op_omap_rm_range2)(op, first, start.len(), last, end.len());
                }
                Write::OmapClear => (s.write_op_omap_clear)(op),
                Write::Execute(class, method, input) => {
                    let (class, method) = (class.as_ptr(), method.as_ptr());
                    (s.write_op_exec)(op, class, method, chars(input), input.len(), null_mut());
                }
            }
        }
    }

    /// `kept` stays until librados is done.
    pub(in crate::rados) fn submit<K: Send + 'static>(
        self,
        io: &Arc<IoCtx>,
        object: &CStr,
        flags: c_int,
        kept: K,
    ) -> Result<Underway<(Self, K)>, Code> {
        launch(io, (self, kept), |symbols, (op, _), completion| {
            let (object, time) = (object.as_ptr(), null_mut());
            // SAFETY: operation, context and completion live until the completion.
            unsafe {
                (symbols.aio_write_op_operate)(op.raw, io.raw, completion, object, time, flags)
            }
        })
    }
}

/// Guards and questions of a read.
pub(in crate::rados) struct ReadOp {
    symbols: &'static Symbols,
    raw: Raw,
    slots: Vec<Slot>,
}

// SAFETY: an operation has one owner at a time, and its slots too.
unsafe impl Send for ReadOp {}

/// Where librados puts an answer. A raw pointer, since librados writes to it at any time until the
/// completion.
struct Slot(*mut Out, &'static Symbols);

struct Out {
    size: u64,
    seconds: i64,
    byte_count: usize,
    more: u8,
    code: c_int,
    xattrs: Raw,
    omap: Raw,
    buffer: Vec<u8>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: made by `ReadOp::slot`; librados is done with it.
        let out = unsafe { Box::from_raw(self.0) };
        if !out.xattrs.is_null() {
            // SAFETY: the iterator is librados' own and is not used again.
            unsafe { (self.1.getxattrs_end)(out.xattrs) };
        }
        if !out.omap.is_null() {
            // SAFETY: as above.
            unsafe { (self.1.omap_get_end)(out.omap) };
        }
    }
}

impl Drop for ReadOp {
    fn drop(&mut self) {
        // SAFETY: the operation is complete or was never submitted.
        unsafe { (self.symbols.release_read_op)(self.raw) };
    }
}

/// One guard or question.
#[derive(Debug)]
pub(in crate::rados) enum Read<'a> {
    AssertExists,
    AssertVersion(u64),
    Compare(u64, &'a [u8]),
    CompareXattr(&'a CStr, u8, &'a [u8]),
    CompareOmap(&'a [u8], &'a [u8]),
    Stat,
    /// Offset and length.
    Bytes(u64, usize),
    Xattrs,
    OmapGet(&'a [&'a [u8]]),
    /// Keys and values behind the first text that begin with the second.
    OmapScan(&'a CStr, &'a CStr, u64),
    OmapKeys(&'a CStr, u64),
}

impl ReadOp {
    pub(in crate::rados) fn new(io: &IoCtx) -> Self {
        let symbols = io.cluster.symbols;
        Self {
            symbols,
            // SAFETY: needs nothing.
            raw: unsafe { (symbols.create_read_op)() },
            slots: Vec::new(),
        }
    }

    /// Each has a slot, in order.
    pub(in crate::rados) fn push(&mut self, step: &Read<'_>) {
        let length = if let Read::Bytes(_, length) = step {
            *length
        } else {
            0
        };
        let out = Box::into_raw(Box::new(Out {
            size: 0,
            seconds: 0,
            byte_count: 0,
            more: 0,
            code: 0,
            xattrs: null_mut(),
            omap: null_mut(),
            buffer: Vec::with_capacity(length),
        }));
        self.slots.push(Slot(out, self.symbols));
        let (s, op) = (self.symbols, self.raw);
        // SAFETY: the operation is ours and not submitted; texts are terminated, lengths are those
        // of the slices, and librados copies them; the slot lives as long as the operation.
        unsafe {
            let code = &raw mut (*out).code;
            match *step {
                Read::AssertExists => (s.read_op_assert_exists)(op),
                Read::AssertVersion(version) => (s.read_op_assert_version)(op, version),
                Read::Compare(at, data) => {
                    (s.read_op_cmpext)(op, chars(data), data.len(), at, code);
                }
                Read::CompareXattr(name, how, value) => {
                    (s.read_op_cmpxattr)(op, name.as_ptr(), how, chars(value), value.len());
                }
                Read::CompareOmap(key, value) => {
                    let (k, v) = (key.len(), value.len());
                    (s.read_op_omap_cmp2)(op, chars(key), EQUAL, chars(value), k, v, code);
                }
                Read::Stat => {
                    (s.read_op_stat)(op, &raw mut (*out).size, &raw mut (*out).seconds, code);
                }
                Read::Bytes(at, length) => {
                    let buffer = &mut (*out).buffer;
                    let buffer = buffer.as_mut_ptr().cast();
                    let count = &raw mut (*out).byte_count;
                    (s.read_op_read)(op, at, length, buffer, count, code);
                }
                Read::Xattrs => (s.read_op_getxattrs)(op, &raw mut (*out).xattrs, code),
                Read::OmapGet(keys) => {
                    let (keys, lengths) = columns(keys);
                    let (first, count) = (keys.as_ptr(), keys.len());
                    let omap = &raw mut (*out).omap;
                    (s.read_op_omap_get_vals_by_keys2)(
                        op,
                        first,
                        count,
                        lengths.as_ptr(),
                        omap,
                        code,
                    );
                }
                Read::OmapScan(after, prefix, count) => {
                    let (after, prefix) = (after.as_ptr(), prefix.as_ptr());
                    let (omap, more) = (&raw mut (*out).omap, &raw mut (*out).more);
                    (s.read_op_omap_get_vals2)(op, after, prefix, count, omap, more, code);
                }
                Read::OmapKeys(after, count) => {
                    let (omap, more) = (&raw mut (*out).omap, &raw mut (*out).more);
                    (s.read_op_omap_get_keys2)(op, after.as_ptr(), count, omap, more, code);
                }
            }
        }
    }

    /// `kept` stays until librados is done.
    pub(in crate::rados) fn submit<K: Send + 'static>(
        self,
        io: &Arc<IoCtx>,
        object: &CStr,
        kept: K,
    ) -> Result<Underway<(Answers, K)>, Code> {
        launch(io, (Answers(self), kept), |symbols, (op, _), completion| {
            // SAFETY: operation, slots, context and completion live until the completion.
            unsafe {
                (symbols.aio_read_op_operate)(op.0.raw, io.raw, completion, object.as_ptr(), 0)
            }
        })
    }
}

/// The slots of a read. Seen by others only after the completion.
pub(in crate::rados) struct Answers(ReadOp);

/// Keys or names, and values.
pub(in crate::rados) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

impl Answers {
    pub(in crate::rados) fn size(&self, slot: usize) -> u64 {
        self.out(slot).size
    }

    /// The outcome of a guard or question; 0 if it worked or was not reached.
    pub(in crate::rados) fn code(&self, slot: usize) -> c_int {
        self.out(slot).code
    }

    /// Whether librados left out what else there is.
    pub(in crate::rados) fn more(&self, slot: usize) -> bool {
        self.out(slot).more != 0
    }

    pub(in crate::rados) fn take_bytes(&mut self, slot: usize) -> Bytes {
        // SAFETY: librados is done with the slot, and `self` is its only owner.
        let out = unsafe { &mut *self.0.slots[slot].0 };
        let mut buffer = std::mem::take(&mut out.buffer);
        assert!(
            out.byte_count <= buffer.capacity(),
            "librados keeps to the room"
        );
        // SAFETY: librados filled that many bytes.
        unsafe { buffer.set_len(out.byte_count) };
        buffer.shrink_to_fit();
        Bytes::from(buffer)
    }

    pub(in crate::rados) fn xattrs(&mut self, slot: usize) -> Pairs {
        let iterator = self.out(slot).xattrs;
        let mut pairs = Vec::new();
        loop {
            let (mut name, mut value, mut length) = (null(), null(), 0);
            // SAFETY: the iterator is filled; the out-pointers live during the call.
            let code = unsafe {
                let next = self.0.symbols.getxattrs_next;
                next(iterator, &raw mut name, &raw mut value, &raw mut length)
            };
            if code < 0 || name.is_null() {
                return pairs;
            }
            // SAFETY: librados gives a terminated name.
            let name = unsafe { CStr::from_ptr(name) }.to_bytes();
            pairs.push((name.to_vec(), copied(value, length)));
        }
    }

    pub(in crate::rados) fn omap(&mut self, slot: usize) -> Pairs {
        let iterator = self.out(slot).omap;
        let mut pairs = Vec::new();
        loop {
            let (mut key, mut value) = (null_mut(), null_mut());
            let (mut key_length, mut length) = (0, 0);
            // SAFETY: the iterator is filled; the out-pointers live during the call.
            let code = unsafe {
                let next = self.0.symbols.omap_get_next2;
                let lengths = (&raw mut key_length, &raw mut length);
                next(iterator, &raw mut key, &raw mut value, lengths.0, lengths.1)
            };
            if code < 0 || key.is_null() {
                return pairs;
            }
            pairs.push((copied(key, key_length), copied(value, length)));
        }
    }

    fn out(&self, slot: usize) -> &Out {
        // SAFETY: librados is done with the slot.
        unsafe { &*self.0.slots[slot].0 }
    }
}

fn copied(start: *const c_char, length: usize) -> Vec<u8> {
    if start.is_null() {
        return Vec::new();
    }
    // SAFETY: librados gives as many bytes as the length says, until the iterator moves on.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec()
}
