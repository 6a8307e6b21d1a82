//! An initiator with one connection: logs in, sends a command, waits for its answer.

use std::time::Duration;

use bytes::Bytes;
use portico_backend::connection::{Peer, StopControl, stop};
use portico_iscsi::serve::{Ends, serve};
use portico_iscsi::wire::deframe::{Deframer, Digests, Poll};
use portico_iscsi::wire::header::RESERVED_TAG;
use portico_iscsi::wire::request::{
    self, Numbers, Request, ScsiCommand, Stage, TaskAttribute, TaskFunction, TaskManagement,
};
use portico_iscsi::wire::response::{LoginStatus, Response, TaskOutcome};
use portico_iscsi::wire::serial::Serial;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::timeout;

use super::{BLOCK_BYTES, Node};

/// The initiator's name.
const HOST: &str = "iqn.2026-01.org.example:host";

/// Longer than anything waits.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

const UNIT_ATTENTION: u8 = 6;

pub(super) struct Initiator {
    stream: DuplexStream,
    deframer: Deframer,
    cmd_sn: Serial,
    itt: u32,
    /// Its connection goes on while this is there.
    _stop: StopControl,
}

/// What came of a command.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Answer {
    Good(Vec<u8>),
    /// Sense key, additional sense code and qualifier.
    Check([u8; 3]),
    Status(u8),
    /// The connection ended first.
    Gone,
}

impl Initiator {
    /// A session of its own for each number.
    ///
    /// # Errors
    /// The status, or none if the connection ended without one.
    pub(super) async fn try_log_in(
        node: &Node,
        target: &str,
        number: u8,
    ) -> Result<Self, Option<LoginStatus>> {
        let (near, far) = tokio::io::duplex(64 << 10);
        let ends = Ends {
            peer: Peer::default(),
            local: node.portal,
        };
        let (control, stopping) = stop();
        tokio::spawn(serve(far, ends, node.block.iscsi().clone(), stopping));
        let mut one = Self {
            stream: near,
            deframer: Deframer::new(1 << 20),
            cmd_sn: Serial(1),
            itt: 0,
            _stop: control,
        };
        let text = format!("InitiatorName={HOST}\0TargetName={target}\0");
        let login = request::Login {
            transit: true,
            continues: false,
            current_stage: Stage::LoginOperationalNegotiation,
            next_stage: Stage::FullFeaturePhase,
            version_max: 0,
            version_min: 0,
            isid: [0x80, 0, 0, 0, 0, number],
            tsih: 0,
            itt: 0,
            cid: 1,
            numbers: one.numbers(true),
            data: Bytes::from(text),
        };
        one.send(&Request::Login(login)).await;
        match one.receive().await {
            Some(Response::Login(response)) if response.status == LoginStatus::Success => Ok(one),
            Some(Response::Login(response)) => Err(Some(response.status)),
            Some(other) => panic!("{other:?}"),
            None => Err(None),
        }
    }

    pub(super) async fn log_in(node: &Node, target: &str, number: u8) -> Self {
        let entered = Self::try_log_in(node, target, number).await;
        entered.unwrap_or_else(|status| panic!("no login: {status:?}"))
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
            // Whether the other end is there shows when its answer is read.
            self.stream.write_all(&piece).await.ok();
        }
    }

    /// The next PDU that is no question whether the initiator lives, and no notice.
    async fn receive(&mut self) -> Option<Response> {
        let received = timeout(ANSWER_TIMEOUT, self.receive_any()).await;
        received.expect("an answer comes")
    }

    async fn receive_any(&mut self) -> Option<Response> {
        loop {
            match self.deframer.poll().unwrap() {
                Poll::Frame(frame) => match Response::decode(frame).unwrap() {
                    Response::NopIn(pdu) if pdu.itt == RESERVED_TAG => {}
                    Response::AsyncMessage(_) => {}
                    response => return Some(response),
                },
                Poll::Wanted(bytes) => {
                    let buffer = self.deframer.buffer();
                    buffer.reserve(bytes.max(512));
                    if self.stream.read_buf(buffer).await.unwrap_or(0) == 0 {
                        return None;
                    }
                }
            }
        }
    }

    /// Sends a command without waiting for its answer. Its tag and number are the answer.
    pub(super) async fn begin(
        &mut self,
        lun: u16,
        cdb: &[u8],
        bytes: u32,
        data: Bytes,
    ) -> (u32, Serial) {
        self.itt += 1;
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let command = ScsiCommand {
            is_final: true,
            reads: bytes > 0 && data.is_empty(),
            writes: !data.is_empty(),
            attribute: TaskAttribute::Simple,
            lun: u64::from(lun) << 48,
            itt: self.itt,
            expected_bytes: bytes,
            numbers: self.numbers(false),
            cdb: Bytes::copy_from_slice(&padded),
            expected_read_bytes: None,
            immediate_data: data,
        };
        let task = (self.itt, self.cmd_sn);
        self.cmd_sn = self.cmd_sn.next();
        self.send(&Request::ScsiCommand(command)).await;
        task
    }

    pub(super) async fn answer(&mut self) -> Answer {
        let mut read = Vec::new();
        loop {
            match self.receive().await {
                Some(Response::DataIn(pdu)) => {
                    read.extend_from_slice(&pdu.data);
                    if pdu.status.is_some() {
                        return Answer::Good(read);
                    }
                }
                Some(Response::Scsi(response)) => {
                    // Behind its length the sense data is of the fixed format (SPC-5 4.4.3).
                    let sense = response.data.get(2..);
                    return match (response.status, sense) {
                        (0, _) => Answer::Good(read),
                        (2, Some(sense)) => Answer::Check([sense[2] & 0xf, sense[12], sense[13]]),
                        (status, _) => Answer::Status(status),
                    };
                }
                Some(other) => panic!("{other:?}"),
                None => return Answer::Gone,
            }
        }
    }

    pub(super) async fn test(&mut self, lun: u16) -> Answer {
        self.begin(lun, &[0; 6], 0, Bytes::new()).await;
        self.answer().await
    }

    /// Asks until no unit attention is pending; what they were is the answer.
    pub(super) async fn attentions(&mut self, lun: u16) -> Vec<[u8; 3]> {
        let mut all = Vec::new();
        loop {
            match self.test(lun).await {
                Answer::Check(sense) if sense[0] == UNIT_ATTENTION => all.push(sense),
                Answer::Good(_) => return all,
                other => panic!("{other:?}"),
            }
        }
    }

    pub(super) async fn read(&mut self, lun: u16) -> Answer {
        self.begin(lun, &cdb(0x28), BLOCK_BYTES, Bytes::new()).await;
        self.answer().await
    }

    pub(super) async fn write(&mut self, lun: u16, byte: u8) -> Answer {
        self.begin_write(lun, byte).await;
        self.answer().await
    }

    pub(super) async fn begin_write(&mut self, lun: u16, byte: u8) -> (u32, Serial) {
        self.begin(lun, &cdb(0x2a), BLOCK_BYTES, filled(byte)).await
    }

    /// Numbers of the LUNs that there are.
    pub(super) async fn report_luns(&mut self) -> Vec<u16> {
        let mut cdb = [0; 12];
        cdb[0] = 0xa0;
        cdb[6..10].copy_from_slice(&4_096_u32.to_be_bytes());
        self.begin(0, &cdb, 4_096, Bytes::new()).await;
        match self.answer().await {
            Answer::Good(data) => {
                let entries = data[8..].chunks_exact(8);
                entries
                    .map(|it| u16::from_be_bytes([it[0], it[1]]))
                    .collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// None if the connection ended without an answer.
    pub(super) async fn manage(
        &mut self,
        function: TaskFunction,
        lun: u16,
        task: (u32, Serial),
    ) -> Option<TaskOutcome> {
        self.itt += 1;
        let pdu = TaskManagement {
            function,
            lun: u64::from(lun) << 48,
            itt: self.itt,
            referenced_itt: task.0,
            numbers: self.numbers(true),
            ref_cmd_sn: task.1,
            exp_data_sn: 0,
        };
        self.send(&Request::TaskManagement(pdu)).await;
        match self.receive().await {
            Some(Response::TaskManagement(response)) => Some(response.response),
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }

    /// Waits until the node has ended the connection.
    pub(super) async fn ended(mut self) {
        while self.receive().await.is_some() {}
    }
}

/// A block of one byte over and over.
pub(super) fn filled(byte: u8) -> Bytes {
    Bytes::from(vec![byte; BLOCK_BYTES as usize])
}

/// READ(10) or WRITE(10) of the first block.
fn cdb(opcode: u8) -> [u8; 10] {
    let mut cdb = [0; 10];
    (cdb[0], cdb[8]) = (opcode, 1);
    cdb
}
