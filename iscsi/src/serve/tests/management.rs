//! Task management, and what is left of commands that were aborted.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};

use super::Node;
use super::initiator::{Initiator, write10};
use crate::units::Event;
use crate::wire::request::{Request, TaskFunction, TaskManagement};
use crate::wire::response::{Response, TaskOutcome};
use crate::wire::serial::Serial;

/// A write that runs and does not end, with its tag and number.
async fn frozen_write(node: &Node, one: &mut Initiator) -> (u32, Serial) {
    node.disk.freeze(true);
    let command = one.command(&write10(0, 1), 512, &[1; 512]);
    let task = (command.itt, command.numbers.cmd_sn);
    one.send(&Request::ScsiCommand(command)).await;
    sync(one).await;
    task
}

/// Waits until the node has handled what was sent.
async fn sync(one: &mut Initiator) {
    one.ping(b"").await;
    assert!(matches!(one.receive().await, Response::NopIn(_)));
}

#[tokio::test(start_paused = true)]
async fn an_aborted_task_is_not_heard_of_again() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let task = frozen_write(&node, &mut one).await;
    one.manage(TaskFunction::AbortTask, 1 << 48, task).await;
    assert_eq!(one.managed().await, TaskOutcome::NoSuchTask);
    one.manage(TaskFunction::AbortTask, 0, task).await;
    assert_eq!(one.managed().await, TaskOutcome::Complete);
    // Once more: it has ended.
    one.manage(TaskFunction::AbortTask, 0, task).await;
    assert_eq!(one.managed().await, TaskOutcome::Complete);
    node.disk.freeze(false);
    assert!(
        timeout(Duration::from_secs(5), one.try_receive())
            .await
            .is_err()
    );
    assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
}

/// A command and its abort that come at once: it is not begun.
#[tokio::test(start_paused = true)]
async fn what_is_aborted_before_it_is_begun_is_not_begun() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let command = one.command(&write10(0, 1), 512, &[1; 512]);
    let abort = TaskManagement {
        function: TaskFunction::AbortTask,
        lun: 0,
        itt: one.next_itt(),
        referenced_itt: command.itt,
        numbers: one.numbers(true),
        ref_cmd_sn: command.numbers.cmd_sn,
        exp_data_sn: 0,
    };
    let mut bytes = Vec::new();
    for request in [
        Request::ScsiCommand(command),
        Request::TaskManagement(abort),
    ] {
        bytes.extend(request.encode().encode(one.digests).concat());
    }
    one.stream.write_all(&bytes).await.unwrap();
    assert_eq!(one.managed().await, TaskOutcome::Complete);
    assert!(node.disk.begun.lock().unwrap().is_empty());
    assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_completed_or_never_was() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let number = one.cmd_sn;
    let answer = one.run(&[0; 6], 0, &[]).await;
    assert_eq!(answer.status, 0);
    one.manage(TaskFunction::AbortTask, 0, (one.itt, number))
        .await;
    assert_eq!(one.managed().await, TaskOutcome::Complete);
    one.manage(TaskFunction::AbortTask, 0, (999, one.cmd_sn.plus(1_000)))
        .await;
    assert_eq!(one.managed().await, TaskOutcome::NoSuchTask);
}

#[tokio::test(start_paused = true)]
async fn functions_that_are_not_there_say_so() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let none = (u32::MAX, Serial(0));
    for (function, lun, expected) in [
        (
            TaskFunction::TaskReassign,
            0,
            TaskOutcome::ReassignmentNotSupported,
        ),
        (TaskFunction::ClearAca, 0, TaskOutcome::FunctionNotSupported),
        (TaskFunction::Other(9), 0, TaskOutcome::FunctionNotSupported),
        (TaskFunction::AbortTaskSet, 7 << 48, TaskOutcome::NoSuchLun),
        (
            TaskFunction::LogicalUnitReset,
            7 << 48,
            TaskOutcome::NoSuchLun,
        ),
        (TaskFunction::AbortTaskSet, 0, TaskOutcome::Complete),
        (TaskFunction::ClearTaskSet, 0, TaskOutcome::Complete),
        (TaskFunction::LogicalUnitReset, 0, TaskOutcome::Complete),
        (TaskFunction::TargetWarmReset, 0, TaskOutcome::Complete),
    ] {
        one.manage(function, lun, none).await;
        assert_eq!(one.managed().await, expected, "{function:?}");
    }
    let events = node.disk.events.lock().unwrap().clone();
    assert_eq!(
        events,
        [
            Event::TasksCleared(0),
            Event::LogicalUnitReset(0),
            Event::TargetReset
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_reset_waits_for_aborted_writes_that_run() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let mut other = Initiator::connect(&node);
    other.isid[5] = 2;
    other.operational(&[]).await;
    let task = frozen_write(&node, &mut one).await;
    one.manage(TaskFunction::AbortTask, 0, task).await;
    assert_eq!(one.managed().await, TaskOutcome::Complete);
    other
        .manage(TaskFunction::LogicalUnitReset, 0, (u32::MAX, Serial(0)))
        .await;
    let early = timeout(Duration::from_secs(10), other.receive()).await;
    assert!(
        early.is_err(),
        "a reset ended before an aborted write: {early:?}"
    );
    node.disk.freeze(false);
    assert_eq!(other.managed().await, TaskOutcome::Complete);
    assert_eq!(node.disk.running.load(Ordering::Relaxed), 0);
    assert_eq!(other.run(&write10(0, 1), 512, &[2; 512]).await.status, 0);
    assert_eq!(node.disk.bytes.lock().unwrap()[..512], [2; 512]);
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_the_tasks_of_all_sessions_even_of_lost_ones() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    frozen_write(&node, &mut one).await;
    let mut other = Initiator::connect(&node);
    other.isid[5] = 2;
    other.operational(&[]).await;
    let mut lost = Initiator::connect(&node);
    lost.isid[5] = 3;
    lost.operational(&[]).await;
    frozen_write(&node, &mut lost).await;
    drop(lost);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(node.service.sessions().count(), 2);
    assert_eq!(node.disk.running.load(Ordering::Relaxed), 2);
    let begun = Instant::now();
    other
        .manage(TaskFunction::LogicalUnitReset, 0, (u32::MAX, Serial(0)))
        .await;
    // What cannot be waited for is not claimed.
    assert_eq!(other.managed().await, TaskOutcome::Rejected);
    assert_eq!(begun.elapsed(), Duration::from_secs(20));
    other
        .manage(
            TaskFunction::LogicalUnitReset,
            1 << 48,
            (u32::MAX, Serial(0)),
        )
        .await;
    assert_eq!(other.managed().await, TaskOutcome::Complete);
    node.disk.freeze(false);
    other
        .manage(TaskFunction::LogicalUnitReset, 0, (u32::MAX, Serial(0)))
        .await;
    assert_eq!(other.managed().await, TaskOutcome::Complete);
    // The aborted write of the session that lives is not answered.
    assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
}

/// Where the way to the store can be cut off, that is done before a reset is answered.
#[tokio::test(start_paused = true)]
async fn a_reset_cuts_off_what_it_cannot_wait_for() {
    for is_cut in [true, false] {
        let node = Node::new();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&asked);
        node.service.set_cut_off(Box::new(move |begun| {
            told.lock().unwrap().push((begun, Instant::now()));
            Box::pin(std::future::ready(is_cut))
        }));
        let mut one = Initiator::login(&node, &[]).await;
        let none = (u32::MAX, Serial(0));
        one.manage(TaskFunction::LogicalUnitReset, 0, none).await;
        assert_eq!(one.managed().await, TaskOutcome::Complete);
        assert!(asked.lock().unwrap().is_empty());
        frozen_write(&node, &mut one).await;
        let begun = Instant::now();
        one.manage(TaskFunction::LogicalUnitReset, 0, none).await;
        let expected = match is_cut {
            true => TaskOutcome::Complete,
            false => TaskOutcome::Rejected,
        };
        assert_eq!(one.managed().await, expected);
        let waited = Duration::from_secs(20);
        assert_eq!(*asked.lock().unwrap(), [(begun, begun + waited)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cold_reset_ends_the_sessions() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let mut other = Initiator::connect(&node);
    other.isid[5] = 2;
    other.operational(&[]).await;
    one.manage(TaskFunction::TargetColdReset, 0, (u32::MAX, Serial(0)))
        .await;
    assert_eq!(one.managed().await, TaskOutcome::Complete);
    while let Some(response) = one.try_receive().await {
        assert!(matches!(response, Response::AsyncMessage(_)));
    }
    while let Some(response) = other.try_receive().await {
        assert!(matches!(response, Response::AsyncMessage(_)));
    }
    assert_eq!(node.service.sessions().count(), 0);
}

/// A task set that is aborted with commands queued behind each other: none of them begins.
#[tokio::test(start_paused = true)]
async fn an_aborted_task_set_starts_nothing() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    node.disk.freeze(true);
    for mark in 1..4 {
        let mut command = one.command(&[0, mark, 0, 0, 0, 0], 0, &[]);
        command.attribute = crate::wire::request::TaskAttribute::Ordered;
        one.send(&Request::ScsiCommand(command)).await;
    }
    sync(&mut one).await;
    one.manage(TaskFunction::AbortTaskSet, 0, (u32::MAX, Serial(0)))
        .await;
    assert_eq!(one.managed().await, TaskOutcome::Complete);
    node.disk.freeze(false);
    sync(&mut one).await;
    assert_eq!(*node.disk.begun.lock().unwrap(), [1]);
}
