//! A thousand sessions that send all they may to a store that stands still. It has a program of its
//! own, since it measures memory.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and prints what came instead"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portico_backend::budget::Budget;
use portico_backend::connection::{Peer, Stop, stop};
use portico_backend::faulty::{CallKind, Faulty, FaultyOptions};
use portico_backend::gate::{GateControl, gate};
use portico_backend::image::{Image, ImagePools, NewImage};
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{ObjectStore, Pool};
use portico_iscsi::scsi::{LunMap, Unit, UnitOptions};
use portico_iscsi::serve::{Ends, Service, ServiceParts, serve};
use portico_iscsi::stats::Stats;
use portico_iscsi::target::{Access, Portal, Target, Targets};
use portico_iscsi::units::Units;
use portico_iscsi::wire::deframe::{Deframer, Digests, Poll};
use portico_iscsi::wire::header::RESERVED_TAG;
use portico_iscsi::wire::request::{
    self, DataOut, NopOut, Numbers, Request, ScsiCommand, Stage, TaskAttribute,
};
use portico_iscsi::wire::response::{LoginStatus, Numbers as Answered, Response};
use portico_iscsi::wire::serial::Serial;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, sleep, timeout};

const SESSIONS: u16 = 1_000;
const BUDGET_BYTES: u64 = 64 << 20;

/// What a command brings along: half of it in its own PDU, half behind it.
const WRITE_BYTES: u32 = 16 << 10;
const IMMEDIATE_BYTES: u32 = WRITE_BYTES / 2;
const BLOCKS: u32 = WRITE_BYTES / 512;

/// What a session may take beside what is reserved, its initiator included.
const SESSION_BYTES_MAX: u64 = 96 << 10;

const TARGET: &str = "iqn.2026-01.org.example:disk";
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

struct Node {
    service: Arc<Service>,
    stop: Stop,
    /// It closes when this goes.
    _gate: GateControl,
    frozen: Arc<Faulty>,
    unit: Arc<Unit>,
    window_budget: Budget,
    budget: Budget,
}

async fn unit(store: Arc<dyn ObjectStore>) -> Arc<Unit> {
    let pools = ImagePools {
        data: Pool::new("data", ""),
        meta: Pool::new("meta", ""),
    };
    let new = NewImage::new("one", BUDGET_BYTES, 1_000);
    Image::create(&*store, &pools, &new).await.expect("created");
    let image = Image::open(store, &pools, "one").await.expect("opened");
    Arc::new(Unit::new(image, UnitOptions::default()))
}

/// LUN 0 can be frozen, LUN 1 lies in another store.
async fn node(stop: Stop) -> Node {
    let store = || MemoryCluster::new(MemoryOptions::default()).session("test");
    let frozen = Faulty::new(store(), FaultyOptions::default());
    let first = unit(Arc::clone(&frozen) as Arc<dyn ObjectStore>).await;
    let second = unit(store()).await;
    let luns = LunMap::new(TARGET, [(0, Arc::clone(&first)), (1, second)]);
    let target = Target {
        name: TARGET.to_owned(),
        alias: None,
        portals: vec![Portal {
            address: "0.0.0.0:3260".parse().expect("an address"),
            group_tag: 1,
            relative_port: 1,
        }],
        access: vec![Access {
            initiator: None,
            users: Vec::new(),
            identity: None,
            units: Units::of_luns(luns),
        }],
    };
    let (window_budget, budget) = (Budget::new(BUDGET_BYTES), Budget::new(BUDGET_BYTES));
    let (control, gate) = gate(true);
    let parts = ServiceParts {
        targets: Targets::new([target]),
        stats: Arc::new(Stats::default()),
        window_budget: window_budget.clone(),
        budget: budget.clone(),
        gate,
    };
    Node {
        service: Arc::new(Service::new(parts)),
        stop,
        _gate: control,
        frozen,
        unit: first,
        window_budget,
        budget,
    }
}

/// An initiator with one connection.
struct Initiator {
    stream: DuplexStream,
    deframer: Deframer,
    cmd_sn: Serial,
    max_cmd_sn: Serial,
    itt: u32,
    lun: u64,
}

impl Initiator {
    async fn log_in(node: &Node, number: u16, lun: u64) -> Self {
        let (near, far) = tokio::io::duplex(8 << 10);
        let ends = Ends {
            peer: Peer {
                address: None,
                secure: false,
            },
            local: "127.0.0.1:3260".parse().expect("an address"),
        };
        tokio::spawn(serve(
            far,
            ends,
            Arc::clone(&node.service),
            node.stop.clone(),
        ));
        let mut one = Self {
            stream: near,
            deframer: Deframer::new(1 << 20),
            cmd_sn: Serial(1),
            max_cmd_sn: Serial(1),
            itt: 0,
            lun,
        };
        let [high, low] = number.to_be_bytes();
        let text = format!(
            "InitiatorName=iqn.2026-01.org.example:host\0TargetName={TARGET}\0InitialR2T=No\0\
             ImmediateData=Yes\0FirstBurstLength={WRITE_BYTES}\0"
        );
        let login = request::Login {
            transit: true,
            continues: false,
            current_stage: Stage::LoginOperationalNegotiation,
            next_stage: Stage::FullFeaturePhase,
            version_max: 0,
            version_min: 0,
            isid: [0x80, 0, 0, 0, high, low],
            tsih: 0,
            itt: 0,
            cid: 1,
            numbers: one.numbers(true),
            data: Bytes::from(text),
        };
        one.send(&Request::Login(login)).await;
        let Response::Login(response) = one.receive().await else {
            panic!("no login response");
        };
        assert_eq!(response.status, LoginStatus::Success);
        // The unit attention of a new nexus.
        while one.test().await != 0 {}
        one
    }

    fn numbers(&self, immediate: bool) -> Numbers {
        Numbers {
            cmd_sn: self.cmd_sn,
            exp_stat_sn: Serial(0),
            immediate,
        }
    }

    async fn send(&mut self, request: &Request) {
        for piece in request.encode().encode(Digests::default()) {
            self.stream.write_all(&piece).await.expect("sent");
        }
    }

    /// The next PDU that is no question whether the initiator lives.
    async fn receive(&mut self) -> Response {
        loop {
            match self.deframer.poll().expect("a frame") {
                Poll::Frame(frame) => {
                    let response = Response::decode(frame).expect("a PDU");
                    let numbers = numbers_of(&response);
                    if self.max_cmd_sn.is_before(numbers.max_cmd_sn) {
                        self.max_cmd_sn = numbers.max_cmd_sn;
                    }
                    if !matches!(&response, Response::NopIn(pdu) if pdu.itt == RESERVED_TAG) {
                        return response;
                    }
                }
                Poll::Wanted(bytes) => {
                    let buffer = self.deframer.buffer();
                    buffer.reserve(bytes.max(512));
                    let read = self.stream.read_buf(buffer).await.expect("read");
                    assert!(read > 0, "the connection was closed");
                }
            }
        }
    }

    fn command(&mut self, cdb: [u8; 16], bytes: u32) -> ScsiCommand {
        self.itt += 1;
        let numbers = self.numbers(false);
        self.cmd_sn = self.cmd_sn.next();
        ScsiCommand {
            is_final: true,
            reads: bytes > 0 && cdb[0] == 0x28,
            writes: bytes > 0 && cdb[0] == 0x2a,
            attribute: TaskAttribute::Simple,
            lun: self.lun << 48,
            itt: self.itt,
            expected_bytes: bytes,
            numbers,
            cdb: Bytes::copy_from_slice(&cdb),
            expected_read_bytes: None,
            immediate_data: Bytes::new(),
        }
    }

    async fn test(&mut self) -> u8 {
        let command = self.command([0; 16], 0);
        self.send(&Request::ScsiCommand(command)).await;
        match self.receive().await {
            Response::Scsi(response) => response.status,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a write whose data nobody has to ask for.
    async fn send_write(&mut self, nth: u32) {
        let data = content(nth);
        let mut command = self.command(cdb(0x2a, nth * BLOCKS), WRITE_BYTES);
        command.is_final = false;
        command.immediate_data = data.slice(..IMMEDIATE_BYTES as usize);
        let itt = command.itt;
        self.send(&Request::ScsiCommand(command)).await;
        let rest = DataOut {
            is_final: true,
            lun: self.lun << 48,
            itt,
            ttt: RESERVED_TAG,
            exp_stat_sn: Serial(0),
            data_sn: 0,
            buffer_offset: IMMEDIATE_BYTES,
            data: data.slice(IMMEDIATE_BYTES as usize..),
            has_wrong_data: false,
        };
        self.send(&Request::DataOut(rest)).await;
    }

    /// An answer within the time that initiators wait for one, and nothing else.
    async fn ping(&mut self) {
        self.itt += 1;
        let pdu = NopOut {
            lun: 0,
            itt: self.itt,
            ttt: RESERVED_TAG,
            numbers: self.numbers(true),
            data: Bytes::from_static(b"alive"),
        };
        self.send(&Request::NopOut(pdu)).await;
        match timeout(ANSWER_TIMEOUT, self.receive()).await {
            Ok(Response::NopIn(pdu)) => assert_eq!(pdu.itt, self.itt),
            other => panic!("{other:?}"),
        }
    }

    /// Writes and reads back, each within the time of a ping.
    async fn use_disk(&mut self, nth: u32) {
        self.send_write(nth).await;
        let written = timeout(ANSWER_TIMEOUT, self.receive()).await;
        assert!(matches!(written, Ok(Response::Scsi(response)) if response.status == 0));
        let command = self.command(cdb(0x28, nth * BLOCKS), WRITE_BYTES);
        self.send(&Request::ScsiCommand(command)).await;
        let mut read = Vec::new();
        while read.len() < WRITE_BYTES as usize {
            match timeout(ANSWER_TIMEOUT, self.receive()).await {
                Ok(Response::DataIn(pdu)) => read.extend_from_slice(&pdu.data),
                other => panic!("{other:?}"),
            }
        }
        assert!(read == content(nth));
    }
}

fn cdb(opcode: u8, lba: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&u16::try_from(BLOCKS).expect("a few").to_be_bytes());
    cdb
}

/// The data of a write, which differs from that of the others.
fn content(nth: u32) -> Bytes {
    Bytes::from(nth.to_be_bytes().repeat(WRITE_BYTES as usize / 4))
}

fn numbers_of(response: &Response) -> Answered {
    match response {
        Response::NopIn(pdu) => pdu.numbers,
        Response::Scsi(pdu) => pdu.numbers,
        Response::Login(pdu) => pdu.numbers,
        Response::DataIn(pdu) => pdu.numbers,
        other => panic!("{other:?}"),
    }
}

/// Bytes of this program in memory.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words = line.expect("a line").split_whitespace();
    let kibibytes: u64 = words
        .rev()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .expect("a number");
    kibibytes * 1_024
}

/// Sends until no session may send more. Returns what each sent.
async fn fill(all: &mut [Initiator]) -> Vec<BTreeSet<u32>> {
    let mut sent = Vec::new();
    let mut nth = 0;
    for one in all {
        let mut tags = BTreeSet::new();
        loop {
            let before = one.cmd_sn;
            while !one.max_cmd_sn.is_before(one.cmd_sn) {
                one.send_write(nth).await;
                tags.insert(one.itt);
                nth += 1;
                let bytes = u64::from(nth) * u64::from(WRITE_BYTES);
                assert!(
                    bytes <= BUDGET_BYTES,
                    "the windows hold more than their budget"
                );
            }
            one.ping().await;
            if one.cmd_sn == before {
                break;
            }
        }
        assert!(!tags.is_empty());
        sent.push(tags);
    }
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_stands_still_costs_what_is_reserved_and_nobody_else_waits() {
    let (_control, stop) = stop();
    let node = node(stop).await;
    let mut all = Vec::new();
    let before = resident_bytes();
    for number in 0..SESSIONS {
        all.push(Initiator::log_in(&node, number, 0).await);
    }
    let mut free = Initiator::log_in(&node, SESSIONS, 1).await;
    node.frozen.hold(CallKind::Write);
    let sent = fill(&mut all).await;
    let count: usize = sent.iter().map(BTreeSet::len).sum();
    node.frozen.wait_held(count).await;
    let grown = resident_bytes().saturating_sub(before);
    let most = BUDGET_BYTES + u64::from(SESSIONS) * SESSION_BYTES_MAX;
    println!("{count} writes of {WRITE_BYTES} bytes held, {grown} bytes of {most} taken");
    assert!(grown <= most, "{grown} bytes taken");
    let slowest = ping_all(&mut all).await;
    println!("the slowest of {SESSIONS} pings took {slowest:?}");
    for nth in 0..100 {
        free.use_disk(nth).await;
    }
    node.frozen.release();
    for (one, mut tags) in all.iter_mut().zip(sent) {
        while !tags.is_empty() {
            match timeout(Duration::from_secs(30), one.receive()).await {
                Ok(Response::Scsi(response)) => {
                    assert_eq!(response.status, 0);
                    assert!(tags.remove(&response.itt), "answered twice");
                }
                other => panic!("{other:?}"),
            }
        }
        // And nothing more.
        one.ping().await;
    }
    for nth in 0..u32::try_from(count).unwrap() {
        let offset = u64::from(nth) * u64::from(WRITE_BYTES);
        let read = node.unit.image().read(offset, WRITE_BYTES.into()).await;
        assert!(read.unwrap().to_bytes() == content(nth), "write {nth}");
    }
    drop((all, free));
    while node.service.sessions().count() > 0 {
        sleep(Duration::from_millis(10)).await;
    }
    let left = (node.window_budget.free_bytes(), node.budget.free_bytes());
    assert_eq!(left, (BUDGET_BYTES, BUDGET_BYTES));
}

async fn ping_all(all: &mut [Initiator]) -> Duration {
    let mut slowest = Duration::ZERO;
    for one in all {
        let begun = Instant::now();
        one.ping().await;
        slowest = slowest.max(begun.elapsed());
    }
    slowest
}
