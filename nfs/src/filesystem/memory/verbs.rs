//! What is done.

use bytes::Bytes;

use super::{FILE_BYTES_MAX, Memory, ROOT, State, VERIFIER, allowed};
use crate::filesystem::{
    Allowed, Around, Bounds, Caller, Data, Entry, Error, FileSystem, Keep, Listing, Made, Node,
    NodeId, Place, Reply, Space, What, Written,
};
use crate::wire::nfs3::attributes::{Attributes, FileType, SetAttributes, Time};
use crate::wire::nfs3::create::CreateHow;
use crate::wire::nfs3::data::Stable;

/// Keeps the answer of a change with it.
fn keep<T>(state: &mut State, keep: Option<Keep<'_, T>>, answer: &T) {
    if let Some(keep) = keep {
        let results = (keep.encode)(answer);
        state.kept.push((keep.call, results));
    }
}

fn check_file(attributes: &Attributes) -> Result<(), Error> {
    match attributes.kind {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsDirectory),
        FileType::BlockDevice
        | FileType::CharacterDevice
        | FileType::SymbolicLink
        | FileType::Socket
        | FileType::Fifo => Err(Error::Invalid),
    }
}

impl FileSystem for Memory {
    fn id(&self) -> u64 {
        self.id
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            file_bytes_max: FILE_BYTES_MAX,
            links_max: 100,
        }
    }

    fn root(&self) -> Reply<'_, Node> {
        Box::pin(async { Ok(self.node(&self.state(), ROOT)) })
    }

    fn getattr<'a>(&'a self, node: NodeId) -> Reply<'a, Attributes> {
        Box::pin(async move { Ok(self.state().get(node)?.attributes) })
    }

    fn setattr<'a>(
        &'a self,
        caller: &'a Caller,
        node: NodeId,
        attributes: SetAttributes,
        guard: Option<Time>,
        kept: Option<Keep<'a, Around>>,
    ) -> Reply<'a, Around> {
        Box::pin(async move {
            let mut state = self.state();
            let before = state.get(node)?.attributes;
            if guard.is_some_and(|guard| guard != before.ctime) {
                return Err(Error::NotSync);
            }
            if caller.uid != 0 && caller.uid != before.uid {
                return Err(Error::NotOwner);
            }
            if let Some(size) = attributes.size {
                check_file(&before)?;
                if size > FILE_BYTES_MAX {
                    return Err(Error::FileTooBig);
                }
            }
            state.set(node.inode, &attributes, caller.now);
            let around = state.around((&before).into(), node.inode);
            keep(&mut state, kept, &around);
            Ok(around)
        })
    }

    fn lookup<'a>(&'a self, caller: &'a Caller, place: Place<'a>) -> Reply<'a, (Node, Attributes)> {
        Box::pin(async move {
            let state = self.state();
            let found = state.find(caller, place)?.ok_or(Error::NoEntry)?;
            let directory = state.directory(place.directory)?.attributes;
            Ok((self.node(&state, found), directory))
        })
    }

    fn access<'a>(&'a self, caller: &'a Caller, node: NodeId) -> Reply<'a, (Allowed, Attributes)> {
        Box::pin(async move {
            let attributes = self.state().get(node)?.attributes;
            Ok((allowed(caller, &attributes), attributes))
        })
    }

    fn readlink<'a>(&'a self, node: NodeId) -> Reply<'a, (Bytes, Attributes)> {
        Box::pin(async move {
            let state = self.state();
            let link = state.get(node)?;
            match link.attributes.kind == FileType::SymbolicLink {
                true => Ok((link.target.clone(), link.attributes)),
                false => Err(Error::Invalid),
            }
        })
    }

    fn read<'a>(
        &'a self,
        caller: &'a Caller,
        file: NodeId,
        offset: u64,
        count: u32,
    ) -> Reply<'a, Data> {
        Box::pin(async move {
            let state = self.state();
            let file = state.get(file)?;
            check_file(&file.attributes)?;
            if caller.uid != file.attributes.uid && !allowed(caller, &file.attributes).read {
                return Err(Error::Access);
            }
            let size = file.data.len();
            let start = usize::try_from(offset).unwrap_or(size).min(size);
            let end = size.min(start + count as usize);
            Ok(Data {
                pieces: vec![Bytes::copy_from_slice(&file.data[start..end])],
                eof: end == size,
                attributes: file.attributes,
            })
        })
    }

    fn write<'a>(
        &'a self,
        caller: &'a Caller,
        file: NodeId,
        offset: u64,
        data: Bytes,
        _: Stable,
    ) -> Reply<'a, Written> {
        Box::pin(async move {
            let mut state = self.state();
            if let Some(fault) = state.fault {
                return Err(fault);
            }
            let before = state.get(file)?.attributes;
            check_file(&before)?;
            if caller.uid != before.uid && !allowed(caller, &before).write {
                return Err(Error::Access);
            }
            let end = offset.checked_add(data.len() as u64);
            let end = end
                .filter(|end| *end <= FILE_BYTES_MAX)
                .ok_or(Error::FileTooBig)?;
            let node = state.inodes.get_mut(&file.inode).unwrap();
            let (start, end) = (
                usize::try_from(offset).unwrap(),
                usize::try_from(end).unwrap(),
            );
            if !data.is_empty() {
                let size = node.data.len().max(end);
                node.data.resize(size, 0);
                node.data[start..end].copy_from_slice(&data);
                node.attributes.size = size as u64;
                state.touch(file.inode, caller.now);
            }
            Ok(Written {
                file: state.around((&before).into(), file.inode),
                committed: Stable::FileSync,
                verifier: VERIFIER,
            })
        })
    }

    fn create<'a>(
        &'a self,
        caller: &'a Caller,
        place: Place<'a>,
        how: CreateHow,
        kept: Option<Keep<'a, Made>>,
    ) -> Reply<'a, Made> {
        Box::pin(async move {
            let mut state = self.state();
            let before = state.changing(caller, place.directory)?;
            let directory = place.directory.inode;
            let (attributes, verifier) = match how {
                CreateHow::Unchecked(set) | CreateHow::Guarded(set) => (set, None),
                CreateHow::Exclusive(verifier) => (SetAttributes::default(), Some(verifier)),
            };
            let inode = match state.find(caller, place)? {
                Some(found) => {
                    let node = &state.inodes[&found];
                    let is_same = verifier.is_some() && node.verifier == verifier;
                    let is_taken = matches!(how, CreateHow::Unchecked(_));
                    if !is_same && !is_taken || check_file(&node.attributes).is_err() {
                        return Err(Error::Exists);
                    }
                    if let Some(size) = attributes.size {
                        let cut = SetAttributes {
                            size: Some(size),
                            ..SetAttributes::default()
                        };
                        state.set(found, &cut, caller.now);
                    }
                    found
                }
                None => {
                    let inode = state.insert(self.id, caller, FileType::Regular, 0);
                    state.inodes.get_mut(&inode).unwrap().verifier = verifier;
                    state.set(inode, &attributes, caller.now);
                    state.link(directory, place.name, inode, caller.now);
                    inode
                }
            };
            let around = state.around(before, directory);
            let made = state.made(self, inode, around);
            keep(&mut state, kept, &made);
            Ok(made)
        })
    }

    fn make<'a>(
        &'a self,
        caller: &'a Caller,
        place: Place<'a>,
        what: What,
        attributes: SetAttributes,
        kept: Option<Keep<'a, Made>>,
    ) -> Reply<'a, Made> {
        Box::pin(async move {
            let mut state = self.state();
            let before = state.changing(caller, place.directory)?;
            if state.find(caller, place)?.is_some() {
                return Err(Error::Exists);
            }
            let kind = match what {
                What::Directory => FileType::Directory,
                What::SymbolicLink(_) => FileType::SymbolicLink,
                What::BlockDevice(_) => FileType::BlockDevice,
                What::CharacterDevice(_) => FileType::CharacterDevice,
                What::Socket => FileType::Socket,
                What::Fifo => FileType::Fifo,
            };
            let inode = state.insert(self.id, caller, kind, 0);
            state.set(inode, &attributes, caller.now);
            let node = state.inodes.get_mut(&inode).unwrap();
            match what {
                What::SymbolicLink(target) => {
                    node.attributes.size = target.len() as u64;
                    node.target = target;
                }
                What::BlockDevice(device) | What::CharacterDevice(device) => {
                    node.attributes.rdev = device;
                }
                What::Directory | What::Socket | What::Fifo => {}
            }
            let directory = place.directory.inode;
            state.link(directory, place.name, inode, caller.now);
            let around = state.around(before, directory);
            let made = state.made(self, inode, around);
            keep(&mut state, kept, &made);
            Ok(made)
        })
    }

    fn remove<'a>(
        &'a self,
        caller: &'a Caller,
        place: Place<'a>,
        kept: Option<Keep<'a, Around>>,
    ) -> Reply<'a, Around> {
        Box::pin(async move {
            let mut state = self.state();
            let before = state.changing(caller, place.directory)?;
            let inode = state.find(caller, place)?.ok_or(Error::NoEntry)?;
            if state.inodes[&inode].attributes.kind == FileType::Directory {
                return Err(Error::IsDirectory);
            }
            state.unlink(place.directory.inode, place.name, caller.now);
            state.drop_name(inode, caller.now);
            let around = state.around(before, place.directory.inode);
            keep(&mut state, kept, &around);
            Ok(around)
        })
    }

    fn rmdir<'a>(
        &'a self,
        caller: &'a Caller,
        place: Place<'a>,
        kept: Option<Keep<'a, Around>>,
    ) -> Reply<'a, Around> {
        Box::pin(async move {
            let mut state = self.state();
            let before = state.changing(caller, place.directory)?;
            let inode = state.find(caller, place)?.ok_or(Error::NoEntry)?;
            let node = &state.inodes[&inode];
            if node.attributes.kind != FileType::Directory {
                return Err(Error::NotDirectory);
            }
            if !node.entries.is_empty() {
                return Err(Error::NotEmpty);
            }
            state.unlink(place.directory.inode, place.name, caller.now);
            state.drop_name(inode, caller.now);
            let around = state.around(before, place.directory.inode);
            keep(&mut state, kept, &around);
            Ok(around)
        })
    }

    fn rename<'a>(
        &'a self,
        caller: &'a Caller,
        from: Place<'a>,
        to: Place<'a>,
        kept: Option<Keep<'a, (Around, Around)>>,
    ) -> Reply<'a, (Around, Around)> {
        Box::pin(async move {
            let mut state = self.state();
            let from_before = state.changing(caller, from.directory)?;
            let to_before = state.changing(caller, to.directory)?;
            let inode = state.find(caller, from)?.ok_or(Error::NoEntry)?;
            if let Some(other) = state.find(caller, to)?
                && other != inode
            {
                if !state.inodes[&other].entries.is_empty() {
                    return Err(Error::NotEmpty);
                }
                state.unlink(to.directory.inode, to.name, caller.now);
                state.drop_name(other, caller.now);
            }
            state.unlink(from.directory.inode, from.name, caller.now);
            state.link(to.directory.inode, to.name, inode, caller.now);
            let both = (
                state.around(from_before, from.directory.inode),
                state.around(to_before, to.directory.inode),
            );
            keep(&mut state, kept, &both);
            Ok(both)
        })
    }

    fn link<'a>(
        &'a self,
        caller: &'a Caller,
        node: NodeId,
        place: Place<'a>,
        kept: Option<Keep<'a, Made>>,
    ) -> Reply<'a, Made> {
        Box::pin(async move {
            let mut state = self.state();
            let found = state.get(node)?.attributes;
            if found.kind == FileType::Directory {
                return Err(Error::IsDirectory);
            }
            if found.nlink == self.bounds().links_max {
                return Err(Error::TooManyLinks);
            }
            let before = state.changing(caller, place.directory)?;
            if state.find(caller, place)?.is_some() {
                return Err(Error::Exists);
            }
            let attributes = &mut state.inodes.get_mut(&node.inode).unwrap().attributes;
            attributes.nlink += 1;
            attributes.ctime = caller.now;
            let directory = place.directory.inode;
            state.link(directory, place.name, node.inode, caller.now);
            let around = state.around(before, directory);
            let made = state.made(self, node.inode, around);
            keep(&mut state, kept, &made);
            Ok(made)
        })
    }

    fn readdir<'a>(
        &'a self,
        caller: &'a Caller,
        directory: NodeId,
        after: u64,
        count_max: u32,
        with_nodes: bool,
    ) -> Reply<'a, Listing> {
        Box::pin(async move {
            let state = self.state();
            let found = state.directory(directory)?;
            if !allowed(caller, &found.attributes).read {
                return Err(Error::Access);
            }
            if after >= found.next_cookie {
                return Err(Error::BadCookie);
            }
            let entry = |cookie: u64, name: &[u8], inode: u64| Entry {
                name: Bytes::copy_from_slice(name),
                cookie,
                fileid: inode,
                node: with_nodes.then(|| self.node(&state, inode)),
            };
            let dots = [
                entry(1, b".", directory.inode),
                entry(2, b"..", found.parent),
            ];
            let named = found
                .entries
                .iter()
                .map(|(cookie, (name, inode))| entry(*cookie, name, *inode));
            let mut entries: Vec<_> = dots
                .into_iter()
                .chain(named)
                .filter(|entry| entry.cookie > after)
                .collect();
            let is_end = entries.len() <= count_max as usize;
            entries.truncate(count_max as usize);
            Ok(Listing {
                entries,
                is_end,
                directory: found.attributes,
            })
        })
    }

    fn statfs(&self) -> Reply<'_, Space> {
        Box::pin(async {
            Ok(Space {
                total_bytes: 1_000,
                free_bytes: 600,
                total_files: 100,
                free_files: 60,
            })
        })
    }

    fn commit<'a>(&'a self, _: &'a Caller, file: NodeId) -> Reply<'a, (Attributes, [u8; 8])> {
        Box::pin(async move {
            let attributes = self.state().get(file)?.attributes;
            check_file(&attributes)?;
            Ok((attributes, VERIFIER))
        })
    }
}
