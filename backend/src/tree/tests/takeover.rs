//! Two sessions, lost replies, and answers that outlive a crash.

use bytes::Bytes;

use super::model::{self, Handles, Model};
use super::{caller, compare, made, open};
use crate::faulty::{CallKind, Faults, Faulty, FaultyOptions};
use crate::memory::{MemoryCluster, MemoryOptions};
use crate::random::Generator;
use crate::tree::verb::{HowToCreate, Made, SetAttributes};
use crate::tree::{Keep, Tree, TreeError};

async fn create(tree: &Tree, name: &str, keep: Option<Keep<'_, Made>>) -> Result<Made, TreeError> {
    let root = tree.root().await?;
    let how = HowToCreate::Guarded(SetAttributes::default());
    tree.create(&caller(), root, name.as_bytes(), how, keep)
        .await
}

#[tokio::test(start_paused = true)]
async fn a_former_owner_changes_nothing_and_answers_nothing() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    made(&cluster).await;
    let (first, _) = open(cluster.session("first")).await.unwrap();
    let kept = create(&first, "kept", None).await.unwrap();
    let (second, _) = open(cluster.session("second")).await.unwrap();
    assert!(create(&first, "late", None).await.is_err());
    assert!(first.getattr(kept.node.handle()).await.is_err());
    first.stopped().await;
    let found = second.getattr(kept.node.handle()).await.unwrap();
    assert_eq!(found, kept.node);
    create(&second, "late", None).await.unwrap();
}

/// The same session opens the tree twice, so that no fence is between the two: the claim is.
#[tokio::test(start_paused = true)]
async fn an_older_claim_of_the_same_session_logs_nothing() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    made(&cluster).await;
    let store = cluster.session("both");
    let (first, _) = open(store.clone()).await.unwrap();
    let (second, _) = open(store).await.unwrap();
    let late = create(&first, "late", None).await;
    assert!(matches!(late, Err(TreeError::Store(_))), "{late:?}");
    create(&second, "late", None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kept_answers_come_back_after_a_crash_and_after_the_log_is_applied() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    made(&cluster).await;
    let (tree, replies) = open(cluster.session("first")).await.unwrap();
    assert_eq!(replies, []);
    let encode = |made: &Made| Bytes::copy_from_slice(&made.node.inode.to_be_bytes());
    let mut expected = Vec::new();
    for xid in 0..3 {
        let keep = Keep {
            client: Bytes::from_static(b"client"),
            xid,
            checksum: 9,
            encode: &encode,
        };
        let made = create(&tree, &format!("file {xid}"), Some(keep)).await;
        expected.push((xid, encode(&made.unwrap())));
    }
    tree.settle().await.unwrap();
    cluster.crash();
    let (_tree, replies) = open(cluster.session("second")).await.unwrap();
    let found: Vec<_> = (replies.iter())
        .map(|reply| (reply.xid, reply.result.clone()))
        .collect();
    assert_eq!(found, expected);
    assert!(
        replies
            .iter()
            .all(|it| it.client == "client" && it.checksum == 9)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_are_done_once_though_replies_are_lost() {
    for seed in 0..4 {
        let cluster = MemoryCluster::new(MemoryOptions::default());
        made(&cluster).await;
        let faults = Faults {
            unavailable_per_mille: 30,
            busy_per_mille: 30,
            lost_reply_per_mille: 60,
            ..Faults::default()
        };
        let options = FaultyOptions::new(seed)
            .with(CallKind::Read, faults)
            .with(CallKind::Write, faults);
        let faulty = Faulty::new(cluster.session("tree"), options);
        let opened = open_in_the_end(&faulty).await;
        let mut random = Generator::new(seed);
        let mut model = Model::new();
        let mut handles = Handles::from([(model::ROOT, opened.root().await.unwrap())]);
        for count in 0..200 {
            let op = model.draw(&mut random);
            let expected = model.apply(&op);
            let found = model::apply(&opened, &handles, &op).await;
            let found = found.map_err(|error| format!("{error:?}"));
            assert_eq!(found, expected, "seed {seed}, call {count}: {op:?}");
            handles = model::follow(&opened, &model, &handles).await.unwrap();
        }
        compare(&opened, &model, &mut random).await.unwrap();
    }
}

/// Opening itself does not try again: whoever opens does.
async fn open_in_the_end(store: &std::sync::Arc<Faulty>) -> Tree {
    for _ in 0..100 {
        if let Ok((tree, _)) = open(store.clone()).await {
            return tree;
        }
    }
    panic!("a hundred openings failed");
}

/// Calls that overlap are decided one after the other, and all are logged.
#[tokio::test(start_paused = true)]
async fn of_many_that_create_one_name_one_succeeds() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    made(&cluster).await;
    let (tree, _) = open(cluster.session("tree")).await.unwrap();
    let tree = std::sync::Arc::new(tree);
    let mut tasks = Vec::new();
    for number in 0..100 {
        let tree = std::sync::Arc::clone(&tree);
        let name = format!("name {}", number % 10);
        tasks.push(tokio::spawn(async move {
            create(&tree, &name, None).await.is_ok()
        }));
    }
    let mut count = 0;
    for task in tasks {
        count += u32::from(task.await.unwrap());
    }
    assert_eq!(count, 10);
    tree.close().await.unwrap();
    let (tree, _) = open(cluster.session("again")).await.unwrap();
    let root = tree.root().await.unwrap();
    assert_eq!(super::list(&tree, root, 4).await.len(), 12);
}
