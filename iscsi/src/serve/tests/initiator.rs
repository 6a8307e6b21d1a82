//! An initiator of our own codec over a stream in memory.

use std::time::Duration;

use bytes::Bytes;
use portico_backend::connection::Peer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::Node;
use crate::serve::{Ends, serve};
use crate::wire::deframe::{Deframer, Digests, Poll};
use crate::wire::header::RESERVED_TAG;
use crate::wire::request::{
    self, DataOut, Logout, LogoutReason, NopOut, Numbers, Request, ScsiCommand, Stage,
    TaskAttribute, TaskFunction, TaskManagement, Text,
};
use crate::wire::response::{LoginResponse, Response, ScsiResponse, TaskOutcome};
use crate::wire::serial::Serial;
use crate::wire::text::Pairs;

pub(crate) const TARGET: &str = "iqn.2026-01.org.example:disk";
pub(crate) const HOST: &str = "iqn.2026-01.org.example:host";

/// A connection's bytes, in memory or over TCP.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(crate) struct Initiator {
    pub(crate) stream: Box<dyn Stream>,
    deframer: Deframer,
    pub(crate) digests: Digests,
    pub(crate) cmd_sn: Serial,
    pub(crate) exp_stat_sn: Serial,
    pub(crate) max_cmd_sn: Serial,
    pub(crate) itt: u32,
    pub(crate) isid: [u8; 6],
    pub(crate) tsih: u16,
    pub(crate) cid: u16,
}

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) data: Vec<u8>,
    pub(crate) status: u8,
    pub(crate) residual: crate::wire::response::Residual,
    pub(crate) sense: Bytes,
    /// Status came with the data.
    pub(crate) is_collapsed: bool,
}

impl Initiator {
    pub(crate) fn connect(node: &Node) -> Self {
        Self::connect_through(node, 1 << 20)
    }

    /// Over a stream that holds so many bytes each way.
    pub(crate) fn connect_through(node: &Node, bytes: usize) -> Self {
        let (near, far) = tokio::io::duplex(bytes);
        let ends = Ends {
            peer: Peer {
                address: Some("127.0.0.1:999".parse().unwrap()),
                secure: false,
            },
            local: "10.0.0.1:3260".parse().unwrap(),
        };
        tokio::spawn(serve(far, ends, node.service.clone(), node.stop.clone()));
        Self::over(Box::new(near))
    }

    pub(crate) fn over(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            deframer: Deframer::new(1 << 20),
            digests: Digests::default(),
            cmd_sn: Serial(u32::MAX - 2),
            exp_stat_sn: Serial(77),
            max_cmd_sn: Serial(u32::MAX - 2),
            itt: 0,
            isid: [0x80, 0, 0, 0, 0, 1],
            tsih: 0,
            cid: 1,
        }
    }

    /// Logs in without a security stage.
    pub(crate) async fn login(node: &Node, keys: &[(&str, &str)]) -> Self {
        let mut one = Self::connect(node);
        one.operational(keys).await;
        one
    }

    pub(crate) async fn operational(&mut self, keys: &[(&str, &str)]) {
        let mut pairs = vec![("InitiatorName", HOST), ("TargetName", TARGET)];
        pairs.extend_from_slice(keys);
        let response = self
            .login_step(
                Stage::LoginOperationalNegotiation,
                Stage::FullFeaturePhase,
                &pairs,
            )
            .await;
        assert_eq!(response.status, crate::wire::response::LoginStatus::Success);
        assert!(response.transit);
        self.tsih = response.tsih;
        for (key, value) in Pairs::decode(&response.data).unwrap().iter() {
            match key {
                "HeaderDigest" => self.digests.header = value == "CRC32C",
                "DataDigest" => self.digests.data = value == "CRC32C",
                _ => {}
            }
        }
        self.deframer.set_limits(self.digests, 1 << 20);
    }

    pub(crate) async fn login_step(
        &mut self,
        stage: Stage,
        next: Stage,
        keys: &[(&str, &str)],
    ) -> LoginResponse {
        let mut pairs = Pairs::default();
        for (key, value) in keys {
            pairs.push(key, value);
        }
        let login = request::Login {
            transit: next != stage,
            continues: false,
            current_stage: stage,
            next_stage: next,
            version_max: 0,
            version_min: 0,
            isid: self.isid,
            tsih: self.tsih,
            itt: 7,
            cid: self.cid,
            numbers: self.numbers(true),
            data: pairs.encode().into(),
        };
        self.send(&Request::Login(login)).await;
        match self.receive().await {
            Response::Login(response) => response,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn numbers(&self, immediate: bool) -> Numbers {
        Numbers {
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            immediate,
        }
    }

    pub(crate) async fn send(&mut self, request: &Request) {
        let frame = request.encode();
        let bytes = frame.encode(self.digests).concat();
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// The next PDU; none once the connection is closed.
    pub(crate) async fn try_receive(&mut self) -> Option<Response> {
        loop {
            match self.deframer.poll().unwrap() {
                Poll::Frame(frame) => {
                    assert!(!frame.has_wrong_data);
                    let response = Response::decode(frame).unwrap();
                    self.note(&response);
                    return Some(response);
                }
                Poll::Wanted(_) => {
                    let buffer = self.deframer.buffer();
                    buffer.reserve(64 << 10);
                    if self.stream.read_buf(buffer).await.ok()? == 0 {
                        return None;
                    }
                }
            }
        }
    }

    /// The next PDU that was asked for; pings are answered.
    pub(crate) async fn receive(&mut self) -> Response {
        loop {
            match self.receive_any().await {
                Response::NopIn(ask) if ask.itt == RESERVED_TAG => self.live(ask.ttt).await,
                other => return other,
            }
        }
    }

    /// Answers a ping.
    pub(crate) async fn live(&mut self, ttt: u32) {
        let answer = NopOut {
            lun: 0,
            itt: RESERVED_TAG,
            ttt,
            numbers: self.numbers(true),
            data: Bytes::new(),
        };
        if ttt != RESERVED_TAG {
            self.send(&Request::NopOut(answer)).await;
        }
    }

    pub(crate) async fn receive_any(&mut self) -> Response {
        let received = timeout(Duration::from_secs(300), self.try_receive()).await;
        received
            .expect("an answer in time")
            .expect("an open connection")
    }

    /// Checks that status numbers come one by one.
    fn note(&mut self, response: &Response) {
        let (numbers, takes) = match response {
            Response::NopIn(pdu) => (pdu.numbers, pdu.itt != RESERVED_TAG),
            Response::Scsi(pdu) => (pdu.numbers, true),
            Response::TaskManagement(pdu) => (pdu.numbers, true),
            Response::Login(pdu) => (pdu.numbers, true),
            Response::Text(pdu) => (pdu.numbers, true),
            Response::DataIn(pdu) => (pdu.numbers, pdu.status.is_some()),
            Response::Logout(pdu) => (pdu.numbers, true),
            Response::ReadyToTransfer(pdu) => (pdu.numbers, false),
            Response::AsyncMessage(pdu) => (pdu.numbers, true),
            Response::Reject(pdu) => (pdu.numbers, true),
        };
        if takes {
            assert_eq!(numbers.stat_sn, self.exp_stat_sn, "{response:?}");
            self.exp_stat_sn = self.exp_stat_sn.next();
        }
        if self.max_cmd_sn.is_before(numbers.max_cmd_sn) {
            self.max_cmd_sn = numbers.max_cmd_sn;
        }
    }

    pub(crate) fn next_itt(&mut self) -> u32 {
        self.itt += 1;
        self.itt
    }

    /// A command without unsolicited Data-Out; it takes the next number.
    pub(crate) fn command(&mut self, cdb: &[u8], bytes: u32, data: &[u8]) -> ScsiCommand {
        let writes = cdb[0] == 0x2a;
        let mut long = [0; 16];
        long[..cdb.len()].copy_from_slice(cdb);
        let command = ScsiCommand {
            is_final: true,
            reads: bytes > 0 && !writes,
            writes,
            attribute: TaskAttribute::Simple,
            lun: 0,
            itt: self.next_itt(),
            expected_bytes: bytes,
            numbers: self.numbers(false),
            cdb: Bytes::copy_from_slice(&long),
            expected_read_bytes: None,
            immediate_data: Bytes::copy_from_slice(data),
        };
        self.cmd_sn = self.cmd_sn.next();
        command
    }

    pub(crate) async fn run(&mut self, cdb: &[u8], bytes: u32, data: &[u8]) -> Answer {
        let command = self.command(cdb, bytes, data);
        self.send(&Request::ScsiCommand(command)).await;
        self.answer().await
    }

    /// Data and status of the one command under way.
    pub(crate) async fn answer(&mut self) -> Answer {
        let mut data = Vec::new();
        loop {
            match self.receive().await {
                Response::DataIn(pdu) => {
                    assert_eq!(usize::try_from(pdu.buffer_offset).unwrap(), data.len());
                    data.extend_from_slice(&pdu.data);
                    if let Some((status, residual)) = pdu.status {
                        assert!(pdu.is_final);
                        return Answer {
                            data,
                            status,
                            residual,
                            sense: Bytes::new(),
                            is_collapsed: true,
                        };
                    }
                }
                Response::Scsi(ScsiResponse {
                    status,
                    residual,
                    data: sense,
                    ..
                }) => {
                    return Answer {
                        data,
                        status,
                        residual,
                        sense,
                        is_collapsed: false,
                    };
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// A write whose data is asked for, in PDUs of at most so many bytes.
    pub(crate) async fn write(&mut self, at: u32, data: &[u8], pdu_bytes: usize) -> Answer {
        let bytes = u32::try_from(data.len()).unwrap();
        let command = self.command(&write10(at, data.len() / 512), bytes, &[]);
        let itt = command.itt;
        self.send(&Request::ScsiCommand(command)).await;
        loop {
            match self.receive().await {
                Response::ReadyToTransfer(r2t) => {
                    let from = r2t.buffer_offset as usize;
                    let piece = &data[from..from + r2t.desired_bytes as usize];
                    self.data_out(itt, r2t.ttt, r2t.buffer_offset, piece, pdu_bytes)
                        .await;
                }
                Response::Scsi(response) => {
                    return Answer {
                        data: Vec::new(),
                        status: response.status,
                        residual: response.residual,
                        sense: response.data,
                        is_collapsed: false,
                    };
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) async fn data_out(
        &mut self,
        itt: u32,
        ttt: u32,
        offset: u32,
        data: &[u8],
        pdu_bytes: usize,
    ) {
        let count = data.len().div_ceil(pdu_bytes);
        for (at, piece) in data.chunks(pdu_bytes).enumerate() {
            let pdu = DataOut {
                is_final: at + 1 == count,
                lun: 0,
                itt,
                ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn: u32::try_from(at).unwrap(),
                buffer_offset: offset + u32::try_from(at * pdu_bytes).unwrap(),
                data: Bytes::copy_from_slice(piece),
                has_wrong_data: false,
            };
            self.send(&Request::DataOut(pdu)).await;
        }
    }

    pub(crate) async fn manage(&mut self, function: TaskFunction, lun: u64, task: (u32, Serial)) {
        let pdu = TaskManagement {
            function,
            lun,
            itt: self.next_itt(),
            referenced_itt: task.0,
            numbers: self.numbers(true),
            ref_cmd_sn: task.1,
            exp_data_sn: 0,
        };
        self.send(&Request::TaskManagement(pdu)).await;
    }

    pub(crate) async fn managed(&mut self) -> TaskOutcome {
        match self.receive().await {
            Response::TaskManagement(response) => response.response,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn ping(&mut self, data: &[u8]) {
        let pdu = NopOut {
            lun: 0,
            itt: self.next_itt(),
            ttt: RESERVED_TAG,
            numbers: self.numbers(true),
            data: Bytes::copy_from_slice(data),
        };
        self.send(&Request::NopOut(pdu)).await;
    }

    pub(crate) async fn text(&mut self, keys: &[(&str, &str)]) -> String {
        let mut pairs = Pairs::default();
        for (key, value) in keys {
            pairs.push(key, value);
        }
        let mut ttt = RESERVED_TAG;
        let mut data = Bytes::from(pairs.encode());
        let mut all = Vec::new();
        loop {
            let pdu = Text {
                is_final: true,
                continues: false,
                lun: 0,
                itt: 900,
                ttt,
                numbers: self.numbers(false),
                data,
            };
            self.cmd_sn = self.cmd_sn.next();
            self.send(&Request::Text(pdu)).await;
            let Response::Text(response) = self.receive().await else {
                panic!("no text");
            };
            all.extend_from_slice(&response.data);
            if response.is_final {
                return String::from_utf8(all).unwrap().replace('\0', "\n");
            }
            (ttt, data) = (response.ttt, Bytes::new());
        }
    }

    pub(crate) async fn logout(&mut self, reason: LogoutReason, cid: u16) -> Response {
        let pdu = Logout {
            reason,
            itt: self.next_itt(),
            cid,
            numbers: self.numbers(false),
        };
        self.cmd_sn = self.cmd_sn.next();
        self.send(&Request::Logout(pdu)).await;
        self.receive().await
    }
}

pub(crate) fn read10(at: u32, blocks: usize) -> [u8; 10] {
    cdb10(0x28, at, blocks)
}

pub(crate) fn write10(at: u32, blocks: usize) -> [u8; 10] {
    cdb10(0x2a, at, blocks)
}

fn cdb10(opcode: u8, at: u32, blocks: usize) -> [u8; 10] {
    let [a, b, c, d] = at.to_be_bytes();
    let [high, low] = u16::try_from(blocks).unwrap().to_be_bytes();
    [opcode, 0, a, b, c, d, 0, high, low, 0]
}
