//! The table of what is served: programs, versions, procedures, and what a call twice would do.

use super::rpc::reply::Accepted;
use super::{mount, nfs3, portmap};

/// A version of a program.
#[derive(Debug)]
pub struct Program {
    /// As `rpcinfo` names it.
    pub name: &'static str,
    pub number: u32,
    pub version: u32,
    pub procedures: &'static [Row],
}

/// A procedure.
#[derive(Debug, Eq, PartialEq)]
pub struct Row {
    pub number: u32,
    /// As the standard names it.
    pub name: &'static str,
    pub again: Again,
}

/// What becomes of a call that is done a second time because its reply was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Again {
    /// Nothing: it is answered anew.
    Harmless,
    /// Nothing, unless another call came between: while it runs it is not begun again.
    Reorders,
    /// It fails, or does more. Its reply is kept, also across a crash.
    Changes,
}

/// The procedure that a call asks for, among programs that are served in one place.
///
/// # Errors
/// What the call is answered: `ProgramUnavailable`, `ProgramMismatch`, `ProcedureUnavailable`.
pub fn find<'a>(
    programs: &[&'a Program],
    number: u32,
    version: u32,
    procedure: u32,
) -> Result<(&'a Program, &'a Row), Accepted> {
    let of_number = || programs.iter().filter(|program| program.number == number);
    if let Some(program) = of_number().find(|program| program.version == version) {
        let row = program
            .procedures
            .iter()
            .find(|row| row.number == procedure);
        return row
            .map(|row| (*program, row))
            .ok_or(Accepted::ProcedureUnavailable);
    }
    let versions = || of_number().map(|program| program.version);
    match versions().min().zip(versions().max()) {
        Some((low, high)) => Err(Accepted::ProgramMismatch { low, high }),
        None => Err(Accepted::ProgramUnavailable),
    }
}

/// Everything there is.
pub const ALL: &[&Program] = &[
    &NFS_3, &MOUNT_1, &MOUNT_2, &MOUNT_3, &PORTMAP_2, &RPCBIND_3, &RPCBIND_4,
];

pub static NFS_3: Program = Program {
    name: "nfs",
    number: nfs3::PROGRAM,
    version: nfs3::VERSION,
    procedures: &[
        row(0, "NULL", Again::Harmless),
        row(1, "GETATTR", Again::Harmless),
        row(2, "SETATTR", Again::Changes),
        row(3, "LOOKUP", Again::Harmless),
        row(4, "ACCESS", Again::Harmless),
        row(5, "READLINK", Again::Harmless),
        row(6, "READ", Again::Harmless),
        row(7, "WRITE", Again::Reorders),
        row(8, "CREATE", Again::Changes),
        row(9, "MKDIR", Again::Changes),
        row(10, "SYMLINK", Again::Changes),
        row(11, "MKNOD", Again::Changes),
        row(12, "REMOVE", Again::Changes),
        row(13, "RMDIR", Again::Changes),
        row(14, "RENAME", Again::Changes),
        row(15, "LINK", Again::Changes),
        row(16, "READDIR", Again::Harmless),
        row(17, "READDIRPLUS", Again::Harmless),
        row(18, "FSSTAT", Again::Harmless),
        row(19, "FSINFO", Again::Harmless),
        row(20, "PATHCONF", Again::Harmless),
        row(21, "COMMIT", Again::Harmless),
    ],
};

pub static MOUNT_1: Program = mount_program(1, &OLD_MOUNT_PROCEDURES);
pub static MOUNT_2: Program = mount_program(2, &OLD_MOUNT_PROCEDURES);
pub static MOUNT_3: Program = mount_program(
    3,
    &[
        row(0, "NULL", Again::Harmless),
        row(1, "MNT", Again::Harmless),
        row(2, "DUMP", Again::Harmless),
        row(3, "UMNT", Again::Harmless),
        row(4, "UMNTALL", Again::Harmless),
        row(5, "EXPORT", Again::Harmless),
    ],
);

/// Without MNT, whose handles are those of NFSv2.
static OLD_MOUNT_PROCEDURES: [Row; 6] = [
    row(0, "NULL", Again::Harmless),
    row(2, "DUMP", Again::Harmless),
    row(3, "UMNT", Again::Harmless),
    row(4, "UMNTALL", Again::Harmless),
    row(5, "EXPORT", Again::Harmless),
    row(6, "EXPORTALL", Again::Harmless),
];

pub static PORTMAP_2: Program = portmap_program(
    2,
    &[
        row(0, "NULL", Again::Harmless),
        row(1, "SET", Again::Harmless),
        row(2, "UNSET", Again::Harmless),
        row(3, "GETPORT", Again::Harmless),
        row(4, "DUMP", Again::Harmless),
    ],
);
pub static RPCBIND_3: Program = portmap_program(
    3,
    &[
        row(0, "NULL", Again::Harmless),
        row(1, "SET", Again::Harmless),
        row(2, "UNSET", Again::Harmless),
        row(3, "GETADDR", Again::Harmless),
        row(4, "DUMP", Again::Harmless),
    ],
);
pub static RPCBIND_4: Program = portmap_program(
    4,
    &[
        row(0, "NULL", Again::Harmless),
        row(1, "SET", Again::Harmless),
        row(2, "UNSET", Again::Harmless),
        row(3, "GETADDR", Again::Harmless),
        row(4, "DUMP", Again::Harmless),
        row(9, "GETVERSADDR", Again::Harmless),
    ],
);

const fn mount_program(version: u32, procedures: &'static [Row]) -> Program {
    Program {
        name: "mountd",
        number: mount::PROGRAM,
        version,
        procedures,
    }
}

const fn portmap_program(version: u32, procedures: &'static [Row]) -> Program {
    Program {
        name: "portmapper",
        number: portmap::PROGRAM,
        version,
        procedures,
    }
}

const fn row(number: u32, name: &'static str, again: Again) -> Row {
    Row {
        number,
        name,
        again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_has_types() {
        for program in ALL {
            for row in program.procedures {
                let name = match (program.number, program.version) {
                    (nfs3::PROGRAM, _) => nfs3::Procedure::from_code(row.number).map(|p| p.name()),
                    (mount::PROGRAM, _) => {
                        mount::Procedure::from_code(row.number).map(|p| p.name())
                    }
                    (_, 2) => portmap::PmapProcedure::from_code(row.number).map(|p| p.name()),
                    _ => portmap::RpcbProcedure::from_code(row.number).map(|p| p.name()),
                };
                assert_eq!(name, Some(row.name), "{} {}", program.name, row.number);
            }
        }
        assert_eq!(NFS_3.procedures.len(), nfs3::Procedure::ALL.len());
        assert_eq!(
            ALL.len(),
            1 + mount::VERSIONS.len() + portmap::VERSIONS.len()
        );
    }

    #[test]
    fn a_call_finds_its_procedure_or_its_answer() {
        let (program, row) = find(ALL, 100_005, 1, 3).unwrap();
        assert_eq!((program.version, row.name), (1, "UMNT"));
        let answer = |number, version, procedure| find(ALL, number, version, procedure).err();
        assert_eq!(answer(100_021, 4, 0), Some(Accepted::ProgramUnavailable));
        let (low, high) = (3, 3);
        assert_eq!(
            answer(100_003, 4, 0),
            Some(Accepted::ProgramMismatch { low, high })
        );
        let (low, high) = (1, 3);
        assert_eq!(
            answer(100_005, u32::MAX, 0),
            Some(Accepted::ProgramMismatch { low, high })
        );
        assert_eq!(answer(100_003, 3, 22), Some(Accepted::ProcedureUnavailable));
        assert_eq!(answer(100_005, 1, 1), Some(Accepted::ProcedureUnavailable));
    }
}
