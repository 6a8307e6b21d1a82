//! The store's session ends at every call in turn, during recovery too.

use super::model::{self, Handles, Model, Op};
use super::{TREE, compare, made, nothing_is_left_over, open, pools};
use crate::claim::Claim;
use crate::faulty::{End, Faulty, FaultyOptions};
use crate::memory::{MemoryCluster, MemoryOptions};
use crate::random::Generator;
use crate::tree::place::Place;

/// What is certain after a crash: this, and perhaps one call more.
struct Acknowledged {
    model: Model,
    under_way: Option<Op>,
    calls: u64,
}

fn options(seed: u64, end: Option<u64>) -> FaultyOptions {
    FaultyOptions {
        end: end.map(|call| (call, End::Crash)),
        ..FaultyOptions::new(seed)
    }
}

/// Runs calls until the store ends at its call `end`.
async fn run(cluster: &MemoryCluster, seed: u64, end: Option<u64>) -> Acknowledged {
    let faulty = Faulty::new(cluster.session("tree"), options(seed, end));
    let mut random = Generator::new(seed);
    let mut model = Model::new();
    let mut under_way = None;
    if let Ok((tree, _)) = open(faulty.clone()).await {
        let mut handles = match tree.root().await {
            Ok(root) => Handles::from([(model::ROOT, root)]),
            Err(_) => Handles::new(),
        };
        for count in 0..60 {
            if handles.is_empty() {
                break;
            }
            let op = model.draw(&mut random);
            let mut after = model.clone();
            let expected = after.apply(&op);
            let found = model::apply(&tree, &handles, &op).await;
            if faulty.has_ended() && found.is_err() {
                under_way = Some(op);
                break;
            }
            let found = found.map_err(|error| format!("{error:?}"));
            assert_eq!(found, expected, "seed {seed}, call {count}: {op:?}");
            model = after;
            if count % 20 == 13 && tree.settle().await.is_err() {
                break;
            }
            match model::follow(&tree, &model, &handles).await {
                Some(followed) => handles = followed,
                None => break,
            }
        }
        tree.close().await.ok();
    }
    let calls = faulty.call_count();
    cluster.crash();
    Acknowledged {
        model,
        under_way,
        calls,
    }
}

/// Opens the tree, with the session ending at each of the first calls in turn, so that recovery is
/// cut short and begun again; then holds it to the model.
async fn recover(cluster: &MemoryCluster, seed: u64, known: &Acknowledged) {
    for end in 1.. {
        let faulty = Faulty::new(cluster.session("again"), options(seed + end, Some(end)));
        let opened = open(faulty.clone()).await;
        let is_done = opened.is_ok() && !faulty.has_ended();
        if let Ok((tree, _)) = opened
            && !is_done
        {
            tree.settle().await.ok();
        }
        cluster.crash();
        if is_done {
            break;
        }
        fence_all(cluster).await;
    }
    let (tree, _) = open(cluster.session("last")).await.unwrap();
    let mut random = Generator::new(seed);
    let mut found = model::settled(&tree, known.model.clone(), known.under_way.as_ref()).await;
    model::thin(&tree, &mut found).await;
    tree.settle().await.unwrap();
    drop(tree);
    let (tree, _) = open(cluster.session("twice")).await.unwrap();
    if let Err(problem) = compare(&tree, &found, &mut random).await {
        panic!("seed {seed}: replayed twice: {problem}");
    }
    model::grow(&tree, &mut found).await;
    if let Err(problem) = compare(&tree, &found, &mut random).await {
        panic!("seed {seed}: grown: {problem}");
    }
    nothing_is_left_over(cluster, &tree, &found).await;
}

/// Fences all who opened the tree so far. Each opening looks at those before that did not get so
/// far, so it would take as many calls more as there were of them.
async fn fence_all(cluster: &MemoryCluster) {
    let header = Place::new(&pools(), TREE).header();
    let store = cluster.session("fence");
    let claim = Claim::take(&*store, &header).await.unwrap();
    claim.fence_former(&*store, &header).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_acknowledged_is_lost_wherever_it_ends() {
    for seed in 0..3 {
        let calls = {
            let cluster = MemoryCluster::new(MemoryOptions::default());
            made(&cluster).await;
            run(&cluster, seed, None).await.calls
        };
        assert!(calls > 100, "a run of {calls} calls");
        for end in 1..calls {
            let cluster = MemoryCluster::new(MemoryOptions {
                seed: seed + end,
                ..MemoryOptions::default()
            });
            made(&cluster).await;
            let known = run(&cluster, seed, Some(end)).await;
            recover(&cluster, seed, &known).await;
        }
    }
}
