//! Commands and their data.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{advance, timeout};

use super::Node;
use super::initiator::{Initiator, read10, write10};
use crate::wire::header::RESERVED_TAG;
use crate::wire::request::{DataOut, LogoutReason, Request, Snack, TaskAttribute};
use crate::wire::response::{LogoutOutcome, RejectReason, Residual, Response};

fn pattern(bytes: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from(at % 251).unwrap();
    (0..bytes).map(byte).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_written_is_read_with_digests_and_without() {
    let node = Node::new();
    for digest in ["None", "CRC32C"] {
        let keys = [
            ("HeaderDigest", digest),
            ("DataDigest", digest),
            ("MaxRecvDataSegmentLength", "4096"),
            ("MaxBurstLength", "16384"),
            ("MaxOutstandingR2T", "4"),
        ];
        let mut one = Initiator::login(&node, &keys).await;
        let data = pattern(100 * 512);
        let answer = one.write(3, &data, 1_000).await;
        assert_eq!((answer.status, answer.residual), (0, Residual::None));
        let answer = one.run(&read10(3, 100), 51_200, &[]).await;
        assert_eq!((answer.status, answer.residual), (0, Residual::None));
        assert!(answer.is_collapsed);
        assert_eq!(answer.data, data);
        let LogoutOutcome::Closed = closed(one.logout(LogoutReason::CloseSession, 0).await) else {
            panic!("not closed");
        };
        assert!(one.try_receive().await.is_none());
    }
    assert_eq!(node.service.sessions().count(), 0);
}

pub(super) fn closed(response: Response) -> LogoutOutcome {
    match response {
        Response::Logout(response) => response.response,
        other => panic!("{other:?}"),
    }
}

/// spdk issue 405: 34 blocks of which 8 KiB come with the command.
#[tokio::test(start_paused = true)]
async fn immediate_data_and_the_rest_leave_no_residual() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let data = pattern(34 * 512);
    let command = one.command(&write10(0, 34), 17_408, &data[..8_192]);
    let itt = command.itt;
    one.send(&Request::ScsiCommand(command)).await;
    let Response::ReadyToTransfer(r2t) = one.receive().await else {
        panic!("no R2T");
    };
    assert_eq!((r2t.buffer_offset, r2t.desired_bytes), (8_192, 9_216));
    one.data_out(itt, r2t.ttt, 8_192, &data[8_192..], 9_216)
        .await;
    let answer = one.answer().await;
    assert_eq!((answer.status, answer.residual), (0, Residual::None));
    assert_eq!(node.disk.bytes.lock().unwrap()[..17_408], data);
}

#[tokio::test(start_paused = true)]
async fn unsolicited_data_follows_a_command() {
    let node = Node::new();
    let keys = [("InitialR2T", "No"), ("FirstBurstLength", "16384")];
    let mut one = Initiator::login(&node, &keys).await;
    let data = pattern(64 * 512);
    let mut command = one.command(&write10(0, 64), 32_768, &data[..4_096]);
    command.is_final = false;
    let itt = command.itt;
    one.send(&Request::ScsiCommand(command)).await;
    one.data_out(itt, RESERVED_TAG, 4_096, &data[4_096..16_384], 4_096)
        .await;
    let Response::ReadyToTransfer(r2t) = one.receive().await else {
        panic!("no R2T");
    };
    assert_eq!((r2t.buffer_offset, r2t.desired_bytes), (16_384, 16_384));
    one.data_out(itt, r2t.ttt, 16_384, &data[16_384..], 4_096)
        .await;
    assert_eq!(one.answer().await.status, 0);
    assert_eq!(node.disk.bytes.lock().unwrap()[..32_768], data);
    // A PDU is missing: its number says so where its offset does not.
    let mut command = one.command(&write10(0, 1), 512, &[]);
    command.is_final = false;
    let itt = command.itt;
    one.send(&Request::ScsiCommand(command)).await;
    let pdu = DataOut {
        is_final: true,
        lun: 0,
        itt,
        ttt: RESERVED_TAG,
        exp_stat_sn: one.exp_stat_sn,
        data_sn: 1,
        buffer_offset: 0,
        data: Bytes::from_static(&[1; 512]),
        has_wrong_data: false,
    };
    one.send(&Request::DataOut(pdu)).await;
    assert_eq!(one.answer().await.sense[14..16], [0x0c, 0x0d]);
}

#[tokio::test(start_paused = true)]
async fn data_nobody_allowed_fails_its_command_alone() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[("ImmediateData", "No")]).await;
    let answer = one.run(&write10(0, 1), 512, &[1; 512]).await;
    assert_eq!(
        (answer.status, answer.residual),
        (2, Residual::Underflow(512))
    );
    assert_eq!(answer.sense[14..16], [0x0c, 0x0c]);
    // Out of order.
    let command = one.command(&write10(0, 4), 2_048, &[]);
    let itt = command.itt;
    one.send(&Request::ScsiCommand(command)).await;
    let Response::ReadyToTransfer(r2t) = one.receive().await else {
        panic!("no R2T");
    };
    one.data_out(itt, r2t.ttt, 512, &[1; 1_536], 1_536).await;
    let answer = one.answer().await;
    assert_eq!(answer.sense[14..16], [0x0c, 0x0d]);
    assert_eq!(node.disk.bytes.lock().unwrap()[..2_048], [0; 2_048]);
    assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
}

#[tokio::test(start_paused = true)]
async fn residuals_are_exact_in_both_directions() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    for (cdb, expected, moved, residual) in [
        (read10(0, 2), 1_024, 1_024, Residual::None),
        (read10(0, 2), 4_096, 1_024, Residual::Underflow(3_072)),
        (read10(0, 2), 512, 512, Residual::Overflow(512)),
        (read10(0, 2), 0, 0, Residual::Overflow(1_024)),
    ] {
        let answer = one.run(&cdb, expected, &[]).await;
        assert_eq!(
            (answer.status, answer.data.len(), answer.residual),
            (0, moved, residual)
        );
    }
    let unknown = one.run(&[0xff; 10], 512, &[]).await;
    assert_eq!(
        (unknown.status, unknown.residual),
        (2, Residual::Underflow(512))
    );
    assert_eq!(unknown.sense[..2], [0, 14]);
    // More is announced than the command can use: only that is asked for.
    let answer = one.run(&write10(0, 1), 4_096, &[9; 512]).await;
    assert_eq!(
        (answer.status, answer.residual),
        (0, Residual::Underflow(3_584))
    );
    // Less is announced than the command names.
    let answer = one.run(&write10(0, 2), 512, &[9; 512]).await;
    assert_eq!(answer.status, 0);
}

#[tokio::test(start_paused = true)]
async fn wrong_data_is_rejected_and_its_command_fails() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[("DataDigest", "CRC32C")]).await;
    let command = one.command(&write10(0, 1), 512, &[7; 512]);
    let mut bytes = Request::ScsiCommand(command)
        .encode()
        .encode(one.digests)
        .concat();
    bytes[100] ^= 1;
    tokio::io::AsyncWriteExt::write_all(&mut one.stream, &bytes)
        .await
        .unwrap();
    let Response::Reject(reject) = one.receive().await else {
        panic!("no reject");
    };
    assert_eq!(reject.reason, RejectReason::DataDigestError);
    assert_eq!(reject.header, bytes[..48]);
    let answer = one.answer().await;
    assert_eq!(
        (answer.status, &answer.sense[14..16]),
        (2, &[0x47, 0x05][..])
    );
    assert_eq!(node.disk.bytes.lock().unwrap()[0], 0);
    // The same for data that was asked for.
    let command = one.command(&write10(0, 1), 512, &[]);
    let itt = command.itt;
    one.send(&Request::ScsiCommand(command)).await;
    let Response::ReadyToTransfer(r2t) = one.receive().await else {
        panic!("no R2T");
    };
    let digests = one.digests;
    one.digests.data = false;
    one.data_out(itt, r2t.ttt, 0, &[7; 512], 512).await;
    tokio::io::AsyncWriteExt::write_all(&mut one.stream, &[0; 4])
        .await
        .unwrap();
    one.digests = digests;
    let Response::Reject(_) = one.receive().await else {
        panic!("no reject");
    };
    assert_eq!(one.answer().await.sense[14..16], [0x47, 0x05]);
    assert_eq!(node.disk.bytes.lock().unwrap()[0], 0);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_header_ends_the_connection() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[("HeaderDigest", "CRC32C")]).await;
    let command = one.command(&[0; 6], 0, &[]);
    let mut bytes = Request::ScsiCommand(command)
        .encode()
        .encode(one.digests)
        .concat();
    bytes[20] ^= 1;
    tokio::io::AsyncWriteExt::write_all(&mut one.stream, &bytes)
        .await
        .unwrap();
    assert!(one.try_receive().await.is_none());
    assert_eq!(node.service.stats().connections_cut.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn commands_outside_of_the_window_are_ignored() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    one.ping(b"").await;
    let Response::NopIn(nop) = one.receive().await else {
        panic!("no NOP-In");
    };
    let mut early = one.command(&[0; 6], 0, &[]);
    early.numbers.cmd_sn = nop.numbers.max_cmd_sn.next();
    one.send(&Request::ScsiCommand(early)).await;
    one.cmd_sn = nop.numbers.exp_cmd_sn;
    one.ping(b"").await;
    let Response::NopIn(after) = one.receive().await else {
        panic!("a command outside of the window was taken");
    };
    assert_eq!(after.numbers.exp_cmd_sn, nop.numbers.exp_cmd_sn);
    assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
}

#[tokio::test(start_paused = true)]
async fn ordered_tasks_wait_and_are_waited_for() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    node.disk.freeze(true);
    let attributes = [
        (1, TaskAttribute::Simple),
        (2, TaskAttribute::Ordered),
        (3, TaskAttribute::Simple),
        (4, TaskAttribute::HeadOfQueue),
    ];
    for (mark, attribute) in attributes {
        let mut command = one.command(&[0, mark, 0, 0, 0, 0], 0, &[]);
        command.attribute = attribute;
        one.send(&Request::ScsiCommand(command)).await;
    }
    one.ping(b"").await;
    assert!(matches!(one.receive().await, Response::NopIn(_)));
    assert_eq!(*node.disk.begun.lock().unwrap(), [1, 4]);
    node.disk.freeze(false);
    for _ in attributes {
        assert_eq!(one.answer().await.status, 0);
    }
    assert_eq!(*node.disk.begun.lock().unwrap(), [1, 4, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_and_silence_ends_a_connection() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let mut other = Initiator::connect(&node);
    other.isid[5] = 2;
    other.operational(&[]).await;
    one.ping(b"hello").await;
    let Response::NopIn(nop) = one.receive().await else {
        panic!("no NOP-In");
    };
    assert_eq!(nop.data, Bytes::from_static(b"hello"));
    // The target asks; one answers, the other does not.
    for _ in 0..3 {
        let Response::NopIn(ask) = one.receive_any().await else {
            panic!("no NOP-In");
        };
        assert_eq!(ask.itt, RESERVED_TAG);
        one.live(ask.ttt).await;
    }
    assert!(matches!(other.receive_any().await, Response::NopIn(_)));
    assert!(other.try_receive().await.is_none());
    assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
    assert_eq!(node.service.sessions().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_understood_is_rejected() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let snack = Snack {
        kind: 0,
        lun: 0,
        itt: 1,
        ttt: RESERVED_TAG,
        exp_stat_sn: one.exp_stat_sn,
        begin: 0,
        length: 0,
    };
    one.send(&Request::Snack(snack)).await;
    let mut unknown = [0; 48];
    unknown[0] = 0x1c;
    tokio::io::AsyncWriteExt::write_all(&mut one.stream, &unknown)
        .await
        .unwrap();
    let command = one.command(&[0; 6], 0, &[]);
    let mut wrong = Request::ScsiCommand(command).encode();
    wrong.header.0[1] |= 7;
    let bytes = wrong.encode(one.digests).concat();
    tokio::io::AsyncWriteExt::write_all(&mut one.stream, &bytes)
        .await
        .unwrap();
    for expected in [
        RejectReason::SnackReject,
        RejectReason::CommandNotSupported,
        RejectReason::InvalidPduField,
    ] {
        let Response::Reject(reject) = one.receive().await else {
            panic!("no reject");
        };
        assert_eq!(reject.reason, expected);
    }
    assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_lets_no_reply_out() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    node.gate.set_open(false);
    let command = one.command(&[0; 6], 0, &[]);
    one.send(&Request::ScsiCommand(command)).await;
    assert!(one.try_receive().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_asks_for_logout() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    node.control.request();
    let Response::AsyncMessage(message) = one.receive().await else {
        panic!("no message");
    };
    assert_eq!(
        message.event,
        crate::wire::response::AsyncEvent::RequestLogout
    );
    // Whoever does not is cut.
    let cut = timeout(Duration::from_secs(11), one.try_receive()).await;
    assert!(cut.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn data_that_never_comes_ends_the_connection() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let free = node.budget.free_bytes();
    let command = one.command(&write10(0, 64), 32_768, &[]);
    one.send(&Request::ScsiCommand(command)).await;
    assert!(matches!(one.receive().await, Response::ReadyToTransfer(_)));
    assert!(node.budget.free_bytes() < free);
    for _ in 0..7 {
        advance(Duration::from_secs(8)).await;
        one.ping(b"").await;
        tokio::task::yield_now().await;
    }
    while one.try_receive().await.is_some() {}
    assert_eq!(node.budget.free_bytes(), free);
}
