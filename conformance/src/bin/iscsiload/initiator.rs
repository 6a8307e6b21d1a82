//! One connection of an initiator: login, and PDUs in and out, blocking.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;

use bytes::{BufMut, Bytes};
use portico_iscsi::wire::deframe::{Deframer, Digests, Poll};
use portico_iscsi::wire::request::{Login, Numbers, Request, Stage};
use portico_iscsi::wire::response::{LoginStatus, Response};
use portico_iscsi::wire::serial::Serial;
use portico_iscsi::wire::text::Pairs;

const READ_BYTES: usize = 256 * 1024;
const SEGMENT_BYTES_MAX: u32 = 1 << 20;

/// What a target said about sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) segment_bytes_max: usize,
    pub(crate) immediate_bytes_max: usize,
}

#[derive(Debug)]
pub(crate) struct Initiator {
    stream: TcpStream,
    deframer: Deframer,
    out: Vec<u8>,
    piece: Box<[u8]>,
    pub(crate) sizes: Sizes,
    pub(crate) cmd_sn: Serial,
    pub(crate) max_cmd_sn: Serial,
    pub(crate) exp_stat_sn: Serial,
}

impl Initiator {
    pub(crate) fn login(address: &str, iqn: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut made = Self {
            stream,
            deframer: Deframer::new(SEGMENT_BYTES_MAX),
            out: Vec::new(),
            piece: vec![0; READ_BYTES].into_boxed_slice(),
            sizes: Sizes {
                segment_bytes_max: 8_192,
                immediate_bytes_max: 0,
            },
            cmd_sn: Serial(1),
            max_cmd_sn: Serial(1),
            exp_stat_sn: Serial(0),
        };
        let mut pairs = offer(iqn);
        let mut answers: Vec<(String, String)> = Vec::new();
        loop {
            made.send(&Request::Login(Login {
                transit: true,
                continues: false,
                current_stage: Stage::LoginOperationalNegotiation,
                next_stage: Stage::FullFeaturePhase,
                version_max: 0,
                version_min: 0,
                isid: [0x80, 0, 0, 0, 0, std::process::id().to_le_bytes()[0]],
                tsih: 0,
                itt: 1,
                cid: 0,
                numbers: Numbers {
                    cmd_sn: made.cmd_sn,
                    exp_stat_sn: made.exp_stat_sn,
                    immediate: true,
                },
                data: pairs.encode().into(),
            }));
            made.flush()?;
            let Response::Login(answer) = made.receive()? else {
                return Err(broken("no login response"));
            };
            if answer.status != LoginStatus::Success {
                return Err(broken(&format!("the login failed: {:?}", answer.status)));
            }
            made.exp_stat_sn = answer.numbers.stat_sn.next();
            made.max_cmd_sn = answer.numbers.max_cmd_sn;
            let said = Pairs::decode(&answer.data).map_err(|why| broken(&why.to_string()))?;
            answers.extend(
                said.iter()
                    .map(|(key, value)| (key.to_owned(), value.to_owned())),
            );
            if answer.transit {
                break;
            }
            pairs = Pairs::default();
        }
        made.sizes = sizes(&answers);
        Ok(made)
    }

    /// Queues a PDU; [`Self::flush`] sends what is queued.
    pub(crate) fn send(&mut self, request: &Request) {
        for part in request.encode().encode(Digests::default()) {
            self.out.extend_from_slice(&part);
        }
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The next PDU, waiting for it.
    pub(crate) fn receive(&mut self) -> Result<Response> {
        loop {
            if let Some(response) = self.take()? {
                return Ok(response);
            }
            let count = self.stream.read(&mut self.piece)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.deframer.buffer().put_slice(&self.piece[..count]);
        }
    }

    /// The next PDU, if it was read already.
    pub(crate) fn take(&mut self) -> Result<Option<Response>> {
        match self
            .deframer
            .poll()
            .map_err(|why| broken(&why.to_string()))?
        {
            Poll::Frame(frame) => Response::decode(frame)
                .map(Some)
                .map_err(|why| broken(&why.to_string())),
            Poll::Wanted(_) => Ok(None),
        }
    }
}

/// All that is negotiated, at once.
fn offer(iqn: &str) -> Pairs {
    let mut pairs = Pairs::default();
    for (key, value) in [
        ("InitiatorName", "iqn.2024-01.io.portico:iscsiload"),
        ("TargetName", iqn),
        ("SessionType", "Normal"),
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("MaxRecvDataSegmentLength", "1048576"),
        ("MaxBurstLength", "1048576"),
        ("FirstBurstLength", "262144"),
        ("MaxOutstandingR2T", "1"),
        ("ErrorRecoveryLevel", "0"),
    ] {
        pairs.push(key, value);
    }
    pairs
}

fn sizes(answers: &[(String, String)]) -> Sizes {
    let number = |key: &str, default: usize| {
        let found = answers.iter().find(|(name, _)| name == key);
        found
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(default)
    };
    let segment_bytes_max = number("MaxRecvDataSegmentLength", 8_192);
    let has_immediate = !answers
        .iter()
        .any(|(key, value)| key == "ImmediateData" && value == "No");
    let first = number("FirstBurstLength", 65_536);
    Sizes {
        segment_bytes_max,
        immediate_bytes_max: if has_immediate {
            first.min(segment_bytes_max)
        } else {
            0
        },
    }
}

/// Bytes that differ from block to block, so that nothing on the way can make them small.
pub(crate) fn noise(size: usize) -> Bytes {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes.into()
}

pub(crate) fn broken(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_owned())
}
