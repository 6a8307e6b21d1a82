//! Sense data: why a command did not do what it should (SPC-5 4.4), and what an engine's error
//! becomes for an initiator.

use bytes::Bytes;
use portico_backend::error::{Error, ErrorKind};

use super::command::Status;

/// SPC-5 table 48.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SenseKey {
    NoSense,
    NotReady,
    MediumError,
    HardwareError,
    IllegalRequest,
    UnitAttention,
    DataProtect,
    AbortedCommand,
    Miscompare,
}

/// An additional sense code and its qualifier (SPC-5 table 49).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Code(pub u8, pub u8);

/// Sense data before it takes one of its two formats.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Sense {
    pub key: SenseKey,
    pub code: Code,
    /// The INFORMATION field: an LBA or an offset, whatever the command says.
    pub information: Option<u64>,
    pub specific: Option<Specific>,
}

/// Sense key specific information (SPC-5 4.4.2.4).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Specific {
    /// The first byte of the CDB that is wrong.
    CdbField(u16),
    /// The first byte of the parameter list that is wrong.
    ListField(u16),
    /// How much of 65,536 parts is done.
    Progress(u16),
}

/// Why a command ends with another status than GOOD.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    Check(Sense),
    Status(Status),
}

impl Code {
    pub const NONE: Self = Self(0x00, 0x00);
    pub const SANITIZE_IN_PROGRESS: Self = Self(0x04, 0x1b);
    pub const INVALID_FIELD_IN_INFORMATION_UNIT: Self = Self(0x0e, 0x03);
    pub const UNRECOVERED_READ_ERROR: Self = Self(0x11, 0x00);
    pub const PARAMETER_LIST_LENGTH_ERROR: Self = Self(0x1a, 0x00);
    pub const MISCOMPARE: Self = Self(0x1d, 0x00);
    pub const INVALID_OPERATION_CODE: Self = Self(0x20, 0x00);
    pub const LBA_OUT_OF_RANGE: Self = Self(0x21, 0x00);
    pub const INVALID_FIELD_IN_CDB: Self = Self(0x24, 0x00);
    pub const UNIT_NOT_SUPPORTED: Self = Self(0x25, 0x00);
    pub const INVALID_FIELD_IN_LIST: Self = Self(0x26, 0x00);
    pub const WRITE_PROTECTED: Self = Self(0x27, 0x00);
    pub const SOFTWARE_WRITE_PROTECTED: Self = Self(0x27, 0x02);
    pub const SPACE_ALLOCATION_FAILED: Self = Self(0x27, 0x07);
    pub const POWER_ON_OR_RESET: Self = Self(0x29, 0x00);
    pub const UNIT_RESET: Self = Self(0x29, 0x03);
    pub const NEXUS_LOSS: Self = Self(0x29, 0x07);
    pub const MODE_PARAMETERS_CHANGED: Self = Self(0x2a, 0x01);
    pub const CAPACITY_CHANGED: Self = Self(0x2a, 0x09);
    pub const SANITIZE_FAILED: Self = Self(0x31, 0x03);
    pub const SAVING_NOT_SUPPORTED: Self = Self(0x39, 0x00);
    pub const INQUIRY_DATA_CHANGED: Self = Self(0x3f, 0x03);
    pub const LUNS_CHANGED: Self = Self(0x3f, 0x0e);
    pub const INTERNAL_TARGET_FAILURE: Self = Self(0x44, 0x00);
}

impl Sense {
    #[must_use]
    pub const fn new(key: SenseKey, code: Code) -> Self {
        Self {
            key,
            code,
            information: None,
            specific: None,
        }
    }

    /// The field that starts in this byte of the CDB is wrong.
    #[must_use]
    pub const fn cdb_field(byte: u16) -> Self {
        let mut sense = Self::new(SenseKey::IllegalRequest, Code::INVALID_FIELD_IN_CDB);
        sense.specific = Some(Specific::CdbField(byte));
        sense
    }

    /// The field that starts in this byte of the parameter list is wrong.
    #[must_use]
    pub const fn list_field(byte: u16) -> Self {
        let mut sense = Self::new(SenseKey::IllegalRequest, Code::INVALID_FIELD_IN_LIST);
        sense.specific = Some(Specific::ListField(byte));
        sense
    }

    #[must_use]
    pub const fn list_length() -> Self {
        Self::new(SenseKey::IllegalRequest, Code::PARAMETER_LIST_LENGTH_ERROR)
    }

    /// The range that starts at this block leaves the medium.
    #[must_use]
    pub const fn out_of_range(lba: u64) -> Self {
        Self::new(SenseKey::IllegalRequest, Code::LBA_OUT_OF_RANGE).with_information(lba)
    }

    /// The data differs first in this byte of the Data-Out buffer.
    #[must_use]
    pub const fn miscompare(offset: u64) -> Self {
        Self::new(SenseKey::Miscompare, Code::MISCOMPARE).with_information(offset)
    }

    #[must_use]
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// In descriptor format, or in the fixed one, which leaves out an INFORMATION above 32 bits.
    #[must_use]
    pub fn to_bytes(self, is_descriptor: bool) -> Bytes {
        let bytes = if is_descriptor {
            self.descriptor()
        } else {
            self.fixed()
        };
        bytes.into()
    }

    fn fixed(self) -> Vec<u8> {
        let mut bytes = vec![0; 18];
        bytes[0] = 0x70;
        bytes[2] = self.key.code();
        if let Some(information) = self.information.and_then(|long| u32::try_from(long).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = 10;
        bytes[12] = self.code.0;
        bytes[13] = self.code.1;
        if let Some(specific) = self.specific {
            bytes[15..18].copy_from_slice(&specific.to_bytes());
        }
        bytes
    }

    fn descriptor(self) -> Vec<u8> {
        let mut bytes = vec![0x72, self.key.code(), self.code.0, self.code.1, 0, 0, 0, 0];
        if let Some(information) = self.information {
            bytes.extend_from_slice(&[0x00, 0x0a, 0x80, 0]);
            bytes.extend_from_slice(&information.to_be_bytes());
        }
        if let Some(specific) = self.specific {
            let [first, second, third] = specific.to_bytes();
            bytes.extend_from_slice(&[0x02, 0x06, 0, 0, first, second, third, 0]);
        }
        bytes[7] = u8::try_from(bytes.len() - 8).expect("two descriptors have 20 bytes");
        bytes
    }
}

impl SenseKey {
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::NoSense => 0x0,
            Self::NotReady => 0x2,
            Self::MediumError => 0x3,
            Self::HardwareError => 0x4,
            Self::IllegalRequest => 0x5,
            Self::UnitAttention => 0x6,
            Self::DataProtect => 0x7,
            Self::AbortedCommand => 0xb,
            Self::Miscompare => 0xe,
        }
    }
}

impl Specific {
    fn to_bytes(self) -> [u8; 3] {
        let (flags, [high, low]) = match self {
            Self::CdbField(byte) => (0xc0, byte.to_be_bytes()),
            Self::ListField(byte) => (0x80, byte.to_be_bytes()),
            Self::Progress(parts) => (0x80, parts.to_be_bytes()),
        };
        [flags, high, low]
    }
}

impl From<Sense> for Failure {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

/// What an initiator does about it decides: BUSY makes it try again, which is right wherever the
/// store may come back. The codes that mean "this unit is gone for good" are never sent for a
/// failure of the store.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (key, code) = match error.kind() {
            ErrorKind::Busy | ErrorKind::Fenced | ErrorKind::Unavailable => {
                return Self::Status(Status::Busy);
            }
            ErrorKind::NoSpace => (SenseKey::DataProtect, Code::SPACE_ALLOCATION_FAILED),
            ErrorKind::Corrupt => (SenseKey::MediumError, Code::UNRECOVERED_READ_ERROR),
            // The image shrank since the range was checked.
            ErrorKind::TooLarge => (SenseKey::IllegalRequest, Code::LBA_OUT_OF_RANGE),
            ErrorKind::Unsupported => (SenseKey::IllegalRequest, Code::INVALID_FIELD_IN_CDB),
            ErrorKind::AlreadyExists
            | ErrorKind::GuardFailed
            | ErrorKind::Locked
            | ErrorKind::NotFound => (SenseKey::HardwareError, Code::INTERNAL_TARGET_FAILURE),
        };
        Self::Check(Sense::new(key, code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_sense_has_18_bytes() {
        let sense = Sense::out_of_range(0x0102_0304).to_bytes(false);
        let expected = [0xf0, 0, 5, 1, 2, 3, 4, 10, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0];
        assert_eq!(sense[..], expected);
        let sense = Sense::cdb_field(2).to_bytes(false);
        let expected = [
            0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xc0, 0, 2,
        ];
        assert_eq!(sense[..], expected);
    }

    #[test]
    fn fixed_sense_leaves_out_what_it_cannot_hold() {
        let sense = Sense::out_of_range(1 << 32).to_bytes(false);
        assert_eq!((sense[0], &sense[3..7]), (0x70, &[0; 4][..]));
    }

    #[test]
    fn descriptor_sense_holds_64_bits() {
        let sense = Sense::out_of_range(0x0102_0304_0506_0708).to_bytes(true);
        let expected = [
            0x72, 5, 0x21, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        assert_eq!(sense[..], expected);
        let sense = Sense::list_field(0x0102).to_bytes(true);
        let expected = [0x72, 5, 0x26, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0x80, 1, 2, 0];
        assert_eq!(sense[..], expected);
    }

    #[test]
    fn what_may_pass_is_busy_and_nothing_looks_like_a_lost_unit() {
        let of = |kind| Failure::from(Error::new(kind, "test"));
        let check = |key, code| Failure::Check(Sense::new(key, code));
        for kind in [ErrorKind::Busy, ErrorKind::Fenced, ErrorKind::Unavailable] {
            assert_eq!(of(kind), Failure::Status(Status::Busy), "{kind:?}");
        }
        assert_eq!(
            of(ErrorKind::NoSpace),
            check(SenseKey::DataProtect, Code(0x27, 0x07))
        );
        assert_eq!(
            of(ErrorKind::Corrupt),
            check(SenseKey::MediumError, Code(0x11, 0x00))
        );
        for kind in [
            ErrorKind::NotFound,
            ErrorKind::Locked,
            ErrorKind::GuardFailed,
        ] {
            let expected = check(SenseKey::HardwareError, Code(0x44, 0x00));
            assert_eq!(of(kind), expected, "{kind:?}");
        }
    }
}
