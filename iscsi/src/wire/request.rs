//! What initiators send (RFC 7143 sections 11.3, 11.5, 11.7, 11.10, 11.12, 11.14, 11.16, 11.18).

use bytes::Bytes;

use super::WireError;
use super::code::{code_of, of_code};
use super::deframe::Frame;
use super::header::{Header, place};
use super::serial::Serial;

/// Where an initiator's command stands in its session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Numbers {
    pub cmd_sn: Serial,
    pub exp_stat_sn: Serial,
    /// For immediate delivery: `cmd_sn` is the next one, and not taken.
    pub immediate: bool,
}

/// A PDU of an initiator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    NopOut(NopOut),
    ScsiCommand(ScsiCommand),
    TaskManagement(TaskManagement),
    Login(Login),
    Text(Text),
    DataOut(DataOut),
    Logout(Logout),
    Snack(Snack),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NopOut {
    pub lun: u64,
    /// `RESERVED_TAG` if no answer is asked for.
    pub itt: u32,
    /// That of the NOP-In it answers, or `RESERVED_TAG`.
    pub ttt: u32,
    pub numbers: Numbers,
    pub data: Bytes,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScsiCommand {
    /// No unsolicited Data-Out follows.
    pub is_final: bool,
    pub reads: bool,
    pub writes: bool,
    pub attribute: TaskAttribute,
    pub lun: u64,
    pub itt: u32,
    /// Bytes that the initiator expects to move.
    pub expected_bytes: u32,
    pub numbers: Numbers,
    /// 16 bytes, or more with an extended CDB (section 11.2.2.3); 260 at most.
    pub cdb: Bytes,
    /// Bytes that a bidirectional command reads (section 11.2.2.4).
    pub expected_read_bytes: Option<u32>,
    pub immediate_data: Bytes,
}

/// Section 11.3.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaskAttribute {
    Untagged,
    Simple,
    Ordered,
    HeadOfQueue,
    Aca,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TaskManagement {
    pub function: TaskFunction,
    pub lun: u64,
    pub itt: u32,
    pub referenced_itt: u32,
    pub numbers: Numbers,
    pub ref_cmd_sn: Serial,
    pub exp_data_sn: u32,
}

/// Section 11.5.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaskFunction {
    AbortTask,
    AbortTaskSet,
    ClearAca,
    ClearTaskSet,
    LogicalUnitReset,
    TargetWarmReset,
    TargetColdReset,
    TaskReassign,
    /// A function of RFC 7144 or later: answered "not supported".
    Other(u8),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Login {
    pub transit: bool,
    pub continues: bool,
    pub current_stage: Stage,
    /// Has a meaning only with `transit`.
    pub next_stage: Stage,
    pub version_max: u8,
    pub version_min: u8,
    pub isid: [u8; 6],
    /// 0 asks for a new session.
    pub tsih: u16,
    pub itt: u32,
    pub cid: u16,
    pub numbers: Numbers,
    pub data: Bytes,
}

/// Stages of a login (section 11.12.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    SecurityNegotiation,
    LoginOperationalNegotiation,
    FullFeaturePhase,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Text {
    pub is_final: bool,
    pub continues: bool,
    pub lun: u64,
    pub itt: u32,
    pub ttt: u32,
    pub numbers: Numbers,
    pub data: Bytes,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataOut {
    pub is_final: bool,
    pub lun: u64,
    pub itt: u32,
    /// That of the R2T it answers; `RESERVED_TAG` for unsolicited data.
    pub ttt: u32,
    pub exp_stat_sn: Serial,
    pub data_sn: u32,
    pub buffer_offset: u32,
    pub data: Bytes,
    /// The data does not match its digest.
    pub has_wrong_data: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Logout {
    pub reason: LogoutReason,
    pub itt: u32,
    pub cid: u16,
    pub numbers: Numbers,
}

/// Section 11.14.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogoutReason {
    CloseSession,
    CloseConnection,
    RemoveConnectionForRecovery,
}

/// Asks for something to be sent again, which error recovery level 0 does not do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snack {
    pub kind: u8,
    pub lun: u64,
    pub itt: u32,
    pub ttt: u32,
    pub exp_stat_sn: Serial,
    pub begin: u32,
    pub length: u32,
}

impl Request {
    /// # Errors
    /// `Opcode`, `Field`, `AdditionalHeader`.
    pub fn decode(frame: Frame) -> Result<Self, WireError> {
        let header = frame.header;
        match header.opcode() {
            NOP_OUT => Ok(Self::NopOut(NopOut {
                lun: header.u64(place::LUN),
                itt: header.u32(place::ITT),
                ttt: header.u32(place::TTT),
                numbers: numbers(&header),
                data: frame.data,
            })),
            SCSI_COMMAND => scsi_command(frame).map(Self::ScsiCommand),
            TASK_MANAGEMENT => Ok(Self::TaskManagement(TaskManagement {
                function: TaskFunction::from_code(header.u8(place::FLAGS) & 0x7f),
                lun: header.u64(place::LUN),
                itt: header.u32(place::ITT),
                referenced_itt: header.u32(place::TTT),
                numbers: numbers(&header),
                ref_cmd_sn: Serial(header.u32(REF_CMD_SN)),
                exp_data_sn: header.u32(place::DATA_SN),
            })),
            LOGIN => login(frame).map(Self::Login),
            TEXT => Ok(Self::Text(Text {
                is_final: header.flag(place::FLAGS, FINAL),
                continues: header.flag(place::FLAGS, CONTINUE),
                lun: header.u64(place::LUN),
                itt: header.u32(place::ITT),
                ttt: header.u32(place::TTT),
                numbers: numbers(&header),
                data: frame.data,
            })),
            DATA_OUT => Ok(Self::DataOut(DataOut {
                is_final: header.flag(place::FLAGS, FINAL),
                lun: header.u64(place::LUN),
                itt: header.u32(place::ITT),
                ttt: header.u32(place::TTT),
                exp_stat_sn: Serial(header.u32(place::EXP_STAT_SN)),
                data_sn: header.u32(place::DATA_SN),
                buffer_offset: header.u32(place::BUFFER_OFFSET),
                data: frame.data,
                has_wrong_data: frame.has_wrong_data,
            })),
            LOGOUT => Ok(Self::Logout(Logout {
                reason: of_code(
                    &LogoutReason::CODES,
                    header.u8(place::FLAGS) & 0x7f,
                    "Reason Code",
                )?,
                itt: header.u32(place::ITT),
                cid: header.u16(CID),
                numbers: numbers(&header),
            })),
            SNACK => Ok(Self::Snack(Snack {
                kind: header.u8(place::FLAGS) & 0x0f,
                lun: header.u64(place::LUN),
                itt: header.u32(place::ITT),
                ttt: header.u32(place::TTT),
                exp_stat_sn: Serial(header.u32(place::EXP_STAT_SN)),
                begin: header.u32(place::BUFFER_OFFSET),
                length: header.u32(RUN_LENGTH),
            })),
            other => Err(WireError::Opcode(other)),
        }
    }

    /// As an initiator sends it.
    #[must_use]
    pub fn encode(&self) -> Frame {
        match self {
            Self::NopOut(pdu) => {
                let mut header = common(NOP_OUT, FINAL, pdu.itt, &pdu.numbers);
                header
                    .set_u64(place::LUN, pdu.lun)
                    .set_u32(place::TTT, pdu.ttt);
                framed(header, Bytes::new(), &pdu.data)
            }
            Self::ScsiCommand(pdu) => encode_command(pdu),
            Self::TaskManagement(pdu) => {
                let flags = FINAL | pdu.function.code();
                let mut header = common(TASK_MANAGEMENT, flags, pdu.itt, &pdu.numbers);
                header
                    .set_u64(place::LUN, pdu.lun)
                    .set_u32(place::TTT, pdu.referenced_itt)
                    .set_u32(REF_CMD_SN, pdu.ref_cmd_sn.0)
                    .set_u32(place::DATA_SN, pdu.exp_data_sn);
                framed(header, Bytes::new(), &Bytes::new())
            }
            Self::Login(pdu) => encode_login(pdu),
            Self::Text(pdu) => {
                let mut header = common(TEXT, 0, pdu.itt, &pdu.numbers);
                header
                    .set_flag(place::FLAGS, FINAL, pdu.is_final)
                    .set_flag(place::FLAGS, CONTINUE, pdu.continues)
                    .set_u64(place::LUN, pdu.lun)
                    .set_u32(place::TTT, pdu.ttt);
                framed(header, Bytes::new(), &pdu.data)
            }
            Self::DataOut(pdu) => {
                let mut header = Header::new(DATA_OUT);
                header
                    .set_flag(place::FLAGS, FINAL, pdu.is_final)
                    .set_u64(place::LUN, pdu.lun)
                    .set_u32(place::ITT, pdu.itt)
                    .set_u32(place::TTT, pdu.ttt)
                    .set_u32(place::EXP_STAT_SN, pdu.exp_stat_sn.0)
                    .set_u32(place::DATA_SN, pdu.data_sn)
                    .set_u32(place::BUFFER_OFFSET, pdu.buffer_offset);
                framed(header, Bytes::new(), &pdu.data)
            }
            Self::Logout(pdu) => {
                let flags = FINAL | code_of(&LogoutReason::CODES, pdu.reason);
                let mut header = common(LOGOUT, flags, pdu.itt, &pdu.numbers);
                header.set_u16(CID, pdu.cid);
                framed(header, Bytes::new(), &Bytes::new())
            }
            Self::Snack(pdu) => {
                let mut header = Header::new(SNACK);
                header
                    .set_u8(place::FLAGS, FINAL | pdu.kind)
                    .set_u64(place::LUN, pdu.lun)
                    .set_u32(place::ITT, pdu.itt)
                    .set_u32(place::TTT, pdu.ttt)
                    .set_u32(place::EXP_STAT_SN, pdu.exp_stat_sn.0)
                    .set_u32(place::BUFFER_OFFSET, pdu.begin)
                    .set_u32(RUN_LENGTH, pdu.length);
                framed(header, Bytes::new(), &Bytes::new())
            }
        }
    }
}

fn numbers(header: &Header) -> Numbers {
    Numbers {
        cmd_sn: Serial(header.u32(place::CMD_SN)),
        exp_stat_sn: Serial(header.u32(place::EXP_STAT_SN)),
        immediate: header.is_immediate(),
    }
}

fn common(opcode: u8, flags: u8, itt: u32, numbers: &Numbers) -> Header {
    let mut header = Header::new(opcode);
    header
        .set_flag(0, IMMEDIATE, numbers.immediate)
        .set_u8(place::FLAGS, flags)
        .set_u32(place::ITT, itt)
        .set_u32(place::CMD_SN, numbers.cmd_sn.0)
        .set_u32(place::EXP_STAT_SN, numbers.exp_stat_sn.0);
    header
}

pub(super) fn framed(mut header: Header, ahs: Bytes, data: &Bytes) -> Frame {
    header.set_data_segment_length(data.len());
    let words = u8::try_from(ahs.len() / 4).expect("at most 255 words");
    header.set_u8(4, words);
    Frame {
        header,
        ahs,
        data: data.clone(),
        has_wrong_data: false,
    }
}

fn scsi_command(frame: Frame) -> Result<ScsiCommand, WireError> {
    let header = frame.header;
    let flags = header.u8(place::FLAGS);
    let additional = additional_headers(&frame.ahs)?;
    let mut cdb = Bytes::copy_from_slice(&header.array::<16>(CDB));
    if let Some(rest) = additional.cdb {
        cdb = [&cdb[..], &rest].concat().into();
    }
    Ok(ScsiCommand {
        is_final: flags & FINAL != 0,
        reads: flags & READ != 0,
        writes: flags & WRITE != 0,
        attribute: of_code(&TaskAttribute::CODES, flags & 0x07, "ATTR")?,
        lun: header.u64(place::LUN),
        itt: header.u32(place::ITT),
        expected_bytes: header.u32(EXPECTED_BYTES),
        numbers: numbers(&header),
        cdb,
        expected_read_bytes: additional.expected_read_bytes,
        immediate_data: frame.data,
    })
}

fn encode_command(pdu: &ScsiCommand) -> Frame {
    let mut header = common(
        SCSI_COMMAND,
        code_of(&TaskAttribute::CODES, pdu.attribute),
        pdu.itt,
        &pdu.numbers,
    );
    let (short, rest) = pdu.cdb.split_at(pdu.cdb.len().min(16));
    header
        .set_flag(place::FLAGS, FINAL, pdu.is_final)
        .set_flag(place::FLAGS, READ, pdu.reads)
        .set_flag(place::FLAGS, WRITE, pdu.writes)
        .set_u64(place::LUN, pdu.lun)
        .set_u32(EXPECTED_BYTES, pdu.expected_bytes)
        .set(CDB, short);
    let mut ahs = Vec::new();
    if !rest.is_empty() {
        put_additional(&mut ahs, AHS_EXTENDED_CDB, rest);
    }
    if let Some(bytes) = pdu.expected_read_bytes {
        put_additional(&mut ahs, AHS_EXPECTED_READ_BYTES, &bytes.to_be_bytes());
    }
    framed(header, ahs.into(), &pdu.immediate_data)
}

/// What additional header segments of a command say (section 11.2.2).
#[derive(Debug, Default)]
struct Additional {
    cdb: Option<Bytes>,
    expected_read_bytes: Option<u32>,
}

fn additional_headers(ahs: &Bytes) -> Result<Additional, WireError> {
    let mut additional = Additional::default();
    let mut at = 0;
    while at < ahs.len() {
        // Length of what is specific to the type, its reserved byte counted; the type; that byte.
        let [high, low, kind, _] = *ahs[at..].first_chunk().ok_or(WireError::AdditionalHeader)?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let specific = (at + 4)..(at + 3 + length);
        if length == 0 || specific.end > ahs.len() {
            return Err(WireError::AdditionalHeader);
        }
        at = specific.end.next_multiple_of(4);
        let specific = ahs.slice(specific);
        match kind & 0x3f {
            AHS_EXTENDED_CDB if additional.cdb.is_none() && specific.len() <= CDB_REST_MAX => {
                additional.cdb = Some(specific);
            }
            AHS_EXPECTED_READ_BYTES if additional.expected_read_bytes.is_none() => {
                let bytes = specific[..].try_into();
                let bytes = bytes.map_err(|_| WireError::AdditionalHeader)?;
                additional.expected_read_bytes = Some(u32::from_be_bytes(bytes));
            }
            _ => return Err(WireError::AdditionalHeader),
        }
    }
    Ok(additional)
}

fn put_additional(ahs: &mut Vec<u8>, kind: u8, specific: &[u8]) {
    let length = u16::try_from(specific.len() + 1).expect("bounded by a CDB");
    ahs.extend_from_slice(&length.to_be_bytes());
    ahs.extend_from_slice(&[kind, 0]);
    ahs.extend_from_slice(specific);
    ahs.resize(ahs.len().next_multiple_of(4), 0);
}

fn login(frame: Frame) -> Result<Login, WireError> {
    let header = frame.header;
    let (transit, current_stage, next_stage) = stages(&header)?;
    Ok(Login {
        transit,
        continues: header.flag(place::FLAGS, CONTINUE),
        current_stage,
        next_stage,
        version_max: header.u8(VERSIONS),
        version_min: header.u8(VERSIONS + 1),
        isid: header.array(place::LUN),
        tsih: header.u16(TSIH),
        itt: header.u32(place::ITT),
        cid: header.u16(CID),
        numbers: numbers(&header),
        data: frame.data,
    })
}

fn encode_login(pdu: &Login) -> Frame {
    let stages =
        (code_of(&Stage::CODES, pdu.current_stage) << 2) | code_of(&Stage::CODES, pdu.next_stage);
    let mut header = common(LOGIN, stages, pdu.itt, &pdu.numbers);
    header
        .set_flag(place::FLAGS, FINAL, pdu.transit)
        .set_flag(place::FLAGS, CONTINUE, pdu.continues)
        .set(VERSIONS, &[pdu.version_max, pdu.version_min])
        .set(place::LUN, &pdu.isid)
        .set_u16(TSIH, pdu.tsih)
        .set_u16(CID, pdu.cid);
    framed(header, Bytes::new(), &pdu.data)
}

/// Whether a login changes its stage, the present one and the next one.
pub(super) fn stages(header: &Header) -> Result<(bool, Stage, Stage), WireError> {
    const FIELD: &str = "CSG or NSG";
    let flags = header.u8(place::FLAGS);
    let transit = flags & FINAL != 0;
    let current = of_code(&Stage::CODES, (flags >> 2) & 3, FIELD)?;
    let next = match transit {
        true => of_code(&Stage::CODES, flags & 3, FIELD)?,
        false => current,
    };
    Ok((transit, current, next))
}

impl TaskAttribute {
    const CODES: [(Self, u8); 5] = [
        (Self::Untagged, 0),
        (Self::Simple, 1),
        (Self::Ordered, 2),
        (Self::HeadOfQueue, 3),
        (Self::Aca, 4),
    ];
}

impl TaskFunction {
    const CODES: [(Self, u8); 8] = [
        (Self::AbortTask, 1),
        (Self::AbortTaskSet, 2),
        (Self::ClearAca, 3),
        (Self::ClearTaskSet, 4),
        (Self::LogicalUnitReset, 5),
        (Self::TargetWarmReset, 6),
        (Self::TargetColdReset, 7),
        (Self::TaskReassign, 8),
    ];

    fn from_code(code: u8) -> Self {
        of_code(&Self::CODES, code, "Function").unwrap_or(Self::Other(code))
    }

    fn code(self) -> u8 {
        if let Self::Other(code) = self {
            return code;
        }
        code_of(&Self::CODES, self)
    }
}

impl LogoutReason {
    const CODES: [(Self, u8); 3] = [
        (Self::CloseSession, 0),
        (Self::CloseConnection, 1),
        (Self::RemoveConnectionForRecovery, 2),
    ];
}

impl Stage {
    pub(super) const CODES: [(Self, u8); 3] = [
        (Self::SecurityNegotiation, 0),
        (Self::LoginOperationalNegotiation, 1),
        (Self::FullFeaturePhase, 3),
    ];
}

const NOP_OUT: u8 = 0x00;
const SCSI_COMMAND: u8 = 0x01;
const TASK_MANAGEMENT: u8 = 0x02;
const LOGIN: u8 = 0x03;
const TEXT: u8 = 0x04;
const DATA_OUT: u8 = 0x05;
const LOGOUT: u8 = 0x06;
const SNACK: u8 = 0x10;

const IMMEDIATE: u8 = 0x40;
/// The final bit, and the transit bit of a login.
pub(super) const FINAL: u8 = 0x80;
pub(super) const CONTINUE: u8 = 0x40;
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;

const VERSIONS: usize = 2;
pub(super) const TSIH: usize = 14;
const CID: usize = 20;
const EXPECTED_BYTES: usize = 20;
const REF_CMD_SN: usize = 32;
const CDB: usize = 32;
const RUN_LENGTH: usize = 44;

const AHS_EXTENDED_CDB: u8 = 1;
const AHS_EXPECTED_READ_BYTES: u8 = 2;
/// A CDB has 260 bytes at most (SPC-4 section 4.2.1), of which the header holds 16.
const CDB_REST_MAX: usize = 244;

#[cfg(test)]
mod tests;
