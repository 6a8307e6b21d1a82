//! Where the engine's files lie: a directory, or the simulated disk of the crash suite.
//!
//! The trait has two implementations because power loss can't be shown on a real file: see
//! `docs/decisions/0004-the-local-engine.md`. It knows nothing of what the files hold.

use std::collections::HashMap;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::{Error, ErrorKind};

/// One file of a store.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum FileName {
    /// Identity; see `superblock`.
    Superblock,
    /// The ordered base.
    Base,
    /// Blocks of objects.
    Data,
    /// One of the two write-ahead logs.
    Log(u8),
    /// Space given up when the disk is full, so that removing still works.
    Reserve,
}

impl FileName {
    pub const ALL: [Self; 6] = [
        Self::Superblock,
        Self::Base,
        Self::Data,
        Self::Log(0),
        Self::Log(1),
        Self::Reserve,
    ];

    /// The path below the store's directory.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Base => "base.redb",
            Self::Data => "data",
            Self::Log(0) => "log/0",
            Self::Log(_) => "log/1",
            Self::Reserve => "reserve",
        }
    }
}

/// Files that are read and written at offsets. A file that was never created is empty.
pub trait Medium: Debug + Send + Sync + 'static {
    fn len(&self, file: FileName) -> io::Result<u64>;

    /// Fills `buffer`; `UnexpectedEof` if the file ends before.
    fn read_at(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// As `read_at`, but says `false`, with anything in `buffer`, where it would wait for a device.
    fn read_at_once(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        self.read_at(file, offset, buffer).map(|()| true)
    }

    /// Writes all of `data`, extending the file if need be. `StorageFull` if there is no room.
    fn write_at(&self, file: FileName, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Cuts, or extends with zeros that may take no space.
    fn set_len(&self, file: FileName, len: u64) -> io::Result<()>;

    /// Extends to `len` with zeros that have their space. `StorageFull` if there is no room.
    fn allocate(&self, file: FileName, len: u64) -> io::Result<()>;

    /// When this returns, all that was done to the file before the call is stable.
    fn sync(&self, file: FileName) -> io::Result<()>;

    /// Bytes of the whole device, if they are known.
    fn device_bytes(&self) -> Option<u64>;

    /// Bytes of it that can still be taken, if they are known.
    fn free_bytes(&self) -> Option<u64>;
}

/// A directory of a file system, locked while open.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    files: RwLock<HashMap<FileName, Arc<File>>>,
    /// Locked for as long as the value lives.
    _lock: File,
    read_only: bool,
}

impl Directory {
    /// Makes the directory if it is not there, and locks it.
    ///
    /// # Errors
    /// `Busy` if somebody has it open; the text names the path and the process, if known.
    pub fn open(path: &Path) -> Result<Self, Error> {
        fs::create_dir_all(path.join("log"))
            .map_err(|e| unavailable(format!("making {}", path.display()), e))?;
        Self::locked(path, false)
    }

    /// Opens an existing directory without ever changing what is in it.
    ///
    /// # Errors
    /// As `open`; `NotFound` if there is no store.
    pub fn open_read_only(path: &Path) -> Result<Self, Error> {
        if !path.join(FileName::Superblock.path()).exists() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{} holds no store", path.display()),
            ));
        }
        Self::locked(path, true)
    }

    fn locked(path: &Path, read_only: bool) -> Result<Self, Error> {
        let lock_path = path.join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(|e| unavailable(format!("opening {}", lock_path.display()), e))?;
        give_to_owner_of(path, &lock)
            .map_err(|e| unavailable(format!("making {}", lock_path.display()), e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let known = lock.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
                let who = if known {
                    format!("process {}", holder.trim())
                } else {
                    "another process".to_owned()
                };
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!("{} is open in {who}", path.display()),
                ));
            }
            Err(TryLockError::Error(e)) => {
                return Err(unavailable(format!("locking {}", lock_path.display()), e));
            }
        }
        lock.set_len(0)
            .and_then(|()| lock.write_all_at(std::process::id().to_string().as_bytes(), 0))
            .map_err(|e| unavailable(format!("writing {}", lock_path.display()), e))?;
        Ok(Self {
            path: path.to_owned(),
            files: RwLock::default(),
            _lock: lock,
            read_only,
        })
    }

    fn opened(&self, name: FileName) -> Option<Arc<File>> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.get(&name).map(Arc::clone)
    }

    /// The file, or `None` if it is not there and `create` is false.
    fn file(&self, name: FileName, create: bool) -> io::Result<Option<Arc<File>>> {
        if let Some(file) = self.opened(name) {
            return Ok(Some(file));
        }
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&name) {
            return Ok(Some(Arc::clone(file)));
        }
        let path = self.path.join(name.path());
        let mut options = OpenOptions::new();
        options.read(true).write(!self.read_only);
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound && create && !self.read_only => {
                let file = options.create_new(true).open(&path)?;
                // The name must be as stable as what will be written under it.
                if let Some(parent) = path.parent() {
                    File::open(parent)?.sync_all()?;
                }
                File::open(&self.path)?.sync_all()?;
                file
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound && !create => return Ok(None),
            Err(e) => return Err(e),
        };
        let file = Arc::new(file);
        files.insert(name, Arc::clone(&file));
        Ok(Some(file))
    }

    fn made(&self, name: FileName) -> io::Result<Arc<File>> {
        self.file(name, true)?
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl Medium for Directory {
    fn len(&self, file: FileName) -> io::Result<u64> {
        match self.file(file, false)? {
            Some(file) => file.metadata().map(|m| m.len()),
            None => Ok(0),
        }
    }

    fn read_at(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self.file(file, false)? {
            Some(file) => file.read_exact_at(buffer, offset),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    }

    fn read_at_once(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(file) = self.file(file, false)? else {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        };
        let wanted = buffer.len();
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        // Anything but all of it, refusals of file systems that can't say included, means to ask
        // again: `read_at` judges.
        let read = rustix::io::preadv2(&*file, &mut [io::IoSliceMut::new(buffer)], offset, flags);
        Ok(read == Ok(wanted))
    }

    fn write_at(&self, file: FileName, offset: u64, data: &[u8]) -> io::Result<()> {
        self.made(file)?.write_all_at(data, offset)
    }

    fn set_len(&self, file: FileName, len: u64) -> io::Result<()> {
        self.made(file)?.set_len(len)
    }

    fn allocate(&self, file: FileName, len: u64) -> io::Result<()> {
        let file = self.made(file)?;
        let old = file.metadata()?.len();
        if len <= old {
            return Ok(());
        }
        let flags = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(&*file, flags, old, len - old) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                zero_fill(&file, old, len)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn sync(&self, file: FileName) -> io::Result<()> {
        match self.opened(file) {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }

    fn device_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.path).ok()?;
        stat.f_blocks.checked_mul(stat.f_frsize)
    }

    fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.path).ok()?;
        stat.f_bavail.checked_mul(stat.f_frsize)
    }
}

/// Reads on whatever thread this is. A thread that serves tasks hands them to another one before it
/// waits for a device.
#[expect(
    clippy::disallowed_methods,
    reason = "redb reads pages wherever it is asked, and only here it shows that one is not in memory"
)]
pub(super) fn read_anywhere(
    medium: &dyn Medium,
    file: FileName,
    offset: u64,
    buffer: &mut [u8],
) -> io::Result<()> {
    if !serves_tasks() {
        return medium.read_at(file, offset, buffer);
    }
    if medium.read_at_once(file, offset, buffer)? {
        return Ok(());
    }
    tokio::task::block_in_place(|| medium.read_at(file, offset, buffer))
}

/// Whether this thread belongs to a runtime that can spare it.
pub(super) fn serves_tasks() -> bool {
    let runtime = tokio::runtime::Handle::try_current();
    runtime.is_ok_and(|it| it.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread)
}

/// Gives a file that root made to whoever owns the directory. A service without rights must find its
/// way after an administrator's command.
///
/// # Errors
/// If the directory cannot be looked at, or the file not be given away.
pub fn give_to_owner_of(directory: &Path, file: &File) -> io::Result<()> {
    let (owner, made) = (fs::metadata(directory)?, file.metadata()?);
    if made.uid() != 0 || owner.uid() == 0 {
        return Ok(());
    }
    fchown(file, Some(owner.uid()), Some(owner.gid()))
}

fn zero_fill(file: &File, mut from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; 256 * 1024];
    while from < to {
        let length = (to - from).min(zeros.len() as u64);
        let length = usize::try_from(length).expect("bounded by the buffer");
        file.write_all_at(&zeros[..length], from)?;
        from += length as u64;
    }
    Ok(())
}

fn unavailable(context: String, source: io::Error) -> Error {
    let kind = if source.kind() == io::ErrorKind::StorageFull {
        ErrorKind::NoSpace
    } else {
        ErrorKind::Unavailable
    };
    Error::new(kind, context).with_source(source)
}
