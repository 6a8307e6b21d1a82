//! What targets send (RFC 7143 sections 11.4, 11.6 to 11.9, 11.11, 11.13, 11.15, 11.17, 11.19).

use bytes::Bytes;

use super::WireError;
use super::code::{code_of, of_code};
use super::deframe::Frame;
use super::header::{Header, RESERVED_TAG, place};
use super::request::{CONTINUE, FINAL, Stage, TSIH, framed, stages};
use super::serial::Serial;

/// Where a target's answer stands in its connection, and which commands it takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Numbers {
    pub stat_sn: Serial,
    pub exp_cmd_sn: Serial,
    pub max_cmd_sn: Serial,
}

/// A PDU of a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Response {
    NopIn(NopIn),
    Scsi(ScsiResponse),
    TaskManagement(TaskManagementResponse),
    Login(LoginResponse),
    Text(TextResponse),
    DataIn(DataIn),
    Logout(LogoutResponse),
    ReadyToTransfer(ReadyToTransfer),
    AsyncMessage(AsyncMessage),
    Reject(Reject),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NopIn {
    pub lun: u64,
    /// That of the NOP-Out it answers, or `RESERVED_TAG`.
    pub itt: u32,
    /// `RESERVED_TAG` if no answer is asked for.
    pub ttt: u32,
    pub numbers: Numbers,
    pub data: Bytes,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScsiResponse {
    /// 0: the command was completed at the target; 1: it failed there.
    pub response: u8,
    /// The SCSI status.
    pub status: u8,
    pub residual: Residual,
    /// Of the read half of a bidirectional command.
    pub read_residual: Residual,
    pub itt: u32,
    pub numbers: Numbers,
    /// Data-In and R2T PDUs of this command.
    pub exp_data_sn: u32,
    /// Length of the sense data, sense data, and response data.
    pub data: Bytes,
}

/// What was moved beside what the initiator expected (section 11.4.5). Exact: initiators compare.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Residual {
    None,
    /// More bytes were there than expected.
    Overflow(u32),
    /// Fewer bytes were moved than expected.
    Underflow(u32),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TaskManagementResponse {
    pub response: TaskOutcome,
    pub itt: u32,
    pub numbers: Numbers,
}

/// Section 11.6.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaskOutcome {
    Complete,
    NoSuchTask,
    NoSuchLun,
    TaskStillAllegiant,
    ReassignmentNotSupported,
    FunctionNotSupported,
    AuthorizationFailed,
    Rejected,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoginResponse {
    pub transit: bool,
    pub continues: bool,
    pub current_stage: Stage,
    /// Has a meaning only with `transit`.
    pub next_stage: Stage,
    pub version_max: u8,
    pub version_active: u8,
    pub isid: [u8; 6],
    pub tsih: u16,
    pub itt: u32,
    pub numbers: Numbers,
    pub status: LoginStatus,
    pub data: Bytes,
}

/// Class and detail (section 11.13.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LoginStatus {
    Success,
    MovedTemporarily,
    MovedPermanently,
    InitiatorError,
    AuthenticationFailure,
    AuthorizationFailure,
    NotFound,
    TargetRemoved,
    UnsupportedVersion,
    TooManyConnections,
    MissingParameter,
    CannotIncludeInSession,
    SessionTypeNotSupported,
    SessionDoesNotExist,
    InvalidDuringLogin,
    TargetError,
    ServiceUnavailable,
    OutOfResources,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TextResponse {
    pub is_final: bool,
    pub continues: bool,
    pub lun: u64,
    pub itt: u32,
    pub ttt: u32,
    pub numbers: Numbers,
    pub data: Bytes,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataIn {
    pub is_final: bool,
    pub acknowledge: bool,
    /// The status, if it comes with the last data; `numbers.stat_sn` counts only then.
    pub status: Option<(u8, Residual)>,
    pub lun: u64,
    pub itt: u32,
    pub ttt: u32,
    pub numbers: Numbers,
    pub data_sn: u32,
    pub buffer_offset: u32,
    pub data: Bytes,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogoutResponse {
    pub response: LogoutOutcome,
    pub itt: u32,
    pub numbers: Numbers,
    pub time2wait_s: u16,
    pub time2retain_s: u16,
}

/// Section 11.15.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogoutOutcome {
    Closed,
    CidNotFound,
    RecoveryNotSupported,
    CleanupFailed,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadyToTransfer {
    pub lun: u64,
    pub itt: u32,
    pub ttt: u32,
    /// `stat_sn` is the next one, and not taken.
    pub numbers: Numbers,
    pub r2t_sn: u32,
    pub buffer_offset: u32,
    pub desired_bytes: u32,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AsyncMessage {
    pub event: AsyncEvent,
    pub lun: u64,
    pub numbers: Numbers,
    pub parameters: [u16; 3],
    /// With `Scsi`: length of the sense data, and sense data.
    pub data: Bytes,
}

/// Section 11.9.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AsyncEvent {
    Scsi,
    RequestLogout,
    DropsConnection,
    DropsSession,
    RequestNegotiation,
    TasksTerminated,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reject {
    pub reason: RejectReason,
    pub numbers: Numbers,
    /// `DataSN` or `R2TSN` that is expected.
    pub data_sn: u32,
    /// The header that was rejected.
    pub header: Bytes,
}

/// Section 11.17.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RejectReason {
    DataDigestError,
    SnackReject,
    ProtocolError,
    CommandNotSupported,
    ImmediateCommandReject,
    TaskInProgress,
    InvalidDataAck,
    InvalidPduField,
    OutOfResources,
    NegotiationReset,
    WaitingForLogout,
}

impl Response {
    /// As a target sends it.
    #[must_use]
    pub fn encode(&self) -> Frame {
        match self {
            Self::NopIn(pdu) => {
                let mut header = common(NOP_IN, FINAL, pdu.itt, &pdu.numbers);
                header
                    .set_u64(place::LUN, pdu.lun)
                    .set_u32(place::TTT, pdu.ttt);
                framed(header, Bytes::new(), &pdu.data)
            }
            Self::Scsi(pdu) => encode_scsi(pdu),
            Self::TaskManagement(pdu) => {
                let mut header = common(TASK_MANAGEMENT, FINAL, pdu.itt, &pdu.numbers);
                header.set_u8(RESPONSE, code_of(&TaskOutcome::CODES, pdu.response));
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
            Self::DataIn(pdu) => encode_data_in(pdu),
            Self::Logout(pdu) => {
                let mut header = common(LOGOUT, FINAL, pdu.itt, &pdu.numbers);
                header
                    .set_u8(RESPONSE, code_of(&LogoutOutcome::CODES, pdu.response))
                    .set_u16(TIME2WAIT, pdu.time2wait_s)
                    .set_u16(TIME2RETAIN, pdu.time2retain_s);
                framed(header, Bytes::new(), &Bytes::new())
            }
            Self::ReadyToTransfer(pdu) => {
                let mut header = common(READY_TO_TRANSFER, FINAL, pdu.itt, &pdu.numbers);
                header
                    .set_u64(place::LUN, pdu.lun)
                    .set_u32(place::TTT, pdu.ttt)
                    .set_u32(place::DATA_SN, pdu.r2t_sn)
                    .set_u32(place::BUFFER_OFFSET, pdu.buffer_offset)
                    .set_u32(RESIDUAL, pdu.desired_bytes);
                framed(header, Bytes::new(), &Bytes::new())
            }
            Self::AsyncMessage(pdu) => {
                let mut header = common(ASYNC_MESSAGE, FINAL, RESERVED_TAG, &pdu.numbers);
                header
                    .set_u64(place::LUN, pdu.lun)
                    .set_u8(ASYNC_EVENT, code_of(&AsyncEvent::CODES, pdu.event));
                for (at, value) in (PARAMETERS..).step_by(2).zip(pdu.parameters) {
                    header.set_u16(at, value);
                }
                framed(header, Bytes::new(), &pdu.data)
            }
            Self::Reject(pdu) => {
                let mut header = common(REJECT, FINAL, RESERVED_TAG, &pdu.numbers);
                header
                    .set_u8(RESPONSE, code_of(&RejectReason::CODES, pdu.reason))
                    .set_u32(place::DATA_SN, pdu.data_sn);
                framed(header, Bytes::new(), &pdu.header)
            }
        }
    }

    /// As an initiator reads it.
    ///
    /// # Errors
    /// `Opcode`, `Field`.
    pub fn decode(frame: Frame) -> Result<Self, WireError> {
        let header = frame.header;
        let (itt, numbers) = (header.u32(place::ITT), numbers(&header));
        let (lun, ttt) = (header.u64(place::LUN), header.u32(place::TTT));
        Ok(match header.opcode() {
            NOP_IN => Self::NopIn(NopIn {
                lun,
                itt,
                ttt,
                numbers,
                data: frame.data,
            }),
            SCSI => Self::Scsi(decode_scsi(frame)?),
            TASK_MANAGEMENT => Self::TaskManagement(TaskManagementResponse {
                response: of_code(&TaskOutcome::CODES, header.u8(RESPONSE), "Response")?,
                itt,
                numbers,
            }),
            LOGIN => Self::Login(decode_login(frame)?),
            TEXT => Self::Text(TextResponse {
                is_final: header.flag(place::FLAGS, FINAL),
                continues: header.flag(place::FLAGS, CONTINUE),
                lun,
                itt,
                ttt,
                numbers,
                data: frame.data,
            }),
            DATA_IN => Self::DataIn(decode_data_in(frame)?),
            LOGOUT => Self::Logout(LogoutResponse {
                response: of_code(&LogoutOutcome::CODES, header.u8(RESPONSE), "Response")?,
                itt,
                numbers,
                time2wait_s: header.u16(TIME2WAIT),
                time2retain_s: header.u16(TIME2RETAIN),
            }),
            READY_TO_TRANSFER => Self::ReadyToTransfer(ReadyToTransfer {
                lun,
                itt,
                ttt,
                numbers,
                r2t_sn: header.u32(place::DATA_SN),
                buffer_offset: header.u32(place::BUFFER_OFFSET),
                desired_bytes: header.u32(RESIDUAL),
            }),
            ASYNC_MESSAGE => Self::AsyncMessage(AsyncMessage {
                event: of_code(&AsyncEvent::CODES, header.u8(ASYNC_EVENT), "AsyncEvent")?,
                lun,
                numbers,
                parameters: [0, 2, 4].map(|at| header.u16(PARAMETERS + at)),
                data: frame.data,
            }),
            REJECT => Self::Reject(Reject {
                reason: of_code(&RejectReason::CODES, header.u8(RESPONSE), "Reason")?,
                numbers,
                data_sn: header.u32(place::DATA_SN),
                header: frame.data,
            }),
            other => return Err(WireError::Opcode(other)),
        })
    }
}

fn common(opcode: u8, flags: u8, itt: u32, numbers: &Numbers) -> Header {
    let mut header = Header::new(opcode);
    header
        .set_u8(place::FLAGS, flags)
        .set_u32(place::ITT, itt)
        .set_u32(place::STAT_SN, numbers.stat_sn.0)
        .set_u32(place::EXP_CMD_SN, numbers.exp_cmd_sn.0)
        .set_u32(place::MAX_CMD_SN, numbers.max_cmd_sn.0);
    header
}

fn numbers(header: &Header) -> Numbers {
    Numbers {
        stat_sn: Serial(header.u32(place::STAT_SN)),
        exp_cmd_sn: Serial(header.u32(place::EXP_CMD_SN)),
        max_cmd_sn: Serial(header.u32(place::MAX_CMD_SN)),
    }
}

fn encode_login(pdu: &LoginResponse) -> Frame {
    let stages = code_of(&Stage::CODES, pdu.current_stage) << 2;
    let next = if pdu.transit {
        code_of(&Stage::CODES, pdu.next_stage)
    } else {
        0
    };
    let mut header = common(LOGIN, stages | next, pdu.itt, &pdu.numbers);
    header
        .set_flag(place::FLAGS, FINAL, pdu.transit)
        .set_flag(place::FLAGS, CONTINUE, pdu.continues)
        .set(RESPONSE, &[pdu.version_max, pdu.version_active])
        .set(place::LUN, &pdu.isid)
        .set_u16(TSIH, pdu.tsih)
        .set_u16(place::DATA_SN, code_of(&LoginStatus::CODES, pdu.status));
    framed(header, Bytes::new(), &pdu.data)
}

fn encode_scsi(pdu: &ScsiResponse) -> Frame {
    let mut header = common(SCSI, FINAL, pdu.itt, &pdu.numbers);
    header
        .set_u8(RESPONSE, pdu.response)
        .set_u8(STATUS, pdu.status)
        .set_u32(place::DATA_SN, pdu.exp_data_sn);
    put_residual(&mut header, (OVERFLOW, UNDERFLOW), RESIDUAL, pdu.residual);
    let read = (READ_OVERFLOW, READ_UNDERFLOW);
    put_residual(&mut header, read, READ_RESIDUAL, pdu.read_residual);
    framed(header, Bytes::new(), &pdu.data)
}

fn encode_data_in(pdu: &DataIn) -> Frame {
    let mut header = common(DATA_IN, 0, pdu.itt, &pdu.numbers);
    header
        .set_flag(place::FLAGS, FINAL, pdu.is_final)
        .set_flag(place::FLAGS, ACKNOWLEDGE, pdu.acknowledge)
        .set_u64(place::LUN, pdu.lun)
        .set_u32(place::TTT, pdu.ttt)
        .set_u32(place::DATA_SN, pdu.data_sn)
        .set_u32(place::BUFFER_OFFSET, pdu.buffer_offset);
    match pdu.status {
        Some((status, residual)) => {
            header
                .set_flag(place::FLAGS, HAS_STATUS, true)
                .set_u8(STATUS, status);
            put_residual(&mut header, (OVERFLOW, UNDERFLOW), RESIDUAL, residual);
        }
        // The field is reserved without a status.
        None => drop(header.set_u32(place::STAT_SN, 0)),
    }
    framed(header, Bytes::new(), &pdu.data)
}

fn decode_scsi(frame: Frame) -> Result<ScsiResponse, WireError> {
    let header = frame.header;
    let read = (READ_OVERFLOW, READ_UNDERFLOW);
    Ok(ScsiResponse {
        response: header.u8(RESPONSE),
        status: header.u8(STATUS),
        residual: residual(&header, (OVERFLOW, UNDERFLOW), RESIDUAL)?,
        read_residual: residual(&header, read, READ_RESIDUAL)?,
        itt: header.u32(place::ITT),
        numbers: numbers(&header),
        exp_data_sn: header.u32(place::DATA_SN),
        data: frame.data,
    })
}

fn decode_login(frame: Frame) -> Result<LoginResponse, WireError> {
    let header = frame.header;
    let (transit, current_stage, next_stage) = stages(&header)?;
    Ok(LoginResponse {
        transit,
        continues: header.flag(place::FLAGS, CONTINUE),
        current_stage,
        next_stage,
        version_max: header.u8(RESPONSE),
        version_active: header.u8(STATUS),
        isid: header.array(place::LUN),
        tsih: header.u16(TSIH),
        itt: header.u32(place::ITT),
        numbers: numbers(&header),
        status: of_code(&LoginStatus::CODES, header.u16(place::DATA_SN), "Status")?,
        data: frame.data,
    })
}

fn decode_data_in(frame: Frame) -> Result<DataIn, WireError> {
    let header = frame.header;
    let status = match header.flag(place::FLAGS, HAS_STATUS) {
        true => {
            let residual = residual(&header, (OVERFLOW, UNDERFLOW), RESIDUAL)?;
            Some((header.u8(STATUS), residual))
        }
        false => None,
    };
    Ok(DataIn {
        is_final: header.flag(place::FLAGS, FINAL),
        acknowledge: header.flag(place::FLAGS, ACKNOWLEDGE),
        status,
        lun: header.u64(place::LUN),
        itt: header.u32(place::ITT),
        ttt: header.u32(place::TTT),
        numbers: numbers(&header),
        data_sn: header.u32(place::DATA_SN),
        buffer_offset: header.u32(place::BUFFER_OFFSET),
        data: frame.data,
    })
}

fn residual(header: &Header, (over, under): (u8, u8), at: usize) -> Result<Residual, WireError> {
    let bytes = header.u32(at);
    match (
        header.flag(place::FLAGS, over),
        header.flag(place::FLAGS, under),
    ) {
        (false, false) => Ok(Residual::None),
        (true, false) => Ok(Residual::Overflow(bytes)),
        (false, true) => Ok(Residual::Underflow(bytes)),
        (true, true) => Err(WireError::Field("residual flags")),
    }
}

fn put_residual(header: &mut Header, (over, under): (u8, u8), at: usize, residual: Residual) {
    match residual {
        Residual::None => {}
        Residual::Overflow(bytes) => {
            header.set_flag(place::FLAGS, over, true).set_u32(at, bytes);
        }
        Residual::Underflow(bytes) => {
            header
                .set_flag(place::FLAGS, under, true)
                .set_u32(at, bytes);
        }
    }
}

impl TaskOutcome {
    const CODES: [(Self, u8); 8] = [
        (Self::Complete, 0),
        (Self::NoSuchTask, 1),
        (Self::NoSuchLun, 2),
        (Self::TaskStillAllegiant, 3),
        (Self::ReassignmentNotSupported, 4),
        (Self::FunctionNotSupported, 5),
        (Self::AuthorizationFailed, 6),
        (Self::Rejected, 255),
    ];
}

impl LoginStatus {
    const CODES: [(Self, u16); 18] = [
        (Self::Success, 0x0000),
        (Self::MovedTemporarily, 0x0101),
        (Self::MovedPermanently, 0x0102),
        (Self::InitiatorError, 0x0200),
        (Self::AuthenticationFailure, 0x0201),
        (Self::AuthorizationFailure, 0x0202),
        (Self::NotFound, 0x0203),
        (Self::TargetRemoved, 0x0204),
        (Self::UnsupportedVersion, 0x0205),
        (Self::TooManyConnections, 0x0206),
        (Self::MissingParameter, 0x0207),
        (Self::CannotIncludeInSession, 0x0208),
        (Self::SessionTypeNotSupported, 0x0209),
        (Self::SessionDoesNotExist, 0x020a),
        (Self::InvalidDuringLogin, 0x020b),
        (Self::TargetError, 0x0300),
        (Self::ServiceUnavailable, 0x0301),
        (Self::OutOfResources, 0x0302),
    ];
}

impl LogoutOutcome {
    const CODES: [(Self, u8); 4] = [
        (Self::Closed, 0),
        (Self::CidNotFound, 1),
        (Self::RecoveryNotSupported, 2),
        (Self::CleanupFailed, 3),
    ];
}

impl AsyncEvent {
    const CODES: [(Self, u8); 6] = [
        (Self::Scsi, 0),
        (Self::RequestLogout, 1),
        (Self::DropsConnection, 2),
        (Self::DropsSession, 3),
        (Self::RequestNegotiation, 4),
        (Self::TasksTerminated, 5),
    ];
}

impl RejectReason {
    const CODES: [(Self, u8); 11] = [
        (Self::DataDigestError, 0x02),
        (Self::SnackReject, 0x03),
        (Self::ProtocolError, 0x04),
        (Self::CommandNotSupported, 0x05),
        (Self::ImmediateCommandReject, 0x06),
        (Self::TaskInProgress, 0x07),
        (Self::InvalidDataAck, 0x08),
        (Self::InvalidPduField, 0x09),
        (Self::OutOfResources, 0x0a),
        (Self::NegotiationReset, 0x0b),
        (Self::WaitingForLogout, 0x0c),
    ];
}

const NOP_IN: u8 = 0x20;
const SCSI: u8 = 0x21;
const TASK_MANAGEMENT: u8 = 0x22;
const LOGIN: u8 = 0x23;
const TEXT: u8 = 0x24;
const DATA_IN: u8 = 0x25;
const LOGOUT: u8 = 0x26;
const READY_TO_TRANSFER: u8 = 0x31;
const ASYNC_MESSAGE: u8 = 0x32;
const REJECT: u8 = 0x3f;

const ACKNOWLEDGE: u8 = 0x40;
const READ_OVERFLOW: u8 = 0x10;
const READ_UNDERFLOW: u8 = 0x08;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const HAS_STATUS: u8 = 0x01;

const RESPONSE: usize = 2;
const STATUS: usize = 3;
const ASYNC_EVENT: usize = 36;
const PARAMETERS: usize = 38;
const TIME2WAIT: usize = 40;
const TIME2RETAIN: usize = 42;
const READ_RESIDUAL: usize = 40;
const RESIDUAL: usize = 44;

#[cfg(test)]
mod tests;
