use super::*;
use crate::memory::{MemoryCluster, MemoryOptions};
use crate::object::{ObjectName, ReadResult, ReadStep, WriteStep};

fn id() -> ObjectId {
    ObjectId::new(&Pool::new("pool", ""), ObjectName::new("object"))
}

fn append(byte: u8) -> WriteOp {
    WriteOp::new([WriteStep::Append {
        data: Bytes::from(vec![byte]).into(),
    }])
}

async fn size(store: &Arc<dyn ObjectStore>) -> u64 {
    match store.read(&id(), ReadOp::new([ReadStep::Stat])).await {
        Ok(output) => match output.results[..] {
            [ReadResult::Stat { size }] => size,
            _ => panic!("one result for each step"),
        },
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            0
        }
    }
}

/// The answers to 200 appends, the time they took and how many happened.
async fn run(options: FaultyOptions) -> (Vec<Option<ErrorKind>>, Duration, u64) {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let faulty = Faulty::new(cluster.session("victim"), options);
    let start = Instant::now();
    let mut answers = Vec::new();
    for _ in 0..200 {
        let answer = faulty.write(&id(), append(1)).await;
        answers.push(answer.err().map(|error| error.kind()));
    }
    let applied = size(&cluster.session("witness")).await;
    (answers, start.elapsed(), applied)
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_make_equal_runs_and_lost_replies_are_applied() {
    let faults = Faults {
        delay_max: Duration::from_millis(10),
        unavailable_per_mille: 100,
        busy_per_mille: 100,
        lost_reply_per_mille: 200,
    };
    let options = |seed| FaultyOptions::new(seed).with(CallKind::Write, faults);
    let (answers, elapsed, applied) = run(options(1)).await;
    assert_eq!(run(options(1)).await, (answers.clone(), elapsed, applied));
    assert_ne!(run(options(2)).await.0, answers);
    let count = |kind| answers.iter().filter(|answer| **answer == kind).count() as u64;
    let unavailable = count(Some(ErrorKind::Unavailable));
    assert!(count(Some(ErrorKind::Busy)) > 0);
    assert!(
        applied > count(None),
        "some replies of applied calls were lost"
    );
    assert!(
        applied < count(None) + unavailable,
        "some calls never arrived"
    );
}

#[tokio::test]
async fn everything_ends_with_the_chosen_call() {
    for (end, kind) in [
        (End::Crash, ErrorKind::Unavailable),
        (End::Fence, ErrorKind::Fenced),
    ] {
        let mut outcomes = Vec::new();
        for seed in 0..16 {
            let (answers, _, applied) = run(FaultyOptions::new(seed).ending(5, end)).await;
            assert_eq!(answers[..4], [None; 4]);
            assert!(answers[4..].iter().all(|answer| *answer == Some(kind)));
            outcomes.push(applied);
        }
        outcomes.sort_unstable();
        outcomes.dedup();
        assert_eq!(outcomes, [4, 5], "the last call is done or not");
    }
}

#[tokio::test]
async fn a_held_write_of_a_fenced_session_never_takes_effect() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let (inner, taker) = (cluster.session("victim"), cluster.session("taker"));
    let victim = Faulty::new(inner, FaultyOptions::new(0));
    victim.hold(CallKind::Write);
    let writer = Arc::clone(&victim);
    let held = tokio::spawn(async move { writer.write(&id(), append(1)).await });
    victim.wait_held(1).await;
    taker.fence(&victim.session()).await.unwrap();
    assert_eq!(size(&taker).await, 0);
    victim.release();
    let error = held.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(size(&taker).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_waits_for_still_happens() {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let witness = cluster.session("witness");
    let faulty = Faulty::new(cluster.session("victim"), FaultyOptions::new(0));
    faulty.hold(CallKind::Write);
    let deadline = Instant::now() + Duration::from_secs(1);
    let late = faulty.write(&id(), append(1).with_deadline(deadline)).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(Instant::now(), deadline);
    assert_eq!(size(&witness).await, 0);
    faulty.release();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(size(&witness).await, 1);

    faulty.hold(CallKind::Write);
    let object = id();
    let dropped = faulty.write(&object, append(1));
    assert!(
        tokio::time::timeout(Duration::from_secs(1), dropped)
            .await
            .is_err()
    );
    faulty.release();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(size(&witness).await, 2);
}
