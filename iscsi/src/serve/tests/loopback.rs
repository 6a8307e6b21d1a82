//! Initiators over TCP: those that mean harm, and those that come again.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use portico_backend::connection::Peer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use super::Node;
use super::initiator::{HOST, Initiator, TARGET, read10, write10};
use crate::limits::{ADDRESS_LOGINS_MAX, LOGIN_TIMEOUT};
use crate::serve::{Ends, serve};
use crate::target::Portal;
use crate::units::Event;
use crate::wire::header::RESERVED_TAG;
use crate::wire::request::{DataOut, NopOut, Request, Stage, TaskAttribute, Text};
use crate::wire::response::{LoginStatus, RejectReason, Response};

/// Longer than any answer takes, and shorter than any limit of time.
const SOON: Duration = Duration::from_secs(10);

/// A node that listens, at one address for each of these.
struct Listening {
    node: Node,
    addresses: Vec<SocketAddr>,
}

impl Listening {
    async fn new(addresses: &[&str]) -> Self {
        let mut listeners = Vec::new();
        for address in addresses {
            listeners.push(TcpListener::bind((*address, 0)).await.unwrap());
        }
        let addresses: Vec<SocketAddr> = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap())
            .collect();
        let portals = (1..).zip(&addresses).map(|(tag, address)| Portal {
            address: *address,
            group_tag: tag,
            relative_port: tag,
        });
        let node = Node::with(|target| target.portals = portals.collect(), 64 << 20);
        for listener in listeners {
            let (service, stop) = (node.service.clone(), node.stop.clone());
            tokio::spawn(async move {
                loop {
                    let (stream, peer) = listener.accept().await.unwrap();
                    let ends = Ends {
                        peer: Peer {
                            address: Some(peer),
                            secure: false,
                        },
                        local: stream.local_addr().unwrap(),
                    };
                    tokio::spawn(serve(stream, ends, service.clone(), stop.clone()));
                }
            });
        }
        Self { node, addresses }
    }

    async fn stream(&self) -> TcpStream {
        TcpStream::connect(self.addresses[0]).await.unwrap()
    }

    async fn connect(&self) -> Initiator {
        Initiator::over(Box::new(self.stream().await))
    }

    async fn log_in(&self, number: u8, keys: &[(&str, &str)]) -> Initiator {
        let mut one = self.connect().await;
        one.isid[5] = number;
        one.operational(keys).await;
        one
    }

    /// A further connection of a session, or one in the place of another.
    async fn join(&self, first: &Initiator, cid: u16) -> Initiator {
        let mut one = self.connect().await;
        (one.tsih, one.cid, one.isid) = (first.tsih, cid, first.isid);
        one.operational(&[]).await;
        one.cmd_sn = first.cmd_sn;
        one.itt = u32::from(cid) * 10_000;
        one
    }
}

async fn is_closed(one: &mut Initiator) -> bool {
    matches!(timeout(SOON, one.try_receive()).await, Ok(None))
}

#[tokio::test]
async fn wrong_lengths_and_broken_streams_end_their_connection_alone() {
    let node = Listening::new(&["127.0.0.1"]).await;
    let mut good = node.log_in(1, &[]).await;
    let header = |opcode: u8, ahs_words: u8, data: [u8; 3]| {
        let mut header = [0; 48];
        (header[0], header[4]) = (opcode, ahs_words);
        header[5..8].copy_from_slice(&data);
        header
    };
    for (number, opcode) in (2..).zip([0x01, 0x03, 0x04, 0x05, 0x40, 0x3f]) {
        let absurd = header(opcode, 0xff, [0xff; 3]);
        let mut early = node.connect().await;
        early.stream.write_all(&absurd).await.unwrap();
        assert!(is_closed(&mut early).await, "{opcode:x}");
        let mut late = node.log_in(number, &[]).await;
        late.stream.write_all(&absurd).await.unwrap();
        assert!(is_closed(&mut late).await, "{opcode:x}");
        // Just longer than declared.
        let mut late = node.log_in(number, &[]).await;
        let long = header(opcode, 0, [0x04, 0x00, 0x01]);
        late.stream.write_all(&long).await.unwrap();
        assert!(is_closed(&mut late).await, "{opcode:x}");
        // What was announced does not come.
        let mut short = node.log_in(number, &[]).await;
        let half = header(opcode, 0xff, [0x04, 0x00, 0x00]);
        short.stream.write_all(&half).await.unwrap();
        short.stream.write_all(&[0; 1_000]).await.unwrap();
        short.stream.shutdown().await.unwrap();
        assert!(is_closed(&mut short).await, "{opcode:x}");
    }
    // Additional headers that say nothing sensible.
    let command = good.command(&[0; 6], 0, &[]);
    let mut frame = Request::ScsiCommand(command).encode();
    frame.header.0[4] = 0xff;
    frame.ahs = Bytes::from(vec![0xff; 1_020]);
    let bytes = frame.encode(good.digests).concat();
    good.stream.write_all(&bytes).await.unwrap();
    let Response::Reject(reject) = good.receive().await else {
        panic!("no reject");
    };
    assert_eq!(reject.reason, RejectReason::InvalidPduField);
    assert_eq!(good.run(&[0; 6], 0, &[]).await.status, 0);
    assert_eq!(node.node.service.sessions().count(), 1);
}

#[tokio::test]
async fn a_flood_of_logins_keeps_nobody_out_who_is_in_and_ends() {
    let node = Listening::new(&["127.0.0.1"]).await;
    let mut good = node.log_in(1, &[]).await;
    let mut open = Vec::new();
    for number in 0..ADDRESS_LOGINS_MAX {
        let mut stream = node.stream().await;
        // Some say nothing, others begin.
        let begun = &[0x43; 48][..number % 48];
        stream.write_all(begun).await.unwrap();
        open.push(stream);
    }
    let mut more = node.connect().await;
    assert!(more.try_receive().await.is_none());
    assert!(node.node.service.stats().connections_refused.value() > 0);
    assert_eq!(good.run(&[0; 6], 0, &[]).await.status, 0);
    // From here on time passes at once where nothing else happens.
    tokio::time::pause();
    let begun = Instant::now();
    for stream in &mut open {
        let mut rest = Vec::new();
        // It may be reset, since nobody read what it said.
        stream.read_to_end(&mut rest).await.ok();
    }
    assert!(begun.elapsed() < LOGIN_TIMEOUT + Duration::from_secs(1));
    assert_eq!(node.node.service.stats().connections_open.value(), 1);
    node.log_in(2, &[]).await;
}

/// Whoever sends and does not read is not read from either, and finds every answer in the end.
#[tokio::test]
async fn a_flood_of_texts_and_pings_is_answered_one_by_one() {
    const REQUESTS: u32 = 6_000;
    let node = Listening::new(&["127.0.0.1"]).await;
    let mut good = node.log_in(1, &[]).await;
    let flood = node.log_in(2, &[]).await;
    let numbers = flood.numbers(true);
    let exp_stat_sn = flood.exp_stat_sn;
    let (reader, mut writer) = tokio::io::split(flood.stream);
    let mut bytes = Vec::new();
    for itt in 0..REQUESTS {
        let request = if itt % 2 == 0 {
            Request::NopOut(NopOut {
                lun: 0,
                itt,
                ttt: RESERVED_TAG,
                numbers,
                data: Bytes::from_static(&[7; 8_192]),
            })
        } else {
            Request::Text(Text {
                is_final: true,
                continues: false,
                lun: 0,
                itt,
                ttt: RESERVED_TAG,
                numbers,
                data: Bytes::from_static(b"SendTargets=\0"),
            })
        };
        bytes.extend(request.encode().encode(Default::default()).concat());
    }
    let sent = bytes.len() as u64;
    let sending = tokio::spawn(async move {
        writer.write_all(&bytes).await.unwrap();
        writer
    });
    let taken = || node.node.service.stats().bytes_in.value();
    let mut before = u64::MAX;
    while before != taken() {
        before = taken();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(taken() > 0);
    // What it does not hold lies in the buffers of the two streams, whose length is not ours.
    assert!(taken() < sent * 3 / 4, "{} of {sent} taken", taken());
    assert_eq!(good.run(&[0; 6], 0, &[]).await.status, 0);
    let mut flood = Initiator::over(Box::new(tokio::io::join(reader, tokio::io::sink())));
    flood.exp_stat_sn = exp_stat_sn;
    for expected in 0..REQUESTS {
        let itt = match timeout(SOON, flood.receive()).await.unwrap() {
            Response::NopIn(pdu) => pdu.itt,
            Response::Text(pdu) => pdu.itt,
            other => panic!("{other:?}"),
        };
        assert_eq!(itt, expected);
    }
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn numbers_and_tags_that_are_not_the_initiators_change_nothing() {
    let node = Listening::new(&["127.0.0.1"]).await;
    let mut one = node.log_in(1, &[]).await;
    node.node.disk.freeze(true);
    let command = one.command(&[0, 1, 0, 0, 0, 0], 0, &[]);
    one.send(&Request::ScsiCommand(command.clone())).await;
    // Its number again; numbers before and behind the window; its tag with a number of its own.
    for number in [
        command.numbers.cmd_sn,
        command.numbers.cmd_sn.plus(u32::MAX - 9),
        one.max_cmd_sn.plus(1_000),
    ] {
        let mut again = command.clone();
        (again.numbers.cmd_sn, again.itt) = (number, 500);
        one.send(&Request::ScsiCommand(again)).await;
    }
    let mut same_tag = one.command(&[0, 2, 0, 0, 0, 0], 0, &[]);
    same_tag.itt = command.itt;
    one.send(&Request::ScsiCommand(same_tag)).await;
    let answer = timeout(SOON, one.receive()).await;
    let Response::Reject(reject) = answer.expect("an answer in time") else {
        panic!("no reject");
    };
    assert_eq!(reject.reason, RejectReason::TaskInProgress);
    // Data that nobody asked for, for a task that there is and for one that there is not.
    for (itt, ttt) in [(command.itt, 77), (999, 78), (RESERVED_TAG, RESERVED_TAG)] {
        let data = DataOut {
            is_final: true,
            lun: 0,
            itt,
            ttt,
            exp_stat_sn: one.exp_stat_sn,
            data_sn: 0,
            buffer_offset: u32::MAX,
            data: Bytes::from_static(&[1; 512]),
            has_wrong_data: false,
        };
        one.send(&Request::DataOut(data)).await;
    }
    one.ping(b"").await;
    assert!(matches!(one.receive().await, Response::NopIn(_)));
    node.node.disk.freeze(false);
    assert_eq!(one.answer().await.status, 0);
    assert_eq!(one.run(&[0, 3, 0, 0, 0, 0], 0, &[]).await.status, 0);
    assert_eq!(*node.node.disk.begun.lock().unwrap(), [1, 3]);
}

/// A session in the place of one with commands in work: they are not answered, and each is done once.
#[tokio::test]
async fn an_initiator_that_logs_in_anew_ends_what_it_had() {
    let node = Listening::new(&["127.0.0.1"]).await;
    let mut old = node.log_in(1, &[]).await;
    let mut other = node.log_in(2, &[]).await;
    node.node.disk.freeze(true);
    for at in 0..3 {
        let command = old.command(&write10(at, 1), 512, &[1; 512]);
        old.send(&Request::ScsiCommand(command)).await;
    }
    old.ping(b"").await;
    assert!(matches!(old.receive().await, Response::NopIn(_)));
    let mut new = node.log_in(1, &[]).await;
    assert_ne!(new.tsih, old.tsih);
    assert!(is_closed(&mut old).await);
    assert_eq!(*node.node.disk.events.lock().unwrap(), [Event::NexusLost]);
    node.node.disk.freeze(false);
    for one in [&mut new, &mut other] {
        assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
        let read = one.run(&read10(0, 3), 1_536, &[]).await;
        assert_eq!(read.data, [1; 1_536]);
    }
    assert_eq!(node.node.service.sessions().count(), 2);
    // The old handle is nobody's.
    let mut late = node.connect().await;
    (late.tsih, late.isid) = (old.tsih, old.isid);
    let keys = [("InitiatorName", HOST), ("TargetName", TARGET)];
    let stage = Stage::LoginOperationalNegotiation;
    let response = late.login_step(stage, Stage::FullFeaturePhase, &keys).await;
    assert_eq!(response.status, LoginStatus::SessionDoesNotExist);
}

#[tokio::test]
async fn a_connection_that_comes_again_goes_on_with_the_sessions_numbers() {
    let node = Listening::new(&["127.0.0.1"]).await;
    let mut first = node.log_in(1, &[("MaxConnections", "2")]).await;
    let mut second = node.join(&first, 2).await;
    node.node.disk.freeze(true);
    let lost = second.command(&[0, 1, 0, 0, 0, 0], 0, &[]);
    second.send(&Request::ScsiCommand(lost)).await;
    second.ping(b"").await;
    assert!(matches!(second.receive().await, Response::NopIn(_)));
    first.cmd_sn = second.cmd_sn;
    let mut again = node.join(&first, 2).await;
    assert!(is_closed(&mut second).await);
    assert_eq!(again.tsih, first.tsih);
    node.node.disk.freeze(false);
    // What the old connection had in work is not answered on the new one.
    assert_eq!(again.run(&[0, 2, 0, 0, 0, 0], 0, &[]).await.status, 0);
    first.cmd_sn = again.cmd_sn;
    assert_eq!(first.run(&[0, 3, 0, 0, 0, 0], 0, &[]).await.status, 0);
    assert_eq!(node.node.service.sessions().count(), 1);
    assert!(node.node.disk.events.lock().unwrap().is_empty());
}

/// Every other command over either connection, each connection sending its own in one piece. Simple
/// tasks have no order.
#[tokio::test]
async fn ordered_commands_over_two_connections_begin_in_their_order() {
    const ROUNDS: usize = 100;
    let node = Listening::new(&["127.0.0.1"]).await;
    let first = node.log_in(1, &[("MaxConnections", "2")]).await;
    let second = node.join(&first, 2).await;
    let mut both = [first, second];
    let mut mark = 0_u8;
    let mut expected = Vec::new();
    for _ in 0..ROUNDS {
        let mut pieces = [Vec::new(), Vec::new()];
        for at in 0..4 {
            mark = mark.wrapping_add(1);
            expected.push(mark);
            let one = &mut both[at % 2];
            let mut command = one.command(&[0, mark, 0, 0, 0, 0], 0, &[]);
            command.attribute = TaskAttribute::Ordered;
            let frame = Request::ScsiCommand(command).encode();
            pieces[at % 2].extend(frame.encode(one.digests).concat());
            let cmd_sn = one.cmd_sn;
            both.iter_mut().for_each(|one| one.cmd_sn = cmd_sn);
        }
        // The later connection first.
        for at in [1, 0] {
            both[at].stream.write_all(&pieces[at]).await.unwrap();
        }
        for one in &mut both {
            for _ in 0..2 {
                let answer = timeout(SOON, one.answer()).await;
                assert_eq!(answer.unwrap().status, 0);
            }
        }
    }
    assert_eq!(*node.node.disk.begun.lock().unwrap(), expected);
}

/// Each portal lists all of the target's, and says its own group when one logs in.
#[tokio::test]
async fn a_target_is_found_through_every_portal_of_either_family() {
    let node = Listening::new(&["127.0.0.1", "::1"]).await;
    let [v4, v6] = node.addresses[..] else {
        panic!("two addresses");
    };
    let expected = format!("TargetName={TARGET}\nTargetAddress={v4},1\nTargetAddress={v6},2\n");
    let stage = Stage::LoginOperationalNegotiation;
    for (group, address) in [("1", v4), ("2", v6)] {
        let connect = || async {
            let stream = TcpStream::connect(address).await.unwrap();
            Initiator::over(Box::new(stream))
        };
        let mut one = connect().await;
        let keys = [("InitiatorName", HOST), ("SessionType", "Discovery")];
        let response = one.login_step(stage, Stage::FullFeaturePhase, &keys).await;
        assert_eq!(response.status, LoginStatus::Success);
        assert_eq!(one.text(&[("SendTargets", "All")]).await, expected);
        // As Windows offers.
        let keys = [
            ("InitiatorName", HOST),
            ("TargetName", TARGET),
            ("ErrorRecoveryLevel", "2"),
            ("MaxConnections", "1"),
            ("InitialR2T", "No"),
            ("DefaultTime2Retain", "60"),
        ];
        let mut one = connect().await;
        let response = one.login_step(stage, Stage::FullFeaturePhase, &keys).await;
        let text = crate::wire::text::Pairs::decode(&response.data).unwrap();
        for (key, value) in [
            ("TargetPortalGroupTag", group),
            ("ErrorRecoveryLevel", "0"),
            ("InitialR2T", "No"),
            ("DefaultTime2Retain", "0"),
        ] {
            assert_eq!(text.value(key), Some(value), "{key}");
        }
        // A ping that asks for no answer, and one that breaks the rule for those.
        let mut silent = NopOut {
            lun: 0,
            itt: RESERVED_TAG,
            ttt: RESERVED_TAG,
            numbers: one.numbers(true),
            data: Bytes::new(),
        };
        one.send(&Request::NopOut(silent.clone())).await;
        assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
        silent.numbers = one.numbers(false);
        one.send(&Request::NopOut(silent)).await;
        assert!(matches!(one.receive().await, Response::Reject(_)));
    }
}
