//! The table of operation codes: what each command is and who does it. It is what [`execute`]
//! looks commands up in, what REPORT SUPPORTED OPERATION CODES answers, and the support matrix.
//!
//! [`execute`]: super::execute

use std::fmt;

use super::cdb::Cdb;
use super::limits::{COMPARE_BLOCKS_MAX, PARAMETER_LIST_BYTES_MAX, TRANSFER_BYTES_MAX};
use super::sense::{Code, Failure, Sense, SenseKey};
use super::task::{Answer, Later, Task};
use super::{
    block, capacity, compare, diagnostic, inquiry, log, luns, mode, provisioning, report, reserve,
    sanitize, verify,
};

/// One command.
#[derive(Debug)]
pub struct Row {
    /// As the standard writes it.
    pub name: &'static str,
    /// The bits of the CDB that are looked at (SPC-5 6.34.3): the operation code first, the service
    /// action in its place, as many bytes as the CDB has.
    pub usage: &'static [u8],
    pub service_action: Option<u8>,
    pub moves: Moves,
    /// Whether it changes the medium: not on a write-protected unit.
    pub writes: bool,
    pub while_attention: WhileAttention,
    /// Whether it works while another nexus holds the unit by RESERVE(6) (SPC-2 table 9).
    pub while_reserved: bool,
    /// Whether it works while SANITIZE does (SBC-4 4.11.3).
    pub while_sanitizing: bool,
    /// Whether it works for a LUN without a unit.
    pub without_unit: bool,
    /// Whether bits outside `usage` are refused. Elsewhere they are not looked at: initiators set
    /// bits of older standards there.
    pub is_strict: bool,
    pub(super) handler: Handler,
}

/// What a pending unit attention does to a command (SAM-5 5.14.4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WhileAttention {
    /// It is told instead.
    Told,
    /// The command is done; the attention stays.
    Done,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moves {
    Nothing,
    In,
    Out(Out),
}

/// How long the Data-Out buffer is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Out {
    /// The transfer length in blocks.
    Blocks,
    /// The transfer length of WRITE ATOMIC.
    Atomic,
    /// Twice the number of blocks of COMPARE AND WRITE.
    Pairs,
    /// One block, or none with NDOB.
    OneBlock,
    /// Nothing, all blocks or one: BYTCHK says.
    ByteCheck,
    /// The parameter list length, one byte here.
    List8(usize),
    /// The same, two bytes.
    List16(usize),
}

/// Who does it.
pub(super) enum Handler {
    /// Without the store.
    Now(fn(&Task<'_>) -> Answer),
    Later(for<'a> fn(&'a Task<'a>) -> Later<'a>),
    Read,
    Write,
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Now",
            Self::Later(_) => "Later",
            Self::Read => "Read",
            Self::Write => "Write",
        })
    }
}

/// Every command, in ascending order of operation code and service action.
pub static TABLE: &[Row] = &[
    Row::new(
        "TEST UNIT READY",
        &[0x00, 0x00, 0x00, 0x00, 0x00, 0x04],
        Handler::Now(diagnostic::ready),
    ),
    Row::new(
        "REQUEST SENSE",
        &[0x03, 0x01, 0x00, 0x00, 0xff, 0x04],
        Handler::Now(diagnostic::request_sense),
    )
    .moves(Moves::In)
    .always()
    .without_unit(),
    Row::new(
        "READ(6)",
        &[0x08, 0x1f, 0xff, 0xff, 0xff, 0x04],
        Handler::Read,
    )
    .moves(Moves::In),
    Row::new(
        "WRITE(6)",
        &[0x0a, 0x1f, 0xff, 0xff, 0xff, 0x04],
        Handler::Write,
    )
    .moves(Moves::Out(Out::Blocks))
    .writes(),
    Row::new(
        "INQUIRY",
        &[0x12, 0x01, 0xff, 0xff, 0xff, 0x04],
        Handler::Now(inquiry::inquiry),
    )
    .moves(Moves::In)
    .always()
    .without_unit(),
    Row::new(
        "MODE SELECT(6)",
        &[0x15, 0x11, 0x00, 0x00, 0xff, 0x04],
        Handler::Later(|task| Box::pin(mode::select(task))),
    )
    .moves(Moves::Out(Out::List8(4))),
    Row::new(
        "RESERVE(6)",
        &[0x16, 0x11, 0x00, 0x00, 0x00, 0x04],
        Handler::Now(reserve::reserve),
    ),
    Row::new(
        "RELEASE(6)",
        &[0x17, 0x11, 0x00, 0x00, 0x00, 0x04],
        Handler::Now(reserve::release),
    )
    .while_reserved(),
    Row::new(
        "MODE SENSE(6)",
        &[0x1a, 0x08, 0xff, 0xff, 0xff, 0x04],
        Handler::Now(mode::sense),
    )
    .moves(Moves::In),
    Row::new(
        "START STOP UNIT",
        &[0x1b, 0x01, 0x00, 0x0f, 0xf7, 0x04],
        Handler::Later(|task| Box::pin(diagnostic::start_stop(task))),
    ),
    Row::new(
        "RECEIVE DIAGNOSTIC RESULTS",
        &[0x1c, 0x01, 0xff, 0xff, 0xff, 0x04],
        Handler::Now(diagnostic::receive),
    )
    .moves(Moves::In),
    Row::new(
        "SEND DIAGNOSTIC",
        &[0x1d, 0xf7, 0x00, 0xff, 0xff, 0x04],
        Handler::Now(diagnostic::send),
    )
    .moves(Moves::Out(Out::List16(3))),
    Row::new(
        "READ CAPACITY(10)",
        &[0x25, 0x00, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x01, 0x04],
        Handler::Now(capacity::read_10),
    )
    .moves(Moves::In),
    Row::new(
        "READ(10)",
        &[0x28, 0xf8, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x04],
        Handler::Read,
    )
    .moves(Moves::In),
    Row::new(
        "WRITE(10)",
        &[0x2a, 0xf8, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x04],
        Handler::Write,
    )
    .moves(Moves::Out(Out::Blocks))
    .writes(),
    Row::new(
        "WRITE AND VERIFY(10)",
        &[0x2e, 0xf6, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x04],
        Handler::Later(|task| Box::pin(verify::write_and_verify(task))),
    )
    .moves(Moves::Out(Out::Blocks))
    .writes(),
    Row::new(
        "VERIFY(10)",
        &[0x2f, 0xf6, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x04],
        Handler::Later(|task| Box::pin(verify::verify(task))),
    )
    .moves(Moves::Out(Out::ByteCheck)),
    Row::new(
        "PRE-FETCH(10)",
        &[0x34, 0x02, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x04],
        Handler::Now(block::prefetch),
    ),
    Row::new(
        "SYNCHRONIZE CACHE(10)",
        &[0x35, 0x06, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x04],
        Handler::Later(|task| Box::pin(block::synchronize(task))),
    ),
    Row::new(
        "READ DEFECT DATA(10)",
        &[0x37, 0x00, 0x1f, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x04],
        Handler::Now(capacity::defects_10),
    )
    .moves(Moves::In),
    Row::new(
        "WRITE SAME(10)",
        &[0x41, 0xf8, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x04],
        Handler::Later(|task| Box::pin(provisioning::write_same(task))),
    )
    .moves(Moves::Out(Out::OneBlock))
    .writes(),
    Row::new(
        "UNMAP",
        &[0x42, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x04],
        Handler::Later(|task| Box::pin(provisioning::unmap(task))),
    )
    .moves(Moves::Out(Out::List16(7)))
    .writes(),
    Row::new(
        "SANITIZE OVERWRITE",
        &[0x48, 0xa1, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x04],
        Handler::Later(|task| Box::pin(sanitize::sanitize(task))),
    )
    .moves(Moves::Out(Out::List16(7)))
    .service_action(0x01)
    .writes()
    .strict(),
    Row::new(
        "SANITIZE BLOCK ERASE",
        &[0x48, 0xa2, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x04],
        Handler::Later(|task| Box::pin(sanitize::sanitize(task))),
    )
    .moves(Moves::Out(Out::List16(7)))
    .service_action(0x02)
    .writes()
    .strict(),
    Row::new(
        "SANITIZE EXIT FAILURE MODE",
        &[0x48, 0x1f, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x04],
        Handler::Now(sanitize::exit_failure_mode),
    )
    .moves(Moves::Out(Out::List16(7)))
    .service_action(0x1f)
    .strict(),
    Row::new(
        "LOG SENSE",
        &[0x4d, 0x01, 0xff, 0xff, 0x00, 0xff, 0xff, 0xff, 0xff, 0x04],
        Handler::Now(log::sense),
    )
    .moves(Moves::In),
    Row::new(
        "MODE SELECT(10)",
        &[0x55, 0x11, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x04],
        Handler::Later(|task| Box::pin(mode::select(task))),
    )
    .moves(Moves::Out(Out::List16(7))),
    Row::new(
        "MODE SENSE(10)",
        &[0x5a, 0x18, 0xff, 0xff, 0x00, 0x00, 0x00, 0xff, 0xff, 0x04],
        Handler::Now(mode::sense),
    )
    .moves(Moves::In),
    Row::new(
        "READ(16)",
        &[
            0x88, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x00, 0x04,
        ],
        Handler::Read,
    )
    .moves(Moves::In),
    Row::new(
        "COMPARE AND WRITE",
        &[
            0x89, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0xff,
            0x00, 0x04,
        ],
        Handler::Later(|task| Box::pin(compare::compare_and_write(task))),
    )
    .moves(Moves::Out(Out::Pairs))
    .writes(),
    Row::new(
        "WRITE(16)",
        &[
            0x8a, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x00, 0x04,
        ],
        Handler::Write,
    )
    .moves(Moves::Out(Out::Blocks))
    .writes(),
    Row::new(
        "ORWRITE(16)",
        &[
            0x8b, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x00, 0x04,
        ],
        Handler::Later(|task| Box::pin(compare::or_write(task))),
    )
    .moves(Moves::Out(Out::Blocks))
    .writes(),
    Row::new(
        "WRITE AND VERIFY(16)",
        &[
            0x8e, 0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x00, 0x04,
        ],
        Handler::Later(|task| Box::pin(verify::write_and_verify(task))),
    )
    .moves(Moves::Out(Out::Blocks))
    .writes(),
    Row::new(
        "VERIFY(16)",
        &[
            0x8f, 0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x00, 0x04,
        ],
        Handler::Later(|task| Box::pin(verify::verify(task))),
    )
    .moves(Moves::Out(Out::ByteCheck)),
    Row::new(
        "PRE-FETCH(16)",
        &[
            0x90, 0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x00, 0x04,
        ],
        Handler::Now(block::prefetch),
    ),
    Row::new(
        "SYNCHRONIZE CACHE(16)",
        &[
            0x91, 0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x00, 0x04,
        ],
        Handler::Later(|task| Box::pin(block::synchronize(task))),
    ),
    Row::new(
        "WRITE SAME(16)",
        &[
            0x93, 0xf9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x00, 0x04,
        ],
        Handler::Later(|task| Box::pin(provisioning::write_same(task))),
    )
    .moves(Moves::Out(Out::OneBlock))
    .writes(),
    Row::new(
        "WRITE ATOMIC(16)",
        &[
            0x9c, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x00, 0x04,
        ],
        Handler::Later(|task| Box::pin(compare::write_atomic(task))),
    )
    .moves(Moves::Out(Out::Atomic))
    .writes(),
    Row::new(
        "READ CAPACITY(16)",
        &[
            0x9e, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x01, 0x04,
        ],
        Handler::Now(capacity::read_16),
    )
    .moves(Moves::In)
    .service_action(0x10),
    Row::new(
        "GET LBA STATUS",
        &[
            0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0x00, 0x04,
        ],
        Handler::Later(|task| Box::pin(provisioning::lba_status(task))),
    )
    .moves(Moves::In)
    .service_action(0x12),
    Row::new(
        "REPORT LUNS",
        &[
            0xa0, 0x00, 0xff, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0x00, 0x04,
        ],
        Handler::Now(luns::report),
    )
    .moves(Moves::In)
    .always()
    .without_unit(),
    Row::new(
        "REPORT SUPPORTED OPERATION CODES",
        &[
            0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x04,
        ],
        Handler::Now(report::operation_codes),
    )
    .moves(Moves::In)
    .service_action(0x0c)
    .while_reserved()
    .while_sanitizing(),
    Row::new(
        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
        &[
            0xa3, 0x0d, 0x80, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0x00, 0x04,
        ],
        Handler::Now(report::task_functions),
    )
    .moves(Moves::In)
    .service_action(0x0d)
    .while_reserved()
    .while_sanitizing(),
    Row::new(
        "READ(12)",
        &[
            0xa8, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x04,
        ],
        Handler::Read,
    )
    .moves(Moves::In),
    Row::new(
        "WRITE(12)",
        &[
            0xaa, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x04,
        ],
        Handler::Write,
    )
    .moves(Moves::Out(Out::Blocks))
    .writes(),
    Row::new(
        "WRITE AND VERIFY(12)",
        &[
            0xae, 0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x04,
        ],
        Handler::Later(|task| Box::pin(verify::write_and_verify(task))),
    )
    .moves(Moves::Out(Out::Blocks))
    .writes(),
    Row::new(
        "VERIFY(12)",
        &[
            0xaf, 0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x04,
        ],
        Handler::Later(|task| Box::pin(verify::verify(task))),
    )
    .moves(Moves::Out(Out::ByteCheck)),
    Row::new(
        "READ DEFECT DATA(12)",
        &[
            0xb7, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x04,
        ],
        Handler::Now(capacity::defects_12),
    )
    .moves(Moves::In),
];

/// Operation codes all of whose unknown service actions are unknown commands: nobody is to think
/// that a field of a known one is wrong.
const COMMANDS_BY_ACTION: [u8; 2] = [0xa3, 0xa4];

/// The command of a CDB.
pub(super) fn find(cdb: Cdb<'_>) -> Result<&'static Row, Failure> {
    let opcode = cdb.u8(0);
    let rows = of_opcode(opcode);
    let action = cdb.u8(1) & 0x1f;
    let is_it = |row: &&Row| row.service_action.is_none_or(|own| own == action);
    if let Some(row) = rows.iter().find(is_it) {
        return Ok(row);
    }
    if rows.is_empty() || COMMANDS_BY_ACTION.contains(&opcode) {
        let code = Code::INVALID_OPERATION_CODE;
        return Err(Sense::new(SenseKey::IllegalRequest, code).into());
    }
    Err(Sense::cdb_field(1).into())
}

/// The rows of one operation code.
pub(super) fn of_opcode(opcode: u8) -> &'static [Row] {
    let start = TABLE.partition_point(|row| row.usage[0] < opcode);
    let count = TABLE[start..].partition_point(|row| row.usage[0] == opcode);
    &TABLE[start..start + count]
}

/// How many Data-Out bytes a CDB can use at most; none if it asks for more than any command may
/// have. A session asks an initiator for as many as this, or as many as it announced if that is
/// less.
///
/// For WRITE SAME this is one byte more than a block, so that a buffer of the wrong length is seen.
#[must_use]
pub fn data_out_bytes_max(cdb: &[u8], block_bytes: u32) -> u64 {
    let cdb = Cdb(cdb);
    match find(cdb).map(|row| row.moves) {
        Ok(Moves::Out(Out::OneBlock)) => data_out_bytes(cdb, block_bytes) + 1,
        _ => data_out_bytes(cdb, block_bytes),
    }
}

/// How many Data-Out bytes the command takes.
pub(super) fn data_out_bytes(cdb: Cdb<'_>, block_bytes: u32) -> u64 {
    let Ok(Row {
        moves: Moves::Out(out),
        ..
    }) = find(cdb)
    else {
        return 0;
    };
    let blocks = |count: u64, bytes_max: u64| match count.checked_mul(u64::from(block_bytes)) {
        Some(bytes) if bytes <= bytes_max => bytes,
        _ => 0,
    };
    match out {
        Out::Blocks => blocks(cdb.blocks().count, TRANSFER_BYTES_MAX),
        Out::Atomic => blocks(u64::from(cdb.u16(12)), TRANSFER_BYTES_MAX),
        Out::Pairs => match cdb.u8(13) {
            count if count <= COMPARE_BLOCKS_MAX => blocks(2 * u64::from(count), u64::MAX),
            _ => 0,
        },
        // NDOB is reserved in WRITE SAME(10).
        Out::OneBlock if cdb.u8(0) == 0x93 && cdb.flag(1, 0x01) => 0,
        Out::OneBlock => blocks(1, u64::MAX),
        Out::ByteCheck => match (cdb.u8(1) >> 1) & 3 {
            1 => blocks(cdb.blocks().count, TRANSFER_BYTES_MAX),
            3 if cdb.blocks().count > 0 => blocks(1, u64::MAX),
            _ => 0,
        },
        Out::List8(at) => u64::from(cdb.u8(*at)),
        Out::List16(at) => u64::from(cdb.u16(*at)).min(PARAMETER_LIST_BYTES_MAX),
    }
}

impl Row {
    const fn new(name: &'static str, usage: &'static [u8], handler: Handler) -> Self {
        Self {
            name,
            usage,
            service_action: None,
            moves: Moves::Nothing,
            writes: false,
            while_attention: WhileAttention::Told,
            while_reserved: false,
            while_sanitizing: false,
            without_unit: false,
            is_strict: false,
            handler,
        }
    }

    const fn moves(mut self, moves: Moves) -> Self {
        self.moves = moves;
        self
    }

    const fn service_action(mut self, action: u8) -> Self {
        self.service_action = Some(action);
        self
    }

    const fn writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Works whatever is pending.
    const fn always(mut self) -> Self {
        self.while_attention = WhileAttention::Done;
        self.while_reserved().while_sanitizing()
    }

    const fn while_reserved(mut self) -> Self {
        self.while_reserved = true;
        self
    }

    const fn while_sanitizing(mut self) -> Self {
        self.while_sanitizing = true;
        self
    }

    const fn without_unit(mut self) -> Self {
        self.without_unit = true;
        self
    }

    const fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.usage[0]
    }

    /// Bytes of the CDB.
    #[must_use]
    pub fn cdb_bytes(&self) -> u8 {
        u8::try_from(self.usage.len()).expect("16 bytes at most")
    }

    /// That the CDB asks for nothing which no command here does.
    pub(super) fn check(&self, cdb: Cdb<'_>) -> Result<(), Failure> {
        const NACA: u8 = 0x04;
        let control = self.usage.len() - 1;
        if cdb.flag(control, NACA) {
            return Err(Sense::cdb_field(u16::from(self.cdb_bytes()) - 1).into());
        }
        if !self.is_strict {
            return Ok(());
        }
        for (at, used) in (0_u16..).zip(self.usage).skip(1) {
            let used = if at == 1 { used | 0x1f } else { *used };
            if cdb.u8(usize::from(at)) & !used != 0 {
                return Err(Sense::cdb_field(at).into());
            }
        }
        Ok(())
    }
}
