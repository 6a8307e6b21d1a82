//! The crash suite of the local engine. Read on in `portico_conformance::crash`.

use std::future::Future;

use portico_backend::local::PlantedBug;
use portico_backend::local::media::FileName;
use portico_conformance::crash::flips::flip;
use portico_conformance::crash::verify::{Depth, Tally, verify_all, verify_end};
use portico_conformance::crash::workload::{History, Plan, record};

/// Cut points of one run; two runs with different seeds make the suite.
const CUT_POINTS_MIN: u64 = 5_000;

fn run<T>(suite: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    runtime.expect("a runtime starts").block_on(suite)
}

fn depth(seed: u64) -> Depth {
    Depth {
        seed,
        losses: 1,
        recovery_every: 149,
        check_every: 8,
        planted_bug: None,
    }
}

async fn cut_everywhere(seed: u64) -> Tally {
    let history = record(Plan::new(seed, 300)).await;
    assert!(history.checkpoints > 10, "the run has checkpoints");
    match verify_all(&history, depth(seed)).await {
        Ok(tally) => tally,
        Err(problem) => panic!("seed {seed}: {problem}"),
    }
}

fn report(seed: u64, tally: Tally) {
    println!(
        "seed {seed}: cut points: {} ({} in recovery), checks: {}",
        tally.cut_points, tally.in_recovery, tally.checks
    );
    assert!(tally.cut_points >= CUT_POINTS_MIN, "{tally:?}");
    assert!(tally.in_recovery > 0);
}

#[test]
fn a_power_cut_anywhere_loses_nothing_acknowledged_first_run() {
    report(1, run(cut_everywhere(1)));
}

#[test]
fn a_power_cut_anywhere_loses_nothing_acknowledged_second_run() {
    report(2, run(cut_everywhere(2)));
}

/// A suite that finds nothing proves nothing: each mistake must be seen by it.
#[test]
fn planted_bugs_are_caught() {
    let mut missed = Vec::new();
    for bug in PlantedBug::ALL {
        // Without checksums the base may meet pages that it takes for a mistake of its own.
        let caught = std::thread::spawn(move || run(catch(bug))).join();
        match caught.unwrap_or_else(|_| Some("a panic".to_owned())) {
            Some(problem) => println!("{bug:?}: {problem:.200}"),
            None => missed.push(bug),
        }
    }
    let all = PlantedBug::ALL.len();
    println!("planted bugs caught: {} of {all}", all - missed.len());
    assert_eq!(missed, []);
}

/// The first problem that a store with this bug shows.
async fn catch(bug: PlantedBug) -> Option<String> {
    let of_damage = matches!(
        bug,
        PlantedBug::BlockChecksumIgnored | PlantedBug::PageChecksumIgnored
    );
    for seed in 10..16 {
        let plan = Plan {
            planted_bug: Some(bug),
            close: of_damage,
            ..Plan::new(seed, 120)
        };
        let history = record(plan).await;
        if of_damage {
            for file in [FileName::Data, FileName::Base] {
                if let Err(problem) = flip(&history, file, 150, Some(bug)).await {
                    return Some(problem);
                }
            }
            continue;
        }
        let depth = Depth {
            planted_bug: Some(bug),
            losses: 2,
            recovery_every: u64::MAX,
            ..depth(seed)
        };
        if let Err(problem) = verify_all(&history, depth).await {
            return Some(problem);
        }
    }
    None
}

async fn closed() -> History {
    let plan = Plan {
        close: true,
        ..Plan::new(3, 150)
    };
    record(plan).await
}

#[test]
fn flipped_bits_are_named_and_never_served() {
    run(async {
        let history = closed().await;
        verify_end(&history).await.unwrap();
        for file in FileName::ALL {
            let count = match file {
                FileName::Base | FileName::Data => 300,
                FileName::Log(_) | FileName::Reserve | FileName::Superblock => 100,
            };
            let tally = flip(&history, file, count, None).await.unwrap();
            println!("{}: {tally:?}", file.path());
            if matches!(file, FileName::Base | FileName::Data) {
                assert!(tally.refused > 0 && tally.named > 0, "{tally:?}");
            }
        }
    });
}

#[test]
fn a_full_disk_loses_nothing_and_removing_makes_room() {
    run(async {
        let mut refused = 0;
        for seed in 20..24 {
            let plan = Plan {
                disk_bytes: Some(820_000 + 20_000 * (seed - 20)),
                close: true,
                ..Plan::new(seed, 250)
            };
            let history = record(plan).await;
            refused += history.refused;
            if let Err(problem) = verify_end(&history).await {
                panic!("seed {seed}: {problem}");
            }
        }
        println!("operations refused by a full disk: {refused}");
        assert!(refused > 20, "the disk was full: {refused}");
    });
}

#[test]
fn a_failing_disk_loses_nothing_acknowledged() {
    run(async {
        for number in 1..120 {
            let plan = Plan {
                fails_at: Some(number * 3),
                ..Plan::new(number, 400)
            };
            let history = record(plan).await;
            if let Err(problem) = verify_end(&history).await {
                panic!("failing at {}: {problem}", number * 3);
            }
        }
    });
}
