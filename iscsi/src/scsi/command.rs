//! A command and its outcome as plain data (SAM-5 5.1).

use bytes::Bytes;
use portico_backend::object::Payload;

use crate::wire::request::TaskAttribute;

/// What an initiator asks of a logical unit, with all the data it sent along.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Command {
    /// The LUN field as it was sent (SAM-5 4.7).
    pub lun: u64,
    /// 16 bytes, or more with an extended CDB; 260 at most.
    pub cdb: Bytes,
    pub attribute: TaskAttribute,
    /// The Data-Out buffer: what the initiator announced, or as much of it as the command can use.
    pub data_out: Payload,
    /// The size of the initiator's Data-In buffer. A command need not read more than that.
    pub data_in_bytes_max: u32,
}

/// What came of a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    pub status: Status,
    /// Sense data in fixed or descriptor format, with `CheckCondition` alone (SPC-5 4.4).
    pub sense: Bytes,
    pub data_in: Payload,
    /// The bytes that the command would have moved into a Data-In buffer that is large enough. Less
    /// than the initiator announced is an underflow, more an overflow.
    pub data_in_bytes: u64,
    /// The same for the Data-Out buffer.
    pub data_out_bytes: u64,
}

/// SAM-5 5.3.1.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Status {
    Good,
    CheckCondition,
    ConditionMet,
    Busy,
    ReservationConflict,
    TaskSetFull,
    AcaActive,
    TaskAborted,
}

impl Outcome {
    /// A status alone: no sense, nothing moved.
    #[must_use]
    pub fn of_status(status: Status) -> Self {
        Self {
            status,
            sense: Bytes::new(),
            data_in: Payload::default(),
            data_in_bytes: 0,
            data_out_bytes: 0,
        }
    }

    /// The command was not begun and may be sent again.
    #[must_use]
    pub fn busy() -> Self {
        Self::of_status(Status::Busy)
    }
}

impl Status {
    /// The code of the status (SAM-5 table 44).
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Good => 0x00,
            Self::CheckCondition => 0x02,
            Self::ConditionMet => 0x04,
            Self::Busy => 0x08,
            Self::ReservationConflict => 0x18,
            Self::TaskSetFull => 0x28,
            Self::AcaActive => 0x30,
            Self::TaskAborted => 0x40,
        }
    }
}
