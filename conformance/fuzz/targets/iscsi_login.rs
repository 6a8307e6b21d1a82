//! Logins: nobody who lacks the secret gets in, whatever is said in whatever order.
#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portico_iscsi::session::login::{Login, Step};
use portico_iscsi::target::{Access, ChapUser, Portal, Target, Targets};
use portico_iscsi::units::Units;
use portico_iscsi::wire::request::{self, Numbers, Stage};
use portico_iscsi::wire::serial::Serial;

const WORDS: [&str; 20] = [
    "InitiatorName=iqn.a:host\0",
    "TargetName=iqn.a:disk\0",
    "SessionType=Normal\0",
    "SessionType=Discovery\0",
    "AuthMethod=CHAP,None\0",
    "AuthMethod=None\0",
    "AuthMethod=CHAP\0",
    "CHAP_A=5\0",
    "CHAP_A=7,8\0",
    "CHAP_N=scott\0",
    "CHAP_R=0x00000000000000000000000000000000\0",
    "CHAP_R=0b\0",
    "CHAP_I=1\0CHAP_C=0x01\0",
    "MaxBurstLength=512\0",
    "MaxRecvDataSegmentLength=1024\0",
    "HeaderDigest=CRC32C\0",
    "InitialR2T=No\0",
    "X-a=1\0",
    "CHAP_N=\0CHAP_R=0x\0",
    "ErrorRecoveryLevel=",
];

fn targets() -> Arc<Targets> {
    let local = "10.0.0.1:3260".parse().expect("an address");
    let user = |name: &str| ChapUser {
        name: name.to_owned(),
        secret: vec![7; 16],
    };
    let target = Target {
        name: "iqn.a:disk".to_owned(),
        alias: None,
        portals: vec![Portal {
            address: local,
            group_tag: 1,
            relative_port: 1,
        }],
        access: vec![Access {
            initiator: None,
            users: vec![user("scott")],
            identity: Some(ChapUser {
                name: "target".to_owned(),
                secret: vec![8; 16],
            }),
            units: Units::none(),
        }],
    };
    let mut targets = Targets::new([target]);
    targets.discovery_users = vec![user("scott")];
    Arc::new(targets)
}

fn stage(code: u8) -> Stage {
    match code % 3 {
        0 => Stage::SecurityNegotiation,
        1 => Stage::LoginOperationalNegotiation,
        _ => Stage::FullFeaturePhase,
    }
}

fuzz_target!(|requests: Vec<(u8, u8, Vec<u8>, Vec<u8>)>| {
    let local = "10.0.0.1:3260".parse().expect("an address");
    let mut login = Login::new(targets(), local, [9; 33]);
    for (flags, stages, words, raw) in requests {
        let mut text = Vec::new();
        for word in words {
            text.extend_from_slice(WORDS[usize::from(word) % WORDS.len()].as_bytes());
        }
        text.extend_from_slice(&raw);
        let pdu = request::Login {
            transit: flags & 1 != 0,
            continues: flags & 2 != 0,
            current_stage: stage(stages),
            next_stage: stage(stages / 3),
            version_max: 0,
            version_min: u8::from(flags & 0xf0 == 0xf0),
            isid: [1; 6],
            tsih: u16::from(flags & 4 != 0),
            itt: 1,
            cid: 1,
            numbers: Numbers {
                cmd_sn: Serial(1),
                exp_stat_sn: Serial(1),
                immediate: true,
            },
            data: Bytes::from(text),
        };
        match login.handle_pdu(&pdu) {
            Step::Reply(response) => assert!(response.tsih <= 1),
            Step::Refuse(_) => return,
            Step::Admit(_) => panic!("in without the secret"),
        }
    }
});
