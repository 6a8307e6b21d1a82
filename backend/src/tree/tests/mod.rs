//! Trees against a model, with and without faults.

mod crash;
mod full;
mod model;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::model::{Handles, Id, Model, ROOT};
use super::access::Credentials;
use super::record::{Kind, Time};
use super::verb::Listed;
use super::{Caller, Handle, KeptReply, NewTree, Tree, TreeOptions, TreePools};
use crate::error::Error;
use crate::memory::{MemoryCluster, MemoryOptions};
use crate::object::{ListCursor, ObjectStore, Pool};
use crate::random::Generator;
use crate::stripe::Layout;

/// The id of the tree.
const TREE: u64 = 7;

fn caller() -> Caller {
    Caller {
        credentials: Credentials::root(),
        now: Time {
            seconds: 1_000,
            nanoseconds: 0,
        },
    }
}

fn pools() -> TreePools {
    TreePools {
        data: Pool::new("data", ""),
        meta: Pool::new("meta", ""),
    }
}

fn new_tree() -> NewTree {
    NewTree {
        id: TREE,
        layout: Layout::new(4_096, 2, 8_192).unwrap(),
        ..NewTree::new(caller().now).unwrap()
    }
}

/// A few entries split a directory.
fn options() -> TreeOptions {
    TreeOptions {
        shard_entries_max: 3,
        apply_ms: 5,
    }
}

async fn made(cluster: &MemoryCluster) {
    let store = cluster.session("maker");
    new_tree().make(&*store, &pools()).await.unwrap();
}

async fn open(store: Arc<dyn ObjectStore>) -> Result<(Tree, Vec<KeptReply>), Error> {
    Tree::open(store, &pools(), TREE, options()).await
}

async fn list(tree: &Tree, directory: Handle, page: u32) -> Vec<Listed> {
    let mut listed: Vec<Listed> = Vec::new();
    loop {
        let after = listed.last().map_or(0, |entry| entry.cookie);
        let found = tree
            .readdir(&caller(), directory, after, page, true)
            .await
            .unwrap();
        assert!(found.entries.len() <= page as usize);
        assert!(found.is_end || !found.entries.is_empty());
        listed.extend(found.entries);
        if found.is_end {
            return listed;
        }
    }
}

/// Holds the whole tree to the model, and says which node is which.
async fn compare(tree: &Tree, model: &Model, random: &mut Generator) -> Result<Handles, String> {
    let mut handles = Handles::new();
    let mut open = vec![(ROOT, tree.root().await.unwrap())];
    while let Some((id, handle)) = open.pop() {
        if handles.get(&id) == Some(&handle) {
            continue;
        }
        let known = handles.insert(id, handle);
        expect(known.is_none(), "one node for all its names", &id)?;
        compare_node(tree, model, id, handle).await?;
        let node = &model.nodes[&id];
        if !node.is_directory() {
            continue;
        }
        let page = u32::try_from(random.below(9) + 1).unwrap();
        let listed = list(tree, handle, page).await;
        expect(
            listed.len() == node.names.len() + 2,
            "entries",
            &(id, &listed),
        )?;
        let dots: Vec<u64> = listed[..2].iter().map(|entry| entry.inode).collect();
        expect(dots[0] == handle.inode, "itself", &id)?;
        if id != ROOT {
            // A directory is found before what lies in it.
            expect(dots[1] == handles[&node.parent].inode, "above", &id)?;
        }
        let names: BTreeMap<&[u8], &Listed> = (listed[2..].iter())
            .map(|entry| (&entry.name[..], entry))
            .collect();
        for (name, child) in &node.names {
            let entry = names.get(&name[..]).ok_or(format!("no {name:?} in {id}"))?;
            let attributes = entry.attributes.as_ref().ok_or("an entry without a node")?;
            let (found, _) = tree.lookup(&caller(), handle, name).await.unwrap();
            expect(found == *attributes, "lookup as listed", &found)?;
            open.push((*child, attributes.handle()));
        }
    }
    expect(
        handles.len() == model.nodes.len(),
        "all nodes",
        &handles.len(),
    )?;
    Ok(handles)
}

async fn compare_node(tree: &Tree, model: &Model, id: Id, handle: Handle) -> Result<(), String> {
    let node = &model.nodes[&id];
    let found = tree
        .getattr(handle)
        .await
        .map_err(|error| error.to_string())?;
    expect(found.kind == node.kind, "kind", &(id, &found))?;
    expect(found.link_count == node.links, "links", &(id, &found))?;
    if id != ROOT {
        expect(found.mode == node.mode, "mode", &(id, &found))?;
    }
    let size = match node.kind {
        Kind::Directory => node.names.len(),
        _ => node.bytes.len(),
    };
    expect(found.size == size as u64, "size", &(id, &found, size))?;
    if node.kind == Kind::File {
        let read = tree.read(&caller(), handle, 0, 100_000).await.unwrap();
        expect(read.is_end, "the end", &id)?;
        expect(read.data.to_bytes() == node.bytes, "bytes", &id)?;
    }
    if node.kind == Kind::Symlink {
        let (target, _) = tree.readlink(handle).await.unwrap();
        expect(target == node.bytes, "target", &id)?;
    }
    Ok(())
}

/// Objects of files and directories are those of nodes that are there, once all is removed.
async fn nothing_is_left_over(cluster: &MemoryCluster, tree: &Tree, model: &Model) {
    let handles = compare(tree, model, &mut Generator::new(1)).await.unwrap();
    tree.settle().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    tree.settle().await.unwrap();
    let numbers = |is_meant: fn(&model::Node) -> bool| -> BTreeSet<String> {
        let meant = handles.iter().filter(|(id, _)| is_meant(&model.nodes[id]));
        meant
            .map(|(_, handle)| format!("{:016x}", handle.inode))
            .collect()
    };
    let files = numbers(|node| node.kind == Kind::File);
    let directories = numbers(|node| node.is_directory());
    let store = cluster.session("list");
    for (pool, kind, known) in [
        (pools().data, "data", files),
        (pools().meta, "directory", directories),
    ] {
        let listed = store.list(&pool, ListCursor::start(), 10_000).await;
        for name in listed.unwrap().names {
            let name = name.to_string();
            let parts: Vec<&str> = name.split('.').collect();
            if parts[1] == kind {
                assert!(known.contains(parts[3]), "{name} is of no node");
            }
        }
    }
}

fn expect(holds: bool, what: &str, of: &dyn std::fmt::Debug) -> Result<(), String> {
    if holds {
        return Ok(());
    }
    Err(format!("{what}: {of:?}"))
}

#[tokio::test(start_paused = true)]
async fn random_calls_do_what_the_model_does() {
    for seed in 0..12 {
        let cluster = MemoryCluster::new(MemoryOptions::default());
        made(&cluster).await;
        let (mut tree, _) = open(cluster.session("tree")).await.unwrap();
        let mut random = Generator::new(seed);
        let mut model = Model::new();
        let mut handles = compare(&tree, &model, &mut random).await.unwrap();
        for count in 0..300 {
            let op = model.draw(&mut random);
            let expected = model.apply(&op);
            let found = model::apply(&tree, &handles, &op).await;
            let found = found.map_err(|error| format!("{error:?}"));
            assert_eq!(found, expected, "seed {seed}, call {count}: {op:?}");
            if random.chance(100) {
                tree.settle().await.unwrap();
            }
            if random.chance(30) {
                // Every row is read again.
                tree.shared.state().overlay.keep_at_most(40);
            }
            if random.chance(20) {
                if random.chance(500) {
                    tree.close().await.unwrap();
                }
                drop(tree);
                tree = open(cluster.session("tree")).await.unwrap().0;
            }
            let compared = compare(&tree, &model, &mut random).await;
            handles = compared.unwrap_or_else(|problem| {
                panic!("seed {seed}, call {count}: {op:?}: {problem}\n{model:#?}")
            });
        }
        nothing_is_left_over(&cluster, &tree, &model).await;
    }
}
