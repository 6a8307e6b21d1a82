//! The table of operation codes: every row is found, works, and is reported as it is.

use std::collections::BTreeSet;

use super::bed::*;
use crate::scsi::command::Status;
use crate::scsi::data_out_bytes_max;
use crate::scsi::opcode::{Moves, Out, Row, TABLE};
use crate::scsi::vpd;

/// Name, CDB and Data-Out of a command that ends with GOOD.
type Vector = (&'static str, Vec<u8>, Vec<u8>);

/// One for each row.
fn vectors() -> Vec<Vector> {
    [others(), writes()].concat()
}

fn others() -> Vec<Vector> {
    vec![
        ("TEST UNIT READY", vec![0; 6], vec![]),
        ("REQUEST SENSE", vec![3, 0, 0, 0, 252, 0], vec![]),
        ("READ(6)", vec![8, 0, 0, 0, 1, 0], vec![]),
        ("INQUIRY", vec![0x12, 0, 0, 0, 96, 0], vec![]),
        ("MODE SELECT(6)", vec![0x15, 0x10, 0, 0, 4, 0], vec![0; 4]),
        ("RESERVE(6)", vec![0x16, 0, 0, 0, 0, 0], vec![]),
        ("RELEASE(6)", vec![0x17, 0, 0, 0, 0, 0], vec![]),
        ("MODE SENSE(6)", vec![0x1a, 0, 0x3f, 0, 255, 0], vec![]),
        ("START STOP UNIT", vec![0x1b, 0, 0, 0, 1, 0], vec![]),
        (
            "RECEIVE DIAGNOSTIC RESULTS",
            vec![0x1c, 1, 0, 0, 252, 0],
            vec![],
        ),
        ("SEND DIAGNOSTIC", vec![0x1d, 4, 0, 0, 0, 0], vec![]),
        ("READ CAPACITY(10)", cdb_10(0x25, 0, 0, 0), vec![]),
        ("READ(10)", cdb_10(0x28, 0, 0, 1), vec![]),
        ("PRE-FETCH(10)", cdb_10(0x34, 0, 0, 1), vec![]),
        ("SYNCHRONIZE CACHE(10)", cdb_10(0x35, 0, 0, 1), vec![]),
        ("READ DEFECT DATA(10)", cdb_10(0x37, 0, 0, 252), vec![]),
        ("LOG SENSE", cdb_10(0x4d, 0, 0, 252), vec![]),
        ("MODE SELECT(10)", cdb_10(0x55, 0x10, 0, 8), vec![0; 8]),
        ("MODE SENSE(10)", cdb_10(0x5a, 0, 0x3f00_0000, 252), vec![]),
        ("READ(16)", cdb_16(0x88, 0, 0, 1), vec![]),
        ("PRE-FETCH(16)", cdb_16(0x90, 0, 0, 1), vec![]),
        ("SYNCHRONIZE CACHE(16)", cdb_16(0x91, 0, 0, 1), vec![]),
        ("READ CAPACITY(16)", cdb_16(0x9e, 0x10, 0, 32), vec![]),
        ("GET LBA STATUS", cdb_16(0x9e, 0x12, 0, 24), vec![]),
        ("REPORT LUNS", cdb_12(0xa0, 0, 0, 252), vec![]),
        (
            "REPORT SUPPORTED OPERATION CODES",
            cdb_12(0xa3, 0x0c, 0, 65_535),
            vec![],
        ),
        (
            "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
            cdb_12(0xa3, 0x0d, 0, 16),
            vec![],
        ),
        ("READ(12)", cdb_12(0xa8, 0, 0, 1), vec![]),
        ("VERIFY(10)", cdb_10(0x2f, 0, 0, 1), vec![]),
        ("VERIFY(16)", cdb_16(0x8f, 0, 0, 1), vec![]),
        ("VERIFY(12)", cdb_12(0xaf, 0, 0, 1), vec![]),
        ("READ DEFECT DATA(12)", cdb_12(0xb7, 0, 0, 252), vec![]),
    ]
}

fn writes() -> Vec<Vector> {
    let block = pattern(1, 1);
    let pair = [vec![0; BLOCK], block.clone()].concat();
    let with = |mut cdb: Vec<u8>, at: usize, byte: u8| {
        cdb[at] = byte;
        cdb
    };
    vec![
        (
            "COMPARE AND WRITE",
            with(cdb_16(0x89, 0, 0, 0), 13, 1),
            pair,
        ),
        ("WRITE(6)", vec![0x0a, 0, 0, 0, 1, 0], block.clone()),
        ("WRITE(10)", cdb_10(0x2a, 0, 0, 1), block.clone()),
        ("WRITE AND VERIFY(10)", cdb_10(0x2e, 2, 0, 1), block.clone()),
        ("WRITE SAME(10)", cdb_10(0x41, 0, 0, 9), block.clone()),
        ("UNMAP", cdb_10(0x42, 0, 0, 24), unmap_list(&[(0, 8)])),
        (
            "SANITIZE OVERWRITE",
            cdb_10(0x48, 1, 0, 8),
            vec![1, 0, 0, 4, 1, 2, 3, 4],
        ),
        ("SANITIZE BLOCK ERASE", cdb_10(0x48, 2, 0, 0), vec![]),
        (
            "SANITIZE EXIT FAILURE MODE",
            cdb_10(0x48, 0x1f, 0, 0),
            vec![],
        ),
        ("WRITE(16)", cdb_16(0x8a, 0, 0, 1), block.clone()),
        ("ORWRITE(16)", cdb_16(0x8b, 0, 0, 1), block.clone()),
        ("WRITE AND VERIFY(16)", cdb_16(0x8e, 2, 0, 1), block.clone()),
        ("WRITE SAME(16)", cdb_16(0x93, 0, 0, 9), block.clone()),
        (
            "WRITE ATOMIC(16)",
            with(cdb_16(0x9c, 0, 0, 0), 13, 1),
            block.clone(),
        ),
        ("WRITE(12)", cdb_12(0xaa, 0, 0, 1), block.clone()),
        ("WRITE AND VERIFY(12)", cdb_12(0xae, 2, 0, 1), block),
    ]
}

/// An UNMAP parameter list.
pub(super) fn unmap_list(ranges: &[(u64, u32)]) -> Vec<u8> {
    let length = u16::try_from(ranges.len() * 16).unwrap();
    let mut list = (length + 6).to_be_bytes().to_vec();
    list.extend(length.to_be_bytes());
    list.extend([0; 4]);
    for (lba, blocks) in ranges {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    list
}

#[tokio::test]
async fn every_row_has_a_vector_that_ends_with_good() {
    let bed = bed().await;
    for (name, cdb, data) in vectors() {
        let outcome = bed.run(&cdb, &data, 1 << 20).await;
        assert_eq!(outcome.status, Status::Good, "{name}: {outcome:?}");
        let row = row(name);
        assert_eq!(usize::from(row.cdb_bytes()), cdb.len(), "{name}");
        assert_eq!(row.opcode(), cdb[0], "{name}");
        // The vector sets no bit that the row does not look at.
        for (at, (byte, used)) in cdb.iter().zip(row.usage).enumerate().skip(1) {
            assert_eq!(byte & !used, 0, "{name}, byte {at}");
        }
        assert_eq!(outcome.data_out_bytes, data.len() as u64, "{name}");
        match row.moves {
            Moves::Out(Out::OneBlock) => {
                assert_eq!(data_out_bytes_max(&cdb, 512), data.len() as u64 + 1);
            }
            Moves::Nothing | Moves::In | Moves::Out(_) => {
                assert_eq!(data_out_bytes_max(&cdb, 512), data.len() as u64, "{name}");
            }
        }
        assert_eq!(outcome.data_in_bytes > 0, row.moves == Moves::In, "{name}");
    }
    let named: BTreeSet<&str> = vectors().iter().map(|(name, ..)| *name).collect();
    for row in TABLE {
        assert!(named.contains(row.name), "{} has no vector", row.name);
    }
    assert_eq!((named.len(), TABLE.len()), (48, 48));
}

fn row(name: &str) -> &'static Row {
    TABLE.iter().find(|row| row.name == name).unwrap()
}

#[test]
fn the_table_ascends() {
    let keys = TABLE.iter().map(|row| (row.opcode(), row.service_action));
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert!(vpd::TABLE.is_sorted_by(|a, b| a.code < b.code));
}

#[tokio::test]
async fn every_write_is_refused_on_a_protected_unit() {
    let options = crate::scsi::UnitOptions {
        is_write_protected: true,
        ..crate::scsi::UnitOptions::default()
    };
    let bed = bed_with(new_image("one"), options).await;
    let mut writes = 0;
    for (name, cdb, data) in vectors() {
        let outcome = bed.run(&cdb, &data, 1 << 20).await;
        if row(name).writes {
            assert_eq!(sense_of(&outcome), (7, 0x27, 0), "{name}");
            writes += 1;
        } else {
            assert_eq!(outcome.status, Status::Good, "{name}: {outcome:?}");
        }
    }
    assert_eq!(writes, 15);
    assert!(bed.read(0, 64).await.iter().all(|byte| *byte == 0));
    // MODE SENSE says so.
    assert_eq!(bed.data(&[0x1a, 0, 0x0a, 0, 255, 0]).await[2], 0x90);
}

#[tokio::test]
async fn unknown_commands_and_service_actions_are_told_apart() {
    let bed = bed().await;
    for opcode in [0x01, 0x04, 0x5e, 0x5f, 0x83, 0x84, 0x7f, 0xff, 0x43, 0x1e] {
        assert_eq!(bed.check(&[opcode; 1], b"").await, UNKNOWN, "{opcode:x}");
    }
    // REPORT TARGET PORT GROUPS and its SET are not there yet.
    for opcode in [0xa3, 0xa4] {
        assert_eq!(bed.check(&[opcode, 0x0a], b"").await, UNKNOWN);
    }
    for action in 0..0x20 {
        if ![0x10, 0x12].contains(&action) {
            assert_eq!(bed.check(&[0x9e, action], b"").await, INVALID_FIELD);
        }
        if ![1, 2, 0x1f].contains(&action) {
            assert_eq!(bed.check(&[0x48, action], b"").await, INVALID_FIELD);
        }
    }
}

#[tokio::test]
async fn the_naca_bit_is_refused_everywhere() {
    let bed = bed().await;
    for (name, mut cdb, data) in vectors() {
        *cdb.last_mut().unwrap() |= 0x04;
        assert_eq!(bed.check(&cdb, &data).await, INVALID_FIELD, "{name}");
    }
}

/// Descriptors of all commands: (operation code, service action, flags, CDB bytes).
fn descriptors(data: &[u8], bytes: usize) -> Vec<(u8, u16, u8, u16)> {
    let length = u32::from_be_bytes(*data.first_chunk().unwrap());
    assert_eq!(usize::try_from(length).unwrap(), data.len() - 4);
    let of = |row: &[u8]| {
        let word = |at: usize| u16::from_be_bytes([row[at], row[at + 1]]);
        (row[0], word(2), row[5], word(6))
    };
    data[4..].chunks_exact(bytes).map(of).collect()
}

#[tokio::test]
async fn all_supported_operation_codes_are_reported() {
    let bed = bed().await;
    let ask = |options: u8| {
        let mut cdb = cdb_12(0xa3, 0x0c, 0, 65_535);
        cdb[2] = options;
        cdb
    };
    let short = descriptors(&bed.data(&ask(0)).await, 8);
    let long = descriptors(&bed.data(&ask(0x80)).await, 20);
    assert_eq!((short.len(), long.len()), (TABLE.len(), TABLE.len()));
    for ((row, short), long) in TABLE.iter().zip(short).zip(long) {
        let has_action = u8::from(row.service_action.is_some());
        let action = row.service_action.unwrap_or(0).into();
        let bytes = row.cdb_bytes().into();
        assert_eq!(short, (row.opcode(), action, has_action, bytes));
        assert_eq!(long, (row.opcode(), action, has_action | 2, bytes));
    }
    let data = bed.data(&ask(0x80)).await;
    assert_eq!(data[12..16], [0, 10, 0, 0]);
    let mut cdb = ask(0);
    cdb[6..10].copy_from_slice(&[0, 0, 0, 6]);
    assert_eq!(bed.data(&cdb).await.len(), 6);
}

#[tokio::test]
async fn one_supported_operation_code_is_reported() {
    let bed = bed().await;
    let ask = |options: u8, opcode: u8, action: u8| {
        let mut cdb = cdb_12(0xa3, 0x0c, 0, 65_535);
        (cdb[2], cdb[3], cdb[5]) = (options, opcode, action);
        cdb
    };
    for row in TABLE {
        let action = row.service_action.unwrap_or(0);
        let (right, wrong) = match row.service_action {
            Some(_) => (2, 1),
            None => (1, 2),
        };
        for option in [right, 3] {
            let data = bed.data(&ask(option, row.opcode(), action)).await;
            let header = [0, 3, 0, row.cdb_bytes()];
            assert_eq!(data, [&header[..], row.usage].concat(), "{}", row.name);
        }
        let data = bed.data(&ask(right | 0x80, row.opcode(), action)).await;
        assert_eq!(data.len(), 4 + row.usage.len() + 12);
        assert_eq!(data[1], 0x83);
        let code = bed.check(&ask(wrong, row.opcode(), action), b"").await;
        assert_eq!(code, INVALID_FIELD, "{}", row.name);
    }
    for (option, opcode, action) in [(1, 0x5e, 0), (3, 0x83, 0), (2, 0x9e, 0x11), (3, 0x28, 1)] {
        let data = bed.data(&ask(option, opcode, action)).await;
        assert_eq!(data, [0, 1, 0, 0], "{opcode:x}");
    }
    assert_eq!(bed.check(&ask(4, 0x28, 0), b"").await, INVALID_FIELD);
}

#[tokio::test]
async fn task_management_functions_are_reported() {
    let bed = bed().await;
    let data = bed.data(&cdb_12(0xa3, 0x0d, 0, 252)).await;
    assert_eq!(data, [0xda, 0, 0, 0]);
    let mut cdb = cdb_12(0xa3, 0x0d, 0, 252);
    cdb[2] = 0x80;
    let data = bed.data(&cdb).await;
    assert_eq!((data.len(), data[3]), (16, 12));
}

/// A session takes no data in for a command that is refused for its length.
#[test]
fn the_data_out_buffer_is_bounded() {
    let all = u32::MAX;
    for (cdb, bytes) in [
        (cdb_16(0x8a, 0, 0, 32_768), 1 << 24),
        (cdb_16(0x8a, 0, 0, 32_769), 0),
        (cdb_16(0x8a, 0, 0, all), 0),
        (cdb_12(0xaa, 0, 0, all), 0),
        (cdb_16(0x93, 0, 0, all), 513),
        (cdb_16(0x93, 1, 0, all), 1),
        (cdb_16(0x8f, 2, 0, 8), 4_096),
        (cdb_16(0x8f, 6, 0, 8), 512),
        (cdb_16(0x8f, 0, 0, 8), 0),
        (cdb_16(0x89, 0, 0, 1), 1_024),
        (cdb_16(0x89, 0, 0, 2), 0),
        (cdb_16(0x88, 0, 0, 8), 0),
        (cdb_10(0x42, 0, 0, 0xffff), 65_535),
        (vec![0xff; 16], 0),
        (vec![], 0),
    ] {
        assert_eq!(data_out_bytes_max(&cdb, 512), bytes, "{cdb:02x?}");
    }
}

#[test]
fn every_row_and_page_is_documented() {
    let document = include_str!("../../../../docs/protocols/iscsi.md");
    for row in TABLE {
        let code = match row.service_action {
            Some(action) => format!("| {:02X}h/{action:02X}h | {} |", row.opcode(), row.name),
            None => format!("| {:02X}h | {} |", row.opcode(), row.name),
        };
        assert!(document.contains(&code), "no line starts with {code}");
    }
    for page in vpd::TABLE {
        let code = format!("| {:02X}h | {} |", page.code, page.name);
        assert!(document.contains(&code), "no line starts with {code}");
    }
}
