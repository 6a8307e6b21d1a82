//! Sessions of several connections, one of which ends or goes wrong.

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Duration, sleep, timeout};

use super::Node;
use super::initiator::{Initiator, write10};
use super::logins::join;
use crate::limits::MANAGEMENT_MAX;
use crate::wire::header::RESERVED_TAG;
use crate::wire::request::{NopOut, Request, TaskFunction, TaskManagement};
use crate::wire::response::{LoginStatus, RejectReason, Response, TaskOutcome};
use crate::wire::serial::Serial;

const NO_TASK: (u32, Serial) = (RESERVED_TAG, Serial(0));

/// A session with two connections.
async fn both(node: &Node) -> (Initiator, Initiator) {
    let first = Initiator::login(node, &[("MaxConnections", "2")]).await;
    let second = second(node, &first).await;
    (first, second)
}

/// The answer to a function, which comes within the time that initiators wait.
async fn managed(one: &mut Initiator) -> TaskOutcome {
    let answer = timeout(Duration::from_secs(25), one.managed()).await;
    answer.expect("an answer in time")
}

async fn second(node: &Node, first: &Initiator) -> Initiator {
    let (mut second, status) = join(node, first, 2).await;
    assert_eq!(status, LoginStatus::Success);
    (second.itt, second.cmd_sn) = (10_000, first.cmd_sn);
    second
}

/// A command that came in one piece with what ends its connection is not begun, and no reset waits
/// for it.
#[tokio::test(start_paused = true)]
async fn a_command_that_was_not_begun_holds_no_reset_up() {
    let node = Node::new();
    let (mut first, mut second) = both(&node).await;
    let command = second.command(&write10(0, 1), 512, &[1; 512]);
    let frame = Request::ScsiCommand(command).encode();
    let mut bytes = frame.encode(second.digests).concat();
    let mut absurd = [0; 48];
    (absurd[0], absurd[5]) = (0x01, 0xff);
    bytes.extend_from_slice(&absurd);
    second.stream.write_all(&bytes).await.unwrap();
    assert!(second.try_receive().await.is_none());
    first
        .manage(TaskFunction::LogicalUnitReset, 0, NO_TASK)
        .await;
    assert_eq!(managed(&mut first).await, TaskOutcome::Complete);
    assert!(node.disk.begun.lock().unwrap().is_empty());
}

/// Functions count among those in work as long as somebody waits for their answer.
#[tokio::test(start_paused = true)]
async fn functions_of_lost_connections_do_not_count() {
    let node = Node::new();
    let (mut first, mut other) = both(&node).await;
    node.disk.freeze(true);
    let command = first.command(&write10(0, 1), 512, &[1; 512]);
    let task = (command.itt, command.numbers.cmd_sn);
    first.send(&Request::ScsiCommand(command)).await;
    first.manage(TaskFunction::AbortTask, 0, task).await;
    assert_eq!(managed(&mut first).await, TaskOutcome::Complete);
    for _ in 0..MANAGEMENT_MAX {
        other.cmd_sn = first.cmd_sn;
        other
            .manage(TaskFunction::LogicalUnitReset, 0, NO_TASK)
            .await;
        other.ping(b"").await;
        other.receive().await;
        drop(other);
        sleep(Duration::from_millis(1)).await;
        other = second(&node, &first).await;
    }
    first.manage(TaskFunction::AbortTaskSet, 0, NO_TASK).await;
    assert_eq!(managed(&mut first).await, TaskOutcome::Complete);
}

/// A reset that waits for a command is answered once the command's number is done, whatever became
/// of the command.
#[tokio::test(start_paused = true)]
async fn a_reset_that_waits_goes_on_when_the_command_before_it_is_refused_or_lost() {
    let node = Node::new();
    let (mut first, mut other) = both(&node).await;
    for is_lost in [false, true] {
        let missing = other.command(&[0; 6], 0, &[]);
        let pdu = TaskManagement {
            function: TaskFunction::LogicalUnitReset,
            lun: 0,
            itt: first.next_itt(),
            referenced_itt: RESERVED_TAG,
            numbers: other.numbers(true),
            ref_cmd_sn: Serial(0),
            exp_data_sn: 0,
        };
        // The next one is here already, and waits with it.
        let mut early = other.command(&[0; 6], 0, &[]);
        early.itt = first.next_itt();
        if is_lost {
            other.send(&Request::ScsiCommand(early)).await;
            other.ping(b"").await;
            other.receive().await;
        }
        let mut pdu = pdu;
        pdu.numbers.cmd_sn = other.cmd_sn;
        first.send(&Request::TaskManagement(pdu)).await;
        first.ping(b"").await;
        assert!(matches!(first.receive().await, Response::NopIn(_)));
        if is_lost {
            // What the other connection brought early goes with it.
            drop(other);
            first.cmd_sn = missing.numbers.cmd_sn;
            let mut missing = first.command(&[0; 6], 0, &[]);
            // Of another LUN, so that the reset leaves it alone.
            missing.lun = 1 << 48;
            first.send(&Request::ScsiCommand(missing)).await;
            let mut answers = 0;
            while answers < 2 {
                match first.receive().await {
                    Response::Scsi(response) => assert_eq!(response.status, 0),
                    Response::TaskManagement(response) => {
                        assert_eq!(response.response, TaskOutcome::Complete);
                    }
                    other => panic!("{other:?}"),
                }
                answers += 1;
            }
            return;
        }
        for number in [missing.numbers.cmd_sn, missing.numbers.cmd_sn.next()] {
            let mut wrong = missing.clone();
            wrong.numbers.cmd_sn = number;
            let mut wrong = Request::ScsiCommand(wrong).encode();
            // An attribute that there is not.
            wrong.header.0[1] |= 7;
            let bytes = wrong.encode(other.digests).concat();
            other.stream.write_all(&bytes).await.unwrap();
            assert!(matches!(other.receive().await, Response::Reject(_)));
        }
        assert_eq!(managed(&mut first).await, TaskOutcome::Complete);
    }
}

/// What waits for its turn holds what its place in the window reserved, and no more.
#[tokio::test(start_paused = true)]
async fn what_comes_early_is_as_long_as_its_place_at_most() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[("FirstBurstLength", "8192")]).await;
    let now = one.command(&[0; 6], 0, &[]);
    let ping = |one: &mut Initiator, bytes: usize| {
        let mut numbers = one.numbers(false);
        let itt = one.next_itt();
        numbers.immediate = false;
        one.cmd_sn = one.cmd_sn.next();
        Request::NopOut(NopOut {
            lun: 0,
            itt,
            ttt: RESERVED_TAG,
            numbers,
            data: Bytes::from(vec![7; bytes]),
        })
    };
    let (short, long) = (ping(&mut one, 8_192), ping(&mut one, 8_193));
    one.send(&short).await;
    one.send(&long).await;
    let soon = timeout(Duration::from_secs(5), one.receive()).await;
    let Response::Reject(reject) = soon.expect("an answer in time") else {
        panic!("no reject");
    };
    assert_eq!(reject.reason, RejectReason::InvalidPduField);
    one.send(&Request::ScsiCommand(now)).await;
    assert!(matches!(one.receive().await, Response::NopIn(_)));
    assert_eq!(one.answer().await.status, 0);
    assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
}
