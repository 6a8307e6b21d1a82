//! A full store, and quotas.

use bytes::Bytes;

use super::{caller, list, made, new_tree, open, pools};
use crate::memory::{MemoryCluster, MemoryOptions};
use crate::object::Payload;
use crate::tree::verb::{HowToCreate, SetAttributes, Stability};
use crate::tree::{Handle, NewTree, Tree, TreeError, TreeQuota};

async fn create(tree: &Tree, name: &str) -> Result<Handle, TreeError> {
    let root = tree.root().await?;
    let how = HowToCreate::Guarded(SetAttributes::default());
    let made = tree
        .create(&caller(), root, name.as_bytes(), how, None)
        .await?;
    Ok(made.node.handle())
}

async fn write(tree: &Tree, file: Handle, offset: u64, length: usize) -> Result<(), TreeError> {
    let data = Payload::from(Bytes::from(vec![1; length]));
    let written = tree
        .write(&caller(), file, offset, data, Stability::FileSync)
        .await;
    written.map(|_| ())
}

#[tokio::test(start_paused = true)]
async fn a_full_store_can_be_emptied_and_takes_new_files_then() {
    let cluster = MemoryCluster::new(MemoryOptions {
        capacity_bytes: 200_000,
        ..MemoryOptions::default()
    });
    made(&cluster).await;
    let (tree, _) = open(cluster.session("tree")).await.unwrap();
    let mut names = Vec::new();
    let error = loop {
        let name = format!("file {}", names.len());
        let file = match create(&tree, &name).await {
            Ok(file) => file,
            Err(error) => break error,
        };
        names.push(name);
        if let Err(error) = write(&tree, file, 0, 4_000).await {
            break error;
        }
    };
    assert!(matches!(error, TreeError::NoSpace), "{error:?}");
    // The rest of the room goes to files without bytes.
    while names.len() < 2_000 {
        let name = format!("file {}", names.len());
        match create(&tree, &name).await {
            Ok(_) => names.push(name),
            Err(error) => {
                assert!(matches!(error, TreeError::NoSpace), "{error:?}");
                break;
            }
        }
    }
    let root = tree.root().await.unwrap();
    assert_eq!(list(&tree, root, 50).await.len(), names.len() + 2);
    for name in &names {
        let removed = tree.remove(&caller(), root, name.as_bytes(), None).await;
        removed.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    while tree.shared.reap_round(&tree.data_locks).await.unwrap() {}
    tree.settle().await.unwrap();
    let file = create(&tree, "new").await.unwrap();
    write(&tree, file, 0, 50_000).await.unwrap();
    assert_eq!(list(&tree, root, 50).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn quotas_hold_for_bytes_and_nodes_and_are_told() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let tree = NewTree {
        quota: TreeQuota {
            bytes: Some(10_000),
            inodes: Some(3),
        },
        ..new_tree()
    };
    tree.make(&*cluster.session("maker"), &pools())
        .await
        .unwrap();
    let (tree, _) = open(cluster.session("tree")).await.unwrap();
    let file = create(&tree, "a").await.unwrap();
    write(&tree, file, 0, 6_000).await.unwrap();
    let over = write(&tree, file, 6_000, 4_001).await;
    assert!(matches!(over, Err(TreeError::Quota)), "{over:?}");
    write(&tree, file, 6_000, 4_000).await.unwrap();
    create(&tree, "b").await.unwrap();
    let over = create(&tree, "c").await;
    assert!(matches!(over, Err(TreeError::Quota)), "{over:?}");
    let space = tree.statfs().await.unwrap();
    assert_eq!((space.total_bytes, space.free_bytes), (10_000, 0));
    assert_eq!((space.total_inodes, space.free_inodes), (3, 0));
    let root = tree.root().await.unwrap();
    tree.remove(&caller(), root, b"a", None).await.unwrap();
    while tree.shared.reap_round(&tree.data_locks).await.unwrap() {}
    let space = tree.statfs().await.unwrap();
    assert_eq!((space.free_bytes, space.free_inodes), (10_000, 1));
}
