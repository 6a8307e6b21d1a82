//! Logins, discovery, and the life of sessions and their connections.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::commands::closed;
use super::initiator::{HOST, Initiator, TARGET, read10};
use super::{Node, user};
use crate::session::login::Step;
use crate::target::{Access, Targets};
use crate::units::{Event, Units};
use crate::wire::header::RESERVED_TAG;
use crate::wire::request::{LogoutReason, Request, Stage};
use crate::wire::response::{AsyncEvent, LoginStatus, LogoutOutcome, Response};
use crate::wire::text::Pairs;

const SECURITY: Stage = Stage::SecurityNegotiation;
const OPERATIONAL: Stage = Stage::LoginOperationalNegotiation;
const FULL: Stage = Stage::FullFeaturePhase;

async fn status(node: &Node, keys: &[(&str, &str)]) -> LoginStatus {
    let mut one = Initiator::connect(node);
    let response = one.login_step(OPERATIONAL, FULL, keys).await;
    if response.status != LoginStatus::Success {
        assert!(
            one.try_receive().await.is_none(),
            "a refused login is closed"
        );
    }
    response.status
}

#[tokio::test(start_paused = true)]
async fn who_may_not_log_in_is_told_why() {
    let node = Node::new();
    let name = ("InitiatorName", HOST);
    let target = ("TargetName", TARGET);
    for (keys, expected) in [
        (&[name, target][..], LoginStatus::Success),
        (
            &[("InitiatorName", "IQN.2026-01.org.example:HOST"), target],
            LoginStatus::Success,
        ),
        (&[target], LoginStatus::MissingParameter),
        (&[name], LoginStatus::MissingParameter),
        (
            &[name, ("TargetName", "iqn.2026-01.org.example:none")],
            LoginStatus::NotFound,
        ),
        (
            &[("InitiatorName", "iqn.2026-01.org.example:other"), target],
            LoginStatus::AuthorizationFailure,
        ),
        (
            &[name, ("SessionType", "Other")],
            LoginStatus::SessionTypeNotSupported,
        ),
        (
            &[name, target, ("AuthMethod", "None")],
            LoginStatus::InitiatorError,
        ),
        (
            &[("InitiatorName", "host"), target],
            LoginStatus::InitiatorError,
        ),
    ] {
        assert_eq!(status(&node, keys).await, expected, "{keys:?}");
    }
    assert_eq!(node.service.stats().logins_failed.value(), 7);
}

#[tokio::test(start_paused = true)]
async fn stages_are_gone_through_with_text_in_pieces() {
    let node = Node::new();
    let mut one = Initiator::connect(&node);
    let keys = [
        ("InitiatorName", HOST),
        ("TargetName", TARGET),
        ("AuthMethod", "CHAP,None"),
    ];
    let response = one.login_step(SECURITY, OPERATIONAL, &keys).await;
    let text = Pairs::decode(&response.data).unwrap();
    assert_eq!(text.value("AuthMethod"), Some("None"));
    assert_eq!(text.value("TargetPortalGroupTag"), Some("1"));
    assert_eq!((response.transit, response.next_stage), (true, OPERATIONAL));
    assert_eq!(response.tsih, 0);
    // A key whose text comes in two PDUs.
    let mut login = crate::wire::request::Login {
        transit: false,
        continues: true,
        current_stage: OPERATIONAL,
        next_stage: OPERATIONAL,
        version_max: 0,
        version_min: 0,
        isid: one.isid,
        tsih: 0,
        itt: 7,
        cid: 1,
        numbers: one.numbers(true),
        data: bytes::Bytes::from_static(b"MaxBurst"),
    };
    one.send(&Request::Login(login.clone())).await;
    let Response::Login(empty) = one.receive().await else {
        panic!("no login response");
    };
    assert!(empty.data.is_empty() && !empty.transit);
    (login.continues, login.transit, login.next_stage) = (false, true, FULL);
    login.data = bytes::Bytes::from_static(b"Length=8192\0X-a.b=1\0");
    one.send(&Request::Login(login)).await;
    let Response::Login(last) = one.receive().await else {
        panic!("no login response");
    };
    let text = Pairs::decode(&last.data).unwrap();
    assert_eq!(text.value("MaxBurstLength"), Some("8192"));
    assert_eq!(text.value("X-a.b"), Some("NotUnderstood"));
    assert_eq!(text.value("MaxRecvDataSegmentLength"), Some("262144"));
    assert!(last.transit && last.tsih != 0);
    assert_eq!(one.run(&[0; 6], 0, &[]).await.status, 0);
}

/// libiscsi names itself in each stage.
#[tokio::test(start_paused = true)]
async fn who_says_again_who_it_is_is_let_in_and_who_says_otherwise_is_not() {
    let node = Node::new();
    let names = [
        ("InitiatorName", HOST),
        ("TargetName", TARGET),
        ("SessionType", "Normal"),
    ];
    for (again, expected) in [
        (&names[..], LoginStatus::Success),
        (&[("InitiatorName", TARGET)], LoginStatus::InitiatorError),
        (&[("SessionType", "Discovery")], LoginStatus::InitiatorError),
        (&[("InitialR2T", "No")], LoginStatus::InitiatorError),
    ] {
        let mut one = Initiator::connect(&node);
        let first = [&names[..], &[("AuthMethod", "None"), ("InitialR2T", "No")]].concat();
        let response = one.login_step(SECURITY, OPERATIONAL, &first).await;
        assert_eq!(response.status, LoginStatus::Success);
        let response = one.login_step(OPERATIONAL, FULL, again).await;
        assert_eq!(response.status, expected, "{again:?}");
    }
}

fn guarded() -> Node {
    Node::with(
        |target| {
            target.access[0].users = vec![user("scott", "tiger-tiger-1")];
            target.access[0].identity = Some(user("target", "lion-lion-lion"));
        },
        64 << 20,
    )
}

/// A login with CHAP: what the last response says, and its text.
async fn chap(
    node: &Node,
    algorithm: &str,
    answer: impl Fn(u8, &[u8]) -> Vec<(&'static str, String)>,
) -> (LoginStatus, Pairs) {
    chap_to(node, ("TargetName", TARGET), algorithm, answer).await
}

async fn chap_to(
    node: &Node,
    whither: (&str, &str),
    algorithm: &str,
    answer: impl Fn(u8, &[u8]) -> Vec<(&'static str, String)>,
) -> (LoginStatus, Pairs) {
    let mut one = Initiator::connect(node);
    let keys = [
        ("InitiatorName", HOST),
        whither,
        ("AuthMethod", "CHAP,None"),
    ];
    let response = one.login_step(SECURITY, SECURITY, &keys).await;
    let text = Pairs::decode(&response.data).unwrap();
    assert_eq!(text.value("AuthMethod"), Some("CHAP"));
    let response = one
        .login_step(SECURITY, SECURITY, &[("CHAP_A", algorithm)])
        .await;
    if response.status != LoginStatus::Success {
        return (response.status, Pairs::default());
    }
    let text = Pairs::decode(&response.data).unwrap();
    let identifier = text.value("CHAP_I").unwrap().parse().unwrap();
    let challenge = hex_bytes(text.value("CHAP_C").unwrap());
    let keys = answer(identifier, &challenge);
    let keys: Vec<_> = keys
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let response = one.login_step(SECURITY, FULL, &keys).await;
    (response.status, Pairs::decode(&response.data).unwrap())
}

fn hex_bytes(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("0x").unwrap();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

/// MD5 of identifier, secret and challenge.
fn md5(identifier: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
    use md5::Digest as _;
    let all = [&[identifier], secret.as_bytes(), challenge].concat();
    md5::Md5::digest(all).to_vec()
}

#[tokio::test(start_paused = true)]
async fn chap_proves_the_initiator() {
    let node = guarded();
    for (name, secret, expected) in [
        ("scott", "tiger-tiger-1", LoginStatus::Success),
        ("scott", "tiger-tiger-2", LoginStatus::AuthenticationFailure),
        ("adams", "tiger-tiger-1", LoginStatus::AuthenticationFailure),
    ] {
        let (status, _) = chap(&node, "5", |identifier, challenge| {
            let response = md5(identifier, secret, challenge);
            vec![("CHAP_N", name.to_owned()), ("CHAP_R", hex(&response))]
        })
        .await;
        assert_eq!(status, expected, "{name} {secret}");
    }
    let (status, _) = chap(&node, "6", |_, _| Vec::new()).await;
    assert_eq!(status, LoginStatus::AuthenticationFailure);
    for secret_skipped in [SECURITY, OPERATIONAL] {
        let mut one = Initiator::connect(&node);
        let keys = [("InitiatorName", HOST), ("TargetName", TARGET)];
        let response = one.login_step(secret_skipped, FULL, &keys).await;
        assert_eq!(response.status, LoginStatus::AuthenticationFailure);
    }
    let mut one = Initiator::connect(&node);
    let keys = [
        ("InitiatorName", HOST),
        ("TargetName", TARGET),
        ("AuthMethod", "None"),
    ];
    let response = one.login_step(SECURITY, OPERATIONAL, &keys).await;
    assert_eq!(response.status, LoginStatus::AuthenticationFailure);
}

#[tokio::test(start_paused = true)]
async fn chap_proves_the_target_and_no_challenge_is_reflected() {
    let node = guarded();
    let proof = |challenge: Vec<u8>| {
        move |identifier: u8, own: &[u8]| {
            let response = md5(identifier, "tiger-tiger-1", own);
            let challenge = if challenge.is_empty() {
                own
            } else {
                &challenge
            };
            vec![
                ("CHAP_N", "scott".to_owned()),
                ("CHAP_R", hex(&response)),
                ("CHAP_I", "9".to_owned()),
                ("CHAP_C", hex(challenge)),
            ]
        }
    };
    let (status, text) = chap(&node, "5", proof(vec![1, 2, 3, 4])).await;
    assert_eq!(status, LoginStatus::Success);
    assert_eq!(text.value("CHAP_N"), Some("target"));
    let expected = hex(&md5(9, "lion-lion-lion", &[1, 2, 3, 4]));
    assert_eq!(text.value("CHAP_R"), Some(expected.as_str()));
    // Their own challenge sent back.
    let (status, _) = chap(&node, "5", proof(Vec::new())).await;
    assert_eq!(status, LoginStatus::AuthenticationFailure);
    // One secret for both directions.
    let same = Node::with(
        |target| {
            target.access[0].users = vec![user("scott", "tiger-tiger-1")];
            target.access[0].identity = Some(user("target", "tiger-tiger-1"));
        },
        64 << 20,
    );
    let (status, _) = chap(&same, "5", proof(vec![1, 2, 3, 4])).await;
    assert_eq!(status, LoginStatus::AuthenticationFailure);
}

#[tokio::test(start_paused = true)]
async fn discovery_lists_what_the_initiator_may_use() {
    let node = Node::new();
    let mut one = Initiator::connect(&node);
    let keys = [("InitiatorName", HOST), ("SessionType", "Discovery")];
    let response = one.login_step(OPERATIONAL, FULL, &keys).await;
    assert_eq!(response.status, LoginStatus::Success);
    let expected = format!(
        "TargetName={TARGET}\nTargetAddress=10.0.0.1:3260,1\nTargetAddress=[fd00::1]:3260,2\n"
    );
    assert_eq!(one.text(&[("SendTargets", "All")]).await, expected);
    assert_eq!(one.text(&[("SendTargets", TARGET)]).await, expected);
    let command = one.command(&[0; 6], 0, &[]);
    one.send(&Request::ScsiCommand(command)).await;
    assert!(matches!(one.receive().await, Response::Reject(_)));

    let mut other = Initiator::connect(&node);
    let keys = [
        ("InitiatorName", "iqn.2026-01.org.example:other"),
        ("SessionType", "Discovery"),
    ];
    let response = other.login_step(OPERATIONAL, FULL, &keys).await;
    assert_eq!(response.status, LoginStatus::Success);
    assert_eq!(other.text(&[("SendTargets", "All")]).await, "");
}

/// ESXi proves itself at discoveries too once it has a secret; others do not.
#[tokio::test(start_paused = true)]
async fn discovery_takes_the_proof_of_who_has_one_and_asks_for_none() {
    let node = guarded();
    for (secret, expected) in [
        ("tiger-tiger-1", LoginStatus::Success),
        ("tiger-tiger-2", LoginStatus::AuthenticationFailure),
    ] {
        let discovery = ("SessionType", "Discovery");
        let (status, text) = chap_to(&node, discovery, "5", |identifier, challenge| {
            let response = md5(identifier, secret, challenge);
            vec![
                ("CHAP_N", "scott".to_owned()),
                ("CHAP_R", hex(&response)),
                ("CHAP_I", "9".to_owned()),
                ("CHAP_C", hex(&[1, 2, 3, 4])),
            ]
        })
        .await;
        assert_eq!(status, expected, "{secret}");
        if expected == LoginStatus::Success {
            assert_eq!(text.value("CHAP_N"), Some("target"));
        }
    }
    let mut one = Initiator::connect(&node);
    let keys = [("InitiatorName", HOST), ("SessionType", "Discovery")];
    let response = one.login_step(OPERATIONAL, FULL, &keys).await;
    assert_eq!(response.status, LoginStatus::Success);
}

/// Otherwise whoever does not prove itself would be let in for less.
#[tokio::test(start_paused = true)]
async fn who_has_an_entry_by_its_name_is_not_let_in_as_anybody() {
    let node = Node::with(
        |target| {
            let anybody = Access {
                initiator: None,
                users: Vec::new(),
                identity: None,
                units: Units::none(),
            };
            target.access.push(anybody);
            target.access[0].users = vec![user("scott", "tiger-tiger-1")];
        },
        64 << 20,
    );
    for (initiator, expected) in [
        (HOST, LoginStatus::AuthenticationFailure),
        ("iqn.2026-01.org.example:other", LoginStatus::Success),
    ] {
        let mut one = Initiator::connect(&node);
        let keys = [("InitiatorName", initiator), ("TargetName", TARGET)];
        let response = one.login_step(OPERATIONAL, FULL, &keys).await;
        assert_eq!(response.status, expected, "{initiator}");
    }
}

#[tokio::test(start_paused = true)]
async fn text_of_a_normal_session_comes_in_pieces_if_it_is_long() {
    let node = Node::with(
        |target| {
            for tag in 3..40 {
                target.portals.push(crate::target::Portal {
                    address: format!("10.0.0.{tag}:3260").parse().unwrap(),
                    group_tag: tag,
                    relative_port: tag,
                });
            }
        },
        64 << 20,
    );
    let mut one = Initiator::login(&node, &[("MaxRecvDataSegmentLength", "512")]).await;
    let text = one.text(&[("SendTargets", "")]).await;
    assert_eq!(text.lines().count(), 40);
    assert_eq!(
        one.text(&[("SendTargets", "All")]).await,
        "SendTargets=Reject\n"
    );
    let text = one.text(&[("MaxBurstLength", "512"), ("X-a", "1")]).await;
    assert_eq!(text, "MaxBurstLength=Reject\nX-a=NotUnderstood\n");
}

/// Section 11.10.4: a request that goes on carries the tag of the response.
#[tokio::test(start_paused = true)]
async fn a_text_request_may_come_in_pieces() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    let piece = |one: &Initiator, ttt: u32, data: &'static [u8], is_final: bool| {
        Request::Text(crate::wire::request::Text {
            is_final,
            continues: !is_final,
            lun: 0,
            itt: 900,
            ttt,
            numbers: one.numbers(true),
            data: bytes::Bytes::from_static(data),
        })
    };
    one.send(&piece(&one, RESERVED_TAG, b"SendTar", false))
        .await;
    let Response::Text(empty) = one.receive().await else {
        panic!("no text response");
    };
    assert!(!empty.is_final && empty.data.is_empty() && empty.ttt != RESERVED_TAG);
    one.send(&piece(&one, empty.ttt, b"gets=\0", true)).await;
    let Response::Text(last) = one.receive().await else {
        panic!("no text response");
    };
    assert!(last.is_final && last.ttt == RESERVED_TAG);
    assert!(last.data.starts_with(b"TargetName="));
    // The tag has gone with the answer.
    one.send(&piece(&one, empty.ttt, b"gets=\0", true)).await;
    assert!(matches!(one.receive().await, Response::Reject(_)));
    // A new request begins anew, whatever was left of one before.
    one.send(&piece(&one, RESERVED_TAG, b"SendTar", false))
        .await;
    assert!(matches!(one.receive().await, Response::Text(_)));
    assert!(
        one.text(&[("SendTargets", "")])
            .await
            .starts_with("TargetName=")
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_takes_the_place_of_the_one_before() {
    let node = Node::new();
    let mut old = Initiator::login(&node, &[]).await;
    let mut new = Initiator::login(&node, &[]).await;
    assert_ne!(old.tsih, new.tsih);
    assert!(old.try_receive().await.is_none());
    assert_eq!(new.run(&[0; 6], 0, &[]).await.status, 0);
    assert_eq!(node.service.sessions().count(), 1);
    assert_eq!(*node.disk.events.lock().unwrap(), [Event::NexusLost]);
    // Another ISID is another session.
    let mut other = Initiator::connect(&node);
    other.isid[5] = 2;
    other.operational(&[]).await;
    assert_eq!(node.service.sessions().count(), 2);
}

/// A second connection of a session.
pub(super) async fn join(node: &Node, first: &Initiator, cid: u16) -> (Initiator, LoginStatus) {
    let mut second = Initiator::connect(node);
    (second.tsih, second.cid, second.isid) = (first.tsih, cid, first.isid);
    let keys = [("InitiatorName", HOST), ("TargetName", TARGET)];
    let response = second.login_step(OPERATIONAL, FULL, &keys).await;
    (second, response.status)
}

#[tokio::test(start_paused = true)]
async fn commands_of_a_session_come_over_any_connection_in_their_order() {
    let node = Node::new();
    let mut first = Initiator::login(&node, &[("MaxConnections", "2")]).await;
    let (mut second, status) = join(&node, &first, 2).await;
    assert_eq!(status, LoginStatus::Success);
    assert_eq!(
        join(&node, &first, 3).await.1,
        LoginStatus::TooManyConnections
    );
    let early = first.command(&read10(0, 1), 512, &[]);
    let mut late = first.command(&[0, 1, 0, 0, 0, 0], 0, &[]);
    late.itt = 900;
    second.send(&Request::ScsiCommand(late)).await;
    let silent = timeout(Duration::from_secs(1), second.try_receive()).await;
    assert!(
        silent.is_err(),
        "a command was executed before the one before it"
    );
    first.send(&Request::ScsiCommand(early)).await;
    assert!(first.answer().await.is_collapsed);
    // Its answer comes over its own connection.
    let Response::Scsi(response) = second.receive().await else {
        panic!("no response");
    };
    assert_eq!((response.itt, response.status), (900, 0));
    assert_eq!(node.service.sessions().count(), 1);
    // One connection logs the other out.
    let outcome = closed(first.logout(LogoutReason::CloseConnection, 2).await);
    assert_eq!(outcome, LogoutOutcome::Closed);
    assert!(second.try_receive().await.is_none());
    let outcome = closed(first.logout(LogoutReason::CloseConnection, 9).await);
    assert_eq!(outcome, LogoutOutcome::CidNotFound);
    let outcome = closed(
        first
            .logout(LogoutReason::RemoveConnectionForRecovery, 1)
            .await,
    );
    assert_eq!(outcome, LogoutOutcome::RecoveryNotSupported);
    assert_eq!(first.run(&[0; 6], 0, &[]).await.status, 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_takes_the_place_of_the_one_with_its_id() {
    let node = Node::new();
    let mut first = Initiator::login(&node, &[]).await;
    let (mut again, status) = join(&node, &first, 1).await;
    assert_eq!(status, LoginStatus::Success);
    assert!(first.try_receive().await.is_none());
    again.cmd_sn = first.cmd_sn;
    assert_eq!(again.run(&[0; 6], 0, &[]).await.status, 0);
    let mut stranger = Initiator::connect(&node);
    (stranger.isid, stranger.tsih) = (first.isid, first.tsih + 1);
    first.tsih += 1;
    assert_eq!(
        join(&node, &first, 1).await.1,
        LoginStatus::SessionDoesNotExist
    );
}

#[tokio::test(start_paused = true)]
async fn a_login_has_a_time_limit_and_nothing_else_comes_first() {
    let node = Node::new();
    let begun = Instant::now();
    let mut idle = Initiator::connect(&node);
    assert!(idle.try_receive().await.is_none());
    assert_eq!(begun.elapsed(), Duration::from_secs(15));
    let mut early = Initiator::connect(&node);
    early.exp_stat_sn = crate::wire::serial::Serial(1);
    early.ping(b"").await;
    let Response::Login(response) = early.receive().await else {
        panic!("no login response");
    };
    assert_eq!(response.status, LoginStatus::InvalidDuringLogin);
    assert!(early.try_receive().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn users_see_what_their_entry_says() {
    let node = Node::with(
        |target| {
            let units = target.access[0].units.clone();
            target.access = vec![Access {
                initiator: None,
                users: vec![user("scott", "tiger-tiger-1")],
                identity: None,
                units,
            }];
        },
        64 << 20,
    );
    let (status, _) = chap(&node, "7,5", |identifier, challenge| {
        let all = [&[identifier], &b"tiger-tiger-1"[..], challenge].concat();
        let response = ring::digest::digest(&ring::digest::SHA256, &all);
        vec![
            ("CHAP_N", "scott".to_owned()),
            ("CHAP_R", hex(response.as_ref())),
        ]
    })
    .await;
    assert_eq!(status, LoginStatus::Success);
}

#[tokio::test(start_paused = true)]
async fn sessions_of_a_target_that_is_gone_end() {
    let node = Node::new();
    let mut one = Initiator::login(&node, &[]).await;
    node.service.set_targets(Targets::default());
    let Response::AsyncMessage(message) = one.receive().await else {
        panic!("no message");
    };
    assert_eq!(message.event, AsyncEvent::DropsSession);
    assert!(one.try_receive().await.is_none());
    let keys = [("InitiatorName", HOST), ("TargetName", TARGET)];
    assert_eq!(status(&node, &keys).await, LoginStatus::NotFound);
}

#[test]
fn versions_that_are_not_known_are_refused() {
    let targets = std::sync::Arc::default();
    let mut login =
        crate::session::login::Login::new(targets, "10.0.0.1:3260".parse().unwrap(), [0; 33]);
    let pdu = crate::wire::request::Login {
        transit: true,
        continues: false,
        current_stage: OPERATIONAL,
        next_stage: FULL,
        version_max: 2,
        version_min: 1,
        isid: [0; 6],
        tsih: 0,
        itt: 1,
        cid: 0,
        numbers: crate::wire::request::Numbers {
            cmd_sn: crate::wire::serial::Serial(1),
            exp_stat_sn: crate::wire::serial::Serial(0),
            immediate: true,
        },
        data: bytes::Bytes::new(),
    };
    let Step::Refuse(response) = login.handle_pdu(&pdu) else {
        panic!("not refused");
    };
    assert_eq!(response.status, LoginStatus::UnsupportedVersion);
}
