//! librados at run time: thin handles. The only module of the engine with `unsafe`.
//!
//! The library is loaded when the first cluster is opened, so that Portico builds and runs without
//! Ceph. The handles promise memory safety and nothing else: an operation owns everything librados
//! may still read or write until librados has completed it, whoever gave up waiting. A completion
//! wakes its future and does nothing else on librados' thread. What the calls mean is in
//! `rados/librados.h`; what the engine makes of them is in `write` and `read`.

#![expect(unsafe_code, reason = "calls of a C library")]

mod flight;
mod operation;
mod symbols;
mod watching;

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use self::symbols::{ListItem, Raw, Symbols, load};
use crate::error::{Error, ErrorKind};

pub(super) use self::operation::{
    AT_LEAST, Answers, EQUAL, FULL_FORCE, FULL_TRY, Pairs, Read, ReadOp, Write, WriteOp,
};
pub(super) use self::watching::{Notified, WatchHandle};

/// A negative error number of librados.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Code(pub(super) c_int);

fn check(code: c_int) -> Result<(), Code> {
    match code {
        0.. => Ok(()),
        _ => Err(Code(code)),
    }
}

/// Copies and frees what librados allocated.
fn take_buffer(symbols: &Symbols, buffer: *mut c_char, length: usize) -> Vec<u8> {
    if buffer.is_null() {
        return Vec::new();
    }
    // SAFETY: librados allocated `length` bytes at `buffer` and gave them to us.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), length) }.to_vec();
    // SAFETY: the buffer is librados' own and is not used again.
    unsafe { (symbols.buffer_free)(buffer) };
    bytes
}

/// A client of a cluster, and all its connections. Shuts down on a thread of its own, since the
/// last owner may be librados' thread, which the shutdown waits for.
pub(super) struct Cluster {
    symbols: &'static Symbols,
    raw: Raw,
    /// Until it has shut down.
    open: Option<Open>,
}

// SAFETY: librados guards a cluster's state by its own locks; any thread may call any function.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    pub(super) fn create(client: &CStr) -> Result<Self, Error> {
        let symbols = load()?;
        let mut raw = null_mut();
        // SAFETY: the out-pointer and the terminated texts live during the call.
        let code = unsafe { (symbols.create2)(&raw mut raw, c"ceph".as_ptr(), client.as_ptr(), 0) };
        match check(code) {
            Ok(()) => Ok(Self {
                symbols,
                raw,
                open: Some(Open::begin()),
            }),
            Err(Code(code)) => {
                let text = format!("make a client of the cluster (error {code})");
                Err(Error::new(ErrorKind::Unavailable, text))
            }
        }
    }

    /// The version of the library's interface, as major, minor and extra.
    pub(super) fn interface_version(&self) -> (c_int, c_int, c_int) {
        let (mut major, mut minor, mut extra) = (0, 0, 0);
        // SAFETY: the out-pointers live during the call.
        unsafe { (self.symbols.version)(&raw mut major, &raw mut minor, &raw mut extra) };
        (major, minor, extra)
    }

    pub(super) fn read_conf(&self, path: &CStr) -> Result<(), Code> {
        // SAFETY: the cluster is open, the text is terminated.
        check(unsafe { (self.symbols.conf_read_file)(self.raw, path.as_ptr()) })
    }

    pub(super) fn set(&self, option: &CStr, value: &CStr) -> Result<(), Code> {
        // SAFETY: the cluster is open, the texts are terminated.
        check(unsafe { (self.symbols.conf_set)(self.raw, option.as_ptr(), value.as_ptr()) })
    }

    /// Blocks. Called once, before anything below.
    pub(super) fn connect(&self) -> Result<(), Code> {
        // SAFETY: the cluster is open and not connected yet.
        check(unsafe { (self.symbols.connect)(self.raw) })
    }

    pub(super) fn addresses(&self) -> Result<Vec<u8>, Code> {
        let mut text = null_mut();
        // SAFETY: the cluster is connected, the out-pointer lives during the call.
        check(unsafe { (self.symbols.getaddrs)(self.raw, &raw mut text) })?;
        // SAFETY: librados gives a terminated text.
        let length = unsafe { CStr::from_ptr(text) }.count_bytes();
        Ok(take_buffer(self.symbols, text, length))
    }

    /// The number under which watchers and lockers know this client.
    pub(super) fn instance(&self) -> u64 {
        // SAFETY: the cluster is connected.
        unsafe { (self.symbols.get_instance_id)(self.raw) }
    }

    /// Blocks. The error carries what the monitor says.
    pub(super) fn mon_command(&self, command: &CStr) -> Result<Vec<u8>, (Code, String)> {
        let commands = [command.as_ptr()];
        let (mut out, mut status) = ((null_mut(), 0), (null_mut(), 0));
        // SAFETY: the cluster is connected; the command and the out-pointers live during the call.
        let code = unsafe {
            (self.symbols.mon_command)(
                self.raw,
                commands.as_ptr(),
                1,
                null(),
                0,
                &raw mut out.0,
                &raw mut out.1,
                &raw mut status.0,
                &raw mut status.1,
            )
        };
        let out = take_buffer(self.symbols, out.0, out.1);
        let status = take_buffer(self.symbols, status.0, status.1);
        let said = String::from_utf8_lossy(&status).into_owned();
        check(code).map(|()| out).map_err(|code| (code, said))
    }

    /// Blocks.
    pub(super) fn wait_for_latest_map(&self) -> Result<(), Code> {
        // SAFETY: the cluster is connected.
        check(unsafe { (self.symbols.wait_for_latest_osdmap)(self.raw) })
    }

    pub(super) fn pool_id(&self, name: &CStr) -> Result<i64, Code> {
        // SAFETY: the cluster is connected, the text is terminated.
        let id = unsafe { (self.symbols.pool_lookup)(self.raw, name.as_ptr()) };
        match id {
            0.. => Ok(id),
            _ => Err(Code(c_int::try_from(id).unwrap_or(c_int::MIN))),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        struct Last(&'static Symbols, Raw);
        // SAFETY: nobody else has the cluster any more.
        unsafe impl Send for Last {}
        impl Last {
            fn shut_down(self) {
                // SAFETY: all contexts and operations held the cluster, so none is left.
                unsafe { (self.0.shutdown)(self.1) };
            }
        }
        let last = Last(self.symbols, self.raw);
        let open = self.open.take();
        let thread = std::thread::Builder::new().name("rados-shutdown".to_owned());
        // Without a thread the client stays open until the process ends.
        drop(thread.spawn(move || {
            last.shut_down();
            drop(open);
        }));
    }
}

/// Clients that have not shut down, and who waits for them.
static OPEN: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

struct Open;

impl Open {
    fn begin() -> Self {
        *OPEN.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *OPEN.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        OPEN.1.notify_all();
    }
}

/// Waits until every client has shut down: a process must not end under librados' hands. Blocks;
/// `false` if the time was too short, also for operations that keep a client open.
pub(super) fn wait_until_closed(timeout: Duration) -> bool {
    let count = OPEN.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = OPEN
        .1
        .wait_timeout_while(count, timeout, |count| *count > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
}

/// Whether the lock is exclusive; clients, cookies and addresses of its holders.
pub(super) type Lockers = (bool, [Vec<Vec<u8>>; 3]);

/// What a context sees and keeps.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum View {
    /// The newest state; writes keep these snapshots: the sequence, and ids newest first.
    Now(u64, Vec<u64>),
    At(u64),
}

/// A pool and namespace with a view. Nothing of it changes after it was made, so that any number of
/// threads may use it.
pub(super) struct IoCtx {
    cluster: Arc<Cluster>,
    raw: Raw,
}

// SAFETY: a context is only read after it was made; librados counts its users with atomics.
unsafe impl Send for IoCtx {}
// SAFETY: as above.
unsafe impl Sync for IoCtx {}

impl IoCtx {
    pub(super) fn open(
        cluster: &Arc<Cluster>,
        pool: i64,
        namespace: &CStr,
        view: &View,
    ) -> Result<Self, Code> {
        let symbols = cluster.symbols;
        let mut raw = null_mut();
        // SAFETY: the cluster is connected, the out-pointer lives during the call.
        check(unsafe { (symbols.ioctx_create2)(cluster.raw, pool, &raw mut raw) })?;
        let io = Self {
            cluster: Arc::clone(cluster),
            raw,
        };
        // SAFETY: nobody else knows the context yet, the text is terminated.
        unsafe { (symbols.ioctx_set_namespace)(raw, namespace.as_ptr()) };
        match view {
            View::Now(sequence, snapshots) => {
                let count = c_int::try_from(snapshots.len()).expect("a few thousand snapshots");
                // SAFETY: nobody else knows the context yet; librados copies `count` ids.
                check(unsafe {
                    (symbols.snap_set_write_ctx)(raw, *sequence, snapshots.as_ptr(), count)
                })?;
            }
            // SAFETY: nobody else knows the context yet.
            View::At(snapshot) => unsafe { (symbols.ioctx_snap_set_read)(raw, *snapshot) },
        }
        Ok(io)
    }

    /// Blocks.
    pub(super) fn snapshot_create(&self) -> Result<u64, Code> {
        let mut id = 0;
        // SAFETY: the context is open, the out-pointer lives during the call.
        check(unsafe { (self.cluster.symbols.snap_create)(self.raw, &raw mut id) })?;
        Ok(id)
    }

    /// Blocks.
    pub(super) fn snapshot_remove(&self, id: u64) -> Result<(), Code> {
        // SAFETY: the context is open.
        check(unsafe { (self.cluster.symbols.snap_remove)(self.raw, id) })
    }

    /// Who holds a lock, as client, cookie and address, and whether it is exclusive. Blocks.
    pub(super) fn lockers(&self, object: &CStr, lock: &CStr) -> Result<Lockers, Code> {
        const ROOM: usize = 64 * 1024;
        let mut exclusive = 0;
        let mut room = [(); 4].map(|()| (vec![0_u8; ROOM], ROOM));
        let [tag, clients, cookies, addresses] = &mut room;
        // SAFETY: the context is open; each buffer has as many bytes as its length says.
        let count = unsafe {
            (self.cluster.symbols.list_lockers)(
                self.raw,
                object.as_ptr(),
                lock.as_ptr(),
                &raw mut exclusive,
                tag.0.as_mut_ptr().cast(),
                &raw mut tag.1,
                clients.0.as_mut_ptr().cast(),
                &raw mut clients.1,
                cookies.0.as_mut_ptr().cast(),
                &raw mut cookies.1,
                addresses.0.as_mut_ptr().cast(),
                &raw mut addresses.1,
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return Err(Code(c_int::try_from(count).unwrap_or(c_int::MIN)));
        };
        let split = |(bytes, _): &(Vec<u8>, usize)| {
            let texts = bytes.split(|byte| *byte == 0);
            texts.take(count).map(<[u8]>::to_vec).collect()
        };
        let [_, clients, cookies, addresses] = &room;
        Ok((exclusive != 0, [clients, cookies, addresses].map(split)))
    }

    /// Up to `count_max` names from the cursor on, and where it goes on. Blocks.
    pub(super) fn list(
        self: &Arc<Self>,
        cursor: Option<&Cursor>,
        count_max: usize,
    ) -> Result<(Vec<Vec<u8>>, Option<Cursor>), Code> {
        let symbols = self.cluster.symbols;
        let made = |raw| Cursor {
            io: Arc::clone(self),
            raw,
        };
        // SAFETY: the context is open.
        let (begin, end) = unsafe {
            (
                (symbols.object_list_begin)(self.raw),
                (symbols.object_list_end)(self.raw),
            )
        };
        let (begin, end) = (made(begin), made(end));
        let mut items: Vec<ListItem> = Vec::with_capacity(count_max);
        // SAFETY: the context is open. librados wants a cursor to overwrite.
        let mut next = unsafe { (symbols.object_list_begin)(self.raw) };
        // SAFETY: the cursors belong to the context; there is room for `count_max` items, which
        // librados clears first.
        let count = unsafe {
            (symbols.object_list)(
                self.raw,
                cursor.map_or(begin.raw, |cursor| cursor.raw),
                end.raw,
                count_max,
                null(),
                0,
                items.as_mut_ptr(),
                &raw mut next,
            )
        };
        let next = made(next);
        check(count)?;
        let count = usize::try_from(count).expect("checked above");
        // SAFETY: librados filled as many items as it says.
        unsafe { items.set_len(count) };
        let own = items.iter().filter(|item| item.locator_length == 0);
        let names = own.map(|item| {
            // SAFETY: the name has as many bytes as its length says.
            unsafe { std::slice::from_raw_parts(item.name.cast::<u8>(), item.name_length) }.to_vec()
        });
        let names = names.collect();
        // SAFETY: the items are not used again.
        unsafe { (symbols.object_list_free)(count, items.as_mut_ptr()) };
        // SAFETY: the cursor belongs to the context.
        let is_end = unsafe { (symbols.object_list_is_end)(self.raw, next.raw) } != 0;
        Ok((names, (!is_end).then_some(next)))
    }
}

impl Drop for IoCtx {
    fn drop(&mut self) {
        // SAFETY: operations and cursors held the context, so none is left; the cluster is open.
        unsafe { (self.cluster.symbols.ioctx_destroy)(self.raw) };
    }
}

/// Where a listing goes on.
pub(super) struct Cursor {
    io: Arc<IoCtx>,
    raw: Raw,
}

// SAFETY: a cursor is only read after it was made.
unsafe impl Send for Cursor {}
// SAFETY: as above.
unsafe impl Sync for Cursor {}

impl Drop for Cursor {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the cursor belongs to the context and is not used again.
            unsafe { (self.io.cluster.symbols.object_list_cursor_free)(self.io.raw, self.raw) };
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl fmt::Debug for IoCtx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoCtx").finish_non_exhaustive()
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").finish_non_exhaustive()
    }
}

fn int(length: usize) -> c_int {
    c_int::try_from(length).expect("limits keep payloads below 2 GiB")
}

fn chars(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}
