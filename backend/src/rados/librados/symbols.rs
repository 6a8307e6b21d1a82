//! The functions of librados that the engine calls: their types, and how they are found.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use libloading::Library;

use crate::error::{Error, ErrorKind};

/// What librados hands out: clusters, contexts, operations, iterators, cursors, completions.
pub(super) type Raw = *mut c_void;

pub(super) type Void1 = unsafe extern "C" fn(Raw);
pub(super) type Int1 = unsafe extern "C" fn(Raw) -> c_int;
pub(super) type Text1 = unsafe extern "C" fn(Raw, *const c_char) -> c_int;
pub(super) type Callback = unsafe extern "C" fn(Raw, Raw);
pub(super) type Operate =
    unsafe extern "C" fn(Raw, Raw, Raw, *const c_char, *mut i64, c_int) -> c_int;
pub(super) type OperateRead = unsafe extern "C" fn(Raw, Raw, Raw, *const c_char, c_int) -> c_int;
pub(super) type Xattr = unsafe extern "C" fn(Raw, *const c_char, u8, *const c_char, usize);
pub(super) type Cmpext = unsafe extern "C" fn(Raw, *const c_char, usize, u64, *mut c_int);
pub(super) type OmapCmp =
    unsafe extern "C" fn(Raw, *const c_char, u8, *const c_char, usize, usize, *mut c_int);
pub(super) type Piece = unsafe extern "C" fn(Raw, *const c_char, usize);
pub(super) type Texts = *const *const c_char;
pub(super) type NextXattr =
    unsafe extern "C" fn(Raw, *mut *const c_char, *mut *const c_char, *mut usize) -> c_int;
pub(super) type NextOmap =
    unsafe extern "C" fn(Raw, *mut *mut c_char, *mut *mut c_char, *mut usize, *mut usize) -> c_int;
pub(super) type Notified = unsafe extern "C" fn(Raw, u64, u64, u64, Raw, usize);
pub(super) type WatchFailed = unsafe extern "C" fn(Raw, u64, c_int);
pub(super) type MonCommand = unsafe extern "C" fn(
    Raw,
    Texts,
    usize,
    *const c_char,
    usize,
    *mut *mut c_char,
    *mut usize,
    *mut *mut c_char,
    *mut usize,
) -> c_int;
pub(super) type ListLockers = unsafe extern "C" fn(
    Raw,
    *const c_char,
    *const c_char,
    *mut c_int,
    *mut c_char,
    *mut usize,
    *mut c_char,
    *mut usize,
    *mut c_char,
    *mut usize,
    *mut c_char,
    *mut usize,
) -> isize;

/// The functions that the engine calls, by their names without `rados_`.
pub(super) struct Symbols {
    pub(super) create2: unsafe extern "C" fn(*mut Raw, *const c_char, *const c_char, u64) -> c_int,
    pub(super) conf_read_file: Text1,
    pub(super) conf_set: unsafe extern "C" fn(Raw, *const c_char, *const c_char) -> c_int,
    pub(super) connect: Int1,
    pub(super) shutdown: Void1,
    pub(super) getaddrs: unsafe extern "C" fn(Raw, *mut *mut c_char) -> c_int,
    pub(super) get_instance_id: unsafe extern "C" fn(Raw) -> u64,
    pub(super) mon_command: MonCommand,
    pub(super) buffer_free: unsafe extern "C" fn(*mut c_char),
    pub(super) wait_for_latest_osdmap: Int1,
    pub(super) pool_lookup: unsafe extern "C" fn(Raw, *const c_char) -> i64,
    pub(super) ioctx_create2: unsafe extern "C" fn(Raw, i64, *mut Raw) -> c_int,
    pub(super) ioctx_destroy: Void1,
    pub(super) ioctx_set_namespace: unsafe extern "C" fn(Raw, *const c_char),
    pub(super) ioctx_snap_set_read: unsafe extern "C" fn(Raw, u64),
    pub(super) snap_create: unsafe extern "C" fn(Raw, *mut u64) -> c_int,
    pub(super) snap_remove: unsafe extern "C" fn(Raw, u64) -> c_int,
    pub(super) snap_set_write_ctx: unsafe extern "C" fn(Raw, u64, *const u64, c_int) -> c_int,
    pub(super) aio_create_completion2:
        unsafe extern "C" fn(Raw, Option<Callback>, *mut Raw) -> c_int,
    pub(super) aio_get_return_value: Int1,
    pub(super) aio_get_version: unsafe extern "C" fn(Raw) -> u64,
    pub(super) aio_release: Void1,
    pub(super) create_write_op: unsafe extern "C" fn() -> Raw,
    pub(super) release_write_op: Void1,
    pub(super) write_op_set_flags: unsafe extern "C" fn(Raw, c_int),
    pub(super) write_op_assert_exists: Void1,
    pub(super) write_op_assert_version: unsafe extern "C" fn(Raw, u64),
    pub(super) write_op_cmpext: Cmpext,
    pub(super) write_op_cmpxattr: Xattr,
    pub(super) write_op_omap_cmp2: OmapCmp,
    pub(super) write_op_setxattr: unsafe extern "C" fn(Raw, *const c_char, *const c_char, usize),
    pub(super) write_op_rmxattr: unsafe extern "C" fn(Raw, *const c_char),
    pub(super) write_op_create: unsafe extern "C" fn(Raw, c_int, *const c_char),
    pub(super) write_op_write: unsafe extern "C" fn(Raw, *const c_char, usize, u64),
    pub(super) write_op_write_full: Piece,
    pub(super) write_op_append: Piece,
    pub(super) write_op_remove: Void1,
    pub(super) write_op_truncate: unsafe extern "C" fn(Raw, u64),
    pub(super) write_op_zero: unsafe extern "C" fn(Raw, u64, u64),
    pub(super) write_op_exec:
        unsafe extern "C" fn(Raw, *const c_char, *const c_char, *const c_char, usize, *mut c_int),
    pub(super) write_op_omap_set2:
        unsafe extern "C" fn(Raw, Texts, Texts, *const usize, *const usize, usize),
    pub(super) write_op_omap_rm_keys2: unsafe extern "C" fn(Raw, Texts, *const usize, usize),
    pub(super) write_op_omap_rm_range2:
        unsafe extern "C" fn(Raw, *const c_char, usize, *const c_char, usize),
    pub(super) write_op_omap_clear: Void1,
    pub(super) aio_write_op_operate: Operate,
    pub(super) create_read_op: unsafe extern "C" fn() -> Raw,
    pub(super) release_read_op: Void1,
    pub(super) read_op_assert_exists: Void1,
    pub(super) read_op_assert_version: unsafe extern "C" fn(Raw, u64),
    pub(super) read_op_cmpext: Cmpext,
    pub(super) read_op_cmpxattr: Xattr,
    pub(super) read_op_omap_cmp2: OmapCmp,
    pub(super) read_op_getxattrs: unsafe extern "C" fn(Raw, *mut Raw, *mut c_int),
    pub(super) read_op_stat: unsafe extern "C" fn(Raw, *mut u64, *mut i64, *mut c_int),
    pub(super) read_op_read:
        unsafe extern "C" fn(Raw, u64, usize, *mut c_char, *mut usize, *mut c_int),
    pub(super) read_op_omap_get_vals2:
        unsafe extern "C" fn(Raw, *const c_char, *const c_char, u64, *mut Raw, *mut u8, *mut c_int),
    pub(super) read_op_omap_get_keys2:
        unsafe extern "C" fn(Raw, *const c_char, u64, *mut Raw, *mut u8, *mut c_int),
    pub(super) read_op_omap_get_vals_by_keys2:
        unsafe extern "C" fn(Raw, Texts, usize, *const usize, *mut Raw, *mut c_int),
    pub(super) aio_read_op_operate: OperateRead,
    pub(super) getxattrs_next: NextXattr,
    pub(super) getxattrs_end: Void1,
    pub(super) omap_get_next2: NextOmap,
    pub(super) omap_get_end: Void1,
    pub(super) list_lockers: ListLockers,
    pub(super) object_list_begin: unsafe extern "C" fn(Raw) -> Raw,
    pub(super) object_list_end: unsafe extern "C" fn(Raw) -> Raw,
    pub(super) object_list_is_end: unsafe extern "C" fn(Raw, Raw) -> c_int,
    pub(super) object_list_cursor_free: unsafe extern "C" fn(Raw, Raw),
    pub(super) object_list: unsafe extern "C" fn(
        Raw,
        Raw,
        Raw,
        usize,
        *const c_char,
        usize,
        *mut ListItem,
        *mut Raw,
    ) -> c_int,
    pub(super) object_list_free: unsafe extern "C" fn(usize, *mut ListItem),
    pub(super) aio_watch2: unsafe extern "C" fn(
        Raw,
        *const c_char,
        Raw,
        *mut u64,
        Notified,
        WatchFailed,
        u32,
        Raw,
    ) -> c_int,
    pub(super) aio_unwatch: unsafe extern "C" fn(Raw, u64, Raw) -> c_int,
    pub(super) aio_notify: unsafe extern "C" fn(
        Raw,
        *const c_char,
        Raw,
        *const c_char,
        c_int,
        u64,
        *mut *mut c_char,
        *mut usize,
    ) -> c_int,
    pub(super) notify_ack:
        unsafe extern "C" fn(Raw, *const c_char, u64, u64, *const c_char, c_int) -> c_int,
    pub(super) version: unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int),
}

/// `rados_object_list_item`.
#[repr(C)]
pub(super) struct ListItem {
    pub(super) name_length: usize,
    pub(super) name: *mut c_char,
    pub(super) namespace_length: usize,
    pub(super) namespace: *mut c_char,
    pub(super) locator_length: usize,
    pub(super) locator: *mut c_char,
}

const LIBRARY: &str = "librados.so.2";

/// Loaded once and never unloaded: librados' threads may outlive every handle.
static LOADED: Mutex<Option<&'static Symbols>> = Mutex::new(None);

pub(super) fn load() -> Result<&'static Symbols, Error> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(symbols) = *loaded {
        return Ok(symbols);
    }
    // SAFETY: librados' initialisers are those of a well-behaved C++ library; the name is that of
    // its stable ABI.
    let library = unsafe { Library::new(LIBRARY) }.map_err(|error| {
        let text = "load librados.so.2; install the package librados2 (Debian, Ubuntu, Fedora)";
        Error::new(ErrorKind::Unsupported, text).with_source(error)
    })?;
    let symbols: &'static Symbols = Box::leak(Box::new(Symbols::find(&library)?));
    std::mem::forget(library);
    *loaded = Some(symbols);
    Ok(symbols)
}

/// The pointer's type is what the caller's field says.
fn find<T: Copy>(library: &Library, name: &str) -> Result<T, Error> {
    let name = format!("rados_{name}");
    // SAFETY: each field of `Symbols` has the type of the function's declaration in librados.h,
    // which has been the same from version 16 on; the library is never unloaded.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|error| {
        let text = format!("find {name} in {LIBRARY}; Portico needs librados2 16 or newer");
        Error::new(ErrorKind::Unsupported, text).with_source(error)
    })
}

impl Symbols {
    #[expect(clippy::too_many_lines, reason = "a table of names, one a line")]
    fn find(l: &Library) -> Result<Self, Error> {
        Ok(Self {
            create2: find(l, "create2")?,
            conf_read_file: find(l, "conf_read_file")?,
            conf_set: find(l, "conf_set")?,
            connect: find(l, "connect")?,
            shutdown: find(l, "shutdown")?,
            getaddrs: find(l, "getaddrs")?,
            get_instance_id: find(l, "get_instance_id")?,
            mon_command: find(l, "mon_command")?,
            buffer_free: find(l, "buffer_free")?,
            wait_for_latest_osdmap: find(l, "wait_for_latest_osdmap")?,
            pool_lookup: find(l, "pool_lookup")?,
            ioctx_create2: find(l, "ioctx_create2")?,
            ioctx_destroy: find(l, "ioctx_destroy")?,
            ioctx_set_namespace: find(l, "ioctx_set_namespace")?,
            ioctx_snap_set_read: find(l, "ioctx_snap_set_read")?,
            snap_create: find(l, "ioctx_selfmanaged_snap_create")?,
            snap_remove: find(l, "ioctx_selfmanaged_snap_remove")?,
            snap_set_write_ctx: find(l, "ioctx_selfmanaged_snap_set_write_ctx")?,
            aio_create_completion2: find(l, "aio_create_completion2")?,
            aio_get_return_value: find(l, "aio_get_return_value")?,
            aio_get_version: find(l, "aio_get_version")?,
            aio_release: find(l, "aio_release")?,
            create_write_op: find(l, "create_write_op")?,
            release_write_op: find(l, "release_write_op")?,
            write_op_set_flags: find(l, "write_op_set_flags")?,
            write_op_assert_exists: find(l, "write_op_assert_exists")?,
            write_op_assert_version: find(l, "write_op_assert_version")?,
            write_op_cmpext: find(l, "write_op_cmpext")?,
            write_op_cmpxattr: find(l, "write_op_cmpxattr")?,
            write_op_omap_cmp2: find(l, "write_op_omap_cmp2")?,
            write_op_setxattr: find(l, "write_op_setxattr")?,
            write_op_rmxattr: find(l, "write_op_rmxattr")?,
            write_op_create: find(l, "write_op_create")?,
            write_op_write: find(l, "write_op_write")?,
            write_op_write_full: find(l, "write_op_write_full")?,
            write_op_append: find(l, "write_op_append")?,
            write_op_remove: find(l, "write_op_remove")?,
            write_op_truncate: find(l, "write_op_truncate")?,
            write_op_zero: find(l, "write_op_zero")?,
            write_op_exec: find(l, "write_op_exec")?,
            write_op_omap_set2: find(l, "write_op_omap_set2")?,
            write_op_omap_rm_keys2: find(l, "write_op_omap_rm_keys2")?,
            write_op_omap_rm_range2: find(l, "write_op_omap_rm_range2")?,
            write_op_omap_clear: find(l, "write_op_omap_clear")?,
            aio_write_op_operate: find(l, "aio_write_op_operate")?,
            create_read_op: find(l, "create_read_op")?,
            release_read_op: find(l, "release_read_op")?,
            read_op_assert_exists: find(l, "read_op_assert_exists")?,
            read_op_assert_version: find(l, "read_op_assert_version")?,
            read_op_cmpext: find(l, "read_op_cmpext")?,
            read_op_cmpxattr: find(l, "read_op_cmpxattr")?,
            read_op_omap_cmp2: find(l, "read_op_omap_cmp2")?,
            read_op_getxattrs: find(l, "read_op_getxattrs")?,
            read_op_stat: find(l, "read_op_stat")?,
            read_op_read: find(l, "read_op_read")?,
            read_op_omap_get_vals2: find(l, "read_op_omap_get_vals2")?,
            read_op_omap_get_keys2: find(l, "read_op_omap_get_keys2")?,
            read_op_omap_get_vals_by_keys2: find(l, "read_op_omap_get_vals_by_keys2")?,
            aio_read_op_operate: find(l, "aio_read_op_operate")?,
            getxattrs_next: find(l, "getxattrs_next")?,
            getxattrs_end: find(l, "getxattrs_end")?,
            omap_get_next2: find(l, "omap_get_next2")?,
            omap_get_end: find(l, "omap_get_end")?,
            list_lockers: find(l, "list_lockers")?,
            object_list_begin: find(l, "object_list_begin")?,
            object_list_end: find(l, "object_list_end")?,
            object_list_is_end: find(l, "object_list_is_end")?,
            object_list_cursor_free: find(l, "object_list_cursor_free")?,
            object_list: find(l, "object_list")?,
            object_list_free: find(l, "object_list_free")?,
            aio_watch2: find(l, "aio_watch2")?,
            aio_unwatch: find(l, "aio_unwatch")?,
            aio_notify: find(l, "aio_notify")?,
            notify_ack: find(l, "notify_ack")?,
            version: find(l, "version")?,
        })
    }
}
