//! A file system in memory, for tests: what a real one does, told in few words.

mod verbs;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;

use super::{Allowed, Around, Caller, Error, Made, Node, NodeId, Place};
use crate::session::reply_cache::CallKey;
use crate::wire::nfs3::attributes::{
    Attributes, Device, FileType, SetAttributes, SetTime, Time, WccAttributes,
};

/// Everything, and what was kept with changes.
#[derive(Debug)]
pub(crate) struct Memory {
    id: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    kept: Vec<(CallKey, Bytes)>,
    changes: u32,
    /// What every change fails with from now on.
    fault: Option<Error>,
}

#[derive(Clone, Debug)]
struct Inode {
    attributes: Attributes,
    /// By cookie.
    entries: BTreeMap<u64, (Bytes, u64)>,
    parent: u64,
    next_cookie: u64,
    data: Vec<u8>,
    target: Bytes,
    verifier: Option<[u8; 8]>,
}

const ROOT: u64 = 1;
const GENERATION: u32 = 7;
const VERIFIER: [u8; 8] = *b"constant";
const FILE_BYTES_MAX: u64 = 1 << 30;

impl Memory {
    pub(crate) fn new(id: u64) -> Self {
        let mut state = State {
            inodes: BTreeMap::new(),
            next: ROOT,
            kept: Vec::new(),
            changes: 0,
            fault: None,
        };
        let root = Caller {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            now: time(1, 0),
        };
        state.insert(id, &root, FileType::Directory, 0o777);
        Self {
            id,
            state: Mutex::new(state),
        }
    }

    /// What was kept with changes, as a log would have it.
    pub(crate) fn kept(&self) -> Vec<(CallKey, Bytes)> {
        self.state().kept.clone()
    }

    /// How often something was changed.
    pub(crate) fn changes(&self) -> u32 {
        self.state().changes
    }

    pub(crate) fn fail(&self, fault: Option<Error>) {
        self.state().fault = fault;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn node_id(&self, inode: u64) -> NodeId {
        NodeId {
            file_system: self.id,
            inode,
            generation: GENERATION,
        }
    }

    fn node(&self, state: &State, inode: u64) -> Node {
        Node {
            id: self.node_id(inode),
            attributes: state.inodes[&inode].attributes,
        }
    }
}

pub(crate) fn time(seconds: u32, nanoseconds: u32) -> Time {
    Time {
        seconds,
        nanoseconds,
    }
}

impl State {
    fn insert(&mut self, id: u64, caller: &Caller, kind: FileType, mode: u32) -> u64 {
        let number = self.next;
        self.next += 1;
        let attributes = Attributes {
            kind,
            mode,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: caller.uid,
            gid: caller.gid,
            size: 0,
            used: 0,
            rdev: Device::default(),
            fsid: id,
            fileid: number,
            atime: caller.now,
            mtime: caller.now,
            ctime: caller.now,
        };
        let inode = Inode {
            attributes,
            entries: BTreeMap::new(),
            parent: ROOT,
            next_cookie: 3,
            data: Vec::new(),
            target: Bytes::new(),
            verifier: None,
        };
        self.inodes.insert(number, inode);
        number
    }

    fn get(&self, id: NodeId) -> Result<&Inode, Error> {
        let found = self.inodes.get(&id.inode);
        found
            .filter(|_| id.generation == GENERATION)
            .ok_or(Error::Stale)
    }

    fn directory(&self, id: NodeId) -> Result<&Inode, Error> {
        let found = self.get(id)?;
        match found.attributes.kind == FileType::Directory {
            true => Ok(found),
            false => Err(Error::NotDirectory),
        }
    }

    fn find(&self, caller: &Caller, place: Place<'_>) -> Result<Option<u64>, Error> {
        let directory = self.directory(place.directory)?;
        if !allowed(caller, &directory.attributes).execute {
            return Err(Error::Access);
        }
        match place.name {
            b"." => return Ok(Some(place.directory.inode)),
            b".." => return Ok(Some(directory.parent)),
            _ => {}
        }
        let mut entries = directory.entries.values();
        Ok(entries
            .find(|(name, _)| name == place.name)
            .map(|(_, inode)| *inode))
    }

    /// A directory that may be changed, as it was.
    fn changing(&self, caller: &Caller, id: NodeId) -> Result<WccAttributes, Error> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let directory = self.directory(id)?;
        let allowed = allowed(caller, &directory.attributes);
        match allowed.write && allowed.execute {
            true => Ok((&directory.attributes).into()),
            false => Err(Error::Access),
        }
    }

    fn link(&mut self, directory: u64, name: &[u8], inode: u64, now: Time) {
        let parent = self.inodes.get_mut(&directory).unwrap();
        let cookie = parent.next_cookie;
        parent.next_cookie += 1;
        let name = Bytes::copy_from_slice(name);
        parent.entries.insert(cookie, (name, inode));
        self.touch(directory, now);
        let is_directory = self.inodes[&inode].attributes.kind == FileType::Directory;
        if is_directory {
            self.inodes.get_mut(&inode).unwrap().parent = directory;
            self.inodes.get_mut(&directory).unwrap().attributes.nlink += 1;
        }
    }

    /// Takes a name away; the node stays.
    fn unlink(&mut self, directory: u64, name: &[u8], now: Time) -> u64 {
        let parent = self.inodes.get_mut(&directory).unwrap();
        let cookie = parent.entries.iter().find(|(_, (found, _))| found == name);
        let cookie = *cookie.unwrap().0;
        let (_, inode) = parent.entries.remove(&cookie).unwrap();
        if self.inodes[&inode].attributes.kind == FileType::Directory {
            self.inodes.get_mut(&directory).unwrap().attributes.nlink -= 1;
        }
        self.touch(directory, now);
        inode
    }

    fn drop_name(&mut self, inode: u64, now: Time) {
        let node = self.inodes.get_mut(&inode).unwrap();
        let is_directory = node.attributes.kind == FileType::Directory;
        node.attributes.nlink -= 1;
        node.attributes.ctime = now;
        if is_directory || node.attributes.nlink == 0 {
            self.inodes.remove(&inode);
        }
    }

    fn touch(&mut self, inode: u64, now: Time) {
        self.changes += 1;
        let attributes = &mut self.inodes.get_mut(&inode).unwrap().attributes;
        attributes.mtime = now;
        attributes.ctime = now;
    }

    fn around(&self, before: WccAttributes, inode: u64) -> Around {
        let after = self.inodes[&inode].attributes;
        Around { before, after }
    }

    fn set(&mut self, inode: u64, set: &SetAttributes, now: Time) {
        let node = self.inodes.get_mut(&inode).unwrap();
        let attributes = &mut node.attributes;
        attributes.mode = set.mode.unwrap_or(attributes.mode) & 0o7777;
        attributes.uid = set.uid.unwrap_or(attributes.uid);
        attributes.gid = set.gid.unwrap_or(attributes.gid);
        if let Some(size) = set.size {
            node.data.resize(usize::try_from(size).unwrap(), 0);
            attributes.size = size;
            attributes.mtime = now;
        }
        for (time, set) in [
            (&mut attributes.atime, set.atime),
            (&mut attributes.mtime, set.mtime),
        ] {
            match set {
                SetTime::DontChange => {}
                SetTime::ToServerTime => *time = now,
                SetTime::ToClientTime(given) => *time = given,
            }
        }
        attributes.ctime = now;
        self.changes += 1;
    }

    fn made(&self, memory: &Memory, inode: u64, directory: Around) -> Made {
        Made {
            node: memory.node(self, inode),
            directory,
        }
    }
}

fn allowed(caller: &Caller, of: &Attributes) -> Allowed {
    let bits = if caller.uid == 0 {
        7
    } else if caller.uid == of.uid {
        of.mode >> 6
    } else if caller.gid == of.gid || caller.groups.contains(&of.gid) {
        of.mode >> 3
    } else {
        of.mode
    };
    Allowed {
        read: bits & 4 != 0,
        write: bits & 2 != 0,
        execute: bits & 1 != 0,
    }
}
