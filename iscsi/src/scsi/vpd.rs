//! Vital product data (SPC-5 7.7, SBC-4 6.6): one table of pages, one function for each.

use super::compare::atomic_bytes_max;
use super::inquiry::VENDOR;
use super::limits::{
    COMPARE_BLOCKS_MAX, TRANSFER_BYTES_MAX, TRANSFER_BYTES_OPTIMAL, UNMAP_BYTES_MAX,
    UNMAP_DESCRIPTORS_MAX, UNMAP_GRAIN_BYTES, WRITE_SAME_BYTES_MAX,
};
use super::task::Task;
use super::unit::{Unit, WriteCache};

/// One page.
#[derive(Debug)]
pub struct Page {
    pub code: u8,
    pub name: &'static str,
    /// What follows the 4 bytes of header.
    body: fn(&Task<'_>, &Unit) -> Vec<u8>,
}

/// In ascending order of codes, as the first page lists them.
pub static TABLE: &[Page] = &[
    Page {
        code: 0x00,
        name: "Supported VPD Pages",
        body: supported,
    },
    Page {
        code: 0x80,
        name: "Unit Serial Number",
        body: serial,
    },
    Page {
        code: 0x83,
        name: "Device Identification",
        body: identification,
    },
    Page {
        code: 0x86,
        name: "Extended INQUIRY Data",
        body: extended,
    },
    Page {
        code: 0xb0,
        name: "Block Limits",
        body: block_limits,
    },
    Page {
        code: 0xb1,
        name: "Block Device Characteristics",
        body: characteristics,
    },
    Page {
        code: 0xb2,
        name: "Logical Block Provisioning",
        body: provisioning,
    },
];

/// The page of this code; `None` if there is none, as for a LUN without a unit.
pub(super) fn page(task: &Task<'_>, code: u8) -> Option<Vec<u8>> {
    let unit = task.unit?;
    let page = TABLE.iter().find(|page| page.code == code)?;
    let body = (page.body)(task, unit);
    let length = u16::try_from(body.len()).expect("names are short");
    let [high, low] = length.to_be_bytes();
    let mut data = vec![0, code, high, low];
    data.extend_from_slice(&body);
    Some(data)
}

fn supported(_task: &Task<'_>, _unit: &Unit) -> Vec<u8> {
    TABLE.iter().map(|page| page.code).collect()
}

fn serial(_task: &Task<'_>, unit: &Unit) -> Vec<u8> {
    unit.image().identity().serial.clone().into_bytes()
}

/// What the designators name (SPC-5 table 445).
#[derive(Clone, Copy)]
enum Association {
    Unit,
    Port,
    Device,
}

/// Names that never change: of the unit NAA and T10 vendor id, of the port its number and its
/// group, the iSCSI names of port and target.
fn identification(task: &Task<'_>, unit: &Unit) -> Vec<u8> {
    const BINARY: u8 = 1;
    const ASCII: u8 = 2;
    const TEXT: u8 = 3;
    const GROUP: u16 = 1;
    let identity = unit.image().identity();
    let port = task.nexus.target_portal;
    let target = task.luns.target();
    let mut body = Vec::new();
    designator(&mut body, BINARY, Association::Unit, 3, &identity.naa.0);
    let vendor_id = [&VENDOR[..], identity.serial.as_bytes()].concat();
    designator(&mut body, ASCII, Association::Unit, 1, &vendor_id);
    let [high, low] = port.to_be_bytes();
    let number = [0, 0, high, low];
    designator(&mut body, BINARY, Association::Port, 4, &number);
    let [high, low] = GROUP.to_be_bytes();
    let group = [0, 0, high, low];
    designator(&mut body, BINARY, Association::Port, 5, &group);
    let name = text(&format!("{target},t,0x{port:04x}"));
    designator(&mut body, TEXT, Association::Port, 8, &name);
    designator(&mut body, TEXT, Association::Device, 8, &text(target));
    body
}

/// A SCSI name string: ended by NUL, filled to words (SPC-5 7.7.6.9).
fn text(name: &str) -> Vec<u8> {
    const BYTES_MAX: usize = 252;
    let mut bytes = name.as_bytes().to_vec();
    bytes.truncate(BYTES_MAX - 1);
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

fn designator(body: &mut Vec<u8>, code_set: u8, of: Association, kind: u8, name: &[u8]) {
    const ISCSI: u8 = 0x50;
    const PROTOCOL_VALID: u8 = 0x80;
    let association = match of {
        Association::Unit => 0x00,
        Association::Port => PROTOCOL_VALID | 0x10,
        Association::Device => PROTOCOL_VALID | 0x20,
    };
    let length = u8::try_from(name.len()).expect("names are short");
    body.extend_from_slice(&[ISCSI | code_set, association | kind, 0, length]);
    body.extend_from_slice(name);
}

fn extended(_task: &Task<'_>, unit: &Unit) -> Vec<u8> {
    const HEAD_OF_QUEUE_ORDERED_SIMPLE: u8 = 0x07;
    const VOLATILE: u8 = 0x01;
    const CLEARS_FOR_ALL_UNITS: u8 = 0x01;
    let is_volatile = unit.options().write_cache == WriteCache::On;
    let cache = if is_volatile { VOLATILE } else { 0 };
    let mut body = vec![0, HEAD_OF_QUEUE_ORDERED_SIMPLE, cache, CLEARS_FOR_ALL_UNITS];
    body.resize(60, 0);
    body
}

/// Everything in logical blocks.
fn block_limits(_task: &Task<'_>, unit: &Unit) -> Vec<u8> {
    const NO_ZERO_LENGTH: u8 = 0x01;
    const ALIGNMENT_VALID: u32 = 1 << 31;
    let blocks = |bytes: u64| {
        let blocks = bytes / u64::from(unit.block_bytes());
        u32::try_from(blocks).expect("limits are far below 32 bits of blocks")
    };
    let physical = blocks(u64::from(unit.options().physical_block_bytes));
    let granularity = u16::try_from(physical).unwrap_or(u16::MAX);
    let [high, low] = granularity.to_be_bytes();
    let mut body = vec![NO_ZERO_LENGTH, COMPARE_BLOCKS_MAX, high, low];
    for field in [
        blocks(TRANSFER_BYTES_MAX),
        blocks(TRANSFER_BYTES_OPTIMAL),
        // PRE-FETCH of any length.
        0,
        blocks(UNMAP_BYTES_MAX),
        UNMAP_DESCRIPTORS_MAX,
        blocks(UNMAP_GRAIN_BYTES),
        ALIGNMENT_VALID,
        // WRITE SAME, 8 bytes.
        0,
        blocks(WRITE_SAME_BYTES_MAX),
        blocks(atomic_bytes_max(&unit.image().layout())),
        // Atomic alignment and granularity: a block. No atomic boundaries.
        0,
        0,
        0,
        0,
    ] {
        body.extend_from_slice(&field.to_be_bytes());
    }
    body
}

fn characteristics(_task: &Task<'_>, _unit: &Unit) -> Vec<u8> {
    const NOT_ROTATING: [u8; 2] = [0, 1];
    /// After SANITIZE BLOCK ERASE blocks read as zeros, without an error.
    const READABLE_AFTER_ERASE: u8 = 0x40;
    let mut body = NOT_ROTATING.to_vec();
    body.extend_from_slice(&[0, READABLE_AFTER_ERASE]);
    body.resize(60, 0);
    body
}

fn provisioning(_task: &Task<'_>, _unit: &Unit) -> Vec<u8> {
    const UNMAP: u8 = 0x80;
    const WRITE_SAME_16: u8 = 0x40;
    const WRITE_SAME_10: u8 = 0x20;
    const READS_AS_ZEROS: u8 = 0x04;
    const THIN: u8 = 0x02;
    let supported = UNMAP | WRITE_SAME_16 | WRITE_SAME_10 | READS_AS_ZEROS;
    vec![0, supported, THIN, 0]
}
