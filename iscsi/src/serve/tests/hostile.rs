//! Initiators that mean harm, and very many of them.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};

use super::Node;
use super::initiator::{HOST, Initiator, TARGET, read10, write10};
use crate::limits::{
    ADDRESS_LOGINS_MAX, IMMEDIATE_TASKS_MAX, OUTPUT_LOOSE_BYTES_MAX, READ_BYTES_MAX,
};
use crate::scsi::limits::TRANSFER_BYTES_MAX;
use crate::wire::request::{Request, Stage};
use crate::wire::response::{LoginStatus, Response};

#[tokio::test(start_paused = true)]
async fn absurd_lengths_end_a_connection_at_its_header() {
    let node = Node::new();
    let mut early = Initiator::connect(&node);
    let mut header = [0; 48];
    (header[0], header[5]) = (0x43, 0xff);
    early.stream.write_all(&header).await.unwrap();
    assert!(early.try_receive().await.is_none());
    let mut late = Initiator::login(&node, &[]).await;
    (header[0], header[5]) = (0x01, 0xff);
    late.stream.write_all(&header).await.unwrap();
    assert!(late.try_receive().await.is_none());
}

/// A command may announce 4 GiB: only what it can use is asked for or reserved.
#[tokio::test(start_paused = true)]
async fn announced_bytes_cost_nothing() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let answer = one.run(&write10(0, 1), u32::MAX, &[3; 512]).await;
    assert_eq!(answer.status, 0);
    let answer = one.run(&read10(0, 1), u32::MAX, &[]).await;
    assert_eq!((answer.status, answer.data.len()), (0, 512));
    // No more is kept for a read than any may return.
    node.disk.freeze(true);
    let free = node.budget.free_bytes();
    let command = one.command(&read10(0, 1), u32::MAX, &[]);
    one.send(&Request::ScsiCommand(command)).await;
    one.ping(b"").await;
    assert!(matches!(one.receive().await, Response::NopIn(_)));
    let kept = free - node.budget.free_bytes();
    assert_eq!(kept, TRANSFER_BYTES_MAX);
}

#[tokio::test(start_paused = true)]
async fn half_open_connections_are_few_and_short() {
    let node = Node::new();
    let mut open: Vec<_> = (0..ADDRESS_LOGINS_MAX)
        .map(|_| Initiator::connect(&node))
        .collect();
    tokio::task::yield_now().await;
    let mut more = Initiator::connect(&node);
    assert!(more.try_receive().await.is_none());
    assert_eq!(node.service.stats().connections_refused.value(), 1);
    for one in &mut open {
        assert!(one.try_receive().await.is_none());
    }
    Initiator::login(&node, &[]).await;
}

/// Pings cost their sender nothing and nobody reserves what they bring back.
#[tokio::test(start_paused = true)]
async fn who_takes_no_answers_is_heard_no_more_before_they_cost_much() {
    const PING_BYTES: usize = 8 << 10;
    const CLIENT_BYTES: usize = 64 << 10;
    let node = Node::new();
    let mut one = Initiator::connect_through(&node, CLIENT_BYTES);
    one.operational(&[("MaxRecvDataSegmentLength", "65536")])
        .await;
    let mut sent = 0;
    while timeout(Duration::from_secs(1), one.ping(&[7; PING_BYTES]))
        .await
        .is_ok()
    {
        sent += 1;
        assert!(sent < 1_000, "nothing bounds what waits");
    }
    // What lies on the way, here and there, and what was read at once.
    let least = 2 * CLIENT_BYTES / PING_BYTES;
    let most = (2 * CLIENT_BYTES + OUTPUT_LOOSE_BYTES_MAX + 2 * READ_BYTES_MAX) / PING_BYTES;
    assert!((least..=most).contains(&sent), "{sent} pings");
    for _ in 0..sent {
        match one.receive().await {
            Response::NopIn(nop) => assert_eq!(nop.data.len(), PING_BYTES),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn immediate_commands_have_a_small_reserve() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    node.disk.freeze(true);
    for _ in 0..=IMMEDIATE_TASKS_MAX {
        let mut command = one.command(&[0; 6], 0, &[]);
        one.cmd_sn = command.numbers.cmd_sn;
        command.numbers.immediate = true;
        one.send(&Request::ScsiCommand(command)).await;
    }
    let full = one.answer().await;
    assert_eq!(full.status, 0x28);
    node.disk.freeze(false);
    for _ in 0..IMMEDIATE_TASKS_MAX {
        assert_eq!(one.answer().await.status, 0);
    }
}

/// What comes outside of the window is held under the same bound.
#[tokio::test(start_paused = true)]
async fn immediate_commands_take_of_what_the_windows_take() {
    let node = Node::with(|_| (), 1 << 20);
    let mut all = Vec::new();
    for number in 0..10 {
        let mut one = Initiator::connect(&node);
        one.isid[5] = number;
        one.operational(&[]).await;
        all.push(one);
    }
    assert_eq!(node.window_budget.free_bytes(), 0);
    let one = &mut all[0];
    let mut command = one.command(&write10(0, 1), 512, &[5; 512]);
    one.cmd_sn = command.numbers.cmd_sn;
    command.numbers.immediate = true;
    one.send(&Request::ScsiCommand(command)).await;
    assert_eq!(one.answer().await.status, 0x28);
    assert_eq!(one.run(&write10(0, 1), 512, &[5; 512]).await.status, 0);
}

/// Whoever comes again gets what its former session gives back.
#[tokio::test(start_paused = true)]
async fn a_session_is_begun_anew_where_no_further_one_could_be() {
    let node = Node::with(|_| (), 256 << 10);
    let log_in = async |number: u8| {
        let mut one = Initiator::connect(&node);
        one.isid[5] = number;
        let keys = [("InitiatorName", HOST), ("TargetName", TARGET)];
        let stage = Stage::LoginOperationalNegotiation;
        let response = one.login_step(stage, Stage::FullFeaturePhase, &keys).await;
        (response.status, one)
    };
    let mut all = Vec::new();
    while node.window_budget.free_bytes() > 0 {
        let number = u8::try_from(all.len()).unwrap();
        let (status, one) = log_in(number).await;
        assert_eq!(status, LoginStatus::Success);
        all.push(one);
    }
    let (status, _) = log_in(100).await;
    assert_eq!(status, LoginStatus::OutOfResources);
    let (status, mut again) = log_in(0).await;
    assert_eq!(status, LoginStatus::Success);
    assert_eq!(again.run(&[0; 6], 0, &[]).await.status, 0);
}

/// The window goes no further than what is reserved, and the next task that ends opens it again.
#[tokio::test(start_paused = true)]
async fn a_window_is_what_the_budget_holds() {
    let node = Node::with(|_| (), 1 << 20);
    let mut one = Initiator::login(&node, &[]).await;
    node.disk.freeze(true);
    one.ping(b"").await;
    one.receive().await;
    let mut sent = 0;
    loop {
        // 8 places of 64 KiB: half of the budget.
        while !one.max_cmd_sn.is_before(one.cmd_sn) {
            let command = one.command(&[0; 6], 0, &[]);
            one.send(&Request::ScsiCommand(command)).await;
            sent += 1;
        }
        let before = one.max_cmd_sn;
        one.ping(b"").await;
        one.receive().await;
        if one.max_cmd_sn == before {
            break;
        }
    }
    assert_eq!(sent, 8);
    assert_eq!(node.window_budget.free_bytes(), 512 << 10);
    node.disk.freeze(false);
    for _ in 0..sent {
        assert_eq!(one.answer().await.status, 0);
    }
    assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
}

/// Sessions with all they may send against a backend that does nothing: what is held stays below
/// the budgets, and whoever asks is answered.
#[tokio::test(start_paused = true)]
async fn a_thousand_full_sessions_leave_room_to_answer() {
    const SESSIONS: u16 = 1_000;
    let node = Node::with(|_| (), 128 << 20);
    node.disk.freeze(true);
    let mut all = Vec::new();
    for number in 0..SESSIONS {
        let mut one = Initiator::connect(&node);
        one.isid[4..].copy_from_slice(&number.to_be_bytes());
        one.operational(&[]).await;
        all.push(one);
    }
    let mut sent = 0;
    for one in &mut all {
        one.ping(b"").await;
        assert!(matches!(one.receive().await, Response::NopIn(_)));
        while !one.max_cmd_sn.is_before(one.cmd_sn) {
            let command = one.command(&write10(0, 128), 65_536, &[5; 4_096]);
            one.send(&Request::ScsiCommand(command)).await;
            sent += 1;
        }
    }
    assert!(sent >= usize::from(SESSIONS));
    // Reserved bytes bound what all of them hold.
    assert!(sent <= (128 << 20) / (64 << 10));
    let begun = Instant::now();
    for one in &mut all {
        one.ping(b"alive").await;
        loop {
            let response = timeout(Duration::from_secs(1), one.receive()).await;
            match response.expect("a NOP is answered within a second") {
                Response::NopIn(nop) if &nop.data[..] == b"alive" => break,
                Response::ReadyToTransfer(_) | Response::NopIn(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(1));
    drop(all);
    node.disk.freeze(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(node.service.sessions().count(), 0);
    assert_eq!(node.budget.free_bytes(), 128 << 20);
    assert_eq!(node.window_budget.free_bytes(), 128 << 20);
}
