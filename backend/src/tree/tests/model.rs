//! What a tree must be like, as simply as it can be said: a map of nodes in memory.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::super::record::Kind;
use super::super::verb::{HowToCreate, SetAttributes, Stability};
use super::super::{Caller, Handle, Tree, TreeError};
use super::{caller, compare};
use crate::object::Payload;
use crate::random::Generator;

pub(super) type Id = u64;

pub(super) const ROOT: Id = 0;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) mode: u16,
    pub(super) names: BTreeMap<Vec<u8>, Id>,
    pub(super) parent: Id,
    pub(super) bytes: Vec<u8>,
    pub(super) links: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) nodes: BTreeMap<Id, Node>,
    next: Id,
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Create(Id, Vec<u8>, bool),
    Exclusive(Id, Vec<u8>, u8),
    Link(Id, Id, Vec<u8>),
    Mkdir(Id, Vec<u8>),
    Mknod(Id, Vec<u8>),
    Mode(Id, u16),
    Remove(Id, Vec<u8>),
    Rename(Id, Vec<u8>, Id, Vec<u8>),
    Rmdir(Id, Vec<u8>),
    Symlink(Id, Vec<u8>),
    Truncate(Id, u64),
    Write(Id, u64, usize, u8),
}

/// A node that was made or touched, if there is one, or the name of the error.
pub(super) type Answer = Result<(), String>;

impl Model {
    pub(super) fn new() -> Self {
        let root = Node::new(Kind::Directory, ROOT);
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: 1,
        }
    }

    pub(super) fn draw(&self, random: &mut Generator) -> Op {
        let directory = |random: &mut Generator| self.pick(random, |node| node.is_directory());
        let any = |random: &mut Generator| self.pick(random, |_| true);
        let file = |random: &mut Generator| self.pick(random, |node| node.kind == Kind::File);
        let at = directory(random);
        match random.below(20) {
            0..4 => Op::Create(at, name(random), random.chance(500)),
            4 => Op::Exclusive(at, name(random), u8::try_from(random.below(2)).unwrap()),
            5 => Op::Link(any(random), at, name(random)),
            6 | 7 => Op::Mkdir(at, name(random)),
            8 => Op::Mknod(at, name(random)),
            9 => Op::Mode(any(random), u16::try_from(random.below(0o1000)).unwrap()),
            10 | 11 => Op::Remove(at, name(random)),
            12..15 => Op::Rename(at, name(random), directory(random), name(random)),
            15 => Op::Rmdir(at, name(random)),
            16 => Op::Symlink(at, name(random)),
            17 => Op::Truncate(any(random), random.below(40_000)),
            _ => {
                let length = usize::try_from(random.below(12_000)).unwrap();
                let byte = u8::try_from(random.below(255) + 1).unwrap();
                Op::Write(file(random), random.below(30_000), length, byte)
            }
        }
    }

    pub(super) fn apply(&mut self, op: &Op) -> Answer {
        match op {
            Op::Create(at, name, is_guarded) => self.create(*at, name, *is_guarded),
            Op::Exclusive(at, name, verifier) => self.create_exclusive(*at, name, *verifier),
            Op::Link(id, at, name) => self.link(*id, *at, name),
            Op::Mkdir(at, name) => {
                self.free(*at, name)?;
                self.node(*at).links += 1;
                self.make(*at, name, Node::new(Kind::Directory, *at))
            }
            Op::Mknod(at, name) => {
                self.free(*at, name)?;
                self.make(*at, name, Node::new(Kind::Fifo, *at))
            }
            Op::Mode(id, mode) => {
                self.node(*id).mode = *mode;
                Ok(())
            }
            Op::Remove(at, name) => {
                let id = self.entry(*at, name)?.ok_or("NoEntry")?;
                if self.nodes[&id].is_directory() {
                    return refuse("IsDirectory");
                }
                self.node(*at).names.remove(name);
                self.lose(id);
                Ok(())
            }
            Op::Rename(from, old, to, new) => self.rename((*from, old), (*to, new)),
            Op::Rmdir(at, name) => self.remove_directory(*at, name),
            Op::Symlink(at, name) => {
                self.free(*at, name)?;
                let mut node = Node::new(Kind::Symlink, *at);
                node.bytes = b"target".to_vec();
                node.mode = 0o777;
                self.make(*at, name, node)
            }
            Op::Truncate(id, size) => match self.nodes[id].kind {
                Kind::File => {
                    let size = usize::try_from(*size).unwrap();
                    self.node(*id).bytes.resize(size, 0);
                    Ok(())
                }
                Kind::Directory => refuse("IsDirectory"),
                _ => refuse("Invalid"),
            },
            Op::Write(id, offset, length, byte) => {
                if self.nodes[id].is_directory() {
                    return refuse("IsDirectory");
                }
                let offset = usize::try_from(*offset).unwrap();
                let bytes = &mut self.node(*id).bytes;
                if *length > 0 {
                    let size = bytes.len().max(offset + length);
                    bytes.resize(size, 0);
                    bytes[offset..offset + length].fill(*byte);
                }
                Ok(())
            }
        }
    }

    fn create(&mut self, at: Id, name: &[u8], is_guarded: bool) -> Answer {
        match self.entry(at, name)? {
            None => self.make(at, name, Node::new(Kind::File, at)),
            Some(_) if is_guarded => refuse("Exists"),
            Some(id) => match self.nodes[&id].kind {
                Kind::Directory => refuse("IsDirectory"),
                Kind::File => Ok(()),
                _ => refuse("Exists"),
            },
        }
    }

    fn create_exclusive(&mut self, at: Id, name: &[u8], verifier: u8) -> Answer {
        // Where the model keeps the verifier of a new file.
        let kept = 1_000_000 + u64::from(verifier);
        match self.entry(at, name)? {
            None => {
                let mut node = Node::new(Kind::File, at);
                node.parent = kept;
                node.mode = 0;
                self.make(at, name, node)
            }
            Some(id) if self.nodes[&id].parent == kept => Ok(()),
            Some(_) => refuse("Exists"),
        }
    }

    fn remove_directory(&mut self, at: Id, name: &[u8]) -> Answer {
        let id = self.entry(at, name)?.ok_or("NoEntry")?;
        if !self.nodes[&id].is_directory() {
            return refuse("NotDirectory");
        }
        if !self.nodes[&id].names.is_empty() {
            return refuse("NotEmpty");
        }
        self.node(at).names.remove(name);
        self.node(at).links -= 1;
        self.nodes.remove(&id);
        Ok(())
    }

    fn link(&mut self, id: Id, at: Id, name: &[u8]) -> Answer {
        self.free(at, name)?;
        if self.nodes[&id].is_directory() {
            return refuse("Permission");
        }
        self.node(id).links += 1;
        self.node(at).names.insert(name.to_vec(), id);
        Ok(())
    }

    fn rename(&mut self, (from, old): (Id, &[u8]), (to, new): (Id, &[u8])) -> Answer {
        let id = self.entry(from, old)?.ok_or("NoEntry")?;
        let replaced = self.entry(to, new)?;
        let is_directory = self.nodes[&id].is_directory();
        if is_directory {
            let mut at = to;
            loop {
                if at == id {
                    return refuse("Invalid");
                }
                if at == ROOT {
                    break;
                }
                at = self.nodes[&at].parent;
            }
        }
        if let Some(replaced) = replaced {
            if replaced == id {
                return Ok(());
            }
            let found = &self.nodes[&replaced];
            match (is_directory, found.is_directory()) {
                (true, false) => return refuse("NotDirectory"),
                (false, true) => return refuse("IsDirectory"),
                (true, true) if !found.names.is_empty() => return refuse("NotEmpty"),
                (true, true) => {
                    self.nodes.remove(&replaced);
                    self.node(to).links -= 1;
                }
                (false, false) => self.lose(replaced),
            }
        }
        self.node(from).names.remove(old);
        self.node(to).names.insert(new.to_vec(), id);
        if is_directory {
            self.node(from).links -= 1;
            self.node(to).links += 1;
            self.node(id).parent = to;
        }
        Ok(())
    }

    fn pick(&self, random: &mut Generator, wanted: impl Fn(&Node) -> bool) -> Id {
        let ids: Vec<Id> = (self.nodes.iter())
            .filter(|(_, node)| wanted(node))
            .map(|(id, _)| *id)
            .collect();
        match ids.len() {
            0 => ROOT,
            count => ids[usize::try_from(random.below(count as u64)).unwrap()],
        }
    }

    fn entry(&self, at: Id, name: &[u8]) -> Result<Option<Id>, String> {
        Ok(self.nodes[&at].names.get(name).copied())
    }

    fn free(&self, at: Id, name: &[u8]) -> Answer {
        match self.entry(at, name)? {
            None => Ok(()),
            Some(_) => refuse("Exists"),
        }
    }

    fn make(&mut self, at: Id, name: &[u8], node: Node) -> Answer {
        let id = self.next;
        self.next += 1;
        self.node(at).names.insert(name.to_vec(), id);
        self.nodes.insert(id, node);
        Ok(())
    }

    fn lose(&mut self, id: Id) {
        let node = self.node(id);
        node.links -= 1;
        if node.links == 0 {
            self.nodes.remove(&id);
        }
    }

    fn node(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }
}

impl Node {
    fn new(kind: Kind, parent: Id) -> Self {
        Self {
            kind,
            mode: 0o644,
            names: BTreeMap::new(),
            parent,
            bytes: Vec::new(),
            links: if kind == Kind::Directory { 2 } else { 1 },
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }
}

fn refuse(error: &str) -> Answer {
    Err(error.to_owned())
}

/// Few names, some of them no text, so that they meet often.
fn name(random: &mut Generator) -> Vec<u8> {
    let names: [&[u8]; 7] = [b"a", b"b", b"c", b"d", b"\xff\xfe", b"a b", &[b'n'; 255]];
    names[usize::try_from(random.below(7)).unwrap()].to_vec()
}

/// Which node of the model is which of the tree.
pub(super) type Handles = HashMap<Id, Handle>;

/// Does to a tree what the model did.
pub(super) async fn apply(tree: &Tree, handles: &Handles, op: &Op) -> Result<(), TreeError> {
    let mode = SetAttributes {
        mode: Some(0o644),
        ..SetAttributes::default()
    };
    let mode = &mode;
    let who: &Caller = &caller();
    match op {
        Op::Create(at, name, is_guarded) => {
            let how = match is_guarded {
                true => HowToCreate::Guarded(*mode),
                false => HowToCreate::Unchecked(*mode),
            };
            tree.create(who, handles[at], name, how, None).await?;
        }
        Op::Exclusive(at, name, verifier) => {
            let how = HowToCreate::Exclusive([*verifier; 8]);
            tree.create(who, handles[at], name, how, None).await?;
        }
        Op::Link(id, at, name) => {
            tree.link(who, handles[id], handles[at], name, None).await?;
        }
        Op::Mkdir(at, name) => {
            tree.mkdir(who, handles[at], name, mode, None).await?;
        }
        Op::Mknod(at, name) => {
            let what = (Kind::Fifo, (0, 0));
            tree.mknod(who, (handles[at], name), what, mode, None)
                .await?;
        }
        Op::Mode(id, mode) => {
            let set = SetAttributes {
                mode: Some(*mode),
                ..SetAttributes::default()
            };
            tree.setattr(who, handles[id], &set, None, None).await?;
        }
        Op::Remove(at, name) => {
            tree.remove(who, handles[at], name, None).await?;
        }
        Op::Rename(from, old, to, new) => {
            let (from, to) = ((handles[from], &old[..]), (handles[to], &new[..]));
            tree.rename(who, from, to, None).await?;
        }
        Op::Rmdir(at, name) => {
            tree.rmdir(who, handles[at], name, None).await?;
        }
        Op::Symlink(at, name) => {
            let target = Bytes::from_static(b"target");
            let unset = &SetAttributes::default();
            tree.symlink(who, (handles[at], name), target, unset, None)
                .await?;
        }
        Op::Truncate(id, size) => {
            let set = SetAttributes {
                size: Some(*size),
                ..SetAttributes::default()
            };
            tree.setattr(who, handles[id], &set, None, None).await?;
        }
        Op::Write(id, offset, length, byte) => {
            let data = Payload::from(Bytes::from(vec![*byte; *length]));
            let sync = Stability::FileSync;
            tree.write(who, handles[id], *offset, data, sync).await?;
        }
    }
    Ok(())
}

/// The handles after one more call: nodes that are new are looked up. `None` if the tree is gone.
pub(super) async fn follow(tree: &Tree, model: &Model, handles: &Handles) -> Option<Handles> {
    let mut followed: Handles = (handles.iter())
        .filter(|(id, _)| model.nodes.contains_key(id))
        .map(|(id, handle)| (*id, *handle))
        .collect();
    let mut open = vec![ROOT];
    while let Some(at) = open.pop() {
        for (name, id) in &model.nodes[&at].names {
            if !followed.contains_key(id) {
                let (found, _) = tree.lookup(&caller(), followed[&at], name).await.ok()?;
                followed.insert(*id, found.handle());
            }
            if model.nodes[id].is_directory() {
                open.push(*id);
            }
        }
    }
    Some(followed)
}

/// What the tree is after a crash: `model`, with the call that was under way or without. Of a
/// write, any part of it may be there.
pub(super) async fn settled(tree: &Tree, model: Model, under_way: Option<&Op>) -> Model {
    let mut random = Generator::new(1);
    let before = compare(tree, &model, &mut random).await;
    let (Err(problem), Some(op)) = (&before, under_way) else {
        before.unwrap_or_else(|problem| panic!("{under_way:?}: {problem}\n{model:#?}"));
        return model;
    };
    let mut after = model.clone();
    after.apply(op).ok();
    if let Op::Write(id, offset, length, byte) = op {
        let root = Handles::from([(ROOT, tree.root().await.unwrap())]);
        let handle = follow(tree, &model, &root).await.unwrap()[id];
        let read = tree.read(&caller(), handle, 0, 100_000).await.unwrap();
        let found = read.data.to_bytes();
        let old = &model.nodes[id].bytes;
        assert!([old.len(), after.nodes[id].bytes.len()].contains(&found.len()));
        let offset = usize::try_from(*offset).unwrap();
        for (at, is) in found.iter().enumerate() {
            let was = old.get(at).copied().unwrap_or(0);
            let is_within = (offset..offset + length).contains(&at);
            assert!(*is == was || (is_within && is == byte), "byte {at}: {is}");
        }
        after.node(*id).bytes = found.to_vec();
    }
    if let Err(second) = compare(tree, &after, &mut random).await {
        panic!("neither before {op:?}: {problem}\nnor after: {second}\n{model:#?}");
    }
    after
}

/// Removes some names of every directory, before what was done last is applied.
pub(super) async fn thin(tree: &Tree, model: &mut Model) {
    let root = Handles::from([(ROOT, tree.root().await.unwrap())]);
    let handles = follow(tree, model, &root).await.unwrap();
    let directories = model.nodes.iter().filter(|(_, node)| node.is_directory());
    let names = directories.map(|(id, node)| (*id, node.names.keys().cloned().collect()));
    for (at, names) in names.collect::<Vec<(Id, Vec<_>)>>() {
        for name in names.into_iter().step_by(2) {
            let op = Op::Remove(at, name);
            let mut after = model.clone();
            if after.apply(&op).is_ok() {
                apply(tree, &handles, &op).await.unwrap();
                *model = after;
            }
        }
    }
}

/// Makes every file larger, by its size or by a write behind it: what was never acknowledged must
/// not come to light.
pub(super) async fn grow(tree: &Tree, model: &mut Model) {
    let root = Handles::from([(ROOT, tree.root().await.unwrap())]);
    let handles = follow(tree, model, &root).await.unwrap();
    for id in handles.keys() {
        let node = model.node(*id);
        if node.kind == Kind::File {
            let size = node.bytes.len() as u64;
            let op = match id % 2 {
                0 => Op::Truncate(*id, size + 30_000),
                _ => Op::Write(*id, size + 29_000, 1_000, 7),
            };
            model.apply(&op).unwrap();
            apply(tree, &handles, &op).await.unwrap();
        }
    }
}
